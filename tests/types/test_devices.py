"""The figures of devices agree with one another and with the limits of the targets."""

from __future__ import annotations

import pytest

from pykittens.targets.architectures import TARGETS
from pykittens.types.devices import DEVICES


@pytest.mark.parametrize("device", DEVICES.values(), ids=str)
def test_a_block_can_have_what_its_target_says(device):
    assert device.shared_bytes_per_block == TARGETS[device.arch].shared_bytes
    assert device.registers_per_sm == TARGETS[device.arch].registers


@pytest.mark.parametrize("device", DEVICES.values(), ids=str)
def test_a_multiprocessor_holds_the_largest_block_once(device):
    needed = device.shared_bytes_per_block + device.reserved_shared_bytes
    assert needed <= device.shared_bytes_per_sm < 2 * needed
    assert device.threads_per_sm >= 1024


def test_a_device_is_found_by_its_name():
    assert all(DEVICES[d.name] is d for d in DEVICES.values())
    assert len(DEVICES) == 5
