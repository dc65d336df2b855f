"""Parts of shared vectors: loads, stores, refusals, and the release of their stage."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError, KernelError, TypeMismatch
from pykittens.ir.nodes import Call, walk
from pykittens.ir.stages import GiveBack
from tests.ops.kernels import normal, poisoned
from tests.running import recorded


def on_a_row(body, *numbers, length=64):
    """Run `body` on a shared vector that holds a row, and a tensor of its size."""
    x = normal(0, (length,))
    y = poisoned((length,), np.float32)

    @pk.kernel
    def kernel(x, y, i):
        vector = pk.shared(pk.sv(pk.f32, length))
        pk.grid(1)
        pk.store(vector, pk.load(x, cols=length))
        pk.sync()
        body(vector, y, i)

    kernel(x, y, *(numbers or (0,)))
    return x, y


def test_a_part_of_one_element_is_a_scalar_and_other_parts_are_vectors():
    types = []

    def body(vector, y, i):
        types.append([str(pk.load(vector.parts(n)[i]).type) for n in (1, 2, 16)])
        types.append(str(pk.load(vector.parts(64)[0], spread=pk.per_row).type))
        types.append(str(pk.load(vector.parts(16)[0], spread=pk.per_column).type))

    on_a_row(body)
    assert types == [
        ["f32", "rv<f32, 2, plain>", "rv<f32, 16, plain>"],
        "rv<f32, 64, per row>",
        "rv<f32, 16, per column>",
    ]


def test_a_part_is_no_copy():
    def body(vector, y, i):
        part = vector.parts(16)[2]
        pk.store(part, pk.full(pk.f32, 7, 16))
        pk.sync()
        pk.store(y, pk.load(vector))

    x, y = on_a_row(body)
    x[32:48] = 7
    assert np.array_equal(x, y)


@pytest.mark.parametrize("i", [4, -1])
def test_a_part_outside_its_vector_is_an_error_when_the_kernel_runs(i):
    with pytest.raises(AccessError, match=f"part {i} of 16 is outside a shared vector of 64"):
        on_a_row(lambda v, y, i: pk.store(y, pk.load(v.parts(16)[i])), i)


def test_a_vector_of_another_length_does_not_fit_a_part():
    with pytest.raises(TypeMismatch, match="`value` must be a register vector of 16"):
        on_a_row(lambda v, y, i: pk.store(v.parts(16)[i], pk.load(v)))


def test_an_element_is_no_vector_of_rows():
    with pytest.raises(TypeMismatch, match="`src.length` must be a multiple of 64"):
        on_a_row(lambda v, y, i: pk.load(v.parts(1)[i], spread=pk.per_row))


def test_copies_move_whole_vectors():
    @pk.kernel
    def kernel(x, y, *, out: bool):
        ring = pk.pipeline(1, pk.sv(pk.f32, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s if out else s.parts(32)[0], x)
        with ring.drain() as s:
            pk.store_async(y, s.parts(32)[0])

    x, y = normal(0, (64,)), poisoned((64,), np.float32)
    for out, name in ((False, "dst"), (True, "src")):
        wanted = f"`{name}` must be a whole shared vector, not a part of sv<f32, 64>"
        with pytest.raises(TypeMismatch, match=wanted):
            kernel(x, y, out=out)


def test_a_part_is_of_its_stage_and_is_read_only_while_that_is_held():
    @pk.kernel
    def kernel(x, y, *, side: str):
        ring = pk.pipeline(1, pk.sv(pk.f32, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x)
            part = s.parts(1)[3]
            if side == "fill":
                pk.load(part)
        with ring.drain() as s:
            part = s.parts(1)[3]
        pk.store(y[0], pk.load(part))

    x, y = normal(0, (64,)), poisoned((64,), np.float32)
    with pytest.raises(KernelError, match="taken with `drain`, not with `fill`"):
        kernel(x, y, side="fill")
    with pytest.raises(KernelError, match="stage"):
        kernel(x, y, side="after")


def test_a_stage_is_given_back_behind_the_loads_of_its_parts():
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.sv(pk.f32, 64))
        pk.grid(1)
        for i in pk.range(3):
            with ring.fill() as s:
                pk.load_async(s, x[i])
            with ring.drain() as s:
                scale = pk.load(s.parts(1)[i])
            pk.store(y[i, 0], scale)

    x, y = normal(0, (3, 64)), poisoned((3, 1), np.float32)
    kernel(x, y)
    assert np.array_equal(y[:, 0], np.diag(x[:, :3]))
    steps = [
        n.op.name if isinstance(n, Call) else "give back"
        for n in walk(recorded(kernel, x, y).body)
        if isinstance(n, GiveBack) or (isinstance(n, Call) and n.op.name in ("load", "store"))
    ]
    assert steps == ["load", "give back", "store"]


def test_an_element_is_not_read_before_the_roles_that_bring_it():
    @pk.kernel
    def kernel(x, y):
        vector, full = pk.shared(pk.sv(pk.f32, 64)), pk.semaphore(1)
        pk.grid(1)
        scale = pk.load(vector.parts(1)[0])
        with pk.producer():
            full.expect(vector)
            pk.load_async(vector, x, signal=full)
        with pk.consumers(1):
            full.wait(0)
            pk.store(y, pk.load(vector) * scale)

    x, y = normal(0, (64,)), poisoned((64,), np.float32)
    with pytest.raises(KernelError, match="load: stands outside the roles of a kernel with roles"):
        kernel(x, y)
