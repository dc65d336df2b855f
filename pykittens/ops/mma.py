"""Matrix products on tensor cores.

A product starts and returns a tile in flight; an operation that reads the tile waits for it. Its operands:

    a, b                  k a multiple of   accumulated in
    bf16                  16                f32
    f16                   16                f32, or f16 if `acc` is f16
    f32, read as tf32     8                 f32
    e4m3, e5m2            32                f32
    int8, uint8           32                int32

tf32 has 10 bits of mantissa; f32 is truncated or rounded to it. The accumulator of 8-bit floats keeps about 14 bits on
Hopper: the error grows with k, and `acc + mma_ABt(a, b)` every 128 of k, in place of `mma_ABt(a, b, acc)`, halves it.
Hopper's warpgroup products read operands of 8 or 32 bits only if k runs along the rows of memory, as for both operands
of mma_ABt; otherwise the slower products of single warps are used. With `managed=False` only `mma_wait` waits for the
tile in flight, whose value is undefined before. Source: PTX ISA, "wgmma.mma_async" and "mma".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Engine, Family, Mismatch, Op
from pykittens.ir.values import RegTile, SharedRow, SharedTile, describe
from pykittens.ops.arguments import check_truth
from pykittens.ops.core import op
from pykittens.ops.creation import counted_warps
from pykittens.types.dtypes import (
    OF_NUMPY,
    DType,
    bf16,
    converted,
    e4m3,
    e5m2,
    f16,
    f32,
    int8,
    int32,
    uint8,
)
from pykittens.types.tiles import RT

_PRODUCT = Effects(reads=("a", "b"), engine=Engine.PRODUCT, accumulates="acc", managed="managed")
ACCUMULATORS: dict[DType, tuple[DType, ...]] = {
    bf16: (f32,),
    f16: (f32, f16),
    f32: (f32,),
    e4m3: (f32,),
    e5m2: (f32,),
    int8: (int32,),
    uint8: (int32,),
}
MOST_COLUMNS = 256
PRODUCTS = {"mma_AB": "a @ b", "mma_ABt": "a @ b.T", "mma_AtB": "a.T @ b", "mma_AtBt": "a.T @ b.T"}


def a_is_transposed(op: Op[Any]) -> bool:
    """Whether `a` is k x m."""
    return op.name.startswith("mma_At")


def b_is_transposed(op: Op[Any]) -> bool:
    """Whether `b` is n x k."""
    return op.name.endswith("Bt")


def depth_step(dtype: DType) -> int:
    """The extent of k that one instruction takes: 32 bytes of a row."""
    return 32 // dtype.bytes


def _product_type(op: Op[Any], args: dict[str, Any]) -> RT:
    a, b, acc = args["a"], args["b"], args["acc"]
    check_truth("managed", args["managed"])
    _check_tiles(op, a, b)
    _check_dtypes(a.dtype, b.dtype)
    rows, depth, rows_side, depth_side = a.rows, a.cols, "rows", "columns"
    if a_is_transposed(op):
        rows, depth, rows_side, depth_side = a.cols, a.rows, "columns", "rows"
    inner, cols, inner_side = b.rows, b.cols, "rows"
    if b_is_transposed(op):
        inner, cols, inner_side = b.cols, b.rows, "columns"
    if depth != inner:
        wanted = f"`a` must have as many {depth_side} as `b` has {inner_side}"
        if depth_side == inner_side:
            wanted = f"`a` and `b` must have the same number of {depth_side}"
        other = "mma_ABt" if op.name == "mma_AB" else "mma_AB"
        raise Mismatch(
            f"{wanted}, not {depth} and {inner}",
            help=f"{op.name} computes `{PRODUCTS[op.name]}`; for `{PRODUCTS[other]}` use {other}",
        )
    warps = current(op.name).warps
    if rows % (16 * warps):
        why = f"for a group of {counted_warps(warps)}"
        raise Mismatch(f"`a` must have a multiple of {16 * warps} {rows_side} {why}, not {rows}")
    if cols % 16 or cols > MOST_COLUMNS:
        raise Mismatch(
            f"the product must have a multiple of 16 columns up to {MOST_COLUMNS}, not {cols}"
        )
    if depth % (unit := max(depth_step(a.dtype), 16)):
        raise Mismatch(
            f"`a` must have a multiple of {unit} {depth_side} for {a.dtype}, not {depth}"
        )
    return _result_type(rows, cols, a.dtype, acc)


def _check_tiles(op: Op[Any], a: Any, b: Any) -> None:
    if not isinstance(a, SharedTile | RegTile) or isinstance(a, SharedRow):
        raise Mismatch(
            f"`a` must be a shared or a register tile, not {describe(a)}",
            help=getattr(a, "way_in", None),
        )
    if not isinstance(b, SharedTile) or isinstance(b, SharedRow):
        stored = "tensor cores read `b` from shared memory; pk.store writes a register tile to it"
        raise Mismatch(
            f"`b` must be a shared tile, not {describe(b)}", help=getattr(b, "way_in", stored)
        )
    if a_is_transposed(op) and isinstance(a, RegTile):
        plain = op.name.replace("At", "A")
        raise Mismatch(
            "`a` must be a shared tile if it is transposed, not a register tile",
            help=f"{plain}(pk.transpose(a), b) reads it from registers",
        )


def _check_dtypes(a: DType, b: DType) -> None:
    for name, dtype in (("a", a), ("b", b)):
        if dtype not in ACCUMULATORS:
            legal = ", ".join(map(str, ACCUMULATORS))
            raise Mismatch(f"`{name}` must be one of {legal}, not {dtype}")
    if a != b and not (a.bits == b.bits == 8 and a.kind == b.kind):
        raise Mismatch(
            f"`a` and `b` must have the same dtype, not {a} and {b}",
            help="only e4m3 and e5m2, and int8 and uint8, can be mixed",
        )


def _result_type(rows: int, cols: int, dtype: DType, acc: Any) -> RT:
    """The type of the accumulator if there is one, else the first that these operands allow."""
    allowed = ACCUMULATORS[dtype]
    results = [RT(d, rows, cols) for d in allowed]
    if acc is None:
        return results[0]
    if not isinstance(acc, RegTile) or acc.type not in results:
        wanted = " or ".join(map(str, results))
        raise Mismatch(f"`acc` must be {wanted}, not {describe(acc)}")
    return acc.type


def _product_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    a, b = (_operand(args[name]) for name in ("a", "b"))
    product = _times(a.T if a_is_transposed(op) else a, b.T if b_is_transposed(op) else b)
    if a.dtype == np.float64:  # integers, which float64 holds exactly; sums wrap as on the hardware
        product = product.astype(np.int64).astype(np.int32)
    acc = args["acc"]
    if acc is None:
        return product
    product += acc.astype(product.dtype, copy=False)
    return converted(product, OF_NUMPY[acc.dtype])


ON_ONE_THREAD = 2**18  # multiplications up to which OpenBLAS uses one thread


def _times(a: Any, b: Any) -> Any:
    """a @ b, in slices small enough for one thread: if cores are busy, waking threads costs more than a tile."""
    (m, k), n = a.shape, b.shape[1]
    most = ON_ONE_THREAD // (k * min(m, n))
    size = math.gcd(max(m, n), 1 << max(0, most.bit_length() - 1))
    product = np.empty((m, n), a.dtype)
    if m > n:
        np.matmul(a.reshape(-1, size, k), b, out=product.reshape(-1, size, n))
    else:
        columns, out = (x.reshape(len(x), -1, size).swapaxes(0, 1) for x in (b, product))
        np.matmul(a, columns, out=out)
    return product


def _operand(given: Any) -> Any:
    """An operand in the type in which it is multiplied."""
    x = given if isinstance(given, np.ndarray) else given.read()
    if OF_NUMPY[x.dtype].is_int:
        return x.astype(np.float64)
    if x.dtype == np.float32:
        bits = np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)
        return np.where(np.isnan(x), x, bits.view(np.float32))
    return x.astype(np.float32)


PRODUCT = Family("product", _product_type, _product_numpy)


@op(effects=_PRODUCT, family=PRODUCT)
def mma_ABt(
    a: RegTile | SharedTile, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True
) -> RegTile:
    """a @ b.T + acc: `a` is m x k in shared memory or registers, `b` is n x k in shared memory. `acc` is 0 if left
    out."""


@op(effects=_PRODUCT, family=PRODUCT)
def mma_AB(
    a: RegTile | SharedTile, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True
) -> RegTile:
    """a @ b + acc: `a` is m x k in shared memory or registers, `b` is k x n in shared memory. `acc` is 0 if left
    out."""


@op(effects=_PRODUCT, family=PRODUCT)
def mma_AtB(
    a: SharedTile, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True
) -> RegTile:
    """a.T @ b + acc: `a` is k x m and `b` k x n, both in shared memory. `acc` is 0 if left out."""


@op(effects=_PRODUCT, family=PRODUCT)
def mma_AtBt(
    a: SharedTile, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True
) -> RegTile:
    """a.T @ b.T + acc: `a` is k x m and `b` n x k, both in shared memory. `acc` is 0 if left out."""
