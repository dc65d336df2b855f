"""The graph of a program has every instruction once, below all that it reads from."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.pictures.schedule import draw, groups_of
from tests.mega.programs import LENGTH, added, cells, random_steps
from tests.pictures.reading import read

INPUTS = 4


def scheduled(seed):
    steps = random_steps(np.random.default_rng(seed), INPUTS, 30, 3)
    return steps, added(cells(3), steps).scheduled(
        x=np.zeros((INPUTS + len(steps), LENGTH), np.float32)
    )


def read_by(step):
    """The cells that an instruction reads."""
    return {"add": {step.a, step.b}, "total": {step.a, step.a + 1, step.a + 2}}.get(
        step.kind, {step.a}
    )


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_those_of_the_program(seed):
    steps, schedule = scheduled(seed)
    groups = groups_of(schedule)
    assert sorted(n for group in groups for n in group.instructions) == [*range(len(steps))]
    group_of = {n: number for number, group in enumerate(groups) for n in group.instructions}
    for number, group in enumerate(groups):
        for n in group.instructions:
            before = {c - INPUTS for c in read_by(steps[n]) if c >= INPUTS}
            assert {group_of[w] for w in before} == group.sources
        assert all(s < number and groups[s].depth < group.depth for s in group.sources)


def test_the_graph_can_be_read():
    _, schedule = scheduled(0)
    picture = read(draw(schedule).svg())
    assert picture.words("title") == ["30 instructions on 3 blocks"]
    assert len(picture.words("head")) == len(groups_of(schedule))
    assert all(picture.whole.holds(text) for text in picture.texts)
