"""GPU kernels written as one Python function: big operations on small tiles."""

import importlib
from typing import TYPE_CHECKING

from pykittens.errors import KernelError
from pykittens.ir.op import Effects, Mismatch, ScalarMeaning
from pykittens.lang.control import function
from pykittens.lang.grid import (
    column_major,
    grid,
    longest_first,
    overlap,
    persistent,
    resident,
    row_major,
    supergroup,
)
from pykittens.lang.grid import range_ as range
from pykittens.lang.pipeline import pipeline, st, sv
from pykittens.lang.roles import consumers, producer, storer, warpgroups, warps
from pykittens.lang.shared import semaphore, shared
from pykittens.lang.std import (
    diagonal,
    diagonal_matrix,
    inf,
    left_fill,
    log2e,
    lower_fill,
    normalize,
    online_softmax,
    outer_add,
    outer_mul,
    outer_sub,
    right_fill,
    rotary,
    rotate_half,
    rotate_pairs,
    tril,
    triu,
    uniform,
    upper_fill,
    with_column,
    with_row,
)
from pykittens.lang.trace import make_static as static
from pykittens.lang.trace import require
from pykittens.lang.turns import in_turn
from pykittens.ops.arithmetic import abs_ as abs
from pykittens.ops.arithmetic import clamp, fma, maximum, minimum
from pykittens.ops.arithmetic import pow_ as pow
from pykittens.ops.async_copy import load_async, store_async
from pykittens.ops.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    shift_left,
    shift_right,
)
from pykittens.ops.compare import where
from pykittens.ops.core import op
from pykittens.ops.debug import assert_
from pykittens.ops.debug import print_ as print
from pykittens.ops.flags import signal, wait
from pykittens.ops.functions import (
    cos,
    erf,
    exp,
    exp2,
    expm1,
    gelu,
    log,
    log1p,
    log2,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sin,
    softplus,
    sqrt,
    tanh,
)
from pykittens.ops.gather import gather, scatter
from pykittens.ops.inline import inline_cuda
from pykittens.ops.logical import logical_and, logical_not, logical_or, logical_xor
from pykittens.ops.making import col_index, full, iota, row_index, zeros
from pykittens.ops.mask import mask
from pykittens.ops.memory import load, store
from pykittens.ops.mma import mma_AB, mma_ABt, mma_AtB, mma_AtBt
from pykittens.ops.random import random_bits
from pykittens.ops.reduce import all_ as all
from pykittens.ops.reduce import any_ as any
from pykittens.ops.reduce import (
    argmax,
    argmin,
    col_all,
    col_any,
    col_argmax,
    col_argmin,
    col_max,
    col_min,
    col_prod,
    col_sum,
    prod,
    row_all,
    row_any,
    row_argmax,
    row_argmin,
    row_max,
    row_min,
    row_prod,
    row_sum,
)
from pykittens.ops.reduce import max_ as max
from pykittens.ops.reduce import min_ as min
from pykittens.ops.reduce import sum_ as sum
from pykittens.ops.scalars import cdiv, floor_div, floor_mod
from pykittens.ops.scan import (
    cummax,
    cummin,
    cumprod,
    cumsum,
    row_cummax,
    row_cummin,
    row_cumprod,
    row_cumsum,
)
from pykittens.ops.shape import column, concat, row, spread, swap_pairs, transpose
from pykittens.ops.sync import fence_async, mma_wait, store_wait, sync
from pykittens.runtime.kernel import kernel
from pykittens.types.dtypes import (
    bf16,
    bool_,
    e4m3,
    e5m2,
    f16,
    f32,
    int8,
    int32,
    int64,
    uint8,
)
from pykittens.types.tiles import per_column, per_row, plain

if TYPE_CHECKING:
    from pykittens.checker.check import check
else:

    def __getattr__(name):
        """`check`, which is loaded when it is first asked for: no kernel needs it to run."""
        if name == "check":
            return importlib.import_module("pykittens.checker.check").check
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "Effects",
    "Mismatch",
    "ScalarMeaning",
    "KernelError",
    "all",
    "any",
    "argmax",
    "argmin",
    "assert_",
    "bf16",
    "abs",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bool_",
    "cdiv",
    "check",
    "clamp",
    "col_all",
    "col_any",
    "col_argmax",
    "col_argmin",
    "col_index",
    "col_max",
    "col_min",
    "col_prod",
    "col_sum",
    "column",
    "column_major",
    "concat",
    "consumers",
    "cos",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "diagonal",
    "diagonal_matrix",
    "e4m3",
    "e5m2",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "f16",
    "f32",
    "fence_async",
    "floor_div",
    "floor_mod",
    "fma",
    "full",
    "function",
    "gather",
    "gelu",
    "grid",
    "in_turn",
    "inf",
    "inline_cuda",
    "int32",
    "int64",
    "int8",
    "iota",
    "kernel",
    "left_fill",
    "load",
    "load_async",
    "log",
    "log1p",
    "log2",
    "log2e",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "longest_first",
    "lower_fill",
    "mask",
    "max",
    "maximum",
    "min",
    "minimum",
    "mma_AB",
    "mma_ABt",
    "mma_AtB",
    "mma_AtBt",
    "mma_wait",
    "normalize",
    "online_softmax",
    "op",
    "outer_add",
    "outer_mul",
    "outer_sub",
    "overlap",
    "per_column",
    "per_row",
    "persistent",
    "pipeline",
    "plain",
    "pow",
    "print",
    "prod",
    "producer",
    "random_bits",
    "range",
    "relu",
    "require",
    "resident",
    "right_fill",
    "rotary",
    "rotate_half",
    "rotate_pairs",
    "row",
    "row_all",
    "row_any",
    "row_argmax",
    "row_argmin",
    "row_cummax",
    "row_cummin",
    "row_cumprod",
    "row_cumsum",
    "row_index",
    "row_major",
    "row_max",
    "row_min",
    "row_prod",
    "row_sum",
    "rsqrt",
    "scatter",
    "semaphore",
    "shared",
    "shift_left",
    "shift_right",
    "sigmoid",
    "signal",
    "silu",
    "sin",
    "softplus",
    "spread",
    "sqrt",
    "st",
    "static",
    "store",
    "store_async",
    "store_wait",
    "storer",
    "sum",
    "supergroup",
    "sv",
    "swap_pairs",
    "sync",
    "tanh",
    "transpose",
    "tril",
    "triu",
    "uint8",
    "uniform",
    "upper_fill",
    "wait",
    "warpgroups",
    "warps",
    "where",
    "with_column",
    "with_row",
    "zeros",
]
