"""The limits of a GPU, and the configurations that fit them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pykittens import settings
from pykittens.errors import ResourceError
from pykittens.runtime import driver
from pykittens.runtime.arrays import describe
from pykittens.runtime.kernel import DEFAULT_ARCH
from pykittens.targets.architectures import TARGETS, target_for
from pykittens.types.devices import H200

C = TypeVar("C")


@dataclass(frozen=True)
class Limits:
    """The limits of a GPU for the programs of its target.

    shared_bytes: the most shared memory of a block. warpgroups: whether the warps of a warpgroup multiply together.
    multiprocessors: their number; l2_bytes: the size of the L2 cache; memory_rate: bytes per second of the memory by
    its data sheet; those of an H200 if there is no GPU.
    """

    target: str
    shared_bytes: int
    warpgroups: bool
    multiprocessors: int = H200.sms
    l2_bytes: int = H200.l2_bytes
    memory_rate: float = H200.hbm_bytes_per_second


def limits_of(array: Any) -> Limits:
    """The limits of the GPU that holds an array; those of Hopper for an array of the CPU."""
    found = describe(array)
    ordinal = -1 if found is None or isinstance(found.device, str) else found.device[1]
    return _limits(ordinal, settings.target())


@functools.cache
def _limits(ordinal: int, chosen: str) -> Limits:
    if ordinal < 0:
        target = target_for(chosen if chosen in TARGETS else DEFAULT_ARCH, chosen)
        return Limits(target.name, target.shared_bytes, target.warpgroups)
    device = driver.device(ordinal)
    target = target_for(device.arch, chosen)
    shared_bytes = min(target.shared_bytes, device.shared_bytes_per_block_optin)
    sizes = device.multiprocessors, device.l2_bytes, device.memory_rate
    return Limits(target.name, shared_bytes, target.warpgroups, *sizes)


def first_that_fits(
    name: str, configs: Sequence[C], shared_bytes: Callable[[C], int], limits: Limits
) -> C:
    """The first configuration whose shared memory fits a block; a ResourceError if there is none."""
    for config in configs:
        if shared_bytes(config) <= limits.shared_bytes:
            return config
    least = min(map(shared_bytes, configs), default=None)
    why = (
        "there is none for its products"
        if least is None
        else f"the smallest takes {least} bytes of shared memory a block, and there are {limits.shared_bytes}"
    )
    raise ResourceError(
        f"{name}: no configuration fits {limits.target}: {why}",
        help="the emulator runs it: pass arrays of the CPU",
    )
