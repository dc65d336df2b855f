"""Attention. The idea: two products per step, one of them in flight during the softmax of the next."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def attention(Q, K, V, O, *, causal: bool):
    """softmax(Q K^T / sqrt(d)) V: the product with V of one step runs while the scores of the next are normalised."""
    pk.require(Q.shape == K.shape == V.shape == O.shape, "Q, K, V and O must have one shape")
    batch, heads, n, d = Q.shape
    d = pk.static(d)
    scale, blocks = pk.log2e / d**0.5, pk.cdiv(n, 128)
    q, out = pk.pipeline(1, pk.st(bf16, 128, d)), pk.pipeline(1, pk.st(bf16, 128, d))
    k, v = pk.pipeline(2, pk.st(bf16, 128, d)), pk.pipeline(2, pk.st(bf16, 128, d))
    tasks = pk.persistent((batch, heads, blocks), order=pk.longest_first if causal else pk.row_major)

    def last(block):  # key blocks run from here down to 0
        return block if causal else blocks - 1

    with pk.producer():
        for b, h, block in tasks:
            with k.fill() as t: pk.load_async(t, K[b, h, last(block), 0])
            with q.fill() as t: pk.load_async(t, Q[b, h, block, 0])
            for j in pk.range(last(block), 0, -1):
                with k.fill() as t: pk.load_async(t, K[b, h, j - 1, 0])
                with v.fill() as t: pk.load_async(t, V[b, h, j, 0])
            with v.fill() as t: pk.load_async(t, V[b, h, 0, 0])

    with pk.consumers(2) as w:
        for b, h, block in tasks:
            with q.drain() as qs:
                qw, o = qs.tiles(64, d)[w], pk.zeros(f32, 64, d)
                with k.drain() as kt: s = pk.mma_ABt(qw, kt)
                s = pk.mask(s, row=block * 128 + w * 64, col=last(block) * 128, cols=n, causal=causal)
                p, m, l, _ = pk.online_softmax(s, scale, to=bf16)
                for j in pk.range(last(block)):
                    with k.drain() as kt: s = pk.mma_ABt(qw, kt)  # in flight
                    with v.drain() as vt: o = pk.mma_AB(p, vt, o)  # in flight behind it
                    p, m, l, alpha = pk.online_softmax(s, scale, m, l, to=bf16)  # waits for s alone
                    o = o * alpha  # and here for o
            with v.drain() as vt: o = pk.mma_AB(p, vt, o)
            with out.fill() as t: pk.store(t.tiles(64, d)[w], pk.normalize(o, l).to(bf16))

    with pk.storer():
        for b, h, block in tasks:
            with out.drain() as t: pk.store_async(O[b, h, block, 0], t)


def reference(Q, K, V, causal):
    """Attention in float64."""
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def main():
    """Run it on a ragged length, full and causal, and compare."""
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((3, 1, 2, 300, 64)).astype(ml_dtypes.bfloat16)
    for causal in (False, True):
        O = np.full_like(Q, np.nan)
        attention(Q, K, V, O, causal=causal)
        expected = reference(Q, K, V, causal)
        error = np.linalg.norm(O.astype(np.float64) - expected) / np.linalg.norm(expected)
        print(f"relative error, {'causal' if causal else 'full'}: {error}")


if __name__ == "__main__":
    main()
