"""Calls with arguments that do not fit. Each takes `out`, which makes poisoned outputs, and must be refused."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import int32
from tests.running import put


@pk.kernel
def scale(x, out, factor, *, times: int = 1, label=None):
    pk.require(x.shape == out.shape, "x and out must have one shape")
    pk.grid(1)
    for _ in range(times):
        pk.store(out[0, 0], pk.load(x[0, 0], rows=64, cols=64) * factor)


@pk.kernel
def copy(x, y):
    pk.grid(1)
    pk.store(y[0], pk.load(x[0], cols=8))


@pk.kernel
def index(out, i):
    pk.grid(1)
    put(out, i * 2, 1)


@pk.kernel
def total(out, *terms, first):
    pk.grid(1)
    tiles = [pk.load(t[0, 0], rows=64, cols=64) for t in terms]
    pk.store(out[0, 0], sum(tiles, pk.full(out.dtype, first, 64, 64)))


def ones(*shape):
    return np.ones(shape, np.float32)


def dtype_nobody_computes_with(out):
    scale(np.ones((4, 4)), out((4, 4)), 1.0)


def rank_zero(out):
    scale(np.ones((), np.float32), out((4, 4)), 1.0)


def number_for_an_array(out):
    scale(2.0, out((4, 4)), 1.0)


def rank_six(out):
    copy(np.ones((1,) * 6, np.float32), out((1, 8)))


def requirement(out):
    scale(ones(4, 5), out((4, 4)), 1.0)


def int_beyond_int32(out):
    scale(ones(4, 4), out((4, 4)), np.int64(2**31))


def float_beyond_f32(out):
    scale(ones(64, 64), out((64, 64)), 1e40)


def address_between_elements(out):
    data = np.zeros(64 * 64 * 4 + 1, np.uint8)
    scale(data[1:].view(np.float32).reshape(64, 64), out((64, 64)), 1.0)


def last_stride(out):
    scale(ones(4, 8)[:, ::2], out((4, 4)), 1.0)


def negative_stride(out):
    copy(ones(4, 8)[::-1], out((4, 8)))


def argument_missing(out):
    scale(ones(4, 4), out((4, 4)))


def argument_extra(out):
    scale(ones(4, 4), out((4, 4)), 1.0, 2)


def argument_twice(out):
    scale(ones(4, 4), out((4, 4)), 1.0, x=ones(4, 4))


def argument_unknown(out):
    scale(ones(4, 4), out((4, 4)), 1.0, speed=3)


def constant_unhashable(out):
    scale(ones(4, 4), out((4, 4)), 1.0, label=[1])


def no_array(out):
    scale("x", out((4, 4)), 1.0)


def numbers_only(out):
    scale(1.0, 2.0, 3.0)


def output_read_only(out):
    y = out((1, 8))
    y.flags.writeable = False
    copy(ones(1, 8), y)


def output_of_stride_zero(out):
    y = np.lib.stride_tricks.as_strided(out((8,)), (4, 8), (0, 4))
    copy(ones(4, 8), y)


def output_in_rows_that_overlap(out):
    y = np.lib.stride_tricks.as_strided(out((28,)), (4, 16), (16, 4))
    copy(ones(4, 16), y)


def output_is_input(out):
    y = out((4, 8))
    copy(y, y)


def output_overlaps_input(out):
    y = out((5, 8))
    copy(y[1:], y[:4])


def int32_overflow(out):
    index(out((8, 8), np.int32), 2**30)


def coordinate_overflow(out):
    @pk.kernel
    def far(y, i):
        pk.grid(1)
        pk.store(y[0, i], pk.zeros(int32, 256))

    far(out((8, 8), np.int32), 2**24)


def leading_index_outside(out):
    @pk.kernel
    def planes(x, y, i):
        pk.grid(1)
        pk.store(y[0], pk.load(x[i, 0, 0], cols=8))

    planes(ones(3, 2, 8), out((1, 8)), 3)


def keyword_default(out):
    @pk.kernel
    def defaulted(y, n=3):
        pk.grid(1)


def constants_of_a_call_with_roles(out):
    copy(ones(1, 8), out((1, 8)), scale=2)


def further_argument_by_name(out):
    total(out((4, 4)), ones(4, 4), terms1=ones(4, 4), first=0.0)


def further_arguments_by_name(out):
    total(out((4, 4)), terms=[ones(4, 4)], first=0.0)


def further_argument_that_is_a_list(out):
    total(out((4, 4)), ones(4, 4), [ones(4, 4)], first=0.0)


@pk.kernel
def biased(x, layer, out):
    pk.grid(1)
    pk.store(out[0, 0], pk.load(x, rows=64, cols=64) + pk.load(layer[1][0, 0], rows=64, cols=64))


def operation_on_a_part_that_is_none(out):
    biased(ones(4, 4), (ones(4, 4), None), out((4, 4)))


def part_that_is_no_tensor(out):
    biased(ones(4, 4), (ones(4, 4), "relu"), out((4, 4)))


def part_overlaps_the_output(out):
    y = out((4, 4))
    biased(ones(4, 4), (ones(4, 4), y), y)


def further_argument_overlaps(out):
    y = out((5, 8))
    total(y[1:], ones(4, 8), y[:4], first=0.0)


def constant_missing_behind_further_arguments(out):
    total(out((4, 4)), ones(4, 4), ones(4, 4))


def keywords_of_any_name(out):
    @pk.kernel
    def named(y, *terms, **more):
        pk.grid(1)
