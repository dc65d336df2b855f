"""Copies of arguments hold the same, lie alike, and share memory where the arguments do."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.copies import UNIT, Copies
from pykittens.runtime.arguments import Parameters, check
from pykittens.types.dtypes import DTYPES


def copied(*args):
    names = ("a", "b", "c")[: len(args)]
    loc = pk.KernelError("").loc
    assert loc is not None
    return Copies(check(Parameters("k", names, {}, loc), args, {}))


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_copy_has_the_same_bytes_in_memory_of_its_own(dtype) -> None:
    array = np.random.default_rng(0).integers(0, 2, (5, 16)).astype(dtype.numpy)
    (made,) = copied(array).make()
    assert (made.dtype, made.shape, made.strides) == (array.dtype, array.shape, array.strides)
    assert made.tobytes() == array.tobytes()
    assert not np.shares_memory(made, array)


@pytest.mark.parametrize("shift", [0, 1, 3, 4, 7])
def test_a_copy_lies_as_its_argument_does(shift: int) -> None:
    array = np.arange(200, dtype=np.float32)[shift:]
    (made,) = copied(array).make()
    assert address(made) % UNIT == address(array) % UNIT


def test_a_view_keeps_its_strides() -> None:
    whole = np.arange(4 * 6 * 32, dtype=np.float32).reshape(4, 6, 32)
    for view in (
        whole[::2, 1:5, 8:24],
        whole.transpose(1, 0, 2),
        np.broadcast_to(whole[0], (3, 6, 32)),
    ):
        (made,) = copied(view).make()
        assert made.strides == view.strides
        assert np.array_equal(made, view)


def test_arguments_that_share_memory_share_it_in_the_copy() -> None:
    whole = np.zeros((8, 32), np.float32)
    a, b, c = copied(whole[:5], whole[3:, :16], np.zeros(16, np.float32)).make()
    assert address(b) - address(a) == 3 * 32 * 4
    a[3, 0] = 7
    assert b[0, 0] == 7
    assert not np.shares_memory(a, c)
    assert not whole.any()


def test_halves_of_one_array_share_no_element() -> None:
    whole = np.zeros((8, 32), np.float32)
    a, b = copied(whole[:, :16], whole[:, 16:]).make()
    a[:] = 1
    assert not b.any()
    assert address(b) - address(a) == 64


def test_every_copy_is_made_of_what_was_there_at_first() -> None:
    array = np.zeros(16, np.float32)
    copies = copied(array)
    (first,) = copies.make()
    first[:] = 1
    array[:] = 2
    (second,) = copies.make()
    assert not second.any()


def test_what_cannot_be_written_cannot_be_written_in_the_copy() -> None:
    array = np.zeros(16, np.float32)
    array.flags.writeable = False
    (made,) = copied(array).make()
    assert not made.flags.writeable


def test_empty_arrays_and_numbers_are_passed_on() -> None:
    made, number, flag = copied(np.zeros((0, 4), np.float32), 3, True).make()
    assert made.shape == (0, 4)
    assert (number, flag) == (3, True)


def test_a_tensor_of_pytorch_is_copied_with_its_strides() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(64, dtype=torch.bfloat16).reshape(4, 16)[:, :8]
    (made,) = copied(tensor).make()
    assert made.dtype == ml_dtypes.bfloat16
    assert made.strides == (32, 2)
    made[:] = 0
    assert np.array_equal(tensor.float().numpy()[1], np.arange(16, 24))
