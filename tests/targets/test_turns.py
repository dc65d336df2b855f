"""Positions in rings: those that share a variable are equal wherever they are used."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykittens.ir.nodes import Block, For, If, Node
from pykittens.ir.stages import Acquire, GiveBack, Pipeline
from pykittens.ir.values import Scalar
from pykittens.targets.cuda.turns import Position, position_of, shared_turns
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR

SIDES = ("fill", "drain", "back")
USES = st.tuples(st.integers(0, 1), st.sampled_from(SIDES), st.just(True) | st.booleans())
BODIES = st.recursive(
    st.lists(USES, max_size=6),
    lambda inner: st.lists(USES | st.tuples(inner, inner) | inner, max_size=5),
    max_leaves=5,
)


def built(items: list, rings: list[Pipeline]) -> Block:
    """A block with uses of rings, loops (lists) and branches (pairs of lists)."""
    nodes: list[Node] = []
    for item in items:
        match item:
            case list():
                nodes.append(For(Scalar(SCALAR(int32)), 0, 3, 1, built(item, rings)))
            case (then, otherwise):
                nodes.append(If(True, built(then, rings), built(otherwise, rings)))
            case (number, "back", exact):
                nodes.append(GiveBack(rings[number], keep=0, count=1, exact=exact))
            case (number, side, _):
                nodes.append(Acquire(rings[number], side, {}))
    return Block(nodes)


def trace(block: Block, draw) -> list[Node]:
    """The uses of rings of a run; draw: a number for each loop and branch."""
    found: list[Node] = []
    for node in block.nodes:
        match node:
            case For():
                for _ in range(draw()):
                    found += trace(node.body, draw)
            case If():
                found += trace(node.then if draw() % 2 else node.otherwise, draw)
            case _:
                found.append(node)
    return found


@given(items=BODIES, stages=st.tuples(st.integers(1, 2), st.integers(1, 2)), data=st.data())
def test_positions_with_one_variable_are_equal_at_every_use(items, stages, data):
    rings = [Pipeline(f"ring{i}", count, {}) for i, count in enumerate(stages)]
    body = built(items, rings)
    turns = list(shared_turns(body))
    of = {position: turn for turn in turns for position in turn.positions}
    counts: Counter[Position] = Counter()
    shared: Counter[object] = Counter()
    for node in trace(body, lambda: data.draw(st.integers(0, 3))):
        position = position_of(node)
        turn = of[position]
        assert shared[turn] == counts[position]
        assert len({p.stages for p, _ in turn.positions}) == 1
        counts[position] += 1
        shared[turn] += node in turn.ends


def use(number: int, side: str) -> tuple[int, str, bool]:
    return number, side, True


@pytest.mark.parametrize(
    ("items", "variables"),
    [
        ([[use(0, "drain"), use(1, "fill"), use(0, "back")]], 1),
        ([[use(0, "drain"), use(0, "back"), use(0, "drain"), use(0, "back")]], 1),
        ([[use(0, "drain"), use(0, "drain"), use(0, "back"), use(0, "back")]], 2),
        ([use(0, "drain"), [use(0, "drain"), use(0, "back")], use(0, "back")], 2),
        ([use(0, "drain"), [use(0, "drain"), use(0, "back")]], 2),
        ([[use(0, "drain"), (0, "back", False)]], 2),
        ([([use(0, "fill"), use(1, "drain")], [use(1, "drain"), use(0, "fill")])], 1),
    ],
)
def test_positions_that_are_used_in_rounds_take_one_variable(items, variables):
    rings = [Pipeline(f"ring{i}", 2, {}) for i in range(2)]
    assert len(list(shared_turns(built(items, rings)))) == variables
