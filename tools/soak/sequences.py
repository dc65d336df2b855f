"""Random calls of the operators along sequences, with all gradients, against float64."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from hypothesis import strategies as st

from pykittens.torch import gated_delta_rule
from tests import (
    based_random,
    conv_random,
    delta_random,
    hedgehog_random,
    linear_random,
    long_conv_random,
    mamba2_random,
)
from tools.soak.part import Part

SHORT = 200  # positions that the emulator takes in a moment


def simpler(problem: Any) -> Iterator[Any]:
    """The problem without one of its options."""
    for field in fields(problem):
        value = getattr(problem, field.name)
        if isinstance(value, bool) and value:
            yield replace(problem, **{field.name: False})


def of(name: str, problem: Callable[..., Any], check: Callable[..., None], kind: type) -> Part:
    """A part of problems of a class; `check` raises if one is wrong. name: of the module with the class."""

    def cases(seed: int, on_gpu: bool) -> Any:
        drawn = st.integers(0, 2**64 - 1).map(random.Random)
        if not on_gpu:
            return st.builds(lambda rng: problem(rng, longest=SHORT), drawn)
        # Calls of one form share their kernels, whose compilation takes longer than the calls.
        form = problem(random.Random(seed))
        return st.builds(lambda rng: of_sizes(form, problem(rng), rng), drawn)

    def fault(case: Any, on_gpu: bool) -> str:
        torch.manual_seed(random.Random(repr(case)).randrange(2**31))
        try:
            check(case, "cuda" if on_gpu else "cpu")
        except AssertionError as wrong:
            return f"wrong: {wrong}"
        return ""

    imports = f"import torch\nfrom tests.{name} import {kind.__name__}"
    return Part(
        *(cases, fault, imports), each=50, emulated=100, on_gpu=1000, seconds=120, simpler=simpler
    )


def of_sizes(form: Any, other: Any, rng: random.Random) -> Any:
    """A call of a form with the batches and heads of another, of as many positions or fewer; of a long convolution, the
    other itself.
    """
    if isinstance(form, long_conv_random.ConvProblem):
        return other
    n = rng.choice((other.n, rng.randint(1, other.n)))
    found = replace(form, n=n, batch=1 if form.lengths else other.batch)
    if groups := getattr(other, "groups", 0):
        found = replace(found, groups=groups, heads=form.heads // form.groups * groups)
    elif hasattr(form, "heads"):
        found = replace(found, heads=other.heads)
    if getattr(form, "gates", 0):
        found = replace(found, gates=form.gates // form.groups * groups)
    if not form.lengths:
        return found
    if isinstance(form, conv_random.ConvProblem):
        return replace(found, lengths=linear_random.some_lengths(rng, n))
    return linear_random.with_lengths(rng, replace(found, first=0))


def gated(rng: random.Random, **how: Any) -> Any:
    """A problem with a gate for each channel."""
    return linear_random.of_channels(rng, linear_random.problem(rng, **how))


def check_delta(case: Any, device: str) -> None:
    """Raise unless the gated delta rule is right."""
    delta_random.check(case, device, gated_delta_rule)


def long_sequences(rng: random.Random, longest: int = 2**15) -> Any:
    """Convolutions in one launch of up to 32768 positions, of many sequences unless they are emulated."""
    return long_conv_random.problem(rng, longest, 2**17 if longest <= SHORT else 2**22)


_linear = linear_random.LinearProblem
LINEAR = of("linear_random", linear_random.problem, linear_random.check, _linear)
MAMBA2 = of(
    *("mamba2_random", mamba2_random.problem, mamba2_random.check),
    mamba2_random.Mamba2Problem,
)
GATED = of("linear_random", gated, linear_random.check, _linear)
DELTA = of("linear_random", delta_random.problem, check_delta, _linear)
BASED = of("based_random", based_random.problem, based_random.check, based_random.BasedProblem)
HEDGEHOG = of(
    *("hedgehog_random", hedgehog_random.problem, hedgehog_random.check),
    hedgehog_random.HedgehogProblem,
)
CONV = of("conv_random", conv_random.problem, conv_random.check, conv_random.ConvProblem)
LONG_CONV = of(
    *("long_conv_random", long_sequences, long_conv_random.check),
    long_conv_random.ConvProblem,
)
