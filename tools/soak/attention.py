"""Random calls of attention and of its gradients against float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests import attention_random
from tests.attention_random import LENGTHS, AttentionProblem
from tools.soak.part import Part

LONGER = (*LENGTHS, 500, 1000)


def cases(seed: int, on_gpu: bool) -> SearchStrategy[AttentionProblem]:
    """Problems; longer on a GPU."""
    lengths = LONGER if on_gpu else LENGTHS
    drawn = st.randoms(use_true_random=False)
    return st.builds(lambda rng: attention_random.problem(rng, lengths), drawn)


def fault(problem: AttentionProblem, on_gpu: bool) -> str:
    """The fault of a problem."""
    memory = None
    if on_gpu:
        from tests.gpu import test_cases

        memory = (test_cases.on_gpu, test_cases.on_host)
    try:
        attention_random.check_problem(problem, memory)
    except AssertionError as wrong:
        return f"wrong: {wrong}"
    return ""


def simpler(problem: AttentionProblem) -> Iterator[AttentionProblem]:
    """The problem without one of its options, or with a smaller extent."""
    for field in fields(problem):
        value: Any = getattr(problem, field.name)
        if field.default is not MISSING:
            if value != field.default:
                yield replace(problem, **{field.name: field.default})
        elif value > 1:
            yield replace(problem, **{field.name: value // 2})


ATTENTION = Part(
    cases,
    fault,
    "from tests.attention_random import AttentionProblem",
    each=40,
    emulated=1_000,
    on_gpu=10_000,
    seconds=120,
    simpler=simpler,
)
