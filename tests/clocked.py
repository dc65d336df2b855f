"""A kernel and a program with clock reads, and records as a GPU would write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import pykittens as pk
from pykittens import f32
from pykittens.analysis.timeline.clocks import HEAD
from pykittens.runtime.arguments import check
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

WIDTH = 128


@pk.kernel
def ring(x, y):
    """Doubles vectors, which go through a ring of two stages, and counts them with a flag."""
    parts = pk.pipeline(2, pk.sv(f32, WIDTH))
    (block,) = pk.grid(2)
    with pk.producer():
        for k in pk.range(3):
            with parts.fill() as s:
                pk.load_async(s, x[block, k])
    with pk.warps(1):
        for k in pk.range(3):
            with parts.drain() as s:
                pk.store(y[block, k], 2 * pk.load(s))


@pk.kernel
def words(x, y, flags):
    """Every word at which roles meet: stages, a semaphore, turns, flags, stores of the engine."""
    outputs, full = pk.pipeline(1, pk.sv(f32, WIDTH)), pk.semaphore(1)
    (block,) = pk.grid(2)
    with pk.warps(2) as w:
        with pk.in_turn():
            pk.store(y[block, w], pk.load(x[block, w], cols=WIDTH))
        with outputs.fill() as s:
            if w == 0:
                pk.store(s, pk.load(x[block, 0], cols=WIDTH))
        full.wait(0)
        pk.signal(flags[block], 1)
    with pk.storer():
        if block > 0:
            pk.wait(flags[block - 1], 1)
        with outputs.drain() as s:
            pk.store_async(y[block, 2], s)
        pk.store_wait()
        full.arrive()


def emitted(kernel: Any, *args: Any, arch: str = "sm_90a", clocks: bool = True) -> Source:
    """The program of a kernel for arguments like these."""
    return emit(kernel.record(check(kernel.parameters, args, {})), arch, clocks=clocks)


def ring_arrays() -> tuple[Any, Any]:
    x = np.arange(2 * 3 * WIDTH, dtype=np.float32).reshape(2, 3 * WIDTH)
    return x, np.zeros_like(x)


def place(source: Source, part: str, seen: str = "", text: str = "", subject: str = "") -> int:
    """The number of the read that says this."""
    assert source.reads is not None
    (found,) = (
        number
        for number, r in enumerate(source.reads)
        if (r.part, r.seen) == (part, seen)
        and (text in r.text if text else not r.text)
        and (not subject or r.subject == subject)
    )
    return found


Read = tuple[int, int]  # a place and cycles


def records(
    blocks: Sequence[Sequence[Sequence[Read]]],
    most: int = 32,
    ns: int = 1_000_000,
    cycles: int = 5_000,
    rate: int = 2,
) -> np.ndarray[Any, Any]:
    """The words of groups that read these places after so many cycles, `rate` in a nanosecond."""
    words = np.zeros((len(blocks), len(blocks[0]), HEAD + most), np.uint64)
    for number, groups in enumerate(blocks):
        # Every multiprocessor has its own count of cycles.
        own = cycles + 1_000_003 * number
        for group, reads in enumerate(groups):
            last = reads[-1][1]
            end = -(-last // rate) + 10
            words[number, group, :HEAD] = ns, own, ns + end, own + end * rate, len(reads)
            for i, (where, after) in enumerate(reads[:most]):
                words[number, group, HEAD + i] = where << 48 | (own + after)
    return words


def ring_reads(source: Source) -> tuple[list[Read], list[Read]]:
    """What the groups of `ring` read: the last fill waits for a free stage, the first drain for a copy."""
    fetch, free = place(source, "fetch"), place(source, "wait", text="free")
    taken, filled = place(source, "fetch", "taken"), place(source, "fetch", "filled")
    end = place(source, "end")
    producer = [
        (fetch, 0), (free, 10), (taken, 20), (filled, 60), (free, 60), (taken, 80), (filled, 120),
        (free, 130), (taken, 2400), (filled, 2440), (end, 2450),
    ]  # fmt: skip
    work, full = place(source, "compute"), place(source, "wait", text="full")
    drained, returned = place(source, "compute", "drained"), place(source, "compute", "returned")
    warp = [
        (work, 6), (full, 20), (drained, 2020), (returned, 2380), (full, 2400), (drained, 2420),
        (returned, 2800), (full, 2820), (drained, 4000), (returned, 4400), (end, 4500),
    ]  # fmt: skip
    return producer, warp
