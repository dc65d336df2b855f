"""The small cases of the kernels of the library, which the emulator runs in a moment."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.library import Entry

MOST = 100_000  # the product of the sizes of a case


def sizes(case: dict[str, Any]) -> list[int]:
    """The sizes of a case, without its flags and names."""
    return [v for v in case.values() if isinstance(v, int) and not isinstance(v, bool)]


def small_cases(entry: Entry) -> list[dict[str, Any]]:
    """The small cases of a kernel, of which each has one at least."""
    found = [case for case in entry.cases if np.prod(sizes(case)) <= MOST]
    assert found, f"{entry.name} has no case that the emulator runs in a moment"
    return found
