"""Parts, concat, transpose, rows and columns, in all dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DTYPES, DType, bf16, bool_, f32, int8, int32, int64
from tests import tolerance
from tests.cases.convert import numbers
from tests.cases.core import Array, Case
from tests.cases.reduce import wide

ALL = list(DTYPES.values())
SOME = [bf16, f32, int8, int64, bool_]
SPREADS = {"plain": pk.plain, "row": pk.per_row, "column": pk.per_column}
Shape = tuple[int, ...]


def _load(x: Any, shape: Shape) -> Any:
    return (
        pk.load(x, cols=shape[0])
        if len(shape) == 1
        else pk.load(x[0], rows=shape[0], cols=shape[1])
    )


def _name(name: str, dtype: DType, warps: int, *shapes: Shape) -> str:
    return f"shape-{name}-{dtype}-{'_'.join('x'.join(map(str, s)) for s in shapes)}-{warps}"


def _one(
    name: str,
    dtype: DType,
    warps: int,
    shape: Shape,
    function: Callable[[Any], Any],
    reference: Callable[[Array], Array],
) -> Case:
    """An operation, the first word of the name, on one value."""
    out = reference(np.zeros(shape)).shape

    @pk.kernel(warps=warps)
    def move(x, y):
        pk.grid(1)
        pk.store(y if len(out) == 1 else y[0], function(_load(x, shape)))

    return Case(
        _name(name, dtype, warps, shape),
        (name.partition("-")[0],),
        move,
        lambda rng: [numbers(rng, shape, dtype)],
        ((out, dtype),),
        lambda x: [reference(x)],
    )


def _at(
    name: str,
    dtype: DType,
    warps: int,
    shape: Shape,
    number: int,
    function: Callable[[Any, Any], Any],
    reference: Callable[[Array, int], Array],
) -> Case:
    """An operation on one value and a number, known when the kernel is compiled or when it runs."""
    out = reference(np.zeros(shape), number).shape

    @pk.kernel(warps=warps)
    def move(x, known, run_time, n):
        pk.grid(1)
        t = _load(x, shape)
        pk.store(known if len(out) == 1 else known[0], function(t, number))
        pk.store(run_time if len(out) == 1 else run_time[0], function(t, n))

    return Case(
        _name(f"{name}-{number}", dtype, warps, shape),
        (name.partition("-")[0],),
        move,
        lambda rng: [numbers(rng, shape, dtype)],
        ((out, dtype), (out, dtype)),
        lambda x, n: [reference(x, n)] * 2,
        scalars=(number,),
    )


def _two(name: str, dtype: DType, warps: int, a: Shape, b: Shape, axis: int) -> Case:
    out = np.concatenate([np.zeros(a), np.zeros(b)], axis).shape

    @pk.kernel(warps=warps)
    def join(x, z, y):
        pk.grid(1)
        pk.store(y if len(out) == 1 else y[0], pk.concat(_load(x, a), _load(z, b), axis))

    return Case(
        _name(name, dtype, warps, a, b),
        ("concat",),
        join,
        lambda rng: [numbers(rng, a, dtype), numbers(rng, b, dtype)],
        ((out, dtype),),
        lambda x, z: [np.concatenate([x, z], axis)],
    )


def _transposed(dtype: DType, rows: int, cols: int, warps: int) -> Case:
    return _one("transpose", dtype, warps, (rows, cols), pk.transpose, lambda x: x.T)


def _in_place() -> Case:
    """A tile that a loop carries is turned in the registers it lies in."""

    @pk.kernel
    def turn(x, y, n):
        pk.grid(1)
        t = pk.load(x[0], rows=128, cols=128)
        for _ in pk.range(n):
            t = pk.swap_pairs(pk.transpose(t))
        pk.store(y[0], t)

    def exact(x: Array, n: int) -> list[Array]:
        for _ in range(n):
            x = x.T.reshape(128, 64, 2)[..., ::-1].reshape(128, 128)
        return [x]

    return Case(
        "shape-transpose-carried",
        ("transpose", "swap_pairs"),
        turn,
        lambda rng: [numbers(rng, (128, 128), f32)],
        (((128, 128), f32),),
        exact,
        scalars=(3,),
    )


# -- vectors ---------------------------------------------------------------------------------------


def _spread(first: str, to: str, dtype: DType, length: int, warps: int) -> Case:
    """From one spread to another and back to a plain vector."""
    one, other = SPREADS[first], SPREADS[to]

    @pk.kernel(warps=warps)
    def turn(x, y):
        pk.grid(1)
        vector = pk.spread(pk.load(x, cols=length), one)
        pk.store(y, pk.spread(pk.spread(vector, other), pk.plain))

    return Case(
        _name(f"spread-{first}-{to}", dtype, warps, (length,)),
        ("spread",),
        turn,
        lambda rng: [numbers(rng, (length,), dtype)],
        (((length,), dtype),),
        lambda x: [x],
    )


def _outer(word: str, function: Any) -> Case:
    @pk.kernel
    def outer(a, b, y):
        pk.grid(1)
        pk.store(y[0], getattr(pk, word)(pk.load(a, cols=64), pk.load(b, cols=48)))

    return Case(
        f"shape-{word}",
        ("spread",),
        outer,
        lambda rng: [rng.standard_normal(n).astype(np.float32) for n in (64, 48)],
        (((64, 48), f32),),
        lambda a, b: [function.outer(wide(a), wide(b))],
        lambda exact, a, b: [tolerance.rounding(np.float32, exact[0])],
    )


def _shifted(dtype: DType, length: int, warps: int, by: int) -> Case:
    """Two vectors one after another, by some elements further on."""

    @pk.kernel(warps=warps)
    def shift(x, z, y):
        pk.grid(1)
        a, b = pk.load(x, cols=length), pk.load(z, cols=length)
        pk.store(y, pk.shifted(b, a, by) if by > 0 else pk.shifted(a, b, by))

    first = length - by if by > 0 else -by
    return Case(
        _name(f"shifted-{by}", dtype, warps, (length,)),
        ("shifted",),
        shift,
        lambda rng: [numbers(rng, (length,), dtype) for _ in range(2)],
        (((length,), dtype),),
        lambda x, z: [np.concatenate([x, z])[first : first + length]],
    )


# -- rows and columns ------------------------------------------------------------------------------


def _put(word: str, dtype: DType, rows: int, cols: int, warps: int, at: int) -> Case:
    """A row or column of one tile is put into another."""
    across = word == "with_row"
    take = pk.row if across else pk.column

    @pk.kernel(warps=warps)
    def put(x, z, y, n):
        pk.grid(1)
        a, b = pk.load(x[0], rows=rows, cols=cols), pk.load(z[0], rows=rows, cols=cols)
        pk.store(y[0], getattr(pk, word)(a, n, take(b, 0)))

    def exact(x: Array, z: Array, n: int) -> list[Array]:
        y = x.copy()
        if across:
            y[n] = z[0]
        else:
            y[:, n] = z[:, 0]
        return [y]

    return Case(
        _name(word, dtype, warps, (rows, cols)),
        ("row" if across else "column",),
        put,
        lambda rng: [numbers(rng, (rows, cols), dtype) for _ in range(2)],
        (((rows, cols), dtype),),
        exact,
        scalars=(at,),
    )


def _chosen(dtype: DType, rows: int, cols: int, warps: int) -> Case:
    """Of each row the element in a column of its own."""

    @pk.kernel(warps=warps)
    def choose(x, j, y):
        pk.grid(1)
        index = pk.spread(pk.load(j, cols=rows), pk.per_row)
        found = pk.column(pk.load(x[0], rows=rows, cols=cols), index)
        pk.store(y, pk.spread(found, pk.plain))

    def inputs(rng: np.random.Generator) -> list[Array]:
        return [numbers(rng, (rows, cols), dtype), rng.integers(0, cols, rows).astype(np.int32)]

    return Case(
        _name("column-own", dtype, warps, (rows, cols)),
        ("column",),
        choose,
        inputs,
        (((rows,), dtype),),
        lambda x, j: [x[np.arange(rows), j]],
    )


def _diagonals(dtype: DType, warps: int, size: int) -> Case:
    @pk.kernel(warps=warps)
    def diagonals(x, y, matrix):
        pk.grid(1)
        d = pk.diagonal(pk.load(x[0], rows=size, cols=size + 16))
        pk.store(y, pk.spread(d, pk.plain))
        pk.store(matrix[0], pk.diagonal_matrix(d))

    def exact(x: Array) -> list[Array]:
        d = x.diagonal()
        return [d, np.where(np.eye(size, dtype=bool), d, x.dtype.type(0))]

    return Case(
        _name("diagonal", dtype, warps, (size, size)),
        ("column", "where"),
        diagonals,
        lambda rng: [numbers(rng, (size, size + 16), dtype)],
        (((size,), dtype), ((size, size), dtype)),
        exact,
    )


# -- rotations -------------------------------------------------------------------------------------


def _rotary(dtype: DType, interleaved: bool) -> Case:
    rows, cols = 64, 64

    @pk.kernel
    def rotate(x, cos, sin, y):
        pk.grid(1)
        t, c, s = (pk.load(a[0], rows=rows, cols=cols).to(f32) for a in (x, cos, sin))
        pk.store(y[0], pk.rotary(t, c, s, interleaved=interleaved).to(dtype))

    def rotated(x: Array) -> Array:
        if interleaved:
            return np.stack([-x[:, 1::2], x[:, ::2]], -1).reshape(x.shape)
        return np.concatenate([-x[:, cols // 2 :], x[:, : cols // 2]], 1)

    def exact(x: Array, cos: Array, sin: Array) -> list[Array]:
        x, cos, sin = wide(x), wide(cos), wide(sin)
        return [x * cos + rotated(x) * sin]

    def bound(exact: list[Array], x: Array, cos: Array, sin: Array) -> list[Array]:
        magnitude = np.abs(wide(x) * wide(cos)) + np.abs(rotated(wide(x)) * wide(sin))
        return [tolerance.product(dtype.numpy, exact[0], magnitude, 2)]

    return Case(
        f"shape-rotary-{'interleaved' if interleaved else 'halves'}-{dtype}",
        ("swap_pairs",) if interleaved else ("concat", "part"),
        rotate,
        lambda rng: [rng.standard_normal((rows, cols)).astype(dtype.numpy) for _ in range(3)],
        (((rows, cols), dtype),),
        exact,
        bound,
    )


def _swapped(x: Array) -> Array:
    return x.reshape(*x.shape[:-1], -1, 2)[..., ::-1].reshape(x.shape)


CASES = [_transposed(d, 64, 64, 4) for d in ALL]
CASES += [_transposed(d, 64, 128, 4) for d in (bf16, f32)]
CASES += [_transposed(d, 16, 48, 1) for d in (bf16, int8)]
CASES += [_transposed(bf16, 128, 256, 8), _transposed(f32, 128, 128, 8)]
CASES += [_in_place()]
CASES += [
    _one("part", d, 4, (128, 64), lambda t: t[64:, 16:48], lambda x: x[64:, 16:48]) for d in ALL
]
CASES += [_one("part-rows", f32, 1, (64, 32), lambda t: t[16:48], lambda x: x[16:48])]
CASES += [_one("part-cols", int8, 8, (128, 48), lambda t: t[:, 32:], lambda x: x[:, 32:])]
CASES += [
    _one(f"part-{a}-{b}", d, w, (n,), lambda v, a=a, b=b: v[a:b], lambda x, a=a, b=b: x[a:b])
    for a, b, n, w, ds in (
        (3, 100, 1000, 4, (bf16, f32, int8)),
        (256, 512, 1000, 1, (bf16, f32)),
        (1024, 2000, 2100, 4, (bf16, f32)),
        (0, 7, 4000, 8, (int8, f32)),
        (39, 40, 40, 1, (f32,)),
    )
    for d in ds
]
CASES += [_two("concat-below", d, 4, (64, 48), (128, 48), 0) for d in (bf16, f32)]
CASES += [_two("concat-beside", d, 4, (64, 48), (64, 16), 1) for d in ALL]
CASES += [_two("concat", d, 4, (37,), (600,), 0) for d in SOME]
CASES += [_two("concat", f32, 1, (33,), (1,), 0), _two("concat", bf16, 8, (2000,), (2001,), 0)]
CASES += [_one("swap_pairs", d, 4, (64, 48), pk.swap_pairs, _swapped) for d in ALL]
CASES += [
    _one("swap_pairs", d, w, (n,), pk.swap_pairs, _swapped)
    for d in (bf16, f32, int8)
    for n, w in ((1000, 4), (34, 1))
]
CASES += [
    _shifted(d, n, w, by)
    for n, w, ds in ((256, 1, ALL), (512, 1, [f32]), (100, 1, [f32, bf16]), (1000, 4, [f32]))
    for d in ds
    for by in (3, -3)
]
CASES += [_shifted(f32, 256, 1, by) for by in (1, 8, -8, 9, 256, -256)]
CASES += [_spread(a, b, f32, 64, 4) for a in SPREADS for b in SPREADS]
CASES += [_spread("row", "column", d, 48, 1) for d in ALL]
CASES += [_spread("column", "row", d, 128, 8) for d in (bf16, int32)]
CASES += [
    _outer("outer_add", np.add),
    _outer("outer_sub", np.subtract),
    _outer("outer_mul", np.multiply),
]
CASES += [
    _at("row", d, w, s, i, lambda t, i: pk.spread(pk.row(t, i), pk.plain), lambda x, i: x[i])
    for d in (bf16, f32, int8)
    for i, s, w in ((37, (64, 48), 4), (9, (16, 32), 1))
]
CASES += [
    _at(
        "column",
        d,
        w,
        s,
        j,
        lambda t, j: pk.spread(pk.column(t, j), pk.plain),
        lambda x, j: x[:, j],
    )
    for d in (bf16, f32, int64)
    for j, s, w in ((37, (64, 48), 4), (6, (128, 16), 8))
]
CASES += [_chosen(d, 64, 48, 4) for d in (bf16, f32, int8)]
CASES += [_put(w, d, 64, 48, 4, 21) for w in ("with_row", "with_column") for d in (bf16, f32)]
CASES += [_diagonals(bf16, 4, 64), _diagonals(int32, 1, 48)]
CASES += [_rotary(d, i) for d in (bf16, f32) for i in (False, True)]
