"""Every case compiles for every target, with no spills and no local memory; many to a compilation."""

from __future__ import annotations

import pytest

from pykittens.errors import UnsupportedError
from pykittens.runtime import nvrtc
from pykittens.targets.source import Source
from pykittens.targets.target import TARGETS
from tests.cases import CASES
from tests.cases.core import Case
from tests.targets import units

NAMES = list(CASES)
UNITS = [NAMES[i : i + units.PER_UNIT] for i in range(0, len(NAMES), units.PER_UNIT)]

pytestmark = [
    pytest.mark.units,
    pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available())),
]


def source(case: Case, arch: str) -> Source | None:
    """The program of a case; None where the target says that it cannot do it."""
    inputs, outputs = case.arrays()
    try:
        made = case.kernel.emitted(*inputs, *outputs, *case.scalars, arch=arch, **case.constants)
    except UnsupportedError:
        return None
    made.name = case.name
    return made


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("names", UNITS, ids=lambda names: names[0])
def test_cases_compile_without_spills(names, arch):
    sources = [s for name in names if (s := source(CASES[name], arch)) is not None]
    if sources:
        assert units.faults(sources, arch) == []
