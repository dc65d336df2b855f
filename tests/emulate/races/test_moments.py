"""What led from one access to another: who used the tile, what it held, and what a wait had seen."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate import machine
from pykittens.emulate.finding import Finding, Kind, Moment, TileMoment
from pykittens.emulate.races.moments import Moments
from pykittens.runtime.arguments import check, scalars


@pk.kernel
def gram(X, G, *, broken: bool, stages: int = 2):
    """G = X @ X.T; the stage is free when a product starts, or when it is done."""
    x = pk.shared(pk.st(bf16, 64, 64), count=stages)
    full, free = pk.semaphore(1, count=stages), pk.semaphore(1, count=stages)
    pk.grid(1)
    steps = pk.cdiv(X.cols, 64)
    with pk.producer():
        for i in pk.range(steps):
            free[i % stages].wait(i // stages + 1)
            full[i % stages].expect(x[i % stages])
            pk.load_async(x[i % stages], X[0, i], signal=full[i % stages])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for i in pk.range(steps):
            full[i % stages].wait(i // stages)
            acc = pk.mma_ABt(x[i % stages], x[i % stages], acc, managed=False)
            if not broken:
                pk.mma_wait()
            free[i % stages].arrive()
        pk.mma_wait()
        pk.store(G[0], acc)


@pk.kernel
def stored_out(x, y):
    """The tile is free for the next one while the store still reads it."""
    tile, full, free = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    with pk.warpgroups(1):
        for i in pk.range(x.rows // 64):
            free.wait(i + 1)
            pk.store(tile, pk.load(x[i, 0], rows=64, cols=64))
            pk.fence_async()
            full.arrive()
    with pk.storer():
        for i in pk.range(x.rows // 64):
            full.wait(i)
            pk.store_async(y[i, 0], tile)
            free.arrive()


@pk.kernel
def gram_of_a_pipeline(X, G):
    """Every stage is free when the next product starts, at the end of the `with`."""
    ring = pk.pipeline(2, x=pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(4):
            with ring.fill() as s:
                pk.load_async(s.x, X[0, i])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(4):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.x, s.x, acc, managed=False)
        pk.mma_wait()
        pk.store(G[0], acc)


@pk.kernel
def transposed(x, y):
    tile = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.store(tile, pk.load(x, rows=64, cols=64))
    pk.store(y, pk.load(tile, transposed=True))


def arrays(cols: int = 512) -> tuple[Any, Any]:
    return np.ones((64, cols), bf16.numpy), np.empty((64, 64), np.float32)


def found(kernel: Any, *args: Any, **constants: Any) -> Finding:
    """The first conflict of a call in one schedule."""
    report = pk.check(kernel, *args, schedules=1, costs=False, compile=False, **constants)
    return report.findings[0]


def said(moments: tuple[Moment, ...]) -> list[tuple[str, str, int | None]]:
    return [(m.who, m.what, m.seen) for m in moments]


def test_a_conflict_has_what_led_from_one_access_to_the_other() -> None:
    moments = found(gram, *arrays(), broken=True).moments
    assert said(moments) == [
        ("copy engine", "X[0, 0] has landed in x[0]", None),
        ("consumers", "starts a product that reads x[0]", None),
        ("consumers", "arrives on free[0]", None),
        ("producer", "ends its wait for free[0]", 2),
        ("producer", "starts a copy of X[0, 2] into x[0]", 2),
    ]
    assert [m.is_access for m in moments] == [False, True, False, False, True]
    assert moments[2].loc is not None
    assert moments[2].loc.text.strip() == "free[i % stages].arrive()"


def test_a_moment_has_the_contents_of_the_ring_and_what_reads_them() -> None:
    moments = found(gram, *arrays(), broken=True).moments
    second = TileMoment("x[1]", "X[0, 1]")
    assert moments[0].tiles == (TileMoment("x[0]", "X[0, 0]"), second)
    assert moments[1].tiles == (TileMoment("x[0]", "X[0, 0]", readers=("a product",)), second)
    overwritten = TileMoment("x[0]", "X[0, 2]", landing=True, readers=("a product",))
    assert moments[4].tiles == (overwritten, second)


def test_of_a_long_ring_only_the_tile_itself_is_shown() -> None:
    moments = found(gram, *arrays(), broken=True, stages=4).moments
    assert {len(m.tiles) for m in moments} == {1}
    assert {m.tiles[0].name for m in moments} == {"x[0]"}


def test_in_the_repaired_kernel_the_read_ends_before_the_signal_that_the_wait_sees() -> None:
    X, G = arrays()
    arguments, moments = check(gram.parameters, (X, G), {"broken": False}), Moments()
    machine.run(gram.record(arguments), {"X": X, "G": G}, scalars(arguments), 0, moments)
    (events,) = moments.events.values()
    old = next(e for e in events if e.what.startswith("starts a product"))
    (tile,) = old.memory
    later = (e for e in events if e.number > old.number and tile in e.memory)
    new = next(e for e in later if e.what.startswith("starts a copy"))
    assert said(moments.between(tile, old, new))[1:] == [
        ("consumers", "starts a product that reads x[0]", None),
        ("consumers", "waits until its products are done", None),
        ("consumers", "arrives on free[0]", None),
        ("producer", "ends its wait for free[0]", 3),
        ("producer", "starts a copy of X[0, 2] into x[0]", 3),
    ]


def test_a_store_reads_its_tile_until_it_is_waited_for() -> None:
    x = np.ones((256, 64), np.float32)
    finding = found(stored_out, x, np.empty_like(x))
    assert finding.kind is Kind.OVERWRITTEN_IN_USE
    assert said(finding.moments) == [
        ("warpgroups", "writes tile", None),
        ("storer", "starts a store that reads tile", None),
        ("storer", "arrives on free", None),
        ("warpgroups", "ends its wait for free", 2),
        ("warpgroups", "writes tile", 2),
    ]
    held = TileMoment("tile", "stored by warpgroups", readers=("a store",))
    assert finding.moments[-1].tiles == (held,)


def test_a_stage_is_named_by_its_number_and_its_release_is_a_signal() -> None:
    moments = found(gram_of_a_pipeline, *arrays(256)).moments
    assert said(moments)[1:] == [
        ("consumers", "starts a product that reads x of stage 0", None),
        ("consumers", "signals that stage 0 of ring is free", None),
        ("producer", "ends its wait for stage 0 of ring to be free", 2),
        ("producer", "starts a copy of X[0, 2] into x of stage 0", 2),
    ]


def test_two_accesses_of_which_nothing_more_is_known_have_no_moments() -> None:
    x = np.ones((64, 64), np.float32)
    finding = found(transposed, x, np.empty_like(x))
    assert finding.kind is Kind.RACE
    assert finding.moments == ()


def test_a_long_run_keeps_its_latest_events_only() -> None:
    X, G = arrays(64 * 100)
    arguments, moments = check(gram.parameters, (X, G), {"broken": False}), Moments()
    machine.run(gram.record(arguments), {"X": X, "G": G}, scalars(arguments), 0, moments)
    (events,) = moments.events.values()
    assert len(events) == events.maxlen == 256 < moments.count
    assert events[-1].number == moments.count
