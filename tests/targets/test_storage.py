"""Scalars whose variable is written again are read before, in the emulator and in the emitted text."""

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens.runtime import nvrtc
from tests.running import first, put, stored
from tests.targets.compiling import DTYPES, matrix

OUT = matrix(8, 8, dtype=DTYPES["int32"])


def program(kernel, *args) -> list[str]:
    """The statements of the emitted kernel, without comments."""
    text = kernel.source(OUT, *args)
    lines = text[text.index('extern "C"') :].splitlines()
    return [s for line in lines if (s := line.strip()) and not s.startswith(("//", "#"))]


def compiles(kernel, *args) -> None:
    if nvrtc.available() is None:
        kernel.compile(OUT, *args)


@pk.kernel
def coordinate(out, n):
    pk.grid(1)
    k = n
    for j in pk.range(3):
        here = out[k + 1]
        k = k + 2
        pk.store(here, pk.zeros(pk.int32, 8) + j)


def test_an_expression_is_computed_before_its_operand_changes():
    assert stored(coordinate, 0) == [None, 0, None, 1, None, 2, None, None]
    lines = program(coordinate, 0)
    bumped = lines.index("k = k + 2;")
    assert any(re.fullmatch(r"const int \w+ = k \+ 1;", line) for line in lines[:bumped])
    assert not any("k + 1" in line for line in lines[bumped:])


@pk.kernel
def carried_list(out, n):
    pk.grid(1)
    s = [n, n * 2]
    for _ in pk.range(2):
        s = [s[1] + 1, s[0] + 10]
    put(out, 0, s[0] * 100 + s[1])


def test_elements_of_a_carried_list_that_trade_places():
    assert first(carried_list, 1) == (1 + 10 + 1) * 100 + 2 + 1 + 10
    lines = program(carried_list, 1)
    late = next(i for i, line in enumerate(lines) if re.fullmatch(r"\w+ = s0 \+ 10;", line))
    assert re.fullmatch(r"const int \w+ = \w+ \+ 1;", lines[late - 1])


@pk.kernel
def bound(out, n):
    pk.grid(1)
    m = n * 2
    for _ in pk.range(m):
        m = m + 1
    put(out, 0, m)


def test_the_bound_of_a_loop_does_not_move_with_what_the_loop_carries():
    assert first(bound, 3) == 12
    head = next(line for line in program(bound, 3) if "for (int" in line)
    stop = re.search(r"< (\w+);", head)[1]
    assert f"{stop} = {stop} + 1;" not in program(bound, 3)


@pk.kernel
def swapped(out, n):
    pk.grid(1)
    low, high = n * 3, n * 2 + 1
    if low > high:
        low, high = high, low
    put(out, 0, low * 100 + high)


@pytest.mark.parametrize(("n", "result"), [(0, 1), (5, 1115)])
def test_values_swapped_in_a_branch(n, result):
    assert first(swapped, n) == result
    assert "high = low;" not in program(swapped, n)


@pk.kernel
def outside(out, n):
    pk.grid(1)
    was = n * 2
    total = was
    for _ in pk.range(3):
        total = total + n
    if n > 3:
        side = n + 1
    else:
        side = n + 2
    with pk.warpgroups(1):
        put(out, 0, total * 100 + side * 10 + was)


@pytest.mark.parametrize("n", [1, 4])
def test_scalars_outside_roles_keep_their_variables_in_them(n):
    assert first(outside, n) == n * 500 + (n + (1 if n > 3 else 2)) * 10 + n * 2
    assert "total = total + n;" in program(outside, n)
    assert "was = was + n;" not in program(outside, n)
    compiles(outside, n)


@pk.kernel
def view(x, out, n):
    ring = pk.pipeline(1, pk.st(pk.f32, 64, 32))
    tasks = pk.persistent((1,))
    with pk.producer():
        for (i,) in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[i, 0])
    with pk.warps(1):
        for (i,) in tasks:
            with ring.drain() as t:
                k = n * 1
                for _ in pk.range(2):
                    part = t.tiles(32, 32)[k]
                    k = k + 1
                    pk.store_async(out[k - 1, 0], part)


def test_a_view_keeps_its_place_when_its_index_changes():
    x = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    out = np.zeros_like(x)
    view(x, out, 0)
    assert (out == x).all()
    text = view.source(x, out, 0)
    part = re.search(r"store_box\(out_map, \w+ \+ (\w+) \* 4096", text)[1]
    assert f" {part} = {part} + 1;" not in text


@pk.kernel
def chained(x, out, *, accumulates: bool):
    ring = pk.pipeline(1, pk.st(pk.f32, 64, 64))
    pk.grid(1)
    with pk.producer():
        for _ in pk.range(3):
            with ring.fill() as s:
                pk.load_async(s, x[0])
    with pk.warpgroups(1):
        t = pk.full(pk.f32, 0.25, 64, 64)
        for _ in pk.range(3):
            with ring.drain() as s:
                t = pk.mma_ABt(t, s, t if accumulates else None)
        pk.store(out[0], t)


@pytest.mark.parametrize("accumulates", [False, True])
def test_a_product_does_not_overwrite_the_operand_it_still_reads(accumulates):
    x = np.zeros((64, 64), np.float32)
    text = chained.source(x, x.copy(), accumulates=accumulates)
    (read,) = set(re.findall(r"tf32\(__float_as_uint\((\w+)\[", text))
    (written,) = set(re.findall(r"mma_sync_f32_f32\((\w+), m_step", text))
    assert read != written
