"""Every case compiles with no spills and no local memory, for every target whose program differs.

Many go to a compilation.
"""

from __future__ import annotations

import functools

import pytest

from pykittens.errors import UnsupportedError
from pykittens.runtime import nvrtc
from pykittens.targets.architectures import TARGETS
from pykittens.targets.source import Source
from tests.cases import CASES
from tests.cases.core import Case
from tests.targets import units
from tests.targets.assignment import BEFORE_HOPPER, code, compile_alike, is_assigned

NAMES = list(CASES)
# Of those for a target before Hopper a half or more wait for their turn at another.
STEPS = {arch: units.PER_UNIT * (2 if arch in BEFORE_HOPPER else 1) for arch in TARGETS}
# Units of the same cases for all targets follow one another, so that `source_of` and `alike` remember them.
UNITS = [
    pytest.param(NAMES[i : i + step], arch, id=f"{NAMES[i]}-{arch}")
    for first in range(0, len(NAMES), max(STEPS.values()))
    for arch, step in STEPS.items()
    for i in range(first, min(first + max(STEPS.values()), len(NAMES)), step)
]
REMEMBERED = len(TARGETS) * 2 * max(STEPS.values())

needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def source(case: Case, arch: str) -> Source | None:
    """The program of a case; None if the target does not support it."""
    return source_of(case.name, arch)


@functools.lru_cache(REMEMBERED)
def source_of(name: str, arch: str) -> Source | None:
    """The program of the case of a name; None if the target does not support it."""
    case = CASES[name]
    inputs, outputs = case.arrays()
    try:
        made = case.kernel.emitted(*inputs, *outputs, *case.scalars, arch=arch, **case.constants)
    except UnsupportedError:
        return None
    made.name = case.name
    return made


def is_skipped(case: Case, arch: str) -> bool:
    """Whether another target compiles the same program of a case: Hopper, or the other one before Hopper."""
    if is_assigned(case.name, arch, shares=4):
        return False
    return alike(case.name, tuple(TARGETS)) or (
        not is_assigned(case.name, arch) and alike(case.name, BEFORE_HOPPER)
    )


@functools.lru_cache(REMEMBERED)
def alike(name: str, targets: tuple[str, ...]) -> bool:
    """Whether the programs of a case for these targets are the same to the compiler."""
    return compile_alike({target: source_of(name, target) for target in targets})


@needs_compiler
@pytest.mark.units
@pytest.mark.parametrize(("names", "arch"), UNITS)
def test_cases_compile_without_spills(names, arch):
    mine = (CASES[name] for name in names if not is_skipped(CASES[name], arch))
    sources = {code(s): s for case in mine if (s := source(case, arch)) is not None}
    if sources:
        assert units.faults(list(sources.values()), arch) == []


@needs_compiler
@pytest.mark.soak
@pytest.mark.parametrize("arch", BEFORE_HOPPER)
@pytest.mark.parametrize("start", range(0, len(NAMES), units.PER_UNIT))
def test_every_case_compiles_without_spills_for_every_target(start, arch):
    cases = [CASES[name] for name in NAMES[start : start + units.PER_UNIT]]
    sources = [s for case in cases if (s := source(case, arch)) is not None]
    if sources:
        assert units.faults(sources, arch) == []


@pytest.mark.parametrize(
    ("name", "first", "second", "one"),
    [
        ("map-arithmetic-f32-64x48", "sm_80", "sm_90a", True),
        ("map-arithmetic-e4m3-64x16", "sm_80", "sm_89", False),  # packs 8-bit floats
        ("map-arithmetic-e4m3-64x16", "sm_89", "sm_90a", True),
        ("atomic-add-f32-64x48", "sm_80", "sm_89", True),
        ("atomic-add-f32-64x48", "sm_80", "sm_90a", False),  # adds two numbers at once
        ("by_hand-ring-bf16-320x64", "sm_80", "sm_89", True),
        ("by_hand-ring-bf16-320x64", "sm_80", "sm_90a", False),  # waits at a barrier
    ],
)
def test_targets_that_read_other_device_functions_do_not_compile_for_one_another(
    name, first, second, one
):
    assert compile_alike({arch: source(CASES[name], arch) for arch in (first, second)}) is one


def test_each_target_that_cannot_do_a_case_is_no_other():
    products = [name for name in NAMES if name.startswith("mma-")]
    name = next(name for name in products if source_of(name, "sm_80") is None)
    assert not alike(name, tuple(TARGETS))
