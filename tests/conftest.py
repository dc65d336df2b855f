"""What all tests share: golden files, and the mark for tests that need a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pykittens.cli.arguments import load
from pykittens.runtime import driver, nvrtc

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parent.parent / "examples"
HOPPER = (9, 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
    parser.addoption(
        "--first", type=int, default=0, help="the number of the first of the random matrix products"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_hopper() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


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
        assert text == path.read_text(encoding="utf-8"), (
            f"not as in {path}; if it should be, `make golden`"
        )

    return check


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """`example("06_matmul")` is that example as a module."""

    return functools.cache(lambda stem: load(EXAMPLES / f"{stem}.py"))
