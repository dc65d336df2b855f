"""What type checkers know of each value of a kernel, stated with `assert_type`."""

# pyright: strict

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_type

import pykittens as pk

if TYPE_CHECKING:
    from pykittens.ir.combining import VectorOrTile

ACTIVATIONS: dict[str, Callable[[pk.RegTile], pk.RegTile]] = {"relu": pk.relu, "gelu": pk.gelu}


@pk.function
def total(tiles: list[pk.RegTile]) -> pk.RegTile | int:
    return sum(tiles)


@pk.kernel
def memory(x: pk.Global, n: pk.Scalar) -> None:
    assert_type(x.shape[0], pk.Scalar)
    assert_type(x.rows // 16, pk.Scalar)
    assert_type(x.dtype, pk.DType)
    assert_type(x[n, 0], pk.TileRef)
    assert_type(x[..., 0], pk.TileRef)
    assert_type(x.at(n), pk.Global)
    assert_type(x[:, n], pk.Global)
    assert_type(x.window(0, n, n + 64), pk.Global)
    assert_type(pk.load(x[n, 0], rows=64, cols=64), pk.RegTile)
    assert_type(pk.load(x[n, 0], cols=64, spread=pk.per_row), pk.RegVector)
    assert_type(pk.load(x[n, 0], fill=1.0), pk.Scalar)
    tile = pk.shared(pk.st(pk.f32, 64, 64))
    vector = pk.shared(pk.sv(pk.f32, 64))
    assert_type(tile, pk.SharedTile)
    assert_type(tile.tiles(16, 16)[0, n], pk.SharedTile)
    assert_type(tile.tiles(16, 64)[n], pk.SharedTile)
    assert_type(tile.row(n), pk.SharedRow)
    assert_type(tile.tiles(16, 64)[n].row(3), pk.SharedRow)
    assert_type(pk.load(tile.row(n)), pk.RegVector)
    assert_type(vector, pk.SharedVector)
    assert_type(vector.parts(16)[n], pk.SharedVector)
    assert_type(pk.shared(pk.st(pk.f32, 64, 64), count=2)[n], pk.SharedTile)
    assert_type(pk.shared(pk.sv(pk.f32, 64), count=2)[n], pk.SharedVector)
    assert_type(pk.semaphore(1), pk.Semaphore)
    assert_type(pk.semaphore(1, count=2)[n], pk.Semaphore)
    assert_type(pk.load(tile, transposed=True), pk.RegTile)
    assert_type(pk.load(vector, spread=pk.per_row), pk.RegVector)
    assert_type(pk.load(vector.parts(1)[n]), pk.Scalar)
    index = pk.load(x, cols=64, spread=pk.per_row)
    assert_type(pk.gather(x, index, cols=64), pk.RegTile)
    assert_type(pk.gather(vector, index), pk.RegVector)
    assert_type(pk.atomic_add(x[n], 1), pk.Scalar)


@pk.kernel
def registers(x: pk.Global, n: pk.Scalar) -> None:
    t, v = pk.zeros(pk.f32, 64, 64), pk.zeros(pk.f32, 64, spread=pk.per_row)
    assert_type(t, pk.RegTile)
    assert_type(v, pk.RegVector)
    assert_type(pk.full(pk.f32, n, 64, 64), pk.RegTile)
    assert_type(pk.full(pk.f32, 1.0, 64), pk.RegVector)
    assert_type(t.shape, tuple[int, int])
    assert_type(v.length, int)
    assert_type(t * 2, pk.RegTile)
    assert_type(2 * t, pk.RegTile)
    assert_type(-t + v * n, pk.RegTile)
    assert_type(n * v, pk.RegVector)
    assert_type(1.0 / v, pk.RegVector)
    assert_type(abs(v), pk.RegVector)
    assert_type(n % 2 == 1, pk.Scalar)
    assert_type(1 << n, pk.Scalar)
    assert_type((t > 0) & ~(v < n), pk.RegTile)
    assert_type(t == 0, pk.RegTile)
    assert_type(t[0:16, 0:16], pk.RegTile)
    assert_type(v[0:16], pk.RegVector)
    assert_type(t.to(pk.bf16), pk.RegTile)
    assert_type(n.to(pk.f32), pk.Scalar)
    assert_type(pk.exp(t), pk.RegTile)
    assert_type(pk.exp(v), pk.RegVector)
    assert_type(pk.sqrt(n), pk.Scalar)
    assert_type(pk.sqrt(2.0), float)
    assert_type(pk.gelu(t, approximate="tanh"), pk.RegTile)
    assert_type(pk.maximum(t, 0), pk.RegTile)
    assert_type(pk.maximum(v, t), pk.RegTile)
    assert_type(pk.maximum(0, v), pk.RegVector)
    assert_type(pk.minimum(n, 64), pk.Scalar)
    assert_type(pk.minimum(32, 64), int)
    assert_type(pk.where(v > 0, t, 0.0), pk.RegTile)
    assert_type(pk.where(n > 0, n, 0), pk.Scalar)
    assert_type(pk.fma(n, t, v), pk.RegTile)
    assert_type(pk.cdiv(n, 64), pk.Scalar)
    assert_type(pk.cdiv(100, 64), int)
    assert_type(pk.row_max(t), pk.RegVector)
    assert_type(pk.col_argmin(t), pk.RegVector)
    assert_type(pk.sum(v), pk.Scalar)
    assert_type(pk.any(t > 0), pk.Scalar)
    assert_type(pk.cumsum(v), pk.RegVector)
    assert_type(pk.row_cumsum(t), pk.RegTile)
    assert_type(pk.row_sort(t), tuple[pk.RegTile, pk.RegTile])
    assert_type(pk.row_topk(t, 4)[1], pk.RegTile)
    assert_type(pk.random_bits(n, 0, 0, rows=64, cols=64), pk.RegTile)
    assert_type(pk.uniform(pk.random_bits(n, 0, 0, cols=64)), pk.RegVector)
    assert_type(pk.concat(t, t, axis=1), pk.RegTile)
    assert_type(pk.concat(v, v), pk.RegVector)
    assert_type(pk.transpose(t), pk.RegTile)
    assert_type(pk.column(t, n), pk.RegVector)
    assert_type(pk.tril(t, fill=-pk.inf), pk.RegTile)
    assert_type(pk.outer_add(v, v), pk.RegTile)
    assert_type(pk.rotary(t, t, t), pk.RegTile)
    assert_type(pk.inline_cuda("{0}", t, like=t), pk.RegTile)


@pk.kernel
def vectors(x: pk.Global, n: pk.Scalar) -> None:
    """Two vectors combine to a vector or, if one is per row and the other per column, to a tile: either is accepted."""
    rows, cols = pk.row_index(64), pk.col_index(64)
    table = 2 * (rows + cols)
    assert_type(table, VectorOrTile)
    assert_type(pk.row_max(table), pk.RegVector)
    assert_type(table[0:16, 0:16].rows, int)
    twice = pk.maximum(rows, rows) - n
    assert_type(twice, VectorOrTile)
    assert_type(pk.spread(twice, pk.plain).length, int)
    assert_type(pk.exp(twice * 1.0), VectorOrTile)
    assert_type(pk.where(rows >= cols, rows, 0), VectorOrTile)
    assert_type(table * pk.zeros(pk.f32, 64, 64), VectorOrTile)


@pk.kernel
def structure(x: pk.Global, *, depth: int) -> None:
    row, col, head = pk.grid(x.rows, 4, pk.cdiv(x.cols, 64))
    assert_type(head, pk.Scalar)
    assert_type(pk.grid(4, 4), tuple[pk.Scalar, pk.Scalar])
    assert_type(pk.static(x.cols), int)
    one = pk.pipeline(depth, pk.st(pk.bf16, 64, 64))
    vector = pk.pipeline(depth, pk.sv(pk.f32, 64), reuse=one)
    tiles = pk.pipeline(depth, a=pk.st(pk.bf16, 64, 64), b=pk.st(pk.bf16, 64, 64))
    scales = pk.pipeline(depth, a=pk.sv(pk.f32, 64), b=pk.sv(pk.f32, 64))
    both = pk.pipeline(depth, a=pk.st(pk.bf16, 64, 64), s=pk.sv(pk.f32, 64))
    with pk.producer() as nothing, one.fill() as t:
        assert_type(nothing, None)
        assert_type(t, pk.SharedTile)
    with pk.consumers(2) as w, vector.drain() as v, tiles.drain() as s:
        assert_type(w, pk.Scalar)
        assert_type(v, pk.SharedVector)
        assert_type(s.a, pk.SharedTile)
        assert_type(pk.mma_ABt(s.a, s.b), pk.RegTile)
        with scales.drain() as r, both.drain() as m:
            assert_type(r.b, pk.SharedVector)
            assert_type(pk.load(m.a).rows, int)
            assert_type(pk.load(m.s.parts(1)[w]), pk.Scalar)
        for i in pk.range(row, col):
            assert_type(i, pk.Scalar)
            assert_type(i * 64 + w, pk.Scalar)
        tasks = pk.persistent((4, col), pk.longest_first(col), blocks=8)
        assert_type(tasks.blocks, pk.Scalar)
        for i, j in tasks:
            assert_type(j, pk.Scalar)
    s1 = pk.zeros(pk.f32, 64, 64)
    p, m1, l1, none = pk.online_softmax(s1, 1.0, to=pk.bf16)
    assert_type(none, None)
    assert_type(pk.online_softmax(s1, 1.0, m1, l1, to=pk.bf16)[3], pk.RegVector)
    assert_type(pk.normalize(p, l1), pk.RegTile)


assert_type(memory, pk.KernelFunction)
assert_type(memory(1, 2), None)
assert_type(memory.source(1, 2, arch="sm_80"), str)
assert_type(memory.compile(1, 2).resources.shared_bytes, int)
