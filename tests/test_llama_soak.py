"""benchmarks/llama_soak.py: it counts steps, and the replays in which a token is another."""

from __future__ import annotations

import inspect

import pytest

from tests.benches import program
from tests.test_llama_benchmark import SMALL

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_the_replay_in_which_a_token_changes_is_counted(monkeypatch):
    soak, replays = program("llama_soak", monkeypatch), []
    monkeypatch.setattr(soak, "PROMPT", 2)
    clock = iter(range(100))
    monkeypatch.setattr(soak.time, "monotonic", lambda: next(clock))

    def graph(step, count):
        def replay():
            for _ in range(count):
                step()
            replays.append(count)
            if len(replays) == 2:
                inspect.getclosurevars(step).nonlocals["chosen"][0] += 1

        return replay

    found = soak.soaked(SMALL, 4, 2, graph, "cpu")
    assert found == {"steps": 2 * len(replays), "changed": 1}
    assert len(replays) == 3
