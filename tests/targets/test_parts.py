"""The emitted text of loops over sums of rows does on the CPU what the emulator does, and joins no sums in the loop."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.types.dtypes import f32, int32
from tests import lanes
from tests.aot.cases import ATTENTION
from tests.cases.core import Case
from tests.loop_programs import loaded

ROWS, COLS, TILES = 32, 16, 4
NAMES = ("a", "b", "c")
HEAD = """
import pykittens as pk

def program(x, out, log, n, m):
    pk.grid(1)
    zero = pk.zeros(pk.int32, 32, spread=pk.per_row)
    t = pk.load(x[0, 0], rows=32, cols=16)
    first = pk.row_sum(t)
    a, b, c = {first}
    k = m
    {loop}
"""
TAIL = """
    pk.store(out[0], a); pk.store(out[1], b); pk.store(out[2], c)
"""
FACTORS = ("3", "-2", "i", "f", "c", "pk.max(t)", "pk.row_max(t)")
SUMS = ("pk.row_sum(t)", "pk.row_sum(t * 3)", "pk.row_sum(t) * 2", "5 * pk.row_sum(t + i)", "s")
# Statements that keep sums in parts, and those that do not or read them. Integers are exact, so any fault shows.
LINEAR = (
    "{v} = {v} * {f} + {s}",
    "{v} = {s} - {v}",
    "{v} = {f} * {v} + {s}",
    "{v} = {v} + {w}",
    "{v} = -{v}",
    "{v}, {w} = {w}, {v}",
    "{v} = {v} + {s} - {s}",
)
OTHERS = (
    "{v} = {v} * {w}",
    "{v} = {v} + 1",
    "{v} = pk.maximum({v}, {s})",
    "{v} = {s}",
    "{v} = {w}",
    "{v} = {v} + f",
    "{v} = {v} * {s}",
    "t = t + {v}",
    "pk.store(log[i % 4], {v})",
    "f = pk.row_max(t + {v})",
    "if i % 2 == 0: {v} = {v} * 2 + {s}",
    "for j in pk.range(i): {v} = {v} * 2 + {s}",
    "for j in pk.range(i): {v} = {v} * 2 + pk.row_sum(t + j)",
)
FIRST = (
    "zero, zero, zero",
    "first, zero, first",
    "first, zero + 7, first * 2",
    "first, zero - 1, t2",
)


def source(seed: int) -> str:
    """A random program of one loop."""
    draw = random.Random(seed)
    first = draw.choice(FIRST).replace("t2", "pk.row_sum(t * t)")
    if draw.random() < 0.7:
        lines = [HEAD.format(first=first, loop="for i in pk.range(n):")]
    else:
        lines = [HEAD.format(first=first, loop="i = n\n    while i > 0:\n        i = i - 1")]
    lines += ["        t = pk.load(x[0, i % 4], rows=32, cols=16)"]
    lines += ["        s, f = pk.row_sum(t), pk.row_max(t)"]
    for _ in range(draw.randint(1, 4)):
        text = draw.choice(LINEAR if draw.random() < 0.85 else OTHERS)
        v, w = draw.sample(NAMES, 2)
        lines.append(
            "        " + text.format(v=v, w=w, f=draw.choice(FACTORS), s=draw.choice(SUMS))
        )
    return "\n".join(lines) + TAIL


def case(seed: int, folder: Any) -> Case:
    draw = random.Random(seed)
    return Case(
        f"parts-{seed}",
        (),
        pk.kernel(warps=draw.choice((1, 2)))(loaded(source(seed), folder)),
        lambda rng: (rng.integers(-9, 10, (ROWS, COLS * TILES), np.int32),),
        (((3, ROWS), int32), ((4, ROWS), int32)),
        lambda *_: (),
        scalars=(draw.choice((0, 1, 2, 5)), 3),
    )


@pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize("first", [0, 40, pytest.param(80, marks=pytest.mark.soak)])
def test_the_text_of_a_random_loop_gives_what_the_emulator_gives(first, tmp_path):
    cases = [case(seed, tmp_path) for seed in range(first, first + 40)]
    block = lanes.Block(tmp_path, cases)
    split = 0
    for seed, each in zip(range(first, first + 40), cases, strict=True):
        inputs, wanted = each.arrays()
        each.kernel(*inputs, *wanted, *each.scalars)
        _, found = block.run(each, 0)
        for one, other in zip(found, wanted, strict=True):
            assert np.array_equal(one, other), source(seed)
        split += "% 4 == 0 ?" in block.sources[each.name].program
    assert 5 < split < 35


@pk.function
def of_all(v: Any, r: Any, c: Any, t: Any) -> list[Any]:
    """The sums of all elements of a plain, a per-row and a per-column vector and of a tile."""
    return [pk.sum(x) for x in (v, r, c, t)]


def summed(x, out, n, m):  # type: ignore[no-untyped-def]
    """Sums of values of every layout in a loop, from a zero, a number, an argument and a sum."""
    pk.grid(1)
    v = pk.load(x[0], cols=70)
    sums = [0.0, 1.5, m.to(pk.f32), pk.sum(v)]
    for i in pk.range(n):
        rows, cols = (pk.load(x[i], cols=32, spread=s) for s in (pk.per_row, pk.per_column))
        t = pk.load(x[0, i], rows=32, cols=16)
        more = of_all(v * 2.0, rows, cols, t)
        sums = [sums[0] + more[0], sums[1] * 2.0 + more[1], more[2] - sums[2], more[3] + sums[3]]
        v = pk.load(x[i], cols=70)
    for i in range(4):
        pk.store(out[i], sums[i])


@pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize("warps", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_scalar_sums_in_parts_are_those_of_the_emulator(warps, count, tmp_path):
    """The numbers are small integers, so any order gives the same."""
    each = Case(
        "summed",
        (),
        pk.kernel(warps=warps)(summed),
        lambda rng: (rng.integers(-9, 10, (ROWS, 80)).astype(np.float32),),
        (((4,), f32),),
        lambda *_: (),
        scalars=(count, 3),
    )
    inputs, wanted = each.arrays()
    each.kernel(*inputs, *wanted, *each.scalars)
    block = lanes.Block(tmp_path, [each])
    _, found = block.run(each, 0)
    assert np.array_equal(found[0], wanted[0])
    loop = block.sources[each.name].program.split("NO_UNROLL")[1].split("\n    }")[0]
    assert "join_lanes" not in loop


def test_the_loop_of_attention_joins_maxima_and_no_sums():
    shape = np.ones((1, 1, 384, 128), pk.bf16.numpy)
    program = ATTENTION.emitted(shape, shape, shape, shape, causal=False, arch="sm_90a").program
    loop = re.search(r"( +)NO_UNROLL for \(int j1 = .*?\n\1}", program, re.DOTALL)
    assert loop is not None
    assert [line.split("return ")[1] for line in loop[0].splitlines() if "join_lanes" in line] == [
        "max_nan(a, b); });"
    ]
    assert program[loop.end() :].count("join_lanes") == 1
