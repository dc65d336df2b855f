"""Every case, example and kernel of the library compiles with older releases of NVRTC, which `make compilers` installs.

PyTorch brings some of them. One of six programs is compiled, with the releases in turn; all is in the soak.
Spills are not looked for: the release that the package installs decides about these.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykittens.errors import ResourceError
from pykittens.runtime import nvrtc, releases
from pykittens.targets.architectures import TARGETS
from pykittens.targets.source import Source
from tests.cases import CASES
from tests.targets import test_cases, test_compile, units
from tests.targets.compiling import CASES as KERNELS

FOLDER = Path(os.environ.get("COMPILERS", Path(sys.prefix, "compilers")))
LIBRARIES = {path.parents[3].name: path for path in FOLDER.glob("*/nvidia/*/lib/libnvrtc.so.1?")}

pytestmark = [
    pytest.mark.compilers,
    pytest.mark.skipif(not LIBRARIES, reason="`make compilers` installs the releases"),
]


@pytest.fixture
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile with another release of NVRTC."""
    remembered = (releases.releases, releases.chosen, nvrtc.architectures, nvrtc.identity)
    monkeypatch.setenv("PYKITTENS_NVRTC", str(LIBRARIES[request.param]))
    for each in remembered:
        each.cache_clear()
    assert request.param.startswith(".".join(map(str, nvrtc.version())))
    yield
    for each in remembered:
        each.cache_clear()


def kernels() -> dict[str, list[str]]:
    """The kernels by target; a program that another target compiles, too, is left out."""
    found: dict[str, list[str]] = {}
    for name, case in KERNELS.items():
        for arch in case.targets:
            if not test_compile.is_skipped(name, arch):
                found.setdefault(arch, []).append(name)
    return found


def spread(names: list[str], arch: str, most: int) -> list[Any]:
    """Units of at most so many names, which are far from one another: neighbours are of one kind."""
    count = -(-len(names) // most)
    return [pytest.param(names[i::count], arch, id=f"{names[i]}-{arch}") for i in range(count)]


UNITS = [unit for arch, names in kernels().items() for unit in spread(names, arch, 6)]
CASE_UNITS = [unit for arch in TARGETS for unit in spread([*CASES], arch, test_cases.STEPS[arch])]


def in_turn(units: list[Any]) -> pytest.MarkDecorator:
    """Parameters of a test: one of six units, with the releases in turn; what is left is in the soak."""
    found = sorted(LIBRARIES) or ["none"]
    return pytest.mark.parametrize(
        ("release", "names", "arch"),
        [
            pytest.param(
                name,
                *unit.values,
                marks=() if i % (6 * len(found)) == 6 * j else pytest.mark.soak,
                id=f"{name}-{unit.id}",
            )
            for i, unit in enumerate(units)
            for j, name in enumerate(found)
        ],
        indirect=["release"],
    )


@functools.cache
def kernel_source(name: str, arch: str) -> Source | None:
    """The program of a kernel; None if the target lacks shared memory for it."""
    case = KERNELS[name]
    try:
        return case.kernel.emitted(*case.args, arch=arch, **case.constants)
    except ResourceError:
        return None


@functools.cache
def case_source(name: str, arch: str) -> Source | None:
    """The program of a case; None if another target compiles it, or if this one does not support it."""
    skipped = test_cases.is_skipped(CASES[name], arch)
    return None if skipped else test_cases.source(CASES[name], arch)


def compile_together(sources: list[Source | None], arch: str) -> None:
    mine = {test_cases.code(s): s for s in sources if s is not None}
    if mine:
        nvrtc.compile(units.unit(list(mine.values())), arch, "unit")


@in_turn(UNITS)
def test_kernels_compile(release, names, arch):
    compile_together([kernel_source(name, arch) for name in names], arch)


@in_turn(CASE_UNITS)
def test_cases_compile(release, names, arch):
    compile_together([case_source(name, arch) for name in names], arch)
