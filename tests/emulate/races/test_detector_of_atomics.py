"""The race detector between blocks that exchange flags by atomics, with all blocks or some of them running."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32, int32
from pykittens.checker.runs import is_determined, run_schedules
from pykittens.emulate.finding import Kind, Level, Scope
from pykittens.runtime.arguments import check as check_arguments
from tests.races import faults, findings, tile
from tests.running import recorded

BLOCKS, SEEDS = 5, range(8)


def counter(value: int = 0) -> np.ndarray:
    return np.full(1, value, np.int32)


@pk.kernel
def last_adds_up(parts, y, count, *, how: str):
    """The last block adds up what all blocks have stored."""
    (block,) = pk.grid(BLOCKS)
    if how == "counts first":
        before = pk.atomic_add(count[0], 1)
    pk.store(parts[block], pk.zeros(f32, 64, 64) + 1)
    if how == "does not signal":
        pk.store(count[0], 1, op="add")
        before = pk.atomic_load(count[0]) - 1
    elif how != "counts first":
        before = pk.atomic_add(count[0], 1)
    if before >= BLOCKS - 1 - (how == "is one too early"):
        total = pk.zeros(f32, 64, 64)
        for i in range(BLOCKS):
            total = total + pk.load(parts[i], rows=64, cols=64)
        pk.atomic_exchange(count[0], -99)
        pk.store(y[0], total)


def test_the_last_block_to_count_sees_what_all_have_stored():
    args = tile(BLOCKS * 64, 64), tile(), counter()
    assert faults(last_adds_up, *args, how="counts", seeds=SEEDS) == set()


@pytest.mark.parametrize("how", ["counts first", "does not signal", "is one too early"])
def test_a_count_orders_only_what_was_done_before_it(how):
    found = faults(last_adds_up, tile(BLOCKS * 64, 64), tile(), counter(), how=how, seeds=SEEDS)
    assert Kind.BLOCK_CONFLICT in found


@pk.kernel
def under_a_lock(total, lock, *, releases: bool):
    pk.grid(3)
    while pk.atomic_cas(lock[0], 0, 1) != 0:
        pass
    pk.store(total[0], pk.load(total[0], rows=64, cols=64) + 1)
    if releases:
        pk.signal(lock[0], 0)
    else:
        pk.store(lock[0], 0)


def test_a_lock_orders_the_blocks_that_take_it_by_compare_and_swap():
    assert faults(under_a_lock, tile(), counter(), releases=True, seeds=SEEDS) == set()
    assert faults(under_a_lock, tile(), counter(), releases=False, seeds=SEEDS) != set()


@pk.kernel
def failed(x, y, word):
    """A compare-and-swap that fails signals nothing."""
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(x[0], pk.zeros(f32, 64, 64))
        pk.atomic_cas(word[0], 9, 1)
    else:
        pk.atomic_load(word[0])
        pk.store(y[0], pk.load(x[0], rows=64, cols=64))


def test_a_compare_and_swap_that_fails_orders_nothing():
    assert faults(failed, tile(), tile(), counter(), seeds=SEEDS) == {Kind.BLOCK_CONFLICT}


@pk.kernel
def passed_on(x, y, flag, *, by: str, to: str):
    (block,) = pk.grid(2)
    if block == 0:
        pk.store(x[0], pk.zeros(f32, 64, 64))
        if by == "atomic":
            pk.atomic_or(flag[0], 4)
        else:
            pk.signal(flag[0], 4)
    else:
        if to == "wait":
            pk.wait(flag[0], 4)
        if to == "wait" or pk.atomic_load(flag[0]) == 4:
            pk.store(y[0], pk.load(x[0], rows=64, cols=64))


@pytest.mark.parametrize(
    ("by", "to"), [("atomic", "wait"), ("signal", "atomic"), ("atomic", "atomic")]
)
def test_atomics_order_blocks_with_signals_and_waits(by, to):
    assert faults(passed_on, tile(), tile(), counter(), by=by, to=to, seeds=SEEDS) == set()


def test_what_is_found_beside_atomics_holds_for_the_schedules_tried():
    args = tile(BLOCKS * 64, 64), tile(), counter()
    assert not is_determined(recorded(last_adds_up, *args, how="counts"))
    found = findings(last_adds_up, *args, how="counts first", seeds=[0])
    assert {f.scope for f in found} == {Scope.TRIED}


def test_an_atomic_reads_an_element_that_must_have_contents():
    args = check_arguments(in_line.parameters, (tile(2), counter()), {})
    found = run_schedules(in_line, args, range(2), undefined=["count"])
    assert {f.kind for f in found} == {Kind.UNWRITTEN_MEMORY}
    assert run_schedules(in_line, args, range(2)) == []


@pk.kernel
def in_line(y, count):
    pk.grid(2)
    pk.store(y[pk.atomic_add(count[0], 1)], 1.0)


# -- elements of shared vectors --------------------------------------------------------------------


@pk.kernel
def handed_over(x, y, *, asks: bool, plain: bool):
    """One group leaves a tile for another and says so in shared memory."""
    kept, words = pk.shared(pk.st(f32, 64, 64)), pk.shared(pk.sv(int32, 16))
    ready = pk.semaphore(2)
    pk.grid(1)
    with pk.warpgroups(1):
        pk.store(words, pk.zeros(int32, 16))
        ready.arrive()
        pk.store(kept, pk.load(x, rows=64, cols=64))
        pk.atomic_or(words.parts(1)[3], 4)
    with pk.warpgroups(1):
        ready.arrive()
        ready.wait(0)
        found = pk.load(words.parts(1)[3]) if plain else pk.atomic_load(words.parts(1)[3])
        if not asks or found == 4:
            pk.store(y, pk.load(kept))


def test_groups_see_what_came_before_the_change_of_a_shared_element_that_they_find():
    kinds = faults(handed_over, tile(), tile(), asks=True, plain=False, seeds=SEEDS)
    assert kinds == set()
    kinds = faults(handed_over, tile(), tile(), asks=False, plain=False, seeds=SEEDS)
    assert kinds == {Kind.RACE}
    assert not is_determined(recorded(handed_over, tile(), tile(), asks=True, plain=False))


def test_a_plain_load_of_a_shared_element_is_no_atomic():
    kinds = faults(handed_over, tile(), tile(), asks=True, plain=True, seeds=SEEDS)
    assert kinds == {Kind.RACE}


@pk.kernel
def drawn(y, *, zeroed: bool):
    words = pk.shared(pk.sv(int32, 16))
    first = pk.semaphore(1)
    pk.grid(1)
    with pk.warps(4) as w:
        if w == 0:
            if zeroed:
                pk.store(words, pk.zeros(int32, 16))
            first.arrive()
        first.wait(0)
        pk.store(y[w], pk.atomic_add(words.parts(1)[0], 1))


def test_tickets_of_a_block_depend_on_the_order_of_its_warps():
    found = pk.check(drawn, np.zeros(4, np.int32), zeroed=True)
    assert found.ok
    assert [(f.level, f.kind) for f in found.findings] == [(Level.NOTE, Kind.SCHEDULE_DEPENDENT)]


def test_a_ticket_of_a_word_that_nothing_has_set_is_unwritten():
    found = findings(drawn, np.zeros(4, np.int32), zeroed=False, seeds=SEEDS)
    assert Kind.UNWRITTEN_MEMORY in {f.kind for f in found}
