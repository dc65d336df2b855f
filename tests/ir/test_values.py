"""Handles of tensors: windows, indices and shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens.errors import AccessError, ArgumentError
from tests.ops.kernels import normal, poisoned
from tests.running import recorded


def inside(x, bounds, axis, first, size, fill):
    """`size` elements of an axis of x from `first` on, but for those outside the bounds."""
    start, stop = bounds
    found = []
    for i in range(first, first + size):
        there = start <= i < stop and 0 <= i < x.shape[axis]
        found.append(np.take(x, i, axis) if there else np.full_like(np.take(x, 0, axis), fill))
    return np.stack(found, axis)


@pk.kernel
def through(x, y, z, r0, r1, c0, c1, i, j):
    """Tile (i, j) of a window of x to y; and y to the same tile of that window of z."""
    pk.grid(1)
    part = x.window(0, r0, r1).window(1, c0, c1)
    t = pk.load(part[i, j], rows=64, cols=16, fill=7)
    pk.store(y, t)
    pk.store(z.window(-2, r0, r1).window(-1, c0, c1)[i, j], t)


BOUND = st.integers(-90, 160)
INDEX = st.integers(-1, 2)


@settings(max_examples=60, derandomize=True)
@given(r0=BOUND, r1=BOUND, c0=BOUND, c1=BOUND, i=INDEX, j=INDEX)
def test_a_window_has_edges_where_it_or_the_tensor_ends(r0, r1, c0, c1, i, j):
    x = normal(0, (100, 40))
    y, z = poisoned((64, 16), np.float32), poisoned((100, 40), np.float32)
    through(x, y, z, r0, r1, c0, c1, i, j)
    row, col = r0 + 64 * i, c0 + 16 * j
    assert np.array_equal(y, inside(inside(x, (r0, r1), 0, row, 64, 7), (c0, c1), 1, col, 16, 7))
    written = np.zeros(z.shape, bool)
    rows = slice(max(row, r0, 0), max(min(row + 64, r1), 0))
    cols = slice(max(col, c0, 0), max(min(col + 16, c1), 0))
    written[rows, cols] = True
    assert np.array_equal(~np.isnan(z), written)
    assert np.array_equal(z[written], x[written])


@pytest.mark.parametrize(
    ("start", "stop", "rows"), [(3, 8, 5), (3, 99, 7), (-4, 8, 12), (8, 3, 0), (20, 30, 0)]
)
def test_the_shape_of_a_window_counts_from_its_start_to_where_it_or_the_tensor_ends(
    start, stop, rows
):
    @pk.kernel
    def kernel(x, out, start, stop):
        pk.grid(1)
        part = x.window(1, start, stop)
        for k, n in enumerate((*part.shape, part.rows, part.cols, *part.at(1).tiles(4, 4))):
            pk.store(out[k], pk.zeros(pk.int32, 1) + n)

    out = np.zeros(7, np.int32)
    kernel(normal(0, (2, 10, 6)), out, start, stop)
    assert out.tolist() == [2, rows, 6, rows, 6, -(-rows // 4), 2]


def test_a_window_with_bounds_of_the_host_can_be_required_to_fit():
    @pk.kernel
    def kernel(x, y, n):
        pk.require(x.window(0, 0, n).shape == y.shape, "y must have the first n rows of x")
        pk.grid(1)
        pk.store(y, pk.load(x.window(0, 0, n), rows=64, cols=16))

    x, y = normal(0, (40, 16)), poisoned((7, 16), np.float32)
    kernel(x, y, 7)
    assert np.array_equal(y, x[:7])
    with pytest.raises(ArgumentError, match="y must have the first n rows of x"):
        kernel(x, y, 8)


def test_a_window_of_a_window_counts_from_the_inner_start_and_ends_with_the_outer():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y, pk.load(x.window(0, 10, 20).window(0, 4, 99), cols=16, fill=-1))

    x, y = np.arange(30, dtype=np.float32), poisoned((16,), np.float32)
    kernel(x, y)
    assert y.tolist() == [*range(14, 20), *[-1] * 10]


@pytest.mark.parametrize("i", [-1, 2])
def test_an_index_outside_a_window_of_a_leading_axis_is_a_wild_access(i):
    @pk.kernel
    def kernel(x, y, i):
        pk.grid(1)
        pk.store(y, pk.load(x.window(0, 1, 3)[i, 0, 0], cols=8))

    x, y = normal(0, (5, 2, 8)), poisoned((8,), np.float32)
    kernel(x, y, 1)
    assert np.array_equal(y, x[2, 0])
    with pytest.raises(AccessError, match=f"index {i} of axis 0 is outside the window from 1 to 3"):
        kernel(x, y, i)


def test_a_wide_index_that_no_int32_holds_is_a_wild_access():
    @pk.kernel
    def kernel(x, index, y):
        pk.grid(1)
        pk.store(y, pk.load(x[pk.load(index[0])], rows=64, cols=16))

    x, y = normal(0, (64, 16)), poisoned((64, 16), np.float32)
    kernel(x, np.array([0]), y)
    assert np.array_equal(x, y)
    with pytest.raises(AccessError, match="overflows an int32"):
        kernel(x, np.array([2**40]), y)


def test_dots_stand_for_the_indices_that_are_left_out():
    @pk.kernel
    def kernel(x, y, j):
        pk.grid(1)
        pk.store(y[..., j], pk.load(x[1, ..., j], cols=4))

    x, y = normal(0, (2, 3, 8)), poisoned((2, 8), np.float32)
    kernel(x, y, 1)
    assert np.array_equal(y[0, 4:], x[1, 0, 4:])
    assert np.isnan(y).sum() == 12


def test_a_window_made_in_a_loop_ends_with_it():
    def kernel(x, y):
        pk.grid(1)
        parts = []
        for i in pk.range(3):
            parts.append(x.window(0, i, i + 2))
        pk.store(y, pk.load(parts[0], cols=16))

    with pytest.raises(pk.KernelError, match="is used outside"):
        recorded(pk.kernel(kernel), normal(0, (16,)), normal(0, (16,)))


# -- views -----------------------------------------------------------------------------------------


@st.composite
def views(draw):
    """The shape of a tensor, and one or two indices that keep an axis or more, each of the view before it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    indices, left = [], shape
    for _ in range(draw(st.integers(1, 2))):
        kept = draw(st.integers(0, len(left) - 1))
        index = [slice(None) if a == kept or draw(st.booleans()) else n for a, n in enumerate(left)]
        index = [i if isinstance(i, slice) else draw(st.integers(0, i - 1)) for i in index]
        dots = draw(st.integers(kept + 1, len(index)))
        if all(isinstance(i, slice) for i in index[dots:]):
            index = index[:dots] + [...] * draw(st.integers(0, 1))
        indices.append(tuple(index))
        left = np.empty(left)[tuple(index)].shape
    return shape, indices


def viewed(x, indices, numbers=None):
    """A tensor or an array indexed several times; ints of the indices are taken from `numbers` if there are any."""
    for index in indices:
        given = (next(numbers) if numbers and isinstance(i, int) else i for i in index)
        x = x[tuple(given)]
    return x


@settings(max_examples=150, derandomize=True)
@given(of=views(), known=st.booleans())
def test_an_index_with_whole_slices_means_what_it_does_in_numpy(of, known):
    shape, indices = of
    numbers = [i for index in indices for i in index if isinstance(i, int)]
    x = normal(0, shape)
    part = viewed(x, indices)

    def kernel(x, y, z, extents, *numbers):
        pk.grid(1)
        given = None if known else (lambda: iter(numbers))
        source = viewed(x, indices, given and given())
        target = viewed(y, indices, given and given())
        assert source.rank == part.ndim
        for axis, extent in enumerate((*source.shape, source.rows, source.cols)):
            pk.store(extents[axis], extent)
        for at in np.ndindex(part.shape[:-2]):
            there, here, copy = ((t[(*at, 0, 0)] if t.rank > 2 else t) for t in (target, source, z))
            if part.ndim > 1:
                pk.store(there, pk.load(here, rows=16, cols=16))
                pk.store(copy, pk.load(here, rows=16, cols=16))
            else:
                pk.store(there, pk.load(here, cols=8))
                pk.store(copy, pk.load(here, cols=8))

    y, z = poisoned(shape, np.float32), poisoned(part.shape, np.float32)
    extents = np.zeros(part.ndim + 2, np.int32)
    pk.kernel(warps=1)(kernel)(x, y, z, extents, *numbers)
    wanted = poisoned(shape, np.float32)
    viewed(wanted, indices[:-1])[indices[-1]] = part
    assert np.array_equal(y, wanted, equal_nan=True)
    assert np.array_equal(z, part)
    rows = part.shape[-2] if part.ndim > 1 else 1
    assert extents.tolist() == [*part.shape, rows, part.shape[-1]]


def test_a_view_of_a_window_and_a_window_of_a_view_are_the_same():
    @pk.kernel(warps=1)
    def kernel(x, y, start, stop):
        pk.grid(1)
        for i, part in enumerate((x[:, 1].window(0, start, stop), x.window(0, start, stop)[:, 1])):
            pk.store(y[i, 0, 0], pk.load(part, rows=16, cols=16, fill=7))
            pk.store(y[i, 16, 0], part.rows.to(pk.f32))

    x, y = normal(0, (20, 3, 16)), poisoned((2, 17, 16), np.float32)
    kernel(x, y, 8, 30)
    assert np.array_equal(y[0], y[1], equal_nan=True)
    assert np.array_equal(y[0, :12], x[8:, 1])
    assert (y[0, 12:16] == 7).all()
    assert y[0, 16, 0] == 12


def test_fixing_first_axes_and_naming_a_tile_are_the_same_in_one_index_and_in_two():
    @pk.kernel(warps=1)
    def kernel(x, y, h):
        pk.grid(1)
        tiles = (x[1, h, 1, 0], x.at(1, h)[1, 0], x[1][1] if x.rank == 2 else x[1, h, :][1])
        for i, tile in enumerate(tiles):
            pk.store(y[i, 0, 0], pk.load(tile, rows=16, cols=16))

    x, y = normal(0, (2, 3, 32, 16)), poisoned((3, 16, 16), np.float32)
    kernel(x, y, 2)
    assert all(np.array_equal(part, x[1, 2, 16:]) for part in y)


@pytest.mark.parametrize("h", [-1, 3])
def test_the_index_of_a_fixed_axis_must_lie_inside_it_whatever_the_axis(h):
    @pk.kernel(warps=1)
    def kernel(x, y, h):
        pk.grid(1)
        pk.store(y[:, h], pk.load(x[:, 0], rows=16, cols=16))

    x, y = normal(0, (20, 3, 16)), poisoned((20, 3, 16), np.float32)
    with pytest.raises(AccessError, match=rf"index {h} of axis 1 is outside `y`"):
        kernel(x, y, h)
