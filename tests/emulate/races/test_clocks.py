"""Vector clocks: what an arrival tells, what its warps may rely on, and what a barrier or a flag passes on."""

import pytest

from pykittens.emulate.races.clocks import (
    FENCE_SHARED,
    OF_A_GROUP,
    PRODUCTS,
    STORES_READ,
    STORES_WRITTEN,
    TIME,
    BarrierClock,
    FlagClock,
    GroupClock,
    new_clock,
)

SIZE = 2 * OF_A_GROUP + 1
COPIES = 2 * OF_A_GROUP


@pytest.fixture
def pair() -> tuple[GroupClock, GroupClock]:
    """Two groups that know nothing of one another."""
    return GroupClock(0, SIZE), GroupClock(OF_A_GROUP, SIZE)


def barrier() -> BarrierClock:
    return BarrierClock(COPIES, new_clock(SIZE))


def test_an_arrival_tells_of_what_was_done_before_it_and_not_of_what_comes_after(pair):
    group, _ = pair
    before = group.now
    told = group.signal()
    assert told[TIME] >= before
    assert told[TIME] < group.now


def test_what_a_group_did_is_known_to_its_own_warps_only_after_they_met(pair):
    group, _ = pair
    access = group.now
    group.signal()
    assert group.known[TIME] < access
    group.meet()
    assert group.known[TIME] >= access


def test_what_a_group_learns_it_tells_others(pair):
    first, second = pair
    access = first.now
    second.learn(first.signal())
    assert second.known[TIME] >= access
    assert second.signal()[TIME] >= access


def test_what_has_been_told_does_not_change_afterwards(pair):
    first, _ = pair
    told = first.signal()
    kept = told.copy()
    first.signal()
    first.finish(PRODUCTS, 3)
    assert (told == kept).all()


def test_a_fence_covers_what_was_written_before_it_only(pair):
    group, _ = pair
    before = group.now
    group.fence(FENCE_SHARED)
    after = group.now
    told = group.signal()
    assert before <= told[FENCE_SHARED] < after


@pytest.mark.parametrize("component", [PRODUCTS, STORES_READ, STORES_WRITTEN])
def test_what_an_engine_has_finished_is_never_forgotten(pair, component):
    group, _ = pair
    group.finish(component, 2)
    group.finish(component, 1)
    assert group.signal()[component] == 2
    assert group.known[component] == 0  # the other warps have not met


def test_the_end_of_a_phase_tells_what_all_its_arrivals_told(pair):
    full = barrier()
    for group in pair:
        full.join(group.signal())
    told = full.complete()
    assert told[TIME] == 1
    assert told[OF_A_GROUP + TIME] == 1


def test_a_phase_does_not_tell_of_an_arrival_of_the_next(pair):
    full, (first, second) = barrier(), pair
    full.join(first.signal())
    full.complete()
    full.join(second.signal())
    full.complete()
    assert [p[OF_A_GROUP + TIME] for p in full.phases] == [0, 1]


def test_a_phase_tells_of_the_copies_up_to_the_first_that_is_under_way():
    full = barrier()
    full.copies, full.under_way = 4, {3}
    assert full.complete()[COPIES] == 2
    full.under_way.clear()
    assert full.complete()[COPIES] == 4


def test_the_bytes_brought_are_those_of_one_phase():
    full = barrier()
    full.brought = 64
    full.complete()
    assert full.brought == 0


def test_who_finds_a_flag_learns_from_the_first_value_that_is_enough(pair):
    flag, (first, second) = FlagClock(0), pair
    flag.signal(1, first.signal(), adds=False)
    flag.signal(3, second.signal(), adds=False)
    assert flag.seen(1)[TIME] == 1
    assert flag.seen(2)[TIME] == 0
    assert flag.seen(2)[OF_A_GROUP + TIME] == 1


def test_a_stored_flag_tells_nothing_of_who_set_it_before(pair):
    flag, (first, second) = FlagClock(0), pair
    flag.signal(1, first.signal(), adds=False)
    flag.signal(2, second.signal(), adds=False)
    assert flag.seen(2)[TIME] == 0


def test_a_flag_that_is_added_to_tells_of_all_who_added(pair):
    flag, (first, second) = FlagClock(0), pair
    flag.signal(1, first.signal(), adds=True)
    flag.signal(2, second.signal(), adds=True)
    assert flag.seen(2)[TIME] == 1
    assert flag.seen(1)[OF_A_GROUP + TIME] == 0


def test_a_flag_that_nobody_has_set_so_high_tells_nothing():
    assert FlagClock(0).seen(1) is None


def test_a_flag_that_was_high_enough_before_the_launch_tells_nothing(pair):
    flag = FlagClock(1)
    flag.signal(2, pair[0].signal(), adds=False)
    assert flag.seen(1) is None
    assert flag.seen(2) is not None
