"""Schedules: the same seed makes the same choices, the first two are the extremes, and nobody starves for ever."""

import pytest

from pykittens.emulate.schedule import SeededSchedule

SEEDS = range(40)


class Someone:
    """Who can be picked."""


def choices(seed: int) -> list[object]:
    """What a schedule chooses when it is asked in one order."""
    schedule = SeededSchedule(seed)
    groups = [Someone() for _ in range(3)]
    return [
        schedule.block_order(8),
        [schedule.at_once() for _ in range(20)],
        [schedule.lands_next(2) for _ in range(20)],
        [schedule.pauses() for _ in range(20)],
        [schedule.pick(range(5)) for _ in range(20)],
        [groups.index(schedule.pick_group(groups)) for _ in range(200)],
    ]


@pytest.mark.parametrize("seed", [0, 1, 2, 17])
def test_the_same_seed_makes_the_same_choices(seed):
    assert choices(seed) == choices(seed)


def test_other_seeds_make_other_choices():
    assert len({str(choices(seed)) for seed in SEEDS}) == len(SEEDS)


def test_engines_of_seed_0_are_late_and_those_of_seed_1_early():
    late, early = SeededSchedule(0), SeededSchedule(1)
    assert not any(late.at_once() or late.lands_next(1) for _ in range(100))
    assert all(early.at_once() for _ in range(100))


def test_other_seeds_draw_when_engines_work():
    assert {SeededSchedule(seed).landing for seed in SEEDS[2:]} == {"late", "early", "any"}
    mixed = next(s for s in map(SeededSchedule, SEEDS) if s.landing == "any")
    assert {mixed.at_once() for _ in range(100)} == {True, False}
    assert {mixed.lands_next(1) for _ in range(100)} == {True, False}


def test_the_first_two_seeds_take_blocks_in_order_and_do_not_pause():
    for seed in (0, 1):
        schedule = SeededSchedule(seed)
        assert list(schedule.block_order(5)) == [0, 1, 2, 3, 4]
        assert not any(schedule.pauses() for _ in range(100))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_block_runs_once(seed):
    assert sorted(SeededSchedule(seed).block_order(9)) == list(range(9))


def test_some_seed_changes_the_order_of_blocks():
    assert any(SeededSchedule(seed).block_order(9) != list(range(9)) for seed in SEEDS)


def test_some_schedules_are_fair_and_some_favour_a_group():
    assert SeededSchedule(0).is_fair
    assert SeededSchedule(1).is_fair
    assert {SeededSchedule(seed).is_fair for seed in SEEDS[2:]} == {True, False}


@pytest.mark.parametrize("seed", [s for s in SEEDS if not SeededSchedule(s).is_fair])
def test_a_favoured_group_goes_on_for_a_while_and_a_starved_one_runs_in_the_end(seed):
    schedule, groups = SeededSchedule(seed), [Someone() for _ in range(3)]
    picked = [schedule.pick_group(groups) for _ in range(3000)]
    assert set(picked) == set(groups)
    changes = sum(a != b for a, b in zip(picked, picked[1:], strict=False))
    assert changes < len(picked) / 10


def test_the_only_group_that_can_go_on_does():
    group = Someone()
    assert all(SeededSchedule(seed).pick_group([group]) is group for seed in SEEDS)


def test_groups_that_have_ended_leave_nothing_to_those_that_come():
    """Else what a seed chooses would hang on where Python happens to put the groups."""
    seed = next(s for s in SEEDS if not SeededSchedule(s).is_fair)

    def picked(keep: bool) -> list[int]:
        schedule, kept = SeededSchedule(seed), []
        chosen = []
        for _ in range(50):
            groups = [Someone() for _ in range(3)]
            chosen.append(groups.index(schedule.pick_group(groups)))
            kept += groups if keep else []
        return chosen

    assert picked(keep=True) == picked(keep=False)
