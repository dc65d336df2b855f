"""GPU kernels written as one Python function: big operations on small tiles."""

from pykittens.errors import KernelError
from pykittens.lang.control import function
from pykittens.lang.grid import (
    column_major,
    grid,
    longest_first,
    persistent,
    row_major,
    supergroup,
)
from pykittens.lang.grid import range_ as range
from pykittens.lang.pipeline import pipeline, st
from pykittens.lang.roles import consumers, producer, storer, warpgroups, warps
from pykittens.lang.std import inf, log2e, normalize, online_softmax
from pykittens.lang.trace import make_static as static
from pykittens.lang.trace import require
from pykittens.ops.arithmetic import maximum, minimum
from pykittens.ops.async_copy import load_async, store_async
from pykittens.ops.compare import where
from pykittens.ops.convert import zeros
from pykittens.ops.functions import exp, exp2, rsqrt
from pykittens.ops.mask import mask
from pykittens.ops.memory import load, store
from pykittens.ops.mma import mma_AB, mma_ABt
from pykittens.ops.reduce import max_ as max
from pykittens.ops.reduce import row_max, row_sum
from pykittens.ops.reduce import sum_ as sum
from pykittens.ops.scalars import cdiv
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

__version__ = "0.1.0"

__all__ = [
    "plain",
    "per_column",
    "per_row",
    "uint8",
    "int64",
    "int8",
    "e5m2",
    "e4m3",
    "KernelError",
    "bf16",
    "bool_",
    "cdiv",
    "column_major",
    "consumers",
    "exp",
    "exp2",
    "f16",
    "f32",
    "function",
    "grid",
    "inf",
    "int32",
    "kernel",
    "load",
    "load_async",
    "log2e",
    "longest_first",
    "mask",
    "max",
    "maximum",
    "minimum",
    "mma_AB",
    "mma_ABt",
    "normalize",
    "online_softmax",
    "persistent",
    "pipeline",
    "producer",
    "range",
    "require",
    "row_major",
    "row_max",
    "row_sum",
    "rsqrt",
    "st",
    "static",
    "store",
    "store_async",
    "storer",
    "sum",
    "supergroup",
    "warpgroups",
    "warps",
    "where",
    "zeros",
]
