"""Every case compiles with no spills and no local memory, for every target that compiles something of its own.

Many go to a compilation.
"""

from __future__ import annotations

import re

import pytest

from pykittens.errors import UnsupportedError
from pykittens.runtime import nvrtc
from pykittens.targets.cuda.program import header, text_of
from pykittens.targets.source import Source
from pykittens.targets.target import TARGETS
from tests.cases import CASES
from tests.cases.core import Case
from tests.targets import units
from tests.targets.turns import APART, BEFORE_HOPPER, are_one, is_in_turn

NAMES = list(CASES)
# Of those for a target before Hopper a half waits for its turn at another.
STEPS = {arch: units.PER_UNIT * (2 if arch in BEFORE_HOPPER else 1) for arch in TARGETS}
UNITS = [
    pytest.param(NAMES[i : i + step], arch, id=f"{NAMES[i]}-{arch}")
    for arch, step in STEPS.items()
    for i in range(0, len(NAMES), step)
]

needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def source(case: Case, arch: str) -> Source | None:
    """The program of a case; None where the target says that it cannot do it."""
    inputs, outputs = case.arrays()
    try:
        made = case.kernel.emitted(*inputs, *outputs, *case.scalars, arch=arch, **case.constants)
    except UnsupportedError:
        return None
    made.name = case.name
    return made


def code(made: Source) -> str:
    """What the compiler makes code of: cases that differ in numbers known at run time have the same."""
    return re.sub(r"^\s*(#line|//).*\n", "", made.program, flags=re.MULTILINE)


def waits(case: Case, arch: str) -> bool:
    """Whether a case is another target's to compile, which compiles the same."""
    if is_in_turn(case.name, arch):
        return False
    sources = [source(case, target) for target in BEFORE_HOPPER]
    return None not in sources and are_one(sources)


@needs_compiler
@pytest.mark.units
@pytest.mark.parametrize(("names", "arch"), UNITS)
def test_cases_compile_without_spills(names, arch):
    mine = (CASES[name] for name in names if not waits(CASES[name], arch))
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


def test_of_the_device_functions_only_the_packing_of_8_bit_floats_differs_before_hopper():
    (text,) = {header(TARGETS[arch]) for arch in BEFORE_HOPPER}
    oldest, newest = (10 * int(arch.removeprefix("sm_")) for arch in BEFORE_HOPPER)
    parts = re.findall(r"^#if (.*)\n([\s\S]*?)^#e", text + text_of("debug.cuh"), re.MULTILINE)
    assert parts
    differing = [
        name
        for condition, part in parts
        if oldest < int(re.fullmatch(r"__CUDA_ARCH__ >= (\d+)", condition)[1]) <= newest
        for name in re.findall(r"^DEVICE \w+ (\w+)\(", part, re.MULTILINE) or [part]
    ]
    assert tuple(differing) == APART


def test_no_device_function_packs_8_bit_floats_by_itself():
    """So a program that does names the function."""
    text = header(TARGETS[BEFORE_HOPPER[0]])
    for name in APART:
        assert text.count(name) == len(re.findall(rf"^DEVICE u32 {name}\(", text, re.MULTILINE))
