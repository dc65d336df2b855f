"""Matrix products on tensor cores.

A product with shared operands starts and returns a tile in flight; what reads that tile waits for it.
Source: PTX ISA, "wgmma.mma_async".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Engine, Family, Mismatch, Op
from pykittens.ir.values import RegTile, SharedTile, describe
from pykittens.ops.core import op
from pykittens.types.dtypes import bf16, f16, f32
from pykittens.types.tiles import RT

_PRODUCT = Effects(reads=("a", "b"), engine=Engine.PRODUCT, accumulates="acc")


def _product_type(op: Op[..., Any], args: dict[str, Any]) -> RT:
    a, b, acc = args["a"], args["b"], args["acc"]
    transposed = op.name.endswith("Bt")
    if not isinstance(a, SharedTile | RegTile):
        raise Mismatch(f"`a` must be a shared or a register tile, not {describe(a)}")
    if not isinstance(b, SharedTile):
        raise Mismatch(
            f"`b` must be a shared tile, not {describe(b)}",
            help="the hardware reads `b` from shared memory",
        )
    if a.dtype != b.dtype:
        raise Mismatch(f"`a` and `b` must have one dtype, not {a.dtype} and {b.dtype}")
    if a.dtype not in (bf16, f16):
        raise Mismatch(f"takes bf16 or f16 operands, not {a.dtype}")
    inner, cols = (b.cols, b.rows) if transposed else (b.rows, b.cols)
    side = "columns" if transposed else "rows"
    if a.cols != inner:
        other = "mma_AB" if transposed else "mma_ABt"
        meant = (
            "`b` transposed; for `a @ b` use" if transposed else "`b` as it is; for `a @ b.T` use"
        )
        same = "the same number of columns" if transposed else f"as many columns and {side}"
        raise Mismatch(
            f"`a` and `b` must have {same}, not {a.cols} and {inner}",
            help=f"{op.name} multiplies by {meant} {other}",
        )
    warps = current(op.name).warps
    if warps % 4:
        raise Mismatch(
            f"a product is the work of a warpgroup, not of {warps} warp{'s' * (warps > 1)}",
            help="use pk.consumers(n), pk.warpgroups(n) or @pk.kernel(warps=4)",
        )
    if a.rows % (16 * warps):
        raise Mismatch(
            f"`a` must have a multiple of {16 * warps} rows, 64 a warpgroup, not {a.rows}"
        )
    if cols % 16 or cols > 256:
        raise Mismatch(f"the product must have 16, 32, ... 256 columns, not {cols}")
    if a.cols % 16:
        raise Mismatch(f"`a` must have a multiple of 16 columns, not {a.cols}")
    result = RT(f32, a.rows, cols)
    if acc is not None and (not isinstance(acc, RegTile) or acc.type != result):
        raise Mismatch(f"`acc` must be {result}, not {describe(acc)}")
    return result


def _product_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    a, b = (x if isinstance(x, np.ndarray) else x.read() for x in (args["a"], args["b"]))
    b = b.astype(np.float32)
    product = a.astype(np.float32) @ (b.T if op.name.endswith("Bt") else b)
    return product if args["acc"] is None else args["acc"] + product


PRODUCT = Family("product", _product_type, _product_numpy)


@op(effects=_PRODUCT, family=PRODUCT)
def mma_ABt(a: Any, b: SharedTile, acc: RegTile | None = None) -> RegTile:
    """a @ b.T + acc in f32: `a` is m x k, shared or in registers, `b` shared n x k. No `acc`: zeros."""


@op(effects=_PRODUCT, family=PRODUCT)
def mma_AB(a: Any, b: SharedTile, acc: RegTile | None = None) -> RegTile:
    """a @ b + acc in f32: `a` is m x k, shared or in registers, `b` shared k x n. No `acc`: zeros."""
