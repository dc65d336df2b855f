"""What the tests of launching share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykittens.runtime import driver
from pykittens.runtime.driver import Device


@pytest.fixture
def gpu() -> Iterator[Device]:
    device = driver.device(0)
    with device.current():
        yield device
