"""The result of a product that is read before the wait that completes it."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import Array, empty, planted, product, signs, whole


def _operands(rng: np.random.Generator) -> tuple[Array, ...]:
    """A and B of two steps, and the output of their product."""
    return whole(rng, (64, 128), bf16), whole(rng, (64, 128), bf16), empty((64, 64), f32)


@planted(
    Kind.UNWAITED_PRODUCT,
    "acc = pk.mma_ABt(a, b, acc, managed=False)",
    "pk.store(C[row, col], acc + 1)",
    arguments=_operands,
    expected=lambda A, B, C: {"C": product(A, B.T) + 1},
)
@pk.kernel
def epilogue_before_the_wait(A, B, C, *, broken: bool):
    """Broken: the wait for the last product is after the epilogue that reads the result."""
    a, b, full = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    row, col = pk.grid(*C.tiles(64, 64))
    acc = pk.zeros(f32, 64, 64)
    for k in pk.range(pk.cdiv(A.cols, 64)):
        pk.mma_wait()  # the product before has read both tiles
        full.expect(a, b)
        pk.load_async(a, A[row, k], signal=full)
        pk.load_async(b, B[col, k], signal=full)
        full.wait(k)
        acc = pk.mma_ABt(a, b, acc, managed=False)
    if not broken:
        pk.mma_wait()
    pk.store(C[row, col], acc + 1)
    if broken:
        pk.mma_wait()


@planted(
    Kind.UNWAITED_PRODUCT,
    "imaginary = pk.mma_ABt(a, c, managed=False)",
    "pk.store(Y[1], imaginary)",
    arguments=lambda rng: (
        *(whole(rng, (64, 64), bf16) for _ in range(3)),
        empty((128, 64), f32),
    ),
    expected=lambda A, B, C, Y: {"Y": np.concatenate([product(A, B.T), product(A, C.T)])},
)
@pk.kernel
def second_of_two_products(A, B, C, Y, *, broken: bool):
    """Broken: two products run, the wait leaves one pending, and both results are stored."""
    tile = pk.st(bf16, 64, 64)
    a, b, c, full = pk.shared(tile), pk.shared(tile), pk.shared(tile), pk.semaphore(1)
    pk.grid(1)
    full.expect(a, b, c)
    pk.load_async(a, A[0], signal=full)
    pk.load_async(b, B[0], signal=full)
    pk.load_async(c, C[0], signal=full)
    full.wait(0)
    real = pk.mma_ABt(a, b, managed=False)
    imaginary = pk.mma_ABt(a, c, managed=False)
    pk.mma_wait(1)
    pk.store(Y[0], real)
    if not broken:
        pk.mma_wait()
    pk.store(Y[1], imaginary)
    if broken:
        pk.mma_wait()


@planted(
    Kind.UNWAITED_PRODUCT,
    "part = pk.mma_ABt(x[k % 2], x[k % 2], managed=False)",
    "total = total + part",
    arguments=lambda rng: (whole(rng, (64, 256), bf16), empty((64, 64), f32)),
    expected=lambda X, G: {"G": product(X, X.T)},
)
@pk.kernel
def part_added_in_flight(X, G, *, broken: bool):
    """Broken: each part is added to the total after all products except its own are done."""
    x, full = pk.shared(pk.st(bf16, 64, 64), count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    total = pk.zeros(f32, 64, 64)
    for k in pk.range(pk.cdiv(X.cols, 64)):
        full[k % 2].expect(x[k % 2])
        pk.load_async(x[k % 2], X[0, k], signal=full[k % 2])
        full[k % 2].wait(k // 2)
        part = pk.mma_ABt(x[k % 2], x[k % 2], managed=False)
        pk.mma_wait(1 if broken else 0)
        total = total + part
    pk.mma_wait()
    pk.store(G[0], total)


@planted(
    Kind.UNWAITED_PRODUCT,
    "acc = pk.mma_ABt(x, x, managed=False)",
    "pk.store(G[0], acc)",
    arguments=lambda rng: (whole(rng, (64, 64), bf16), empty((64, 64), f32), 0),
    expected=lambda X, G, checked: {"G": product(X, X.T)},
)
@pk.kernel
def wait_in_the_other_branch(X, G, checked, *, broken: bool):
    """Broken: only the branch that reads the operand waits for the product."""
    x, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    full.expect(x)
    pk.load_async(x, X[0], signal=full)
    full.wait(0)
    acc = pk.mma_ABt(x, x, managed=False)
    if checked > 0:
        pk.assert_(pk.load(x) <= 4, "elements are at most 4")
        pk.mma_wait()
    elif not broken:
        pk.mma_wait()
    pk.store(G[0], acc)
    if broken:
        pk.mma_wait()


def _attention(rng: np.random.Generator) -> tuple[Array, ...]:
    """Queries, keys and values of three blocks, and the output."""
    q, k, v = (signs(rng, (rows, 64), bf16) for rows in (64, 192, 192))
    return q, k, v, empty((64, 64), f32)


@planted(
    Kind.UNWAITED_PRODUCT,
    "o = pk.mma_AB(p, kv[1], o, managed=False)",
    "o = o * 0.5",
    arguments=_attention,
    expected=lambda Q, K, V, O: {
        "O": sum(
            0.5 ** (3 - j) * product(np.maximum(product(Q, k.T), 0), v)
            for j, (k, v) in enumerate(zip(np.split(K, 3), np.split(V, 3), strict=True))
        )
    },
)
@pk.kernel
def output_decayed_in_flight(Q, K, V, O, *, broken: bool):
    """Broken: the output is scaled after a wait that leaves its product with the values pending."""
    q, kv = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64), count=2)
    q_full, full = pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    o = pk.zeros(f32, 64, 64)
    q_full.expect(q)
    pk.load_async(q, Q[0], signal=q_full)
    q_full.wait(0)
    for j in pk.range(pk.cdiv(K.rows, 64)):
        full.expect(kv[0], kv[1])
        pk.load_async(kv[0], K[j], signal=full)
        pk.load_async(kv[1], V[j], signal=full)
        full.wait(j)
        s = pk.mma_ABt(q, kv[0], managed=False)
        pk.mma_wait()
        p = pk.relu(s).to(bf16)
        o = pk.mma_AB(p, kv[1], o, managed=False)
        pk.mma_wait(1 if broken else 0)
        o = o * 0.5
        if broken:
            pk.mma_wait()
    pk.store(O[0], o)


@planted(
    Kind.UNWAITED_PRODUCT,
    "pk.store(C[0], pk.relu(acc))",
    arguments=lambda rng: (whole(rng, (64, 64), bf16), empty((64, 64), f32)),
    expected=lambda A, C: {"C": np.maximum(product(A, A.T), 0)},
)
@pk.kernel
def activation_before_the_wait(A, C, *, broken: bool):
    """Broken: the activation is applied to a product that is still in flight."""
    a = pk.shared(pk.st(bf16, 64, 64))
    pk.grid(1)
    pk.publish(a, pk.load(A[0], rows=64, cols=64))
    acc = pk.mma_ABt(a, a, managed=False)
    if not broken:
        pk.mma_wait()
    pk.store(C[0], pk.relu(acc))
    if broken:
        pk.mma_wait()
