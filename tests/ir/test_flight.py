"""What is in flight: what a wait completes, and what is known where two paths meet."""

from __future__ import annotations

from pykittens.ir.passes.flight import MOST_PENDING, HeldStage, PendingProduct, State, join
from pykittens.ir.stages import Acquire, Pipeline
from pykittens.ir.values import Value
from pykittens.types.dtypes import f32
from pykittens.types.tiles import RT

RING = Pipeline("ring", 3, {})


def tile():
    return Value(RT(f32, 64, 64))


def queue(*sure):
    """Products, oldest first, each sure to have been issued or not."""
    return State([PendingProduct({tile()}, [], [], s) for s in sure])


def test_a_wait_leaves_pending_what_was_surely_issued_behind():
    state = queue(True, True, True)
    first, second, third = state.queue
    assert state.finish(1) == (1, [first, second])
    assert state.queue == [third]


def test_a_wait_does_not_count_what_was_perhaps_issued():
    state = queue(True, False, True)
    first, perhaps, last = state.queue
    assert state.finish(0) == (1, [first, perhaps])
    assert state.queue == [last]


def test_a_wait_names_no_more_than_the_hardware_can():
    state = queue(*[True] * (MOST_PENDING + 3))
    pending, done = state.finish(0)
    assert (pending, len(done)) == (MOST_PENDING, 3)


def test_where_two_paths_meet_what_is_on_one_only_is_not_sure():
    both, one = tile(), tile()
    a = State([PendingProduct({one}, [], []), PendingProduct({both}, [], [])])
    b = State([PendingProduct({both}, [], [])])
    joined = join(a, b)
    assert [(q.results, q.sure) for q in joined.queue] == [({one}, False), ({both}, True)]
    assert [q.sure for q in a.queue] == [True, True]


def test_stages_are_free_in_the_order_they_were_taken():
    first, second = (HeldStage(RING, Acquire(RING, "drain", {}), open=False) for _ in range(2))
    state = State([PendingProduct({tile()}, [first], [])], {RING: [first, second]})
    assert state.free(RING) == 0
    state.finish(0)
    assert state.free(RING) == 2
    first.open = True
    assert state.free(RING) == 0


def test_a_copy_is_another_state_with_the_same_key():
    held = HeldStage(RING, Acquire(RING, "drain", {}))
    state = State([PendingProduct({tile()}, [held], [])], {RING: [held]})
    copied = state.copy()
    assert copied.key() == state.key()
    copied.held[RING][0].open = False
    assert held.open
    assert copied.key() != state.key()
