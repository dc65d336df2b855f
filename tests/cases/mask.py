"""Masks: parts of tiles replaced by another value, with bounds known when the kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import DType, bf16, e4m3, f32, int8, int32, int64
from tests.cases.core import Array, Case
from tests.cases.reduce import coarse

# Of a tile of positions (i, j), those that stay, given a bound.
FILLS: dict[str, Callable[[Any, Any, int], Any]] = {
    "tril": lambda i, j, bound: j <= i + bound,
    "triu": lambda i, j, bound: j >= i + bound,
    "left_fill": lambda i, j, bound: j >= bound,
    "right_fill": lambda i, j, bound: j < bound,
    "upper_fill": lambda i, j, bound: i >= bound,
    "lower_fill": lambda i, j, bound: i < bound,
}


def _fill(word: str, dtype: DType, bound: int, rows: int, cols: int, warps: int) -> Case:
    fill = getattr(pk, word)

    @pk.kernel(warps=warps)
    def mask(x, run_time, known, bound_):
        pk.grid(1)
        t = pk.load(x[0], rows=rows, cols=cols)
        pk.store(run_time[0], fill(t, bound_, 3))
        pk.store(known[0], fill(t, bound, 3))

    def exact(x: Array, bound: int) -> list[Array]:
        i, j = np.ogrid[:rows, :cols]
        return [np.where(FILLS[word](i, j, bound), x, x.dtype.type(3))] * 2

    return Case(
        f"mask-{word}-{dtype}-{bound}-{rows}x{cols}-{warps}",
        ("where", "row_index", "col_index"),
        mask,
        lambda rng: [coarse(rng, (rows, cols), dtype)],
        (((rows, cols), dtype), ((rows, cols), dtype)),
        exact,
        scalars=(bound,),
    )


def _mask(dtype: DType, causal: bool, rows: int, cols: int, warps: int) -> Case:
    row, col, width, offset = 40, 32, 70, 3

    @pk.kernel(warps=warps)
    def mask(x, y, row, col, width):
        pk.grid(1)
        t = pk.load(x[0], rows=rows, cols=cols)
        pk.store(y[0], pk.mask(t, row, col, width, causal, offset))

    def exact(x: Array, row: int, col: int, width: int) -> list[Array]:
        i, j = np.ogrid[row : row + rows, col : col + cols]
        stays = (j < width) & ((j <= i + offset) | (not causal))
        return [np.where(stays, x.astype(np.float64), -np.inf)]

    return Case(
        f"mask-mask-{'causal-' * causal}{dtype}-{rows}x{cols}-{warps}",
        ("mask",),
        mask,
        lambda rng: [coarse(rng, (rows, cols), dtype)],
        (((rows, cols), dtype),),
        exact,
        scalars=(row, col, width),
    )


def _rows(dtype: DType, which: str, rows: int, cols: int, warps: int) -> Case:
    """A mask with bounds of each row, from the first column on, before the last one, or both."""

    @pk.kernel(warps=warps)
    def mask(x, low, high, y, col):
        pk.grid(1)
        t = pk.load(x[0], rows=rows, cols=cols)
        first, stop = (pk.load(v[0], cols=rows, spread=pk.per_row) for v in (low, high))
        first, stop = (v if kind in which else None for v, kind in ((first, "low"), (stop, "high")))
        pk.store(y[0], pk.mask(t, 0, col, stop, first=first))

    def inputs(rng: np.random.Generator) -> list[Array]:
        bounds = [rng.integers(-10, cols + 40, rows).astype(np.int32) for _ in range(2)]
        return [coarse(rng, (rows, cols), dtype), *bounds]

    def exact(x: Array, low: Array, high: Array, col: int) -> list[Array]:
        j = np.arange(col, col + cols)
        stays = (j >= low[:, None]) | ("low" not in which)
        stays &= (j < high[:, None]) | ("high" not in which)
        return [np.where(stays, x.astype(np.float64), -np.inf)]

    return Case(
        f"mask-mask-rows-{which}-{dtype}-{rows}x{cols}-{warps}",
        ("mask",),
        mask,
        inputs,
        (((rows, cols), dtype),),
        exact,
        scalars=(20,),
    )


CASES = [_fill(w, d, 7, 64, 48, 4) for w in FILLS for d in (bf16, f32)]
CASES += [_fill(w, d, -3, 32, 32, 1) for w in ("tril", "triu") for d in (e4m3, int8, int32, int64)]
CASES += [_fill(w, f32, b, 128, 32, 8) for w in FILLS for b in (0, 200)]
CASES += [_mask(d, c, 64, 48, 4) for d in (bf16, f32) for c in (False, True)]
CASES += [_mask(f32, True, 128, 32, 8)]
CASES += [_rows(f32, which, 64, 128, 4) for which in ("low", "high", "low-high", "none")]
CASES += [_rows(d, "low-high", 64, 144, 4) for d in (bf16, f32)] + [_rows(f32, "low", 16, 272, 1)]
