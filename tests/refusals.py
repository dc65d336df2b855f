"""What is refused, held against a pattern by its own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pykittens as pk


@contextmanager
def refused(pattern: str) -> Iterator[None]:
    """The block raises a KernelError whose sentence or help has the pattern.

    The whole text would not do: it shows the line of the test, which may hold the pattern itself.
    """
    with pytest.raises(pk.KernelError) as caught:
        yield
    told = f"{caught.value.message}\n{caught.value.help or ''}"
    assert re.search(pattern, told), told
