"""Conversions to a narrower type go behind waits, as far as nothing needs them before."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.ir.nodes import Call, WaitProducts, walk
from tests.running import recorded

BF16 = np.dtype(ml_dtypes.bfloat16)
A = np.arange(4096).reshape(64, 64).astype(BF16)


@pk.kernel
def merged(A, out, n, *, dtype):
    """A conversion, merged by a run-time branch, before a wait."""
    q = pk.pipeline(1, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer(), q.fill() as s:
        pk.load_async(s, A[0])
    with pk.consumers(1):
        x = pk.load(A[0], rows=64, cols=64).to(f32)
        x = x.to(dtype)
        y = pk.zeros(dtype, 64, 64)
        if n > 0:
            x = y
        with q.drain() as s:
            t = pk.mma_ABt(s, s)
        pk.store(out[0], t + x.to(f32))


@pytest.mark.parametrize("dtype", [f32, bf16])
@pytest.mark.parametrize("n", [0, 1])
def test_what_a_branch_merges_is_made_before_it(dtype, n):
    out = np.full((64, 64), np.nan, np.float32)
    merged(A, out, n, dtype=dtype)
    wide = A.astype(np.float32)
    assert np.array_equal(out, wide @ wide.T + (wide if n == 0 else 0))


@pk.kernel
def straight(A, out, *, to):
    """A conversion before a wait, used behind it."""
    q = pk.pipeline(1, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer(), q.fill() as s:
        pk.load_async(s, A[0])
    with pk.consumers(1):
        x = pk.load(A[0], rows=64, cols=64)
        x = (x if to is f32 else x.to(f32) * 2).to(to)
        with q.drain() as s:
            t = pk.mma_ABt(s, s)
        pk.store(out[0], t + x.to(f32))


@pytest.mark.parametrize(("to", "moves"), [(bf16, True), (f32, False)])
def test_only_what_gets_narrower_waits_in_its_wide_form(to, moves):
    kernel = recorded(straight, A, np.zeros((64, 64), np.float32), to=to)
    nodes = list(walk(kernel.roles[1].body))
    wait = next(i for i, n in enumerate(nodes) if isinstance(n, WaitProducts))
    behind = [
        n
        for n in nodes[wait:]
        if isinstance(n, Call) and n.op.name == "to" and n.results[0].dtype == to
    ]
    assert any(n.results[0].name == "x" for n in behind) == moves
