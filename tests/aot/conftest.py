"""What the tests of C launchers share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.aot.programs import CLauncher
from tests.runtime.c_programs import compiled
from tests.runtime.conftest import log
from tests.runtime.fake_gpu import fake

__all__ = ["fake", "log"]


@pytest.fixture(scope="session")
def launchers(fake: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CLauncher]:
    """`launchers(kernel, *args, **constants)` is the C launcher for these, built once."""
    built: dict[Any, CLauncher] = {}

    def launcher(kernel: Any, *args: Any, **constants: Any) -> CLauncher:
        made = compiled(kernel, *args, **constants)
        if made.kernel not in built:
            built[made.kernel] = CLauncher(made, tmp_path_factory.mktemp("c"), fake)
        return built[made.kernel]

    return launcher
