"""Lanes and an engine access the same memory: the help of each finding, followed, leaves no finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.emulate.finding import Finding, Kind
from tests.races import findings, tile


def empty() -> Any:
    return np.full((64, 64), np.nan, np.float32)


def the_finding(kernel: Any, kind: Kind, **constants: Any) -> Finding:
    """The finding of a kind; without these omissions there is none."""
    found = [f for f in findings(kernel, tile(), empty(), **constants) if f.kind is kind]
    assert findings(kernel, tile(), empty(), **dict.fromkeys(constants, True)) == []
    return found[0]


@pk.kernel
def tile_filled_by_both(x, y, *, fenced: bool):
    t, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    pk.store(t, pk.zeros(f32, 64, 64))
    if fenced:
        pk.fence_async()
    pk.sync()
    full.expect(t)
    pk.load_async(t, x[0], signal=full)
    full.wait(0)
    pk.store(y, pk.load(t))


def test_one_group_calls_the_fence_and_then_a_sync():
    found = the_finding(tile_filled_by_both, Kind.MISSING_FENCE, fenced=False)
    assert found.missing == (
        "after the store, the block must call pk.fence_async(), before the pk.sync() after which the engine starts"
    )
    assert "pk.sync() after the fence" in found.help
    assert found.help.endswith("pk.publish stores, fences and syncs in one call")


@pk.kernel
def tile_handed_to_the_producer(x, y, *, fenced: bool, arrives: bool):
    t, full, ready = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    with pk.warpgroups(1):
        pk.store(t, pk.zeros(f32, 64, 64))
        if fenced:
            pk.fence_async()
        if arrives:
            ready.arrive()
        full.wait(0)
        pk.store(y, pk.load(t))
    with pk.producer():
        if arrives:
            ready.wait(0)
        full.expect(t)
        pk.load_async(t, x[0], signal=full)


def test_one_role_calls_the_fence_before_the_arrival_that_the_other_waits_for():
    found = the_finding(tile_handed_to_the_producer, Kind.MISSING_FENCE, fenced=False, arrives=True)
    assert found.help == (
        "call pk.fence_async() in warpgroups after the store, before the .arrive() that producer waits for"
    )


def test_an_engine_that_nothing_orders_after_the_stores_needs_the_fence_as_well():
    found = the_finding(tile_handed_to_the_producer, Kind.RACE, fenced=False, arrives=False)
    assert found.help.startswith(
        "let the first call pk.fence_async() and then arrive on a semaphore"
    )


@pk.kernel
def result_stored_without_order(x, y, *, cured: bool):
    t = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.store(t, pk.load(x[0], rows=64, cols=64))
    if cured:
        pk.fence_async()
        pk.sync()
    pk.store_async(y[0], t)


@pk.kernel
def tensor_stored_by_both(x, y, *, cured: bool):
    """No fence of a kernel that fetches nothing that it writes covers tensors."""
    t = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.store(t, pk.load(x[0], rows=64, cols=64))
    if cured:
        pk.fence_async()
        pk.sync()
        pk.store_async(y[0], t)
        pk.store_wait()
    else:
        pk.store(y[0], pk.zeros(f32, 64, 64))
        pk.fence_async()
        pk.sync()
    pk.store_async(y[0], t)


@pk.kernel
def tensor_stored_and_read(x, y, *, cured: bool):
    t = pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    pk.publish(t, pk.load(x[0], rows=64, cols=64))
    pk.store_async(y[0], t)
    if cured:
        pk.store_wait()
    pk.store(y[0], pk.load(y[0], rows=64, cols=64) + 1)


@pk.kernel(inplace=True)
def tensor_fetched_and_written(x, y, *, cured: bool):
    t, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    full.expect(t)
    pk.load_async(t, x[0], signal=full)
    if cured:
        full.wait(0)
    pk.store(x[0], pk.zeros(f32, 64, 64))
    if not cured:
        full.wait(0)
    pk.store(y, pk.load(t))


@pk.kernel
def tile_written_before_it_lands(x, y, *, cured: bool):
    t, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    full.expect(t)
    pk.load_async(t, x[0], signal=full)
    if cured:
        full.wait(0)
        pk.store(y, pk.load(t))
        pk.sync()
    pk.store(t, pk.zeros(f32, 64, 64))
    if not cured:
        full.wait(0)
        pk.sync()
    pk.store(y, pk.load(t))


@pytest.mark.parametrize(
    ("kernel", "kind", "missing", "help"),
    [
        (result_stored_without_order, Kind.RACE, "must call pk.sync()", "call pk.fence_async() and then pk.sync()"),
        (tensor_stored_by_both, Kind.MISSING_FENCE, "this kernel has none for tensors", "write these elements in one"),
        (tensor_stored_and_read, Kind.RACE, "must call pk.store_wait()", "call pk.store_wait() between the two"),
        (tensor_fetched_and_written, Kind.RACE, "must wait for the phase of full", "before this line, wait for"),
        (tile_written_before_it_lands, Kind.OVERWRITTEN_IN_USE, "the phase of full", "and read the data first"),
    ],
)  # fmt: skip
def test_the_help_says_which_wait_or_fence_and_where(kernel, kind, missing, help):
    found = the_finding(kernel, kind, cured=False)
    assert missing in found.missing
    assert help in found.help
