"""Attention: O = softmax(Q K^T / sqrt(d)) V; if causal, each query sees the keys up to its own position only.

A block takes some queries and goes through the keys in blocks, from the last to the first. With s = Q K^T of one
block of keys, it keeps for each query the maximum m so far, the sum l of the weights and the weighted sum o of V:

    m' = max(m, max s)    alpha = exp((m - m') / sqrt(d))    p = exp((s - m') / sqrt(d))
    l' = alpha l + sum p    o' = alpha o + p V        and in the end O = o / l

Source: Dao et al., "FlashAttention", 2022; the product with V of one step runs while the scores of the next are
normalised, as in Shah et al., "FlashAttention-3", 2024.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import gcd
from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.limits import Limits, first_that_fits, limits_of
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.runtime.fakes import known


def reference(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """The same in float64."""
    wide_q, wide_k, wide_v = (x.astype(np.float64) for x in (q, k, v))
    s = wide_q @ wide_k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ wide_v


@dataclass(frozen=True)
class AttentionConfig:
    """The work of a block.

    rows: queries, shared by `consumers` warpgroups. keys: keys and values of a stage, `stages` of which are in flight.
    out_cols: the most columns of the output's stage. widest: the largest d that registers allow. warpgroups: for
    targets whose warpgroups multiply together, else for those whose warps multiply alone.
    """

    rows: int
    keys: int
    stages: int
    consumers: int
    out_cols: int
    widest: int
    warpgroups: bool

    def columns_at_once(self, d: int) -> int:
        """Columns of the output's stage: d, or a divisor of d."""
        return d if d <= self.out_cols else gcd(d, self.out_cols)

    def shared_bytes(self, d: int) -> int:
        """Bytes of shared memory of a block: queries, keys, values, output, and two barriers per stage."""
        queries, output = 2 * self.rows * d, 2 * self.rows * self.columns_at_once(d)
        stage = -(-2 * self.keys * d // 1024) * 1024  # stages start at multiples of 1024
        return queries + output + 2 * self.stages * stage + 16 * (2 * self.stages + 2)


# For each d, the first configuration that is wide enough and fits is used. A lane keeps its elements of s, p and o in
# registers. If warpgroups cannot trade registers, a lane of ten warps has 168, so d > 64 needs fewer keys at a time,
# and d > 128 a single warpgroup.
CONFIGS = (
    # sm_90a: 227 KiB.
    AttentionConfig(192, 128, stages=2, consumers=3, out_cols=64, widest=64, warpgroups=True),
    AttentionConfig(128, 128, stages=2, consumers=2, out_cols=128, widest=128, warpgroups=True),
    AttentionConfig(128, 64, stages=2, consumers=2, out_cols=64, widest=256, warpgroups=True),
    # sm_80, and newer GPUs without an own target: 163 KiB. The first fits sm_89, too.
    AttentionConfig(128, 64, stages=3, consumers=2, out_cols=64, widest=64, warpgroups=False),
    AttentionConfig(128, 48, stages=3, consumers=2, out_cols=64, widest=128, warpgroups=False),
    AttentionConfig(64, 48, stages=2, consumers=1, out_cols=64, widest=256, warpgroups=False),
    # sm_89 and sm_86: 99 KiB.
    AttentionConfig(128, 48, stages=2, consumers=2, out_cols=64, widest=128, warpgroups=False),
    AttentionConfig(64, 32, stages=2, consumers=1, out_cols=16, widest=256, warpgroups=False),
)


@pk.kernel
def attention_blocks(Q, K, V, O, *, causal, config):  # type: ignore[no-untyped-def]
    """O = softmax(Q K^T / sqrt(d)) V; persistent blocks, rings of keys and values."""
    pk.require(Q.shape == K.shape == V.shape == O.shape, "q, k, v and out must have one shape")
    batch, heads, n, d = Q.shape
    d, dtype = pk.static(d), Q.dtype
    rows, keys, own = config.rows, config.keys, config.rows // config.consumers
    out_cols = config.columns_at_once(d)
    parts, scale, blocks = d // out_cols, pk.log2e / d**0.5, pk.cdiv(n, rows)
    q_ring = pk.pipeline(1, pk.st(dtype, rows, d))
    k_ring, v_ring = (pk.pipeline(config.stages, pk.st(dtype, keys, d)) for _ in range(2))
    out = pk.pipeline(1, pk.st(dtype, rows, out_cols))
    order = pk.longest_first if causal else pk.row_major
    tasks: Any = pk.persistent((batch, heads, blocks), order=order)

    def last(block: Any) -> Any:  # key blocks run from here down to 0
        return pk.cdiv(pk.minimum((block + 1) * rows, n) if causal else n, keys) - 1

    def products(queries: Any, p: Any, o: Any) -> Any:
        """The scores of the next block of keys, then o + p V of the previous block, both in flight."""
        with k_ring.drain() as t:
            s = pk.mma_ABt(queries, t)
        with v_ring.drain() as t:
            o = pk.mma_AB(p, t, o)
        return s, o

    with pk.producer():
        for b, h, block in tasks:
            with k_ring.fill() as t:
                pk.load_async(t, K[b, h, last(block), 0])
            with q_ring.fill() as t:
                pk.load_async(t, Q[b, h, block, 0])
            for j in pk.range(last(block), 0, -1):
                with k_ring.fill() as t:
                    pk.load_async(t, K[b, h, j - 1, 0])
                with v_ring.fill() as t:
                    pk.load_async(t, V[b, h, j, 0])
            with v_ring.fill() as t:
                pk.load_async(t, V[b, h, 0, 0])

    with pk.consumers(config.consumers) as w:
        for b, h, block in tasks:
            row = block * rows + w * own
            # Blocks below `cut` have no key past a query's position or past the last key.
            cut = block * rows // keys if causal else last(block)
            with q_ring.drain() as t:
                queries, o = t.tiles(own, d)[w], pk.zeros(pk.f32, own, d)
                with k_ring.drain() as t:
                    s = pk.mma_ABt(queries, t)
                s = pk.mask(s, row=row, col=last(block) * keys, cols=n, causal=causal)
                p, m, l, _ = pk.online_softmax(s, scale, to=dtype)
                if causal and keys % rows:  # else the last block is the only one to mask
                    for j in pk.range(last(block) - 1, cut - 1, -1):
                        s, o = products(queries, p, o)
                        s = pk.mask(s, row=row, col=j * keys, cols=n, causal=True)
                        p, m, l, alpha = pk.online_softmax(s, scale, m, l, to=dtype)
                        o = o * alpha
                for _ in pk.range(cut):
                    s, o = products(queries, p, o)
                    p, m, l, alpha = pk.online_softmax(
                        s, scale, m, l, to=dtype
                    )  # waits for s alone
                    o = o * alpha  # and here for o
            with v_ring.drain() as t:
                o = pk.mma_AB(p, t, o)
            o = pk.normalize(o, l).to(dtype)
            for part in range(parts):
                with out.fill() as t:
                    piece = o[:, part * out_cols : (part + 1) * out_cols]
                    pk.store(t.tiles(own, out_cols)[w], piece)

    with pk.storer():
        for b, h, block in tasks:
            for part in range(parts):
                with out.drain() as t:
                    pk.store_async(O[b, h, block, part], t)


CASES = (
    {"batch": 16, "heads": 16, "length": 3072, "d": 128, "causal": False},
    {"batch": 16, "heads": 16, "length": 3072, "d": 128, "causal": True},
    {"batch": 16, "heads": 16, "length": 3072, "d": 64, "causal": False},
    {"batch": 16, "heads": 16, "length": 3072, "d": 64, "causal": True},
    {"batch": 16, "heads": 16, "length": 3072, "d": 256, "causal": False},
    {"batch": 16, "heads": 16, "length": 3072, "d": 256, "causal": True},
    {"batch": 2, "heads": 3, "length": 1000, "d": 256, "causal": True},
    {"batch": 1, "heads": 2, "length": 200, "d": 64, "causal": False},
    {"batch": 1, "heads": 2, "length": 300, "d": 48, "causal": True},
)


def inputs(
    rng: np.random.Generator, batch: int, heads: int, length: int, d: int, causal: bool
) -> dict[str, Any]:
    """Random normal q, k and v in bf16."""
    shape = (batch, heads, length, d)
    tensors = {x: rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for x in ("q", "k", "v")}
    return {**tensors, "causal": causal}


@functools.cache
def config_for(d: int, limits: Limits) -> AttentionConfig:
    """The configuration for heads of d elements on a GPU of these limits."""
    able = [c for c in CONFIGS if c.warpgroups == limits.warpgroups and d <= c.widest]
    return first_that_fits("attention", able, lambda c: c.shared_bytes(d), limits)


def work(batch: int, heads: int, length: int, d: int, causal: bool) -> tuple[float, Any]:
    """The floating-point operations of the two products; half of them if causal."""
    return 4.0 * batch * heads * length**2 * d * (0.5 if causal else 1.0), "FLOP"


def rival(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    """PyTorch's attention: cuDNN's, or FlashAttention's if d > 128."""
    backends = torch.nn.attention.SDPBackend
    backend = backends.FLASH_ATTENTION if q.shape[-1] > 128 else backends.CUDNN_ATTENTION
    with torch.nn.attention.sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@entry(reference=reference, cases=CASES, inputs=inputs, rival=rival, work=work)
def attention(
    q: Any,
    k: Any,
    v: Any,
    out: Any = None,
    *,
    causal: bool = False,
    config: AttentionConfig | None = None,
) -> Plan:
    """softmax(q k^T / sqrt(d)) v along the keys; if causal, query i sees the keys up to i.

    q, k, v: (batch, heads, length, d) of one shape, all bf16 or all f16, NumPy or PyTorch; d is a multiple of 16 up to
    256. The result has their shape and dtype; it is written to `out` if that is given. Sums are in f32; the weights
    are rounded to the dtype before they are multiplied by v. `config` is one of CONFIGS; if None, it is chosen for d
    and the GPU of `q`.
    """
    arrays = Arrays("attention", q=q, k=k, v=v, out=out)
    shape = "batch heads length d"
    d = arrays.shapes(q=shape, k=shape, v=shape)["d"]
    dtype = arrays.dtypes("q", "k", "v", "out", among=NARROW)
    if known(d) % 16 or not 16 <= known(d) <= 256:
        raise arrays.fail(
            f"d, the last extent, must be a multiple of 16 from 16 to 256, not {d}",
            help="pad q, k and v with columns of zeros, and multiply q by sqrt(padded d / d)",
        )
    arrays.result(shape, dtype)
    if not arrays.have_memory:
        return Plan(arrays, [])
    arrays.lines("q", "k", "v", "out")
    constants = {"causal": bool(causal), "config": config or config_for(d, limits_of(q))}
    return Plan(arrays, [PlanStep(attention_blocks, ("q", "k", "v", "out"), constants)])
