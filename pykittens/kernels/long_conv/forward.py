"""The kernels of a long convolution of up to 4096 positions: transforms of filters, and convolutions with them."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.long_conv.config import ConvForm
from pykittens.kernels.long_conv.tables import COLS
from pykittens.kernels.long_conv.tiles import ByPlace, InStage, gated, places, zeros_of
from pykittens.kernels.long_conv.transform import (
    LARGEST,
    Transform,
    largest_of,
    matrix_of,
    scales_of,
)
from pykittens.lang.std.complex_tile import ComplexTile

RIGHT = 2 * COLS  # rows and columns of a complex matrix in real form


@pk.kernel
def filter_tiles(  # type: ignore[no-untyped-def]
    filters, values, scales, left, twiddle, right, taps, behind, *, rows
):
    """The transforms of filters in f16, and for each of their rows the number by which they are to be multiplied.

    filters: of `taps` each, one after another in a row; or as real and imaginary parts of what outer levels leave of
    them, (2, rows of all matrices, 64). behind: M - n, of circular convolutions of n positions. What is at position p
    of a filter is at p - n, too, which is M + p - n with a factor of -i.
    """
    (tile,) = pk.grid(pk.cdiv(values.shape[1], COLS))
    matrix: Any = pk.shared(pk.st(pk.f16, RIGHT, RIGHT))
    memory: Any = pk.shared(pk.st(pk.f16, COLS, COLS), count=2)
    pk.store(matrix, pk.load(right[0, 0], rows=RIGHT, cols=RIGHT))
    pair = ComplexTile(memory[0], memory[1])
    of = Transform(matrix_of(left), matrix_of(twiddle), matrix, pair)
    if len(filters.shape) == 3:
        up: Any = 1.0
        parts = (pk.load(filters[i, tile, 0], rows=COLS, cols=COLS) for i in range(2))
        c = of.forward(ComplexTile(*parts))
    else:
        x = filter_tile(filters, places(rows, taps, tile))
        if behind is not None:
            x = ComplexTile(x, -filter_tile(filters, places(rows, taps, tile, behind)))
        down, up = scales_of(largest_of(x))
        c = of.forward(x * down)
    # The largest of a transform comes to about 1.
    own_down, own_up = scales_of(largest_of(c))
    c = (c * (own_down * 2.0**-LARGEST)).to(pk.f16)
    pk.store(values[0, tile, 0], c.re)
    pk.store(values[1, tile, 0], c.im)
    scale = up * own_up * (2.0**LARGEST * (rows * COLS) ** 0.5)
    pk.store(scales[tile], pk.zeros(pk.f32, COLS, spread=pk.per_row) + scale)


def filter_tile(filters: Any, at: Any) -> Any:
    """The elements of filters at these places; 0 where there is none."""
    return pk.gather(filters[0, :], at)


@pk.kernel
def convolved_tiles(  # type: ignore[no-untyped-def]
    U,
    before,
    values,
    scales,
    left,
    twiddle,
    right,
    after,
    Y,
    after2,
    Y2,
    n,
    parts,
    *,
    rows,
    form,
    config,
):
    """Y = after * (the convolution of before * U with filters), and Y2 = after2 * that; a warpgroup has a tile.

    Arrays are (batch, rows of all matrices, 64), which the copy engine reads, or (batch, all sequences of n elements).
    parts: of the batch, which have blocks of their own.
    """
    batch, groups, is_paired = U.shape[0], config.groups, form.is_paired
    is_direct = len(U.shape) == 3
    pk.require(is_direct or not is_paired, "pairs are of sequences that fill their matrices")
    arrays = {"u": U, "before": before, "after": after, "after2": after2}
    arrays = {name: x for name, x in arrays.items() if x is not None}
    all_rows, members = groups * COLS, range(1 + is_paired)
    outs = [(n, y) for n, y in (("after", Y), ("after2", Y2)) if y is not None]
    names = [(name, i) for name in arrays for i in members]
    # Elements that are moved one by one take the registers that matrices have otherwise.
    of_shared = {} if is_direct else {"left": left}
    of_shared |= {} if is_direct and not config.shared_factors else {"factors": twiddle}
    planes = [(f"{name}{i}", x, i) for name, x in of_shared.items() for i in range(2)]
    shared: dict[str, Any] = {name: pk.st(pk.f16, COLS, COLS) for name, _, _ in planes}
    matrices: Any = pk.pipeline(1, right=pk.st(pk.f16, RIGHT, RIGHT), **shared)
    of_filter: dict[str, Any] = {name: pk.st(pk.f16, all_rows, COLS) for name in ("re", "im")}
    filters: Any = pk.pipeline(config.filters, scale=pk.sv(pk.f32, all_rows), **of_filter)
    inputs: Any = None
    if is_direct:
        tiles: dict[str, Any] = {
            f"{name}{i}": pk.st(arrays[name].dtype, all_rows, COLS) for name, i in names
        }
        inputs = pk.pipeline(config.stages, **tiles)
        results: Any = pk.shared(
            pk.st(Y.dtype, COLS, COLS), count=groups * len(members) * len(outs)
        )
    memory: Any = pk.shared(pk.st(pk.f16, COLS, COLS), count=2 * groups)
    zeros: Any = None if is_direct else pk.shared(pk.sv(pk.int32, 16), count=groups)
    steps = pk.cdiv(batch, 1 + is_paired)
    tasks: Any = pk.persistent((pk.cdiv(values.shape[1], all_rows), parts))

    with pk.producer():
        with matrices.fill() as t:
            pk.load_async(t.right, right[0, 0])
            for name, x, i in planes:
                pk.load_async(getattr(t, name), x[i, 0, 0])
        for tile, part in tasks:
            with filters.fill() as t:
                pk.load_async(t.re, values[0, tile, 0])
                pk.load_async(t.im, values[1, tile, 0])
                pk.load_async(t.scale, scales[tile])
            if inputs is not None:
                for step in pk.range(steps * part // parts, steps * (part + 1) // parts):
                    with inputs.fill() as t:
                        for name, i in names:
                            b = pk.minimum(step * (1 + is_paired) + i, batch - 1)
                            pk.load_async(getattr(t, f"{name}{i}"), arrays[name][b, tile, 0])

    with pk.consumers(groups) as w, matrices.drain() as m:
        pair = ComplexTile(memory[2 * w], memory[2 * w + 1])
        has_left, has_factors = ("left" in of_shared, "factors" in of_shared)
        of_left = ComplexTile(m.left0, m.left1) if has_left else matrix_of(left)
        factors = ComplexTile(m.factors0, m.factors1) if has_factors else matrix_of(twiddle)
        of = Transform(of_left, factors, m.right, pair)
        zero = None if zeros is None else zeros_of(zeros[w])
        for task, part in tasks:
            tile = task * groups + w
            with filters.drain() as f:
                spectrum = ComplexTile(*(x.tiles(COLS, COLS)[w, 0] for x in (f.re, f.im)))
                scale = pk.load(f.scale.parts(COLS)[w], spread=pk.per_row)
                for step in pk.range(steps * part // parts, steps * (part + 1) // parts):
                    if inputs is None:
                        at: Any = ByPlace(arrays, step, rows, n, tile, zero)
                        convolve(at, of, spectrum, scale, outs, form)
                    else:
                        with inputs.drain() as t:
                            first = step * len(members)
                            at = InStage(arrays, first, tile, t, w, results)
                            convolve(at, of, spectrum, scale, outs, form)


def scaled_input(at: Any, form: ConvForm) -> tuple[Any, list[Any]]:
    """A tile of sequences, or of pairs as complex sequences, each scaled by itself; and what takes the scales back."""
    scaled, back = [], list[Any]()
    for i in range(1 + form.is_paired):
        x = gated(at.load("u", i), at.load("before", i))
        down, up = scales_of(largest_of(x)) if form.is_scaled else (1.0, 1.0)
        scaled.append(x * down if form.is_scaled else x)
        back.append(up)
    return ComplexTile(*scaled) if form.is_paired else scaled[0], back


@pk.function
def convolve(at: Any, of: Transform, spectrum: Any, scale: Any, outs: Any, form: ConvForm) -> None:
    """Convolve a tile of sequences, and write what is made of it."""
    x, back = scaled_input(at, form)
    c, k = of.forward(x), spectrum.loaded().to(pk.f32)
    y = of.inverse(c.times_conj(k) if form.is_adjoint else c * k, not form.is_paired)
    parts = [part * (scale * up) for part, up in zip((y.re, y.im), back, strict=False)]
    at.store([[(y, gated(x, at.load(n, i))) for n, y in outs] for i, x in enumerate(parts)])
