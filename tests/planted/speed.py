"""Products that are right, but computed by slower instructions than their kernel could use."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import e4m3, f32, int8, int32
from pykittens.emulate.finding import Kind, Level
from pykittens.types.dtypes import DType
from tests.planted.core import Array, empty, planted, product, whole


def _product(dtype: DType, acc: DType):
    """A, B and an output for A @ B.T, one tile of it."""

    def made(rng: np.random.Generator) -> tuple[Array, ...]:
        return whole(rng, (64, 64), dtype), whole(rng, (64, 64), dtype), empty((64, 64), acc)

    return made


@planted(
    Kind.SPEED,
    "acc = pk.mma_ABt(pk.relu(t) if broken else a, b)",
    arguments=_product(f32, f32),
    expected=lambda A, B, C: {"C": product(np.maximum(A, 0), B.T)},
    level=Level.NOTE,
)
@pk.kernel
def activation_multiplied_from_registers(A, B, C, *, broken: bool):
    """Broken: an operand of f32 is multiplied from registers, which no warpgroup product reads."""
    a, b = pk.shared(pk.st(f32, 64, 64)), pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    t = pk.load(A[0], rows=64, cols=64)
    pk.store(a, pk.relu(t))
    pk.store(b, pk.load(B[0], rows=64, cols=64))
    pk.fence_async()
    pk.sync()
    acc = pk.mma_ABt(pk.relu(t) if broken else a, b)
    pk.store(C[0], acc)


@planted(
    Kind.SPEED,
    "acc = pk.mma_ABt(t if broken else a, s.b, acc)",
    arguments=_product(int8, int32),
    expected=lambda A, B, C: {"C": product(A, B.T)},
    level=Level.NOTE,
)
@pk.kernel
def integers_multiplied_from_registers(A, B, C, *, broken: bool):
    """Broken: the consumers load an operand of int8 to registers in order to multiply it."""
    ring = pk.pipeline(2, b=pk.st(int8, 64, 32))
    a = pk.shared(pk.st(int8, 64, 32))
    pk.grid(1)
    steps = pk.cdiv(A.cols, 32)
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as s:
                pk.load_async(s.b, B[0, k])
    with pk.consumers(1):
        acc = pk.zeros(int32, 64, 64)
        for k in pk.range(steps):
            t = pk.load(A[0, k], rows=64, cols=32)
            pk.mma_wait()
            pk.sync()
            pk.publish(a, t)
            with ring.drain() as s:
                acc = pk.mma_ABt(t if broken else a, s.b, acc)
        pk.store(C[0], acc)


@planted(
    Kind.SPEED,
    "acc = pk.mma_AB(s.a, s.b, acc) if broken else pk.mma_ABt(s.a, s.b, acc)",
    arguments=lambda rng: (
        whole(rng, (64, 128), e4m3),
        whole(rng, (128, 64), e4m3),
        empty((64, 64), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T if B.shape[0] == 64 else B)},
    repaired_arguments=lambda rng: (
        whole(rng, (64, 128), e4m3),
        whole(rng, (128, 64), e4m3).T.copy(),
        empty((64, 64), f32),
    ),
    level=Level.NOTE,
)
@pk.kernel
def weights_with_k_along_the_columns(A, B, C, *, broken: bool):
    """Broken: weights of e4m3 are stored with k along their columns, which no warpgroup product reads."""
    ring = pk.pipeline(2, a=pk.st(e4m3, 64, 64), b=pk.st(e4m3, 64, 64))
    pk.grid(1)
    with pk.producer():
        for k in pk.range(pk.cdiv(A.cols, 64)):
            with ring.fill() as s:
                pk.load_async(s.a, A[0, k])
                pk.load_async(s.b, B[k, 0] if broken else B[0, k])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(pk.cdiv(A.cols, 64)):
            with ring.drain() as s:
                acc = pk.mma_AB(s.a, s.b, acc) if broken else pk.mma_ABt(s.a, s.b, acc)
        pk.store(C[0], acc)


@planted(
    Kind.SPEED,
    "scores = pk.mma_AtBt(s.k, s.q) if broken else pk.mma_ABt(s.k, s.q)",
    arguments=_product(e4m3, f32),
    expected=lambda A, B, C: {"C": product(B, A.T)},
    repaired_arguments=_product(e4m3, f32),
    level=Level.NOTE,
)
@pk.kernel
def keys_turned_by_the_product(A, B, C, *, broken: bool):
    """Broken: keys of e4m3 are transposed by the product, which no warpgroup product of 8 bits does."""
    ring = pk.pipeline(1, q=pk.st(e4m3, 64, 64), k=pk.st(e4m3, 64, 64))
    pk.grid(1)
    with pk.producer(), ring.fill() as s:
        pk.load_async(s.q, A[0])
        pk.load_async(s.k, B[0])
    with pk.consumers(1):
        with ring.drain() as s:
            scores = pk.mma_AtBt(s.k, s.q) if broken else pk.mma_ABt(s.k, s.q)
        pk.store(C[0], scores)
