"""Roles: their groups and warps, and the positions where they are allowed."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32, int32
from tests.running import first, put, recorded, stored


def test_each_group_of_a_role_knows_its_index():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        with pk.warps(3) as w:
            put(out, w, w * 10)
        with pk.warpgroups(2) as g:
            put(out, g + 4, g)

    assert stored(kernel) == [0, 10, 20, None, 0, 1, None, None]


def test_scalars_made_outside_roles_are_seen_in_all():
    @pk.kernel
    def kernel(out, n):
        (block,) = pk.grid(2)
        twice = n * 2
        if n > 3:
            twice = twice + 1
        with pk.warps(1):
            put(out, block, twice)
        with pk.warpgroups(1):
            put(out, block + 2, twice + block)

    assert stored(kernel, 5, rows=4) == [11, 11, 11, 12]
    assert stored(kernel, 1, rows=4) == [2, 2, 2, 3]


def test_a_value_of_one_role_cannot_be_used_in_another():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        with pk.warps(1):
            x = n + 1
        with pk.warpgroups(1):
            put(out, 0, x)

    with pytest.raises(pk.KernelError, match="`x` is used outside the role `warps` that made it"):
        first(kernel, 1)


def test_a_tile_cannot_stand_outside_the_roles():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        zero = pk.zeros(int32, 8)
        with pk.warps(1):
            pk.store(out[0], zero)

    with pytest.raises(pk.KernelError, match="outside the roles"):
        first(kernel)


def test_memory_cannot_be_touched_outside_the_roles():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        if n > 0:
            put(out, 1, n)
        with pk.warps(1):
            put(out, 0, n)

    with pytest.raises(pk.KernelError, match="stands outside the roles"):
        first(kernel, 1)


def test_a_stage_cannot_be_taken_outside_the_roles():
    @pk.kernel
    def kernel(out):
        ring = pk.pipeline(1, pk.st(f32, 64, 64))
        pk.grid(1)
        with ring.fill():
            pass
        with pk.warps(1), ring.drain():
            put(out, 0, 1)

    with pytest.raises(pk.KernelError, match="outside the roles"):
        first(kernel)


def test_roles_do_not_nest():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        with pk.consumers(1), pk.warps(1):
            put(out, 0, 1)

    with pytest.raises(pk.KernelError, match="a role cannot be inside another"):
        first(kernel)


def test_a_role_cannot_stand_in_a_run_time_loop():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        for _ in pk.range(n):
            with pk.warps(1):
                put(out, 0, 1)

    with pytest.raises(pk.KernelError, match="cannot be inside a run-time loop"):
        first(kernel, 1)


@pytest.mark.parametrize("registers", [16, 241, 100, "many"])
def test_the_registers_of_a_role_are_a_multiple_of_eight(registers):
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        with pk.consumers(1, registers=registers):
            put(out, 0, 1)

    with pytest.raises(pk.KernelError, match="multiple of 8 from 24 to 240"):
        first(kernel)


@pytest.mark.parametrize("role", [pk.producer, pk.storer])
@pytest.mark.parametrize("copy_warps", [0, 3, 32, "many"])
def test_the_warps_that_copy_are_a_power_of_two(role, copy_warps):
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        with role(copy_warps=copy_warps):
            put(out, 0, 1)

    with pytest.raises(pk.KernelError, match="`copy_warps` must be 1, 2, 4, 8 or 16, not"):
        first(kernel)


def test_a_kernel_without_roles_is_one_group_of_its_warps():
    @pk.kernel(warps=2)
    def kernel(out):
        pk.grid(1)
        put(out, 0, 1)

    (role,) = recorded(kernel, np.zeros((8, 8), np.int32)).roles
    assert (role.kind, role.groups, role.warps) == ("block", 1, 2)


def test_the_rows_of_a_tile_follow_from_the_warps_of_the_role():
    @pk.kernel
    def kernel(x, *, rows):
        pk.grid(1)
        with pk.warps(2):
            pk.load(x[0], rows=rows, cols=16)
        with pk.consumers(1):
            pk.load(x[0], rows=64, cols=16)
            pk.load(x[0], rows=rows, cols=16)

    with pytest.raises(pk.KernelError, match="multiple of 64 for a group of 4 warps, not 16"):
        kernel(np.zeros((64, 64), np.float32), rows=16)
    with pytest.raises(pk.KernelError, match="multiple of 16 for a group of 1 warp, not 40"):
        kernel(np.zeros((64, 64), np.float32), rows=40)
