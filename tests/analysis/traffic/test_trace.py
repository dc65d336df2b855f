"""The boxes that are counted are those that the emulator moves: as many bytes, of the same elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.analysis.sectors import SECTOR
from pykittens.analysis.traffic.boxes import BOX, BYTES, LINE, UNIT, UNKNOWN
from pykittens.analysis.traffic.trace import LaunchWork, Trace
from pykittens.emulate.memory import GlobalTile
from pykittens.ir.nodes import tensors
from pykittens.ir.peers import Peers
from pykittens.runtime.arguments import check
from tests import kernels_pipeline
from tests.cases import CASES
from tests.emulate.test_cluster import halves

BF16 = np.dtype(ml_dtypes.bfloat16)


def traced(kernel, *args, contents=(), **constants):
    """The trace of a launch of a kernel, and the table of all its boxes."""
    arguments = check(kernel.parameters, args, constants)
    shapes = {n: a.shape for n, a in arguments.tensors.items()}
    launch = LaunchWork.of(kernel.record(arguments), shapes, arguments.scalars)
    trace = Trace(launch, shapes, {n: arguments.tensors[n].numpy() for n in contents})
    return trace, trace.table(0, trace.launch.units)


def asked(trace, table):
    """Bytes by tensor, of reads and of writes."""
    found = {}
    for line, bytes_ in zip(table[LINE], table[BYTES], strict=True):
        line = trace.lines[line]
        key = line.tensor, line.writes
        found[key] = found.get(key, 0) + int(bytes_)
    return found


class Counter:
    """Counts the elements that the emulator reads and writes, in arrays of the shapes of the tensors."""

    def __init__(self, monkeypatch):
        self.counts = {}
        view, write = GlobalTile.view, GlobalTile.write

        def counted_view(tile, rows, cols, fill):
            self.count(tile, (rows, cols), False)
            return view(tile, rows, cols, fill)

        def counted_write(tile, value, combine=None):
            self.count(tile, value.shape if value.ndim == 2 else (1, len(value)), True)
            write(tile, value, combine)

        monkeypatch.setattr(GlobalTile, "view", counted_view)
        monkeypatch.setattr(GlobalTile, "write", counted_write)

    def count(self, tile, shape, writes):
        counts = self.counts.setdefault((tile.name, writes), np.zeros(tile.array.shape, np.int64))
        moved = dict(zip(tile.plane, shape[-len(tile.plane) :], strict=True))
        region = []
        for axis, i in enumerate(tile.index):
            origin, low, high, *_ = tile.windows.get(axis, (0, 0, counts.shape[axis]))
            side = moved.get(axis, 1)
            first = origin + i * side
            if side == 1 and axis == counts.ndim - 1:  # the cache is asked for a whole sector
                side = SECTOR // tile.dtype.itemsize
                first = first // side * side
            region.append(slice(max(first, low, 0), max(min(first + side, high), 0)))
        counts[tuple(region)] += 1

    def asked(self, arrays):
        sums = {key: int(c.sum()) * arrays[key[0]].itemsize for key, c in self.counts.items()}
        return {key: bytes_ for key, bytes_ in sums.items() if bytes_}


def elements(trace, table):
    """How often each element is moved, by tensor and whether it is written; for tensors of whole boxes."""
    found = {}
    for number, box in table[[LINE, BOX]].T:
        line, grain = trace.lines[number], trace.boxes.grains[number]
        counts = found.setdefault((line.tensor, line.writes), np.zeros(grain.shape, np.int64))
        place = np.unravel_index(int(box) - grain.first, grain.tiles)
        counts[
            tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, grain.sides, strict=True))
        ] += 1
    return found


@pk.kernel
def causal(Q, K, O):
    """Loops whose bounds depend on the task, backwards, and rows that several groups store."""
    batch, heads, blocks = Q.shape[0], Q.shape[1], pk.cdiv(Q.rows, 64)
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent((batch, heads, blocks), order=pk.longest_first(2))
    with pk.producer():
        for b, h, block in tasks:
            for j in pk.range(block, -1, -1):
                with ring.fill() as t:
                    pk.load_async(t, K[b, h, j, 0])
    with pk.warps(2) as w:
        for b, h, block in tasks:
            total = pk.load(Q[b, h, block * 2 + w, 0], rows=32, cols=64)
            for _ in pk.range(block + 1):
                with ring.drain() as t:
                    total = total + pk.load(t.tiles(32, 64)[w, 0])
            pk.store(O[b, h, block * 2 + w, 0], total)


@pk.kernel
def carried(x, y):
    """Coordinates that a pass leaves to the next, in a for and in a while, and that a branch decides."""
    (block,) = pk.grid(x.rows // 64)
    place, t = block, pk.zeros(f32, 64, 32)
    for _ in pk.range(block % 3 + 1):
        t = t + pk.load(x[place % 4, 0], rows=64, cols=32)
        if place % 2 == 0:
            place = place + 3
        else:
            place = place * 2
    while place > 1:
        t = t + pk.load(x[place % 4, 1], rows=64, cols=32)
        place = place // 2
    pk.store(y[block, place], t)


def uses():
    """Kernels and arguments for them."""
    ones = lambda *shape, dtype=np.float32: np.ones(shape, dtype)
    bf = lambda *shape: ones(*shape, dtype=BF16)
    return {
        "interleaved": (
            kernels_pipeline.interleaved,
            (ones(256, 64), ones(256, 64), ones(256, 64)),
        ),
        "by_parts": (kernels_pipeline.by_parts, (bf(256, 256), bf(256, 256))),
        "two_fillers": (kernels_pipeline.two_fillers, (ones(128, 128), ones(128, 256))),
        "causal": (causal, (bf(2, 3, 256, 64), bf(2, 3, 256, 64), bf(2, 3, 256, 64))),
        "carried": (carried, (ones(320, 64), ones(320, 64))),
    }


@pytest.mark.parametrize("name", uses())
def test_each_element_is_moved_as_often_as_in_the_emulator(name, monkeypatch):
    kernel, args = uses()[name]
    trace, table = traced(kernel, *args)
    counter = Counter(monkeypatch)
    kernel(*args)
    found = elements(trace, table)
    assert found.keys() == counter.counts.keys()
    for key, counts in counter.counts.items():
        assert np.array_equal(found[key], counts), key
    assert not trace.guesses


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_of_every_operation_are_those_of_the_emulator(name, monkeypatch):
    case = CASES[name]
    inputs, outputs = case.arrays()
    args = (*inputs, *outputs, *case.scalars)
    names = dict(zip(case.kernel.parameters.names(len(args)), args, strict=True))
    numbers = [n for n, a in names.items() if isinstance(a, np.ndarray) and a.dtype.kind == "i"]
    trace, table = traced(case.kernel, *args, contents=numbers, **case.constants)
    # Rows that an index in registers names, and a place that the kernel itself has written.
    if any(line.scattered for line in trace.lines) or name.startswith("by_hand-turns"):
        told = {trace.lines[n].loc for n in table[LINE, table[BOX] == UNKNOWN]}
        assert told == {g.loc for g in trace.guesses} != set()
        return
    if "last_adds_up" in name:  # the result of an atomic decides
        assert [g.what for g in trace.guesses] == [
            "the branch taken depends on data: counted as the first"
        ]
        return
    assert not trace.guesses
    counter = Counter(monkeypatch)
    case.kernel(*args, **case.constants)
    # The emulator asks for flags as often as its scheduler turns to who waits.
    flags = {t for line in trace.lines for t in tensors(line.call, line.call.op.effects.flags)}
    told = {key: bytes_ for key, bytes_ in asked(trace, table).items() if key[0] not in flags}
    assert told == {k: bytes_ for k, bytes_ in counter.asked(names).items() if k[0] not in flags}


@pk.kernel
def steered(flags, x, y):
    """A branch and a loop that memory decides."""
    (block,) = pk.grid(4)
    t = pk.zeros(f32, 64, 32)
    if pk.load(flags[block]) > 0:
        t = pk.load(x[block, 0], rows=64, cols=32)
    else:
        t = pk.load(x[block, 1], rows=64, cols=32) + pk.load(x[block, 2], rows=64, cols=32)
    left = pk.load(flags[block])
    while left > 0:
        t = t + pk.load(x[block, 3], rows=64, cols=32)
        left = left - 1
    pk.store(y[block], t)


def test_memory_that_steers_is_followed_where_it_is_known_and_guessed_where_not():
    flags, x, y = (
        np.array([0, 3, 0, 1], np.int32),
        np.zeros((256, 128), np.float32),
        np.zeros((256, 32), np.float32),
    )
    tile, sector = 64 * 32 * 4, 16
    trace, table = traced(steered, flags, x, y)
    assert [g.what.partition(" depends")[0] for g in trace.guesses] == [
        "the branch taken",
        "the number of iterations",
    ]
    assert asked(trace, table)["x", False] == 4 * 2 * tile
    trace, table = traced(steered, flags, x, y, contents=["flags"])
    assert not trace.guesses
    assert asked(trace, table) == {
        ("flags", False): 4 * 2 * sector,
        ("x", False): (2 * 2 + 2 + 3 + 1) * tile,
        ("y", True): 4 * tile,
    }


@pk.kernel
def wandering(x, y):
    """A coordinate that one task leaves to the next."""
    place = pk.load(x[0, 0]).to(pk.int32) * 0
    for (task,) in pk.persistent((6,)):
        pk.store(y[task], pk.load(x[place], rows=64, cols=32))
        place = place + task


def test_what_a_task_leaves_to_the_next_is_told_as_not_followed():
    trace, table = traced(
        wandering, np.zeros((1024, 32), np.float32), np.zeros((384, 32), np.float32)
    )
    assert "values carried from task to task are not followed" in {g.what for g in trace.guesses}
    assert (table[BOX] == UNKNOWN).sum() == 6


@pytest.mark.parametrize("name", uses())
def test_units_may_be_asked_for_in_parts(name):
    kernel, args = uses()[name]
    trace, table = traced(kernel, *args)
    cuts = [0, 1, 2, trace.launch.units // 2 + 1, trace.launch.units]
    parts = [trace.table(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    whole = np.concatenate(parts, axis=1)
    rows = [UNIT, LINE, BOX, BYTES]
    assert np.array_equal(whole[rows], table[rows])


def test_a_multicast_tile_is_moved_in_shares():
    trace, table = traced(halves, np.zeros((64, 256), BF16), np.zeros((256, 256), BF16))
    assert trace.lines[0].peers == Peers(2)
    assert trace.lines[0].sides == (32, 64)
    # Two clusters for each of two columns of tasks; every tile of x once a cluster.
    assert asked(trace, table) == {("x", False): 2 * 64 * 256 * 2, ("out", True): 256 * 256 * 2}
