"""What the race detector finds in kernels that send tiles, if a wait, an arrival, bytes or a fence are wrong."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate.finding import Finding, Kind
from pykittens.types.dtypes import bf16, f32
from tests.kernels_send import all_to_all, product, ring
from tests.races import faults, findings, tile


def broken(mistake: str) -> Any:
    """A ring of four blocks with a mistake."""

    @pk.kernel(cluster=4)
    def kernel(x, y):
        places = pk.shared(pk.st(f32, 64, 64), count=2)
        full, free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
        (rank,) = pk.grid(4)
        for i in pk.range(pk.cdiv(x.cols, 64)):
            t = pk.load(x[rank, i], rows=64, cols=64)
            if mistake != "no expect":
                full[i % 2].expect(64 if mistake == "few bytes" else places[i % 2])
            if mistake != "no wait for the place":
                free[i % 2].wait(i // 2 + 1)
            pk.send(places[i % 2], t, block=(rank + 1) % 4, signal=full[i % 2])
            if mistake == "sends twice":
                pk.send(places[i % 2], t, block=(rank + 1) % 4, signal=full[i % 2])
            if mistake == "stores there itself":
                pk.store(places[i % 2], t)
            if mistake == "arrives before the read":
                full[i % 2].wait(i // 2)
                free[i % 2].arrive(block=(rank + 3) % 4)
            elif mistake != "reads before the wait":
                full[i % 2].wait(i // 2)
            pk.store(y[rank, i], pk.load(places[i % 2]))
            if mistake == "reads before the wait":
                full[i % 2].wait(i // 2)
            if mistake == "arrives at itself":
                free[i % 2].arrive()
            elif mistake == "one never arrives":
                if rank > 0:
                    free[i % 2].arrive(block=(rank + 3) % 4)
            elif mistake != "arrives before the read":
                free[i % 2].arrive(block=(rank + 3) % 4)

    return kernel


def found(mistake: str) -> list[Finding]:
    return findings(broken(mistake), tile(256, 300), tile(256, 300))


MISTAKES = {
    "no wait for the place": {Kind.RACE, Kind.OVERWRITTEN_IN_USE},
    "one never arrives": {Kind.DEADLOCK},
    "arrives at itself": {Kind.RACE, Kind.OVERWRITTEN_IN_USE},
    "arrives before the read": {Kind.RACE},
    "reads before the wait": {Kind.UNLANDED_COPY, Kind.RACE},
    "stores there itself": {Kind.RACE, Kind.OVERWRITTEN_IN_USE},
    "sends twice": {Kind.OVERWRITTEN_IN_USE, Kind.BYTE_COUNT},
    "few bytes": {Kind.BYTE_COUNT, Kind.DEADLOCK},
    "no expect": {Kind.BYTE_COUNT, Kind.DEADLOCK},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_ring_of_blocks_is_found(mistake):
    assert {f.kind for f in found(mistake)} >= MISTAKES[mistake]


@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_nothing_is_found_in_right_exchanges(cluster):
    for kernel in (ring(cluster), all_to_all(cluster)):
        x = tile(2 * 64 * cluster, 300)
        assert faults(kernel, x, np.empty_like(x), seeds=range(8)) == set()


def line(step: Any) -> str:
    assert step.loc is not None
    return linecache.getline(step.loc.file, step.loc.line).strip()


def test_a_race_names_both_lines_and_the_way_to_order_them():
    (race,) = (f for f in found("arrives before the read") if f.kind is Kind.RACE)
    assert race.message == "`places[0]` is read and written, and nothing orders the two accesses"
    first, second = race.steps
    assert line(first) == "pk.store(y[rank, i], pk.load(places[i % 2]))"
    assert line(second) == "pk.send(places[i % 2], t, block=(rank + 1) % 4, signal=full[i % 2])"
    assert second.what == "sends a tile to it"
    assert "semaphore.arrive(block=...)" in race.help


def test_a_read_before_the_wait_names_the_phase():
    found_ = found("reads before the wait")
    (unlanded,) = (f for f in found_ if f.kind is Kind.UNLANDED_COPY)
    assert [s.what for s in unlanded.steps] == ["sends a tile to it", "reads it"]
    assert "for the phase of full[0]" in unlanded.missing


def test_an_engine_reads_a_tile_that_was_sent_after_a_fence_of_the_receiver():
    a, b, c = tile(128, 64, dtype=bf16), tile(128, 64, dtype=bf16), tile(128, 64)
    assert faults(product, a, b, c) == set()
    (fault,) = findings(product, a, b, c, fences=False)
    assert fault.kind is Kind.MISSING_FENCE
    assert fault.message.startswith("`b` is sent by a block and then read by an engine")


@pk.kernel(cluster=2)
def told_by_a_tile(x, y, *, arrives: bool):
    """A block stores to a tensor and sends a tile; the other one reads the tensor after the wait for the tile."""
    place, full, told = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    (rank,) = pk.grid(2)
    t = pk.load(x[0, 0], rows=64, cols=64)
    if rank == 0:
        pk.store(y[0, 0], t)
        pk.send(place, t, block=1, signal=full)
        if arrives:
            told.arrive(block=1)
    else:
        full.expect(place)
        full.wait(0)
        if arrives:
            told.wait(0)
        pk.store(y[1, 0], pk.load(place) + pk.load(y[0, 0], rows=64, cols=64))


def test_a_tile_orders_nothing_but_itself_and_an_arrival_orders_all():
    x, y = tile(), tile(128, 64)
    assert faults(told_by_a_tile, x, y, arrives=True) == set()
    assert faults(told_by_a_tile, x, y, arrives=False) == {Kind.BLOCK_CONFLICT}


@pk.kernel(cluster=2)
def ends_early(x, y):
    """The receiver does not wait for what comes."""
    place, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    (rank,) = pk.grid(2)
    t = pk.load(x[0, 0], rows=64, cols=64)
    full.expect(place)
    pk.send(place, t, block=1 - rank, signal=full)
    pk.store(y[rank, 0], t)


def test_a_block_may_not_end_while_a_tile_is_on_its_way_to_it():
    assert Kind.UNLANDED_COPY in faults(ends_early, tile(), tile(128, 64))


def test_proofs_do_not_count_what_other_blocks_signal():
    for kernel in (ring(4), broken("few bytes")):
        x = tile(256, 300)
        report = pk.check(kernel, x, np.empty_like(x), schedules=1, compile=False)
        assert not [text for text in report.proved if "semaphore" in text], report.proved
