"""Parts, rows and columns that do not fit are refused; tests/cases/shape.py has the results."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from tests.ops.kernels import normal, on_tiles, on_vectors
from tests.refusals import refused


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t: t[16:, :], "`index` must cut rows at multiples of 64, not 16:64"),
        (lambda t: t[:, 16:72], "must be a compile-time slice of the 48 columns, not 16:72"),
        (lambda t: t[:, ::2], r"`index` must be as in `tile\[a:b, c:d\]`"),
        (lambda t: t + pk.row_max(t)[0:16], "pk.spread\\(x, pk.plain\\) makes it plain"),
        (
            lambda t: pk.concat(t, t[:, :16], axis=0),
            "must have the same number of columns, not 48 and 16",
        ),
        (lambda t: pk.concat(t, t.to(pk.bf16)), "must have the same dtype, not f32 and bf16"),
        (lambda t: pk.concat(t, pk.row_max(t)), "must be two tiles or two vectors"),
        (
            lambda t: pk.concat(pk.row_max(t), pk.col_max(t)),
            "must have the same spread, not per row and per column",
        ),
        (lambda t: pk.concat(pk.row_max(t), pk.row_max(t), 1), "`axis` must be 0, or 1 for tiles"),
        (lambda t: t + pk.swap_pairs(pk.row_max(t)), "must be a register tile, a plain vector"),
        (lambda t: t + pk.row(t, 64), "`i` must be a row index from 0 to 63, not 64"),
        (
            lambda t: t + pk.column(t, -1),
            "`j` must be a column index from 0 to 47, not -1",
        ),
        (lambda t: t + pk.column(t, 0.5), "`j` must be an int32, not 0.5"),
        (
            lambda t: t + pk.column(t, pk.row_max(t)),
            "`j` must be an int32 or rv<int32, 64, per row>",
        ),
        (
            lambda t: t + pk.diagonal(t),
            "`tile` must have at most as many rows as columns, 48, not 64",
        ),
        (lambda t: pk.spread(t, pk.plain), "`vector` must be a register vector"),
        (
            lambda t: pk.spread(pk.row_max(t), "row"),
            "`to` must be pk.plain, pk.per_row, pk.per_column or",
        ),
    ],
)
def test_what_does_not_fit_is_refused(function, message):
    with refused(message):
        on_tiles(function, normal(0))


def test_an_odd_vector_has_no_pairs():
    with pytest.raises(pk.KernelError, match="must have an even length, not 33"):
        on_vectors(pk.swap_pairs, normal(0, (33,)), length=33)


def test_a_vector_too_long_to_be_spread_so_is_refused():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y, pk.spread(pk.load(x, cols=1024), pk.per_column))

    with pytest.raises(pk.KernelError, match="`vector.length` must be at most 768"):
        kernel(np.zeros(1024, np.float32), np.zeros(1024, np.float32))


@pytest.mark.parametrize("word", ["row", "column"])
def test_a_row_or_column_outside_the_tile_is_an_error_when_the_kernel_runs(word):
    @pk.kernel
    def kernel(x, y, n):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=48)
        pk.store(y[0], t + getattr(pk, word)(t, n))

    with pytest.raises(pk.KernelError, match=f"{word}: 64 is outside"):
        kernel(normal(0), np.zeros((64, 48), np.float32), 64)


def test_a_whole_part_is_the_tile():
    a = normal(0)
    assert np.array_equal(on_tiles(lambda t: t[:, :], a), a)
