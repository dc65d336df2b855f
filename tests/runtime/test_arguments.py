"""What of an argument decides the code it gets."""

import time

import numpy as np
import pytest

from pykittens.runtime.arguments import Parameters, overlap, reachable, repetition
from pykittens.runtime.arrays import Array


def bf16(shape, strides, address=4096):
    return Array("bf16", shape, strides, address, "cpu", True, None)


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "reached"),
    [
        ((4, 8), (8, 1), 0, True),
        ((4, 8), (8, 1), 2, False),
        ((4, 8), (9, 1), 0, False),
        ((1, 9), (9, 1), 0, True),
        ((2, 4, 8), (36, 8, 1), 0, False),
        ((2, 4, 8), (40, 8, 1), 16, True),
        ((4, 8), (0, 1), 0, False),
        ((4, 0), (8, 1), 0, False),
        ((9,), (1,), 0, True),
    ],
)
def test_the_copy_engine_reaches_16_byte_bases_and_strides(shape, strides, offset, reached):
    assert reachable(bf16(shape, strides, 4096 + offset)) is reached


def test_views_that_interleave_do_not_overlap():
    left, right = bf16((10, 8), (16, 1)), bf16((10, 8), (16, 1), 4096 + 16)
    assert not overlap(left, right)
    assert overlap(left, bf16((10, 8), (16, 1), 4096 + 14))
    assert not overlap(left, bf16((10, 8), (16, 1), 4096 + 10 * 32))
    assert overlap(left, bf16((1, 1), (1, 1), 4096 + 32))
    assert not overlap(left, bf16((0, 8), (8, 1)))


def test_an_output_that_overlaps_itself_is_refused_and_no_other():
    rng, found = np.random.default_rng(0), {True: 0, False: 0}
    for _ in range(1000):
        rank = rng.integers(1, 6)
        shape, strides = (tuple(rng.integers(1, most, rank).tolist()) for most in (5, 40))
        shared = len({np.dot(i, strides) for i in np.ndindex(shape)}) < np.prod(shape)
        found[shared] += 1
        assert (repetition(bf16(shape, strides)) is not None) == shared, (shape, strides)
    assert min(found.values()) > 200
    assert repetition(bf16((4, 4, 4), (3, 5, 8))) == "has elements that share an address"
    assert repetition(bf16((4, 4), (0, 1))) == "has an axis of stride 0"
    assert repetition(bf16((10**6, 10**6), (10**6 + 1, 1))) is None


def test_strides_that_meet_late_are_examined_in_no_time():
    start = time.perf_counter()
    for extent in (100, 10**4):
        strides = 10**4 + 7, 10**4 + 9, 1
        assert repetition(bf16((extent, extent, extent), strides)) is not None
    assert repetition(bf16((1000, 1000, 3), (3001, 3, 1))) is None
    assert time.perf_counter() - start < 1


def of_further(a, b, *more, more1=0, scale):
    """The signature of a kernel."""


def test_further_arguments_are_named_in_their_order_and_like_no_other_parameter():
    parameters = Parameters.of(of_further)
    assert parameters.names(0) == parameters.names(2) == ("a", "b")
    assert parameters.names(5) == ("a", "b", "more0", "more1_", "more2")
    values, constants = parameters.bind((1, 2, 3, 4), {"scale": 5})
    assert list(values.items()) == [("a", 1), ("b", 2), ("more0", 3), ("more1_", 4)]
    assert constants == {"more1": 0, "scale": 5}
    values, _ = parameters.bind((1,), {"b": 2, "scale": 5})
    assert values == {"a": 1, "b": 2}
