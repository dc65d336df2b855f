"""What all tests share: golden files, the mark for tests that need a GPU, and the quick tier."""

from __future__ import annotations

import functools
import gc
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from pykittens.cli.arguments import load
from pykittens.runtime import driver, nvrtc

try:
    from hypothesis import settings
except ImportError:  # a machine with a GPU may lack it
    pass
else:
    # A case takes several times as long on a slow or busy machine.
    settings.register_profile("any machine", deadline=None)
    settings.load_profile("any machine")

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parent.parent / "examples"
HOPPER = (9, 0)
QUICK_CASES = 2  # of each test
# Objects made, and collections of each generation, before the next older one is searched for cycles.
COLLECTED_AFTER = 20_000, 20, 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
    parser.addoption(
        "--quick",
        action="store_true",
        help="two cases of each test, none that compiles or starts a program",
    )
    parser.addoption(
        "--first", type=int, default=0, help="the number of the first of the random matrix products"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests, which stay to the end, out of searches for cycles: they took a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        gc.enable()


@pytest.hookimpl(trylast=True)  # after other tiers have been deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        known: Counter[str] = Counter()
        kept, left = [], []
        for item in items:
            test = item.nodeid.partition("[")[0]
            known[test] += 1
            (kept if known[test] <= QUICK_CASES else left).append(item)
        config.hook.pytest_deselected(items=left)
        items[:] = kept
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_hopper() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the quick tier, skips a test as soon as it compiles or starts a program."""

    def skip(*_: object, **__: object) -> NoReturn:
        pytest.skip("the quick tier neither compiles nor starts a program")

    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--quick"):
            patch.setattr(nvrtc, "compile", skip)
            patch.setattr(subprocess.Popen, "__init__", skip)
        yield


def no_hopper() -> str | None:
    """Why kernels cannot run on a GPU here, None if they can."""
    missing = driver.available() or nvrtc.available()
    if missing is not None:
        return missing
    device = driver.device(0)
    return None if device.capability == HOPPER else f"{device.name} is no Hopper GPU"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` holds a text against tests/golden/<name>; --update-golden writes it instead."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; `make golden` writes it"
        assert compared(text) == compared(path.read_text(encoding="utf-8")), (
            f"not as in {path}; if it should be, `make golden`"
        )

    return check


def compared(text: str) -> str:
    """The part of a golden text that is the same for each Python.

    From 3.13 on a `with` and a comprehension are marked by their first expression, where older ones mark all of them.
    """
    return re.sub(r"^ *\^+\n", "", text, flags=re.M) if sys.version_info >= (3, 13) else text


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """`example("06_matmul")` is that example as a module."""

    return functools.cache(lambda stem: load(EXAMPLES / f"{stem}.py"))
