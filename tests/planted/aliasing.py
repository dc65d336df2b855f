"""Calls in which an output shares memory with another argument in a way that the kernel does not allow."""

import numpy as np

import pykittens as pk
from pykittens import f32
from pykittens.emulate.finding import Kind
from tests.planted.core import empty, planted, whole


def above(x, y):
    """Each element plus the one above it; the first row has none above."""
    return {"y": x + np.vstack([0 * x[:1], x[:-1]])}


def apart(rng):
    """An input and an output that share no memory."""
    return whole(rng, (128, 64), f32), empty((128, 64), f32)


def shifted(rng):
    """An output that starts one row after its input."""
    buffer = whole(rng, (129, 64), f32)
    return buffer[:-1], buffer[1:]


def one(rng):
    """An output that is the input."""
    x = whole(rng, (128, 64), f32)
    return x, x


@planted(
    Kind.ALIASING,
    "pk.store(y[row], pk.load(x[row], rows=64, cols=64))",
    arguments=shifted,
    expected=lambda x, y: {"y": x},
    constants={},
    repaired_constants={},
    repaired_arguments=apart,
)
@pk.kernel
def moved_down_by_a_row(x, y):
    """Broken: the kernel moves the rows down by one in place, and a block reads rows that another has overwritten."""
    (row,) = pk.grid(x.rows // 64)
    pk.store(y[row], pk.load(x[row], rows=64, cols=64))


@pk.kernel(inplace=True)
def doubled_in_place(x, y):
    """y = 2x, where y may be x: each block reads the tile that it writes."""
    (row,) = pk.grid(x.rows // 64)
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(y[row], t + t)


@planted(
    Kind.ALIASING,
    "pk.store(y[row], t + t)",
    arguments=one,
    expected=lambda x, y: {"y": 2 * x},
    constants={},
    repaired_constants={},
    repaired=doubled_in_place,
)
@pk.kernel
def doubled_onto_itself(x, y):
    """Broken: the output is the input, and the kernel does not declare that this is allowed."""
    (row,) = pk.grid(x.rows // 64)
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(y[row], t + t)


def reshaped(rng):
    """An output that is the input in another shape."""
    x = whole(rng, (2, 64, 64), f32)
    return x, x.reshape(128, 64)


def not_reshaped(rng):
    return whole(rng, (2, 64, 64), f32), empty((128, 64), f32)


@planted(
    Kind.ALIASING,
    "pk.store(y[b], -t)",
    arguments=reshaped,
    expected=lambda x, y: {"y": -x.reshape(128, 64)},
    constants={},
    repaired_constants={},
    repaired_arguments=not_reshaped,
)
@pk.kernel(inplace=True)
def output_of_another_shape(x, y):
    """Broken: the output may be the input itself, but it is a view of the input with other axes."""
    (b,) = pk.grid(x.shape[0])
    t = pk.load(x[b, 0, 0], rows=64, cols=64)
    pk.store(y[b], -t)


def overlapping(rng):
    """Two outputs of 64 columns in a buffer of 96."""
    buffer = empty((64, 96), f32)
    return whole(rng, (64, 128), f32), buffer[:, :64], buffer[:, 32:]


def beside(rng):
    buffer = empty((64, 128), f32)
    return whole(rng, (64, 128), f32), buffer[:, :64], buffer[:, 64:]


@planted(
    Kind.ALIASING,
    "pk.store(left[row], pk.load(x[row, 0], rows=64, cols=64))",
    "pk.store(right[row], pk.load(x[row, 1], rows=64, cols=64))",
    arguments=overlapping,
    expected=lambda x, left, right: {"left": x[:, :64], "right": x[:, 64:]},
    constants={},
    repaired_constants={},
    repaired_arguments=beside,
)
@pk.kernel
def two_outputs_in_one_buffer(x, left, right):
    """Broken: the buffer of the two halves is too narrow, and the second half begins inside the first."""
    (row,) = pk.grid(x.rows // 64)
    pk.store(left[row], pk.load(x[row, 0], rows=64, cols=64))
    pk.store(right[row], pk.load(x[row, 1], rows=64, cols=64))


# The kernel allows the memory to be shared; that its blocks read what others write shows when it runs.
@planted(
    Kind.BLOCK_CONFLICT,
    "higher = pk.load(x.window(0, row * 64 - 1, row * 64 + 63), rows=64, cols=64)",
    "pk.store(y[row], t + higher)",
    arguments=one,
    expected=above,
    also=(Kind.SCHEDULE_DEPENDENT, Kind.RACE),
    constants={},
    repaired_constants={},
    repaired_arguments=apart,
)
@pk.kernel(inplace=True)
def neighbours_in_place(x, y):
    """Broken: the kernel works in place, and each block reads the last row of the previous block."""
    (row,) = pk.grid(x.rows // 64)
    t = pk.load(x[row], rows=64, cols=64)
    higher = pk.load(x.window(0, row * 64 - 1, row * 64 + 63), rows=64, cols=64)
    pk.store(y[row], t + higher)
