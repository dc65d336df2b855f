"""Errors of launches for debugging, from reports as a GPU writes them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests import debugging
from tests.debugging import fault, program, site_of

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
CUBE = np.zeros((4, 64, 32), F32)


def stage_that_is_never_full(out):
    source = program(debugging.never_full, np.zeros((128, 192), BF16), out((128, 64)))
    drain = site_of(source, "inputs.drain()")
    raise fault(
        source, "inputs.drain()", 1, 1, block=1, thread=300,
        standing=((-1,), (drain + 1, 1, 1), (drain + 1, 1, 1)),
    )  # fmt: skip


def stage_that_is_never_free(out):
    source = program(debugging.never_full, np.zeros((128, 192), BF16), out((128, 64)))
    fill = site_of(source, "inputs.fill()")
    raise fault(
        source, "inputs.fill()", 0, 1, block=131, thread=0, standing=((fill + 1, 0, 1), (0,), (-1,))
    )


def phase_that_never_comes(out):
    source = program(debugging.wrong_phase, np.zeros((64, 64), BF16), out((64, 64)))
    raise fault(source, "of full[{1}]", 1, 1, thread=77)


def turn_that_never_comes(out):
    source = program(debugging.turns_kept, out((2,), np.int32))
    turn = site_of(source, "the turn of")
    raise fault(source, "the turn of", 1, thread=63, standing=((-1,), (turn + 1, 1)))


def flag_that_is_never_signalled(out):
    source = program(debugging.never_signalled, out((2, 3), np.int32))
    raise fault(source, "to be at least", 1, 2, 4, 3, block=2)


def flag_outside_its_tensor(out):
    source = program(debugging.flag_outside, out((2, 3), np.int32), 3)
    raise fault(source, "is outside", 0, 3, shapes={"flags": (2, 3)})


def leading_index_outside(out):
    source = program(debugging.leading_index, CUBE, out(CUBE.shape))
    raise fault(source, "`x`", 4, block=3, thread=9, shapes={"x": CUBE.shape})


def leading_index_of_a_copy(out):
    source = program(debugging.leading_index_of_a_copy, CUBE, out(CUBE.shape))
    raise fault(source, "`x`", -1, shapes={"x": CUBE.shape})


def index_of_a_view_outside(out):
    x = np.ones((64, 4, 32), F32)
    source = program(debugging.index_of_a_view, x, out((64, 4)))
    raise fault(source, "`x`", 4, block=3, thread=9, shapes={"x": x.shape})


def leading_index_outside_a_window(out):
    source = program(debugging.leading_index_of_a_window, CUBE, out((64, 64)), 3)
    raise fault(source, "of `x`", 2, 1, 3)


def coordinate_that_overflows(out):
    source = program(debugging.far_coordinate, np.zeros((64, 64), F32), out((64, 64)), 2**30)
    raise fault(source, "overflows", 2**36)


def view_outside_its_tile(out):
    source = program(debugging.view_outside, out((64, 64)), 2)
    raise fault(source, "part (", 2, 0)


def row_outside_its_tile(out):
    source = program(debugging.row_outside, out((1, 64)), 16)
    raise fault(source, "row {0}", 16)


def semaphore_beyond_the_last(out):
    source = program(debugging.semaphore_outside, out((1, 8)), 3)
    raise fault(source, "of `full`", 3)


def assertion_on_a_scalar(out):
    source = program(debugging.untrue_scalar, out((4, 8)), 2)
    raise fault(source, "is too large", block=3)


def assertion_on_a_tile(out):
    source = program(debugging.untrue_tile, np.zeros((128, 64), F32), out((128, 64)))
    raise fault(source, "less than three", 5, 7, thread=140)
