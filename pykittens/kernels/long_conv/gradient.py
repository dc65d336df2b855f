"""The gradient of filters: sums over a batch of correlations, of which the transforms are sums of products.

    d filter_j = sum of gradient_i u_(i - j)        its transform: sum of G conj(U)

At the points with p^M = i of sequences of n elements, correlations at j >= 0 are the real part at j, and those at -j
the negated imaginary part at M - j. Of a circular convolution both count, at j and n - j.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.long_conv.tables import COLS
from pykittens.kernels.long_conv.tiles import ByPlace, InStage, gated, places, zeros_of
from pykittens.kernels.long_conv.transform import Transform, largest_of, matrix_of, scales_of
from pykittens.lang.std.complex_tile import ComplexTile

CHUNK = 4096  # elements of a sum at a time


@pk.kernel
def correlated_tiles(  # type: ignore[no-untyped-def]
    U,
    before,
    of_u,
    G,
    after,
    of_g,
    left,
    twiddle,
    right,
    Y,
    scales,
    n,
    taps,
    behind,
    parts,
    *,
    rows,
    config,
    share,
):
    """The sums of correlations of before * U with after * G, a tile a warpgroup: one after another in rows of Y.

    U, G: (batch, rows of all matrices, 64), which the copy engine reads, or (batch, all sequences of n elements).
    parts: of the batch, each with a row of Y. behind: of circular convolutions; each has a second row, the negated
    imaginary part from `behind` on. With of_u and of_g, scales of (batch, tiles / share), U and G are what outer levels
    leave, real and imaginary parts, and so is Y, in f16 with `scales` for each tile.
    """
    groups, is_direct, is_complex = config.groups, len(U.shape) == 3, of_u is not None
    arrays = {"u": U, "before": before, "g": G, "after": after}
    arrays = {name: x for name, x in arrays.items() if x is not None}
    members = range(1 + is_complex)
    names = [(name, i) for name in arrays for i in members]
    # Sums take the registers that matrices have otherwise.
    of_shared = {"factors": twiddle} if is_complex else {"factors": twiddle, "left": left}
    planes = [(f"{name}{i}", x, i) for name, x in of_shared.items() for i in range(2)]
    shared: dict[str, Any] = {name: pk.st(pk.f16, COLS, COLS) for name, _, _ in planes}
    matrices: Any = pk.pipeline(1, right=pk.st(pk.f16, 2 * COLS, 2 * COLS), **shared)
    inputs: Any = None
    if is_direct:
        stage: dict[str, Any] = {
            f"{name}{i}": pk.st(arrays[name].dtype, groups * COLS, COLS) for name, i in names
        }
        inputs = pk.pipeline(config.stages, **stage)
    memory: Any = pk.shared(pk.st(pk.f16, COLS, COLS), count=2 * groups)
    zeros: Any = None if is_direct else pk.shared(pk.sv(pk.int32, 16), count=groups)
    batch, all_rows = U.shape[0] // len(members), U.shape[1]
    if not is_direct:
        all_rows = all_rows // n * rows
    tasks: Any = pk.persistent((pk.cdiv(all_rows, groups * COLS), parts))

    with pk.producer():
        with matrices.fill() as t:
            pk.load_async(t.right, right[0, 0])
            for name, x, i in planes:
                pk.load_async(getattr(t, name), x[i, 0, 0])
        if inputs is not None:
            for tile, part in tasks:
                for b in pk.range(batch * part // parts, batch * (part + 1) // parts):
                    with inputs.fill() as t:
                        for name, i in names:
                            at = arrays[name][b * len(members) + i, tile, 0]
                            pk.load_async(getattr(t, f"{name}{i}"), at)

    with pk.consumers(groups) as w, matrices.drain() as m:
        pair = ComplexTile(memory[2 * w], memory[2 * w + 1])
        of_left = matrix_of(left) if is_complex else ComplexTile(m.left0, m.left1)
        of = Transform(of_left, ComplexTile(m.factors0, m.factors1), m.right, pair)
        zero = None if zeros is None else zeros_of(zeros[w])
        for task, part in tasks:
            tile = task * groups + w
            total = [pk.zeros(pk.f32, COLS, COLS) for _ in range(2)]
            for b in pk.range(batch * part // parts, batch * (part + 1) // parts):
                scale: Any = None
                if is_complex:
                    scale = pk.load(of_u[b, tile // share]) * pk.load(of_g[b, tile // share])
                if inputs is None:
                    at = ByPlace(arrays, b, rows, n, tile, zero)
                    total = with_correlation(total, at, of, scale)
                else:
                    with inputs.drain() as t:
                        at = InStage(arrays, b, tile, t, w, None)
                        total = with_correlation(total, at, of, scale)
            down, up = scales_of(largest_of(ComplexTile(*total)))
            is_real = not is_complex and behind is None
            y = of.inverse(ComplexTile(*total) * down, is_real)
            if is_complex:
                pk.store(Y[0, tile, 0], y.re.to(Y.dtype))
                pk.store(Y[1, tile, 0], y.im.to(Y.dtype))
                pk.store(scales[tile], up)
            else:
                back = up * (rows * COLS) ** 0.5
                count = 1 if behind is None else 2
                pk.scatter(Y[part * count, :], places(rows, taps, tile), y.re * back)
                if behind is not None:
                    again = places(rows, taps, tile, behind)
                    pk.scatter(Y[part * count + 1, :], again, -y.im * back)


@pk.function
def with_correlation(total: list[Any], at: Any, of: Transform, scale: Any) -> list[Any]:
    """The sum with the correlation of a sequence and a gradient; these are scaled if `scale` is None."""
    c, back = [], scale
    for name, gate in (("u", "before"), ("g", "after")):
        if scale is not None:
            x: Any = ComplexTile(*(at.load(name, i) for i in range(2)))
        else:
            x = gated(at.load(name, 0), at.load(gate, 0))
            down, up = scales_of(largest_of(x))
            x = x * down
            back = up if back is None else back * up
        c.append(of.forward(x).to(pk.f16) if name == "u" else of.forward(x))
    product = c[1].times_conj(c[0].to(pk.f32)) * back
    return [total[0] + product.re, total[1] + product.im]


@pk.kernel
def sum_parts(parts, total):  # type: ignore[no-untyped-def]
    """The sum of rows."""
    (i,) = pk.grid(pk.cdiv(parts.cols, CHUNK))
    x = pk.zeros(pk.f32, CHUNK)
    for part in pk.range(parts.rows):
        x = x + pk.load(parts[part, i], cols=CHUNK)
    pk.store(total[0, i], x)
