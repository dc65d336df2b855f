"""NumPy's numbers stand for Python's wherever the language takes a number; a bool is never an int."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.ir.numbers import is_int, number, numbers
from pykittens.types.tiles import ST
from tests.running import recorded


class Three:
    """An int in the sense of `operator.index`."""

    def __index__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (Three(), 3),
        (True, True),
    ],
)
def test_a_number_of_another_library_becomes_one_of_python(given, wanted):
    made = number(given)
    assert (type(made), made) == (type(wanted), wanted)


@pytest.mark.parametrize(
    "other",
    [np.zeros(()), np.array(3), np.complex64(1), np.datetime64("2020"), int, Three, "3", None],
)
def test_nothing_else_becomes_a_number(other):
    assert number(other) is other
    assert not is_int(other)


def test_a_bool_is_no_int():
    assert is_int(3)
    assert not is_int(True)
    assert not is_int(number(np.bool_(True)))


def test_numbers_in_tuples_and_slices_become_those_of_python():
    made = numbers((np.int64(1), [np.int32(2)], slice(np.int8(3), None), {"n": np.int64(4)}))
    assert repr(made) == "(1, [2], slice(3, None, None), {'n': 4})"


def _everywhere(i, f):
    """A kernel whose numbers are all made by `i` and `f`."""

    @pk.kernel(warps=i(4))
    def kernel(x, y, n, *, rows, cols):
        pk.require(n == i(3), "n is 3")
        ring = pk.pipeline(i(3), pk.st(pk.f32, i(64), cols))
        _, col = pk.grid(i(1), pk.cdiv(y.cols, i(64)))
        with pk.producer(registers=i(24)):
            for _ in pk.range(i(4)):
                with ring.fill() as t:
                    pk.load_async(t, x[i(0), col])
        with pk.consumers(i(1)):
            total, count = pk.zeros(pk.f32, i(64), i(64)), i(0)
            for k in pk.range(i(0), i(4), i(1)):
                with ring.drain() as t:
                    total = total + pk.load(t.tiles(i(64), i(64))[i(0), i(0)]) * f(2) + i(1)
                count = count + k
            best = i(7)
            if n > i(2):
                best = i(9)
            total = f(0.5) * total + count.to(pk.f32) + best.to(pk.f32)
            part = total[i(0) : i(64), i(0) : i(32)]
            total = pk.concat(part, part, i(1))
            assert (type(rows), type(cols)) == (int, int)
            pk.store(y[i(0), col], pk.tril(total + rows, i(0), f(0.5)))

    return kernel


@pytest.mark.parametrize("i", [np.int64, np.int32, np.uint8])
def test_numpy_numbers_record_what_python_numbers_do(i):
    x, y, wanted = np.ones((64, 64), np.float32), *np.zeros((2, 64, 64), np.float32)
    plain, kernel = _everywhere(int, float), _everywhere(i, np.float32)
    plain(x, wanted, 3, rows=64, cols=64)
    kernel(x, y, i(3), rows=i(64), cols=i(64))
    assert np.array_equal(y, wanted)
    assert y[63, 0] == 0.5 * 4 * (2 + 1) + 6 + 9 + 64
    sources = (k.source(x, y, 3, rows=64, cols=64) for k in (plain, kernel))
    assert len(set(sources)) == 1


def test_constants_of_numpy_share_a_recording_with_those_of_python():
    @pk.kernel
    def kernel(y, *, cols, sizes):
        assert type(sizes[0]) is int
        pk.grid(1)
        pk.store(y[0, 0], pk.zeros(pk.f32, 64, cols))

    y = np.empty((64, 64), np.float32)
    assert recorded(kernel, y, cols=np.int64(64), sizes=(np.int8(1),)).constants == {
        "cols": 64,
        "sizes": (1,),
    }
    for cols in (64, np.int64(64), np.int16(64)):
        kernel(y, cols=cols, sizes=(1,))
    assert sum(map(len, kernel._recorded.values())) == 1


def test_numpy_numbers_are_scalar_arguments_of_their_kind():
    @pk.kernel
    def kernel(y, a, b, c):
        assert [x.dtype for x in (a, b, c)] == [pk.int32, pk.f32, pk.bool_]
        pk.grid(1)
        pk.store(y[0, 0], pk.where(c, b + a.to(pk.f32), b))

    y = np.zeros((1, 1), np.float32)
    kernel(y, np.int16(3), np.float16(0.5), np.bool_(True))
    assert y == 3.5


@pytest.mark.parametrize("truth", [True, np.bool_(True)])
def test_a_bool_is_refused_where_an_int_is_meant(truth):
    for call in (
        lambda: pk.st(pk.f32, truth, 64),
        lambda: pk.sv(pk.f32, truth),
        lambda: pk.kernel(warps=truth),
        lambda: pk.kernel(cluster=truth),
        lambda: pk.range(truth),
    ):
        with pytest.raises(pk.KernelError, match="not True"):
            call()


def test_a_size_of_numpy_gives_a_type_with_plain_ints():
    made = pk.st(pk.bf16, np.int64(64), Three().__index__() * np.int64(16))
    assert isinstance(made, ST)
    assert [type(n) for n in (made.rows, made.cols)] == [int, int]
