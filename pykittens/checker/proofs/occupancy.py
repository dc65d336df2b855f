"""Occupancy: the blocks of a kernel that a multiprocessor holds at once, and the resource that limits them.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": registers are given to warps, 256
at a time, and shared memory to blocks, 128 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pykittens.types.devices import DeviceSpec

WARP = 32
REGISTER_UNIT = 256  # of a warp
WARP_UNIT = 4  # a multiprocessor has four register files
SHARED_UNIT = 128


@dataclass(frozen=True)
class Load:
    """The resources of a block; registers: per thread at entry, None if the kernel is not compiled."""

    threads: int
    shared_bytes: int
    registers: int | None = None

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP)


@dataclass(frozen=True)
class Occupancy:
    """The most blocks that each resource of a multiprocessor allows."""

    device: DeviceSpec
    load: Load
    limits: Mapping[str, int]

    @property
    def blocks(self) -> int:
        """Blocks at once on a multiprocessor."""
        return min(self.limits.values())

    @property
    def limiting(self) -> tuple[str, ...]:
        """The resources that allow no more blocks."""
        return tuple(name for name, most in self.limits.items() if most == self.blocks)

    @property
    def warps(self) -> int:
        """Warps at once on a multiprocessor."""
        return self.blocks * self.load.warps


def occupancy(load: Load, device: DeviceSpec) -> Occupancy:
    """The number of blocks of this load that a multiprocessor of a device holds."""
    shared = -(-load.shared_bytes // SHARED_UNIT) * SHARED_UNIT + device.reserved_shared_bytes
    fits = load.shared_bytes <= device.shared_bytes_per_block
    limits = {
        "shared memory": device.shared_bytes_per_sm // shared if fits else 0,
        "threads": device.threads_per_sm // (load.warps * WARP),
        "blocks": device.max_blocks_per_sm,
    }
    if load.registers is not None:
        limits["registers"] = _by_registers(load.registers, load.warps, device)
    return Occupancy(device, load, limits)


def _by_registers(registers: int, warps: int, device: DeviceSpec) -> int:
    per_warp = max(-(-registers * WARP // REGISTER_UNIT), 1) * REGISTER_UNIT
    return device.registers_per_sm // per_warp // WARP_UNIT * WARP_UNIT // warps
