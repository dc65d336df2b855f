"""Matrix products on tensor cores.

A product starts and returns a tile in flight; what reads that tile waits for it. Its operands:

    a, b                  k a multiple of   accumulated in
    bf16                  16                f32
    f16                   16                f32, or f16 where `acc` is
    f32, read as tf32     8                 f32
    e4m3, e5m2            32                f32
    int8, uint8           32                int32

tf32 has 10 bits of mantissa; f32 is cut or rounded to it. An accumulator of f8 operands keeps about 14 bits on
Hopper: the error grows with k, and `acc + mma_ABt(a, b)` each 128 of k, in place of `mma_ABt(a, b, acc)`, halves it.
Where an operand of 8 or 32 bits does not have k along the rows of memory (as both have in mma_ABt), Hopper's
warpgroup products cannot read it and the older, slower product of a warp is taken.
With `managed=False` nobody waits for the tile in flight but `mma_wait`: what reads it before finds no number.
Source: PTX ISA, "wgmma.mma_async" and "mma".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Engine, Family, Mismatch, Op
from pykittens.ir.values import RegTile, SharedTile, describe
from pykittens.ops.arguments import check_truth
from pykittens.ops.core import op
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


def a_is_transposed(op: Op[..., Any]) -> bool:
    """Whether `a` is k x m."""
    return op.name.startswith("mma_At")


def b_is_transposed(op: Op[..., Any]) -> bool:
    """Whether `b` is n x k."""
    return op.name.endswith("Bt")


def depth_step(dtype: DType) -> int:
    """How much of k one instruction takes: 32 bytes of a row."""
    return 32 // dtype.bytes


def _product_type(op: Op[..., Any], args: dict[str, Any]) -> RT:
    a, b, acc = args["a"], args["b"], args["acc"]
    check_truth("managed", args["managed"])
    _check_places(op, a, b)
    _check_dtypes(a.dtype, b.dtype)
    depth, rows = (a.rows, a.cols) if a_is_transposed(op) else (a.cols, a.rows)
    inner, cols = (b.cols, b.rows) if b_is_transposed(op) else (b.rows, b.cols)
    if depth != inner:
        raise Mismatch(*_unequal_depths(op, depth, inner))
    warps = current(op.name).warps
    named = "`a` must have a multiple of {unit} {side}, {why}, not {got}"
    if rows % (16 * warps):
        side = "columns" if a_is_transposed(op) else "rows"
        why = f"16 for each of the group's {warps} warps" if warps > 1 else "as a warp takes 16"
        raise Mismatch(named.format(unit=16 * warps, side=side, why=why, got=rows))
    if cols % 16 or cols > MOST_COLUMNS:
        raise Mismatch(f"the product must have 16, 32, ... {MOST_COLUMNS} columns, not {cols}")
    if depth % max(depth_step(a.dtype), 16):
        side = "rows" if a_is_transposed(op) else "columns"
        unit = max(depth_step(a.dtype), 16)
        raise Mismatch(named.format(unit=unit, side=side, why=f"being {a.dtype}", got=depth))
    return _result_type(rows, cols, a.dtype, acc)


def _check_places(op: Op[..., Any], a: Any, b: Any) -> None:
    if not isinstance(a, SharedTile | RegTile):
        raise Mismatch(
            f"`a` must be a shared or a register tile, not {describe(a)}",
            help=getattr(a, "way_in", None),
        )
    if not isinstance(b, SharedTile):
        raise Mismatch(
            f"`b` must be a shared tile, not {describe(b)}",
            help=getattr(
                b,
                "way_in",
                "the hardware reads `b` from shared memory; pk.store puts a register tile there",
            ),
        )
    if a_is_transposed(op) and isinstance(a, RegTile):
        plain = op.name.replace("At", "A")
        raise Mismatch(
            "`a` must be a shared tile where it is transposed, not a register tile",
            help=f"{plain}(pk.transpose(a), b) takes it from registers",
        )


def _check_dtypes(a: DType, b: DType) -> None:
    for name, dtype in (("a", a), ("b", b)):
        if dtype not in ACCUMULATORS:
            legal = ", ".join(map(str, ACCUMULATORS))
            raise Mismatch(f"`{name}` must be one of {legal}, not {dtype}")
    if a != b and not (a.bits == b.bits == 8 and a.kind == b.kind):
        raise Mismatch(
            f"`a` and `b` must have one dtype, not {a} and {b}",
            help="only fp8 with fp8, and int8 with uint8, may be mixed",
        )


def _unequal_depths(op: Op[..., Any], depth: int, inner: int) -> tuple[str, str]:
    sides = (
        "rows" if a_is_transposed(op) else "columns",
        "columns" if b_is_transposed(op) else "rows",
    )
    same = (
        f"the same number of {sides[0]}"
        if sides[0] == sides[1]
        else f"as many {sides[0]} and {sides[1]}"
    )
    meaning = {
        "mma_AB": "`b` as it is; for `a @ b.T` use mma_ABt",
        "mma_ABt": "`b` transposed; for `a @ b` use mma_AB",
        "mma_AtB": "`a` transposed by `b`; for `a @ b` use mma_AB",
        "mma_AtBt": "both transposed; for `a @ b` use mma_AB",
    }
    return (
        f"`a` and `b` must have {same}, not {depth} and {inner}",
        f"{op.name} multiplies by {meaning[op.name]}"
        if not a_is_transposed(op)
        else f"{op.name} multiplies {meaning[op.name]}",
    )


def _result_type(rows: int, cols: int, dtype: DType, acc: Any) -> RT:
    """The accumulator's type where there is one, else the usual one of these operands."""
    allowed = ACCUMULATORS[dtype]
    results = [RT(d, rows, cols) for d in allowed]
    if acc is None:
        return results[0]
    if not isinstance(acc, RegTile) or acc.type not in results:
        wanted = " or ".join(map(str, results))
        raise Mismatch(f"`acc` must be {wanted}, not {describe(acc)}")
    return acc.type


def _product_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    a, b = (_operand(args[name]) for name in ("a", "b"))
    product = _times(a.T if a_is_transposed(op) else a, b.T if b_is_transposed(op) else b)
    if a.dtype == np.float64:  # integers, exact in it; sums wrap as those of the hardware
        product = product.astype(np.int64).astype(np.int32)
    acc = args["acc"]
    if acc is None:
        return product
    return converted(acc.astype(product.dtype, copy=False) + product, OF_NUMPY[acc.dtype])


ON_ONE_THREAD = 2**18  # products of so many multiplications OpenBLAS does without its threads


def _times(a: Any, b: Any) -> Any:
    """a @ b, in so many slices of a that threads, which cost more than a tile where cores are busy, are not called."""
    (m, k), n = a.shape, b.shape[1]
    rows = math.gcd(m, 1 << max(0, (ON_ONE_THREAD // (n * k)).bit_length() - 1))
    return a @ b if rows == m else (a.reshape(m // rows, rows, k) @ b).reshape(m, n)


def _operand(given: Any) -> Any:
    """An operand in the type it is multiplied in."""
    x = given if isinstance(given, np.ndarray) else given.read()
    if OF_NUMPY[x.dtype].is_int:
        return x.astype(np.float64)
    if x.dtype == np.float32:
        bits = np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)
        return np.where(np.isnan(x), x, bits.view(np.float32))
    return x.astype(np.float32)


PRODUCT = Family("product", _product_type, _product_numpy)


@op(effects=_PRODUCT, family=PRODUCT)
def mma_ABt(a: Any, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True) -> RegTile:
    """a @ b.T + acc: `a` is m x k, shared or in registers, `b` shared n x k. No `acc`: zeros."""


@op(effects=_PRODUCT, family=PRODUCT)
def mma_AB(a: Any, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True) -> RegTile:
    """a @ b + acc: `a` is m x k, shared or in registers, `b` shared k x n. No `acc`: zeros."""


@op(effects=_PRODUCT, family=PRODUCT)
def mma_AtB(
    a: SharedTile, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True
) -> RegTile:
    """a.T @ b + acc: `a` is shared k x m, `b` shared k x n. No `acc`: zeros."""


@op(effects=_PRODUCT, family=PRODUCT)
def mma_AtBt(
    a: SharedTile, b: SharedTile, acc: RegTile | None = None, *, managed: bool = True
) -> RegTile:
    """a.T @ b.T + acc: `a` is shared k x m, `b` shared n x k. No `acc`: zeros."""
