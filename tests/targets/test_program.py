"""What a whole program takes is held against what a block has, whoever notices."""

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.runtime import nvrtc
from pykittens.runtime.kernel import KernelFunction
from pykittens.targets.target import TARGETS
from tests.targets.compiling import matrix

F32 = np.dtype(np.float32)
needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def told(kernel, *args, **constants) -> str:
    with pytest.raises(pk.KernelError) as caught:
        kernel.compile(*args, **constants)
    return f"{caught.value}\n"


@pk.kernel
def full_of_stages(x, y, *, small):
    """Stages up to the last bytes, and a reduction over the warps of a group, which needs some more."""
    ring = pk.pipeline(14, pk.st(f32, 128, 32))
    pk.pipeline(small, pk.st(bf16, 16, 16))
    tasks = pk.persistent((1,))
    with pk.producer():
        for (i,) in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[i, 0])
    with pk.warpgroups(1):
        for (i,) in tasks:
            with ring.drain() as t:
                row = pk.load(x[i], cols=32)
            pk.store(y[i], row * pk.sum(row))


@needs_compiler
def test_shared_memory_for_reductions_counts(monkeypatch):
    x = matrix(128, 32, dtype=F32)
    taken = full_of_stages.compile(x, x.copy(), small=1).resources.shared_bytes
    monkeypatch.setattr(TARGETS["sm_90a"], "shared_bytes", taken - 1)
    message = told(
        KernelFunction(full_of_stages.function, full_of_stages.options), x, x.copy(), small=1
    )
    assert "sum: 16 bytes of shared memory join the lanes of a group, and 0 are left" in message


@pk.kernel
def wide_products(A, B, C):
    """Three warpgroups with 256 columns each: more accumulators than their registers hold."""
    ring = pk.pipeline(1, a=pk.st(bf16, 192, 64), b=pk.st(bf16, 256, 64))
    tasks = pk.persistent(C.tiles(192, 256))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as s:
                pk.load_async(s.a, A[row, 0])
                pk.load_async(s.b, B[col, 0])
    with pk.consumers(3) as w:
        for row, col in tasks:
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b)
            pk.store(C[row * 3 + w, col], acc)


@needs_compiler
def test_a_product_with_more_accumulators_than_registers():
    message = told(wide_products, matrix(256, 64), matrix(256, 64), matrix(256, 256, dtype=F32))
    assert re.match(
        r"wide_products: one instruction takes \d+ registers a thread, and a block of this size starts with 128\n",
        message,
    )
