"""Recording: requirements, static extents, results of a kernel, and calls that record again."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens import int32
from tests.running import UNWRITTEN, first, put, recorded, stored


def test_a_requirement_is_checked_at_each_call_before_anything_is_written():
    @pk.kernel
    def kernel(out, n):
        pk.require(n > 2, "n must be above 2")
        pk.grid(1)
        put(out, 0, n)

    assert first(kernel, 3) == 3
    out = np.full((8, 8), UNWRITTEN, np.int32)
    with pytest.raises(pk.KernelError, match="n must be above 2"):
        kernel(out, 2)
    assert (out == UNWRITTEN).all()
    assert first(kernel, 4) == 4


def test_shapes_compare_as_a_whole_and_in_part():
    @pk.kernel
    def kernel(out, x):
        pk.require(x.shape[1:] == out.shape and x.shape != out.shape, "x has one axis more")
        pk.require(out.shape == (out.rows, 8) == x.shape[-2:], "out has 8 columns")
        pk.grid(1)
        put(out, 0, x.shape[0])

    assert first(kernel, np.zeros((5, 8, 8), np.int32)) == 5
    with pytest.raises(pk.KernelError, match="one axis more"):
        first(kernel, np.zeros((5, 8, 9), np.int32))


@pytest.mark.parametrize("condition", [1, "yes", None])
def test_a_requirement_is_a_truth(condition):
    @pk.kernel
    def kernel(out):
        pk.require(condition, "never")

    with pytest.raises(pk.KernelError, match="must be a bool of the arguments"):
        first(kernel)


def test_a_requirement_stands_at_the_head():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        if n > 0:
            pk.require(n > 1, "too late")

    with pytest.raises(pk.KernelError, match="outside roles, loops and branches"):
        first(kernel, 1)


def test_a_static_extent_is_an_int_and_the_kernel_is_recorded_for_it():
    seen = []

    @pk.kernel
    def kernel(out, x):
        pk.grid(1)
        n = pk.static(x.cols + 1)
        assert type(n) is int
        seen.append(n)
        put(out, 0, n)

    for width in (4, 6, 4, 6):
        assert first(kernel, np.zeros((1, width), np.int32)) == width + 1
    assert seen == [5, 7]


def test_what_only_a_running_kernel_knows_cannot_be_static():
    @pk.kernel
    def kernel(out):
        (block,) = pk.grid(2)
        pk.static(block)

    with pytest.raises(pk.KernelError, match="not known on the host"):
        first(kernel)


def test_a_number_is_no_compile_time_constant():
    seen = []

    @pk.kernel
    def kernel(out, n):
        seen.append(n)
        pk.grid(1)
        put(out, 0, n)

    assert [first(kernel, n) for n in (1, 2, -(2**31))] == [1, 2, -(2**31)]
    assert len(seen) == 1


def test_a_kernel_returns_nothing():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        return 1

    with pytest.raises(pk.KernelError, match="a kernel must return None, not 1"):
        first(kernel)


def test_a_call_that_an_operation_does_not_take_names_its_signature():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        pk.store(out[0])

    with pytest.raises(
        pk.KernelError, match="store: missing a required argument: 'value'"
    ) as caught:
        first(kernel)
    assert "help: it is store(dst, value, *, op=None, transposed=False)" in str(caught.value)


def test_an_error_of_python_s_own_stays_as_it_is():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        int("three")

    with pytest.raises(ValueError, match="invalid literal"):
        first(kernel)


def test_the_operations_exist_in_kernels_only():
    with pytest.raises(pk.KernelError, match="zeros: only inside a kernel"):
        pk.zeros(int32, 8)


def test_a_kernel_called_from_a_thread_records_for_itself():
    from concurrent.futures import ThreadPoolExecutor

    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, n + 1)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda n: first(kernel, n), range(8))) == list(range(1, 9))


def test_the_fixed_axes_of_a_tensor_leave_its_last_two():
    @pk.kernel
    def kernel(out, x, i):
        pk.grid(1)
        plane = x.at(i)
        assert len(plane.shape) == 2
        pk.store(out[0], pk.load(plane[1], cols=8))
        pk.store(out[1], pk.load(x[i, 2, 0], cols=8))

    x = np.arange(3 * 4, dtype=np.int32).reshape(3, 4, 1).repeat(8, 2)
    assert stored(kernel, x, 2, rows=2) == [9, 10]

    @pk.kernel
    def too_many(out, x):
        pk.grid(1)
        pk.store(out[0], pk.load(x.at(0, 1), cols=8))

    with pytest.raises(
        pk.KernelError, match="at: fixes 2 axes of a tensor of rank 3, the last two must stay"
    ):
        first(too_many, x)


def test_a_dead_operation_is_not_kept():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        unused = n * 3
        for i in pk.range(n):
            unused = unused + i
        put(out, 0, n)

    names = [
        node.op.name
        for node in recorded(kernel, np.zeros((8, 8), np.int32), 1).body.nodes
        if hasattr(node, "op")
    ]
    assert names == ["zeros", "add", "store"]


def test_further_arguments_are_a_tuple_of_handles_and_their_number_a_variant():
    seen = []

    @pk.kernel
    def kernel(out, *terms, sign):
        pk.grid(1)
        assert type(terms) is tuple
        seen.append(len(terms))
        total = 0
        for term in terms:
            total = total + (term.rows if hasattr(term, "rows") else term)
        for _ in pk.range(2):  # rewritten code sees them, too
            total = total + sign * (terms[-1] if terms else 0)
        put(out, 0, total)

    wide = np.zeros((5, 8), np.int32)
    assert first(kernel, sign=1) == 0
    assert first(kernel, 3, sign=1) == 3 + 2 * 3
    assert first(kernel, wide, 4, sign=-1) == 5 + 4 - 2 * 4
    assert first(kernel, wide, 7, sign=-1) == 5 + 7 - 2 * 7
    assert first(kernel, 1, 2, 3, 4, sign=1) == 10 + 2 * 4
    assert seen == [0, 1, 2, 4]


def test_further_arguments_stand_in_the_program_by_their_places():
    @pk.kernel
    def kernel(out, *terms, terms0=2):
        pk.grid(1)
        put(out, 0, sum(terms) * terms0)

    args = (np.zeros((8, 8), np.int32), 1, 2)
    assert [p.name for p in recorded(kernel, *args).params] == ["out", "terms0_", "terms1"]
    assert {s.argument for s in kernel.emitted(*args).slots} == {"out", "terms0_", "terms1"}
    assert re.search(r"\bint terms0_,\s+int terms1\b", kernel.source(*args))
