"""Whether late releases stall a kernel: found from the barriers alone, before it runs anywhere."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.ir.nodes import walk
from pykittens.ir.passes.order import find_stalls
from pykittens.ir.passes.ownership import own_memory
from pykittens.ir.passes.waits import Placement
from pykittens.ir.stages import Acquire, GiveBack
from tests.ir.kernels import prefetched
from tests.running import recorded

BF16 = np.dtype(ml_dtypes.bfloat16)
A, C = np.zeros((256, 64), BF16), np.zeros((64, 64), np.float32)


def placed(kernel, early, *args):
    """The kernel with waits as the pass would put them if it released early at these acquires only."""
    made = recorded(kernel, *args, lowered=False)
    for role in made.roles:
        Placement(early, own_memory(made)).role(role)
    return made


def test_a_release_deferred_past_an_acquire_that_needs_it_stalls():
    made = placed(prefetched, set(), A, C)
    stalled = find_stalls(made)
    assert {(a.pipeline.name, a.side) for a in stalled} == {("v", "drain")}


def test_the_pass_gives_back_before_the_acquire_that_would_stall():
    made = recorded(prefetched, A, C)
    assert not find_stalls(made)
    consumers = made.roles[1]
    flat = [n for n in walk(consumers.body) if isinstance(n, Acquire | GiveBack)]
    drain_v = next(
        i for i, n in enumerate(flat) if isinstance(n, Acquire) and n.pipeline.name == "v"
    )
    before = flat[drain_v - 1]
    assert isinstance(before, GiveBack)
    assert (before.pipeline.name, before.keep) == ("k", 0)


@pk.kernel
def behind(A, C):
    """The values are filled behind the keys, so a key stage given back late harms nobody."""
    k, v = pk.pipeline(2, pk.st(bf16, 64, 64)), pk.pipeline(2, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(A.rows):
            with k.fill() as t:
                pk.load_async(t, A[i])
            with v.fill() as t:
                pk.load_async(t, A[i])
    with pk.consumers(1):
        c = pk.zeros(f32, 64, 64)
        for _ in pk.range(A.rows):
            with k.drain() as t:
                c = pk.mma_ABt(t, t, c)
            with v.drain() as t:
                c = pk.mma_ABt(t, t, c)
        pk.store(C[0], c)


def test_releases_stay_late_where_nobody_waits_for_them():
    made = recorded(behind, A, C)
    flat = [n for n in walk(made.roles[1].body) if isinstance(n, Acquire | GiveBack)]
    drain_v = next(
        i for i, n in enumerate(flat) if isinstance(n, Acquire) and n.pipeline.name == "v"
    )
    assert ("k", 1) in {
        (g.pipeline.name, g.keep) for g in flat[:drain_v] if isinstance(g, GiveBack)
    }


def test_a_kernel_that_deadlocks_anyway_is_left_to_the_emulator():
    @pk.kernel
    def kernel(A, C, n):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(n):
                with ring.fill() as t:
                    pk.load_async(t, A[i])
        with pk.consumers(1):
            c = pk.zeros(f32, 64, 64)
            for _ in pk.range(n + 1):
                with ring.drain() as t:
                    c = pk.mma_ABt(t, t, c)
            pk.store(C[0], c)

    recorded(kernel, A, C, 3)  # the pass ends
    with pytest.raises(pk.KernelError, match="deadlock"):
        kernel(A, C, 3)


@pytest.mark.parametrize("extra", [0, 1])
def test_trip_counts_that_are_the_same_expression_are_equal(extra):
    @pk.kernel
    def kernel(A, C, n):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            for i in pk.range(n // 2 + 3):
                with ring.fill() as t:
                    pk.load_async(t, A[i])
        with pk.consumers(1):
            c = pk.zeros(f32, 64, 64)
            for _ in pk.range(1, n // 2 + 4 + extra):
                with ring.drain() as t:
                    c = pk.mma_ABt(t, t, c)
            pk.store(C[0], c)

    out = np.full((64, 64), np.nan, np.float32)
    if extra:
        with pytest.raises(pk.KernelError, match="deadlock"):
            kernel(A, out, 4)
        assert np.isnan(out).all()
    else:
        kernel(A, out, 4)
        assert (out == 0).all()


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_trip_counts_read_from_a_tensor_are_equal_unless_the_kernel_may_write_it(written, inplace):
    @pk.kernel(inplace=inplace)
    def kernel(A, C, counts):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        tasks = pk.persistent((counts.shape[0],))
        with pk.producer():
            for (task,) in tasks:
                for i in pk.range(pk.load(counts.window(0, 1, 9)[task])):
                    with ring.fill() as t:
                        pk.load_async(t, A[i])
        with pk.consumers(1):
            for (task,) in tasks:
                c = pk.zeros(f32, 64, 64)
                for _ in pk.range(pk.load(counts.window(0, 1, 9)[task])):
                    with ring.drain() as t:
                        c = pk.mma_ABt(t, t, c)
                pk.store(C[task], c)
                if written:
                    pk.store(counts[0], 0)

    made = recorded(kernel, A, C, np.ones(9, np.int32))
    kept = {n.keep for n in walk(made.roles[1].body) if isinstance(n, GiveBack)}
    assert (1 in kept) is not (written or inplace)
