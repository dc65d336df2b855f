"""The search for faults runs every part, makes a case that fails smaller, and writes a file that runs it again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from pykittens.errors import ResourceError
from tools.soak import part
from tools.soak.part import Part
from tools.watched import HANGS, KILLED, Worker

ROOT = Path(__file__).resolve().parents[1]
NEEDS_TORCH = ("calls", "threads", *part.SEQUENCES)
LISTS = st.lists(st.integers(0, 100), max_size=20)


def large(case, on_gpu):
    """Lists with a number above 50 are wrong, and those with more than two below 10 in another way."""
    if sum(x < 10 for x in case) > 2:
        return "small: there are three"
    return f"large: {max(case)}" if case and max(case) > 50 else ""


PLANTED = Part(lambda seed, on_gpu: LISTS, large, "", each=100, emulated=100, on_gpu=100)


class Here:
    """A worker that needs no process."""

    def fault(self, task, seconds):
        return part.fault_of(task)


def planted(monkeypatch, made=PLANTED):
    monkeypatch.setattr(part, "part", lambda name: made)
    monkeypatch.setattr(part, "_worker", Here)


def test_a_case_that_fails_is_made_smaller_while_its_fault_is_of_that_kind(monkeypatch):
    planted(monkeypatch)
    founds = [part.search("planted", seed, False) for seed in range(5)]
    assert {found.case for found in founds} <= {"[51]", "[0, 0, 0]"}
    assert "[51]" in {found.case for found in founds}
    assert all(found.fault.startswith(("large", "small")) for found in founds)


def test_simpler_cases_of_a_part_are_tried_as_well(monkeypatch):
    made = Part(
        lambda seed, on_gpu: st.just([7, 60, 8]),
        large,
        "",
        each=5,
        emulated=5,
        on_gpu=5,
        simpler=lambda case: ([x for x in case if x != y] for y in case),
    )
    planted(monkeypatch, made)
    assert part.search("planted", 1, False).case == "[60]"


def test_a_seed_has_the_same_cases_each_time(monkeypatch):
    seen = []

    def fault(case, on_gpu):
        seen.append(case)
        return ""

    planted(monkeypatch, Part(lambda seed, on_gpu: LISTS, fault, "", 30, 30, 30))
    found = part.search("planted", 3, False)
    first = list(seen)
    assert (found.cases, found.fault) == (len(first), "")
    part.search("planted", 3, False)
    assert seen == first * 2
    seen.clear()
    part.search("planted", 4, False)
    assert seen != first


def test_a_case_for_which_a_gpu_has_too_little_is_counted_and_is_no_fault(monkeypatch):
    def fault(case, on_gpu):
        if len(case) > 3:
            raise ResourceError("too many registers")
        return ""

    planted(monkeypatch, replace(PLANTED, fault=fault))
    found = part.search("planted", 1, False)
    assert 0 < found.refused < found.cases == PLANTED.each
    assert found.fault == ""


@pytest.mark.parametrize("name", part.NAMES)
def test_the_text_of_a_case_is_the_case(name):
    if name in NEEDS_TORCH:
        pytest.importorskip("torch")
    made = part.part(name)
    cases = []
    part.each_case(replace(made, each=5), 1, False, cases.append)
    assert len(cases) >= 5
    for case in cases:
        assert repr(made.case(repr(case))) == repr(case)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("tiles", "Program(f32, 1, 16, 16, (('add', (0, 1)),))"),
        ("products", "Problem(5, 7, 33)"),
        ("attention", "AttentionProblem(1, 1, 2, 17, 30, 2, 1, causal='bottom_right')"),
        (
            "linear",
            "LinearProblem(1, 2, 1, 17, 16, 24, 'head', 1.0, True, True, False, lengths=(0, 17))",
        ),
        ("calls", "(Call('scaled', 0, 1, 2, -0.0), Call('gemm', 0, 1, 2, nan))"),
        ("threads", "((Call('upper', 0, 1, 2, 1.0),), (Call('upper', 0, 1, 2, 1.0),))"),
    ],
)
def test_a_case_runs_from_its_text(name, case):
    if name in NEEDS_TORCH:
        pytest.importorskip("torch")
    assert part.fault_of((name, case, False)) == ""


def test_a_wrong_result_is_a_fault(monkeypatch):
    pytest.importorskip("torch")
    from tools.soak import calls

    monkeypatch.setattr(calls, "_times", lambda x, factor: x)
    fault = part.fault_of(("calls", "(Call('scaled', 0, 1, 2, 2.0),)", False))
    assert fault.startswith("wrong: ")
    assert "at the end" in fault


def test_the_file_of_a_case_runs_it_again(tmp_path):
    case = "(Call('unknown', 0, 1, 2, 2.0),)"
    found = part.Found(7, case=case, fault='KeyError: """ no such kernel')
    path = part.written("calls", found, False, tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("KeyError: 'unknown'", 0), done.stderr


# -- processes that may be lost ----------------------------------------------------------------------


def task_fault(task):
    """Hangs, dies or fails as it is told."""
    if task == "hang":
        time.sleep(60)
    if task == "die":
        os._exit(1)
    return "" if task == "right" else f"wrong: {task} by {os.getpid()}"


def test_a_task_that_hangs_or_kills_its_process_is_named_and_the_next_runs():
    worker = Worker(task_fault)
    first = worker.fault("x", 60)
    assert worker.fault("y", 60).partition(" by ")[2] == first.partition(" by ")[2]
    assert worker.fault("hang", 0.5) == HANGS
    assert worker.fault("right", 60) == ""
    assert worker.fault("die", 60) == KILLED
    assert worker.fault("x", 60).partition(" by ")[2] != first.partition(" by ")[2]
    worker.stop()
