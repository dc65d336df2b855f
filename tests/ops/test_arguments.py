"""Checks of arguments that are no tiles: int32 numbers, indices, sizes, bools and words."""

from __future__ import annotations

import pytest

import pykittens as pk
from pykittens.ops.arguments import check_index, check_int32, check_size, check_truth, check_word


@pytest.mark.parametrize("number", [0, -1, 2**31 - 1, -(2**31)])
def test_an_int_that_fits_32_bits_is_an_int32(number):
    check_int32("n", number)


@pytest.mark.parametrize("other", [2**31, -(2**31) - 1, 10**400, 1.0, True, None, "1"])
def test_nothing_else_is_an_int32(other):
    with pytest.raises(pk.Mismatch, match="`n` must be an int32, not "):
        check_int32("n", other)


def test_an_index_lies_below_its_count():
    check_index("i", 63, 64, "a row index")
    for i in (64, -1):
        with pytest.raises(pk.Mismatch, match=f"`i` must be a row index from 0 to 63, not {i}"):
            check_index("i", i, 64, "a row index")


def test_a_size_is_a_positive_multiple():
    check_size("n", 64, 16)
    with pytest.raises(pk.Mismatch, match="must be a multiple of 16 for a tile, not 40") as caught:
        check_size("n", 40, 16, "for a tile")
    assert caught.value.help == "use 48; elements outside a tensor read as the fill"
    for other in (0, -16, True, 16.0):
        with pytest.raises(pk.Mismatch, match="must be a positive compile-time int, not"):
            check_size("n", other, 16)
    with pytest.raises(pk.Mismatch, match="must be an int32, not 1099511627776"):
        check_size("n", 2**40, 16)


def test_a_truth_is_one_of_python_s():
    check_truth("read", False)
    with pytest.raises(pk.Mismatch, match="`read` must be a compile-time bool, not 0"):
        check_truth("read", 0)


def test_a_word_is_one_of_those_there_are():
    check_word("op", "max", "add", "max", "min")
    for other in ("mul", None, ["max"], {}):
        with pytest.raises(pk.Mismatch, match='`op` must be "add", "max" or "min", not '):
            check_word("op", other, "add", "max", "min")
