"""The default tier has the first case of each kind, half of all combinations or all pairs; another one has the rest."""

from __future__ import annotations

import itertools

import pytest

from tests.tiers import halved, paired, sampled, sampled_together

WORDS = ["add", "abs", "exp", "erf", "all"]


def by_letter(word: str) -> str:
    return word[0]


def test_the_first_case_of_each_kind_has_no_mark() -> None:
    found = {case.values: [mark.name for mark in case.marks] for case in sampled(WORDS, by_letter)}
    rest = ["units"]
    assert found == {("add",): [], ("abs",): rest, ("exp",): [], ("erf",): rest, ("all",): rest}


def test_a_tuple_is_a_value_for_each_parameter() -> None:
    (case,) = sampled([("add", "sm_80")], by_letter)
    assert case.values == ("add", "sm_80")


def test_cases_taken_together_are_each_in_one_of_two_parameters() -> None:
    first, others = sampled_together(WORDS, by_letter, pytest.mark.soak)
    assert (sorted(first.values[0]), [*first.marks]) == (["add", "exp"], [])
    assert (others.values[0], others.marks[0].name) == (["abs", "erf", "all"], "soak")


def test_half_of_all_combinations_have_no_mark_and_every_two_values_meet() -> None:
    axes = [(1, 2), (3, 4)], [5, 6], [7, 8, 9]
    found = halved(*axes)
    assert [case.values for case in found[:4]] == [
        (1, 2, 5, 7),
        (1, 2, 5, 8),
        (1, 2, 5, 9),
        (1, 2, 6, 7),
    ]
    kept = [case.values for case in found if not case.marks]
    assert len(found) == 2 * len(kept) == 12
    assert {mark.name for case in found for mark in case.marks} == {"soak"}
    assert len({(a, c) for a, _, c, _ in kept}) == 4
    assert len({(c, d) for _, _, c, d in kept}) == 6


def test_of_all_combinations_few_have_no_mark_and_every_two_values_meet() -> None:
    axes = [(1, 2), (3, 4)], [5, 6, 7], [8, 9, 10], [11, 12, 13, 14]
    found = paired(*axes)
    places = itertools.product(*axes)
    assert [case.values for case in found] == [(*a, b, c, d) for a, b, c, d in places]
    kept = [case.values for case in found if not case.marks]
    assert len(kept) < len(found) // 4
    for i, j in itertools.combinations(range(4), 2):  # the first is two parameters
        met = {(case[i + 1], case[j + 1]) for case in kept}
        assert len(met) == len(axes[i]) * len(axes[j])
    assert {mark.name for case in found for mark in case.marks} == {"soak"}
