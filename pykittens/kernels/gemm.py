"""Matrix products: C = A @ B.T or A @ B, summed in f32.

    C[i, j] = sum over k of A[i, k] B[j, k] where B is n x k, as the weights of a linear layer lie,
    C[i, j] = sum over k of A[i, k] B[k, j] where B is k x n

C is cut into tiles, a block works on one at a time, and along k parts of A and B pass through a ring of stages.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.core import Limits, check_floats, empty, entry, first_that_fits, limits_of


def reference(a: Any, b: Any, transpose_b: bool = True) -> Any:
    """The same in float64."""
    right = b.astype(np.float64)
    return a.astype(np.float64) @ (right.T if transpose_b else right)


@dataclass(frozen=True)
class Config:
    """The work of a block.

    rows, cols: of its tile of C. depth: of a stage, `stages` of which are in flight. consumers: warpgroups that share
    the rows. out_cols: columns of the output's one stage. warpgroups: for targets whose warpgroups multiply together,
    else for those whose warps multiply alone.
    """

    rows: int
    cols: int
    depth: int
    stages: int
    consumers: int
    out_cols: int
    warpgroups: bool

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the stages, the output, and two barriers for each of them."""
        inputs = self.stages * (self.rows + self.cols) * self.depth
        return 2 * (inputs + self.rows * self.out_cols) + 16 * (self.stages + 1)


# The best first. Warps that multiply alone read all columns of B for their own rows of A: with 16 rows each, shared
# memory would be slower than their products, so there a warpgroup has 128 rows, 32 a warp.
CONFIGS = (
    # sm_90a: 227 KiB, a whole output tile.
    Config(128, 256, depth=64, stages=3, consumers=2, out_cols=256, warpgroups=True),
    # sm_80, and cards of more memory that have no target of their own: 163 KiB, a whole output tile.
    Config(256, 128, depth=32, stages=4, consumers=2, out_cols=128, warpgroups=False),
    # sm_89 and sm_86: 99 KiB, the output in quarters.
    Config(256, 128, depth=32, stages=3, consumers=2, out_cols=32, warpgroups=False),
)


@pk.kernel
def gemm_tiles(A, B, C, *, config, transpose_b):  # type: ignore[no-untyped-def]
    """C = A @ B.T, or A @ B unless transpose_b; persistent blocks, a ring of stages."""
    rows, cols, depth, out_cols = config.rows, config.cols, config.depth, config.out_cols
    n, inner = (B.rows, B.cols) if transpose_b else (B.cols, B.rows)
    pk.require(A.cols == inner, "the inner extents of a and b must be equal")
    pk.require(C.shape == (A.rows, n), "out must have the rows of a and the columns of the product")
    b_tile = pk.st(B.dtype, cols, depth) if transpose_b else pk.st(B.dtype, depth, cols)
    inputs = pk.pipeline(config.stages, a=pk.st(A.dtype, rows, depth), b=b_tile)
    outputs = pk.pipeline(1, pk.st(C.dtype, rows, out_cols))
    tasks: Any = pk.persistent(C.tiles(rows, cols), order=pk.supergroup(8))
    steps, parts, own = pk.cdiv(inner, depth), cols // out_cols, rows // config.consumers

    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                with inputs.fill() as s:
                    pk.load_async(s.a, A[row, k])
                    pk.load_async(s.b, B[col, k] if transpose_b else B[k, col])

    with pk.consumers(config.consumers) as w:
        for row, col in tasks:
            acc = pk.zeros(pk.f32, own, cols)
            for k in pk.range(steps):
                with inputs.drain() as s:
                    a = s.a.tiles(own, depth)[w]
                    acc = pk.mma_ABt(a, s.b, acc) if transpose_b else pk.mma_AB(a, s.b, acc)
            for part in range(parts):
                with outputs.fill() as t:
                    piece = acc[:, part * out_cols : (part + 1) * out_cols]
                    pk.store(t.tiles(own, out_cols)[w], piece.to(C.dtype))

    with pk.storer():
        for row, col in tasks:
            for part in range(parts):
                with outputs.drain() as t:
                    pk.store_async(C[row, col * parts + part], t)


CASES = (
    {"m": 4096, "n": 4096, "k": 4096, "transpose_b": True},
    {"m": 8192, "n": 8192, "k": 8192, "transpose_b": True},
    {"m": 4096, "n": 4096, "k": 4096, "transpose_b": False},
    {"m": 1111, "n": 2222, "k": 3333, "transpose_b": True},
    {"m": 70, "n": 40, "k": 33, "transpose_b": True},
    {"m": 33, "n": 70, "k": 40, "transpose_b": False},
)


def inputs(rng: np.random.Generator, m: int, n: int, k: int, transpose_b: bool) -> dict[str, Any]:
    """Random normal a and b in bf16."""
    return {
        "a": rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16),
        "b": rng.standard_normal((n, k) if transpose_b else (k, n)).astype(ml_dtypes.bfloat16),
        "transpose_b": transpose_b,
    }


@functools.cache
def config_for(limits: Limits) -> Config:
    """The configuration for a GPU of these limits."""
    made_for = [(c, c.shared_bytes) for c in CONFIGS if c.warpgroups == limits.warpgroups]
    return first_that_fits("gemm", made_for, limits)


@entry(kernel=gemm_tiles, reference=reference, cases=CASES, inputs=inputs)
def gemm(
    a: Any, b: Any, out: Any = None, *, transpose_b: bool = True, config: Config | None = None
) -> Any:
    """a @ b.T, or a @ b with transpose_b=False.

    a: (m, k), b: (n, k) or (k, n), both bf16 or both f16, NumPy or PyTorch. The result (m, n) has their dtype, rounded
    once from a sum in f32; it is written to `out` where given. `config` is one of CONFIGS; if None, the one for the
    GPU of `a`.
    """
    check_floats("gemm", rank=2, **({"a": a, "b": b} | ({} if out is None else {"out": out})))
    if out is None:
        out = empty(a, (a.shape[0], b.shape[0 if transpose_b else 1]))
    gemm_tiles(a, b, out, config=config or config_for(limits_of(a)), transpose_b=bool(transpose_b))
    return out
