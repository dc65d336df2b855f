"""The outer levels of transforms of more than 4096 elements, which pass through memory.

A level leaves sequences of as many elements as its matrices have columns, with transforms of their own. Between
launches they are complex, in f16: real and imaginary part one behind the other, (2 batch, rows, columns).
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.long_conv.tables import COLS
from pykittens.kernels.long_conv.tiles import ByPlace, InTensor, gated, zeros_of
from pykittens.kernels.long_conv.transform import Transform, matrix_of, scales_of
from pykittens.lang.std.complex_tile import ComplexTile

CHUNK = 4096  # elements that are read at a time


@pk.kernel
def sequence_scales(U, before, ups):  # type: ignore[no-untyped-def]
    """The power of two that each sequence of before * U is divided by, for each row of its matrix.

    U: (batch, channels, n). ups: (batch, channels, rows).
    """
    batch, channels, n = U.shape
    b, h = pk.grid(batch, channels)
    largest: Any = 0.0
    for i in pk.range(pk.cdiv(n, CHUNK)):
        x = pk.load(U[b, h, i], cols=CHUNK).to(pk.f32)
        if before is not None:
            x = x * pk.load(before[b, h, i], cols=CHUNK).to(pk.f32)
        largest = pk.maximum(largest, pk.max(pk.abs(x)))
    _, up = scales_of(largest)
    pk.store(ups[b, h, 0], pk.zeros(pk.f32, pk.static(ups.shape[2])) + up)


@pk.kernel
def even_scales(scales, ups, evens, root):  # type: ignore[no-untyped-def]
    """The scales of all transforms that a filter's is made of become relative to the largest; `evens` is what is left.

    scales: (channels, all rows). ups, evens: (1, channels, rows), the scales of filters, 1 if None, and those of
    results, of which `root` is a factor.
    """
    (h,) = pk.grid(scales.shape[0])
    largest: Any = 0.0
    for i in pk.range(pk.cdiv(scales.shape[1], CHUNK)):
        largest = pk.maximum(largest, pk.max(pk.load(scales[h, i], cols=CHUNK)))
    for i in pk.range(pk.cdiv(scales.shape[1], CHUNK)):
        pk.store(scales[h, i], pk.load(scales[h, i], cols=CHUNK) / largest)
    own: Any = pk.full(pk.f32, 1.0, pk.static(evens.shape[2]))
    if ups is not None:
        own = pk.load(ups[0, h, 0], cols=own.length)
    pk.store(evens[0, h, 0], own * (largest * root))


def place_of(
    arrays: Any, rows: int, n: Any, columns: Any, b: Any, tile: Any, a: Any, zero: Any
) -> Any:
    """Where tile (tile, a) of the sequences of batches from b on is in the arrays."""
    if len(next(iter(arrays.values())).shape) == 3:
        return InTensor(arrays, b, tile, a)
    return ByPlace(arrays, b, rows, n, tile, zero, columns, a * COLS)


def rows_transform(left: Any, twiddle: Any) -> Transform:
    """The transform from the left, with its factors in shared memory, which leaves registers to more blocks."""
    memory: Any = pk.shared(pk.st(pk.f16, COLS, COLS), count=4)
    pair, factors = ComplexTile(memory[0], memory[1]), ComplexTile(memory[2], memory[3])
    factors.store(matrix_of(twiddle))
    pk.sync()
    return Transform(matrix_of(left), factors, None, pair)


def step_of(steps: Any, a: Any) -> ComplexTile:
    """What twiddle factors of the a-th 64 columns have more than those of the first, as vectors along rows."""
    return ComplexTile(*(pk.load(steps[i, a, 0], cols=COLS, spread=pk.per_row) for i in range(2)))


def scale_of(scales: Any, b: Any, i: int, tile: Any) -> Any:
    """Scales of the rows of a tile, of sequence i of a pair; 1 past the last row."""
    own = pk.minimum(b + i, scales.shape[0] - 1) if i else b
    return pk.load(scales[own, tile], cols=COLS, spread=pk.per_row, fill=1)


@pk.kernel
def outer_forward(  # type: ignore[no-untyped-def]
    U, before, ups, Z, left, twiddle, steps, n, behind, *, rows, is_paired, resident
):
    """A level of the transforms of before * U, divided by `ups` if these are given.

    U: (batch, rows of all matrices, columns), or (batch, all sequences of n elements). behind: of circular filters;
    what is at position p > 0 is at `behind` + p, too, with a factor of -i.
    """
    batch, (_, _, columns) = U.shape[0], Z.shape
    arrays = {name: x for name, x in (("u", U), ("before", before)) if x is not None}
    pk.resident(resident)
    of = rows_transform(left, twiddle)
    zero = zeros_of(pk.shared(pk.sv(pk.int32, 16))) if n is not None else None
    pairs, members = pk.cdiv(batch, 1 + is_paired), range(1 + is_paired)
    tiles = pk.cdiv(Z.shape[1], COLS)
    for tile, a, p in pk.persistent((tiles, columns // COLS, pairs)):
        b = p * len(members)
        at = place_of(arrays, rows, n, columns, b, tile, a, zero)
        parts = [gated(at.load("u", i), at.load("before", i)) for i in members]
        if behind is not None:
            parts.append(-pk.gather(U[b, :], at.places(behind)))
        if ups is not None:
            of_rows = [scale_of(ups, b, i, tile) for i in members]
            parts = [x / up for x, up in zip(parts, (of_rows * 2)[: len(parts)], strict=True)]
        x = of.rows_forward(ComplexTile(*parts) if len(parts) == 2 else parts[0])
        z = (x * step_of(steps, a)).to(pk.f16)
        pk.store(Z[2 * p, tile, a], z.re)
        pk.store(Z[2 * p + 1, tile, a], z.im)


@pk.kernel
def outer_inverse(  # type: ignore[no-untyped-def]
    Z,
    relative,
    ups,
    evens,
    left,
    twiddle,
    steps,
    after,
    Y,
    after2,
    Y2,
    n,
    behind,
    *,
    rows,
    is_paired,
    resident,
):
    """The inverse of `outer_forward`: Y = after * (scales * that), and Y2 = after2 * that, if these are given.

    relative: of the rows of Z. ups, evens: scales of the rows of sequences, and of those of all batches. behind: the
    imaginary part from `behind` on is the second row of Y, negated.
    """
    batch, (_, _, columns) = Y.shape[0], Z.shape
    outs = [(name, y) for name, y in (("after", Y), ("after2", Y2)) if y is not None]
    arrays = {name: x for name, x in (("after", after), ("after2", after2)) if x is not None}
    pk.resident(resident)
    of = rows_transform(left, twiddle)
    zero = zeros_of(pk.shared(pk.sv(pk.int32, 16))) if n is not None else None
    pairs = 1 if behind is not None else pk.cdiv(batch, 1 + is_paired)
    tiles = pk.cdiv(Z.shape[1], COLS)
    for tile, a, p in pk.persistent((tiles, columns // COLS, pairs)):
        b = p * (1 + is_paired)
        at = place_of({"y": Y} | arrays, rows, n, columns, b, tile, a, zero)
        z = ComplexTile(*(pk.load(Z[2 * p + i, tile, a], rows=COLS, cols=COLS) for i in range(2)))
        z = z.to(pk.f32)
        if relative is not None:
            z = z * scale_of(relative, 0, 0, tile)
        is_real = not is_paired and behind is None
        y = of.rows_inverse(z.times_conj(step_of(steps, a)), is_real)
        parts = [y.re] if is_real else [y.re, y.im]
        if evens is not None:
            parts = [x * scale_of(evens, 0, 0, tile) for x in parts]
        if ups is not None:
            parts = [x * scale_of(ups, b, i, tile) for i, x in enumerate(parts)]
        if behind is not None:
            pk.scatter(Y[1, :], at.places(behind), -parts.pop())
        at.store([[(y, gated(x, at.load(k, i))) for k, y in outs] for i, x in enumerate(parts)])
