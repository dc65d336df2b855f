"""Random matrix products of gemm beside their exact results, with a guard around each array."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests import gemm_random
from tests.gemm_problems import Problem
from tools.soak.part import Part

LARGE = 5  # one seed in so many has extents up to 2000


def cases(seed: int, on_gpu: bool) -> SearchStrategy[Problem]:
    """Products; on a GPU all of a seed have one form, so that few programs are compiled."""
    sizes = st.randoms(use_true_random=False)
    forms = st.builds(random.Random, st.just(f"form {seed}")) if on_gpu else sizes
    large, numpy = seed % LARGE == 0, not on_gpu
    return st.builds(
        lambda form, sizes: gemm_random.product(form, sizes, large, numpy, on_gpu), forms, sizes
    )


def fault(problem: Problem, on_gpu: bool) -> str:
    """The fault of a product."""
    if not on_gpu:
        return gemm_random.fault_of(problem)
    from tests.gpu import test_cases

    return gemm_random.fault_of(problem, (test_cases.on_gpu, test_cases.on_host))


def simpler(problem: Problem) -> Iterator[Problem]:
    """The product without one of its parts, or with a smaller extent."""
    for field in fields(problem):
        value: Any = getattr(problem, field.name)
        if isinstance(value, dict):
            for name in value:
                less = {n: v for n, v in value.items() if n != name}
                yield replace(problem, **{field.name: less})
        elif field.default is MISSING:
            for n in {value // 2, value - value % 16} - {value, 0}:
                yield replace(problem, **{field.name: n})
        elif value != field.default:
            yield replace(problem, **{field.name: field.default})


PRODUCTS = Part(
    cases,
    fault,
    "from pykittens.kernels.gemm.config import Config\n"
    "from tests.gemm_problems import Layout, Problem",
    each=80,
    emulated=2_000,
    on_gpu=20_000,
    seconds=120,
    simpler=simpler,
)
