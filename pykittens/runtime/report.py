"""The debug report, which a GPU writes to host memory when a check stops a launch.

The memory is pinned and mapped to the device, so it can still be read after the trap has ended the kernel and the
context. Its layout is `Report` in targets/cuda/debug.cuh.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from pykittens import settings
from pykittens.errors import AccessError, AssertError, DeadlockError, KernelError
from pykittens.runtime import driver
from pykittens.targets.source import Site, Source

_HEAD = struct.Struct("<4I7q")  # written, site, block, thread; numbers
_STANDING = struct.Struct("<8i")  # a site and numbers
_GROUPS = 32
BYTES = _HEAD.size + _GROUPS * _STANDING.size
_RUNS, _HAS_ENDED = 0, -1

AFTERWARDS = "the kernel was stopped by a trap, after which this process cannot use the GPU"
WARP = 32


@dataclass(frozen=True)
class Stop:
    """The report of the thread that stopped the kernel. standing: a site and its numbers for each group."""

    site: int
    block: int
    thread: int
    numbers: tuple[int, ...]
    standing: tuple[tuple[int, ...], ...]


class Report:
    """The memory to which a GPU writes its report; hold `lock` while a launch may write it."""

    def __init__(self, ordinal: int) -> None:
        self.lock = threading.Lock()
        self.host, self.address = driver.mapped_memory(ordinal, BYTES)

    def clear(self) -> None:
        """Erase the report."""
        ctypes.memset(self.host, 0, BYTES)

    def read(self) -> Stop | None:
        """The report, None if no check stopped a launch."""
        return decoded(ctypes.string_at(self.host, BYTES))


@functools.cache
def report_of(ordinal: int) -> Report:
    """The Report of a GPU; the same object for each call."""
    return Report(ordinal)


def decoded(data: bytes) -> Stop | None:
    """The decoded bytes of a report, None if none was written."""
    written, site, block, thread, *numbers = _HEAD.unpack_from(data)
    if not written:
        return None
    standing = tuple(_STANDING.iter_unpack(data[_HEAD.size : BYTES]))
    return Stop(site, block, thread, tuple(numbers), standing)


def error_of(stop: Stop, source: Source, shapes: Mapping[str, tuple[int, ...]]) -> KernelError:
    """The error that a report describes; `shapes` are the shapes of the tensors, by name."""
    assert source.sites is not None, "this program was not emitted for debugging"
    site = source.sites[stop.site]
    number, group = _group(stop.thread, source)
    who: dict[str, object] = {"block": stop.block}
    operands = {**who, "group": group} if group not in ("", "block") else who
    match site.kind:
        case "wait":
            return _deadlock(stop, source, number)
        case "access":
            text = site.text.format(*stop.numbers, shape=shapes.get(site.tensor))
            help = f"{site.help}; {AFTERWARDS}" if site.help else AFTERWARDS
            return AccessError(text, operands=operands, loc=site.loc, help=help)
        case "assert":
            place = stop.numbers[: site.count]
            at = {"fails at": f"[{', '.join(map(str, place))}]"} if place else {}
            text = site.text.format(*stop.numbers)
            return AssertError(text, operands={**at, **operands}, loc=site.loc, help=AFTERWARDS)


def _deadlock(stop: Stop, source: Source, number: int | None) -> DeadlockError:
    """The error of a wait that took too long, with the current line of every group of the block."""
    assert source.sites is not None
    site = source.sites[stop.site]
    standing: dict[str, object] = {}
    for i, group in enumerate(source.groups):
        at, *numbers = stop.standing[i]
        if i == number:
            standing[group.name] = _waiting(site, stop.numbers)
        elif at == _RUNS:
            standing[group.name] = "runs"
        elif at == _HAS_ENDED:
            standing[group.name] = "has ended"
        else:
            standing[group.name] = _waiting(source.sites[at - 1], numbers)
    name = source.groups[number].name if number is not None else "a thread"
    who = f"block {stop.block}" if name == "block" else f"{name} of block {stop.block}"
    return DeadlockError(
        f"deadlock: {who} has waited for {settings.debug_seconds():g} seconds",
        operands=standing,
        loc=site.loc,
        help=f"{AFTERWARDS}; {settings.DEBUG_SECONDS.variable} sets how long a wait may take",
    )


def _waiting(site: Site, numbers: tuple[int, ...] | list[int]) -> str:
    return site.text.format(*numbers, loc=site.loc)


def _group(thread: int, source: Source) -> tuple[int | None, str]:
    """The group of a thread: its number in the block, and its name."""
    warp = thread // WARP
    for i, group in enumerate(source.groups):
        if group.first_warp <= warp < group.first_warp + group.warps:
            return i, group.name
    return None, ""
