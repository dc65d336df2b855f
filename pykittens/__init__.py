"""GPU kernels written as one Python function: big operations on small tiles."""

import importlib
import inspect
import sys
import typing

# An import `as` the same name is an export, for type checkers too.
from pykittens.display import Shown as _Shown
from pykittens.errors import KernelError as KernelError
from pykittens.ir import habits as _habits
from pykittens.ir.op import Effects as Effects
from pykittens.ir.op import Mismatch as Mismatch
from pykittens.ir.op import ScalarMeaning as ScalarMeaning
from pykittens.ir.values import Global as Global
from pykittens.ir.values import RegTile as RegTile
from pykittens.ir.values import RegVector as RegVector
from pykittens.ir.values import Scalar as Scalar
from pykittens.ir.values import Semaphore as Semaphore
from pykittens.ir.values import SharedRow as SharedRow
from pykittens.ir.values import SharedTile as SharedTile
from pykittens.ir.values import SharedVector as SharedVector
from pykittens.ir.values import TileRef as TileRef
from pykittens.lang import grid as _grid
from pykittens.lang import trace as _trace
from pykittens.lang.control import function as function
from pykittens.lang.grid import column_major as column_major
from pykittens.lang.grid import grid as grid
from pykittens.lang.grid import longest_first as longest_first
from pykittens.lang.grid import overlap as overlap
from pykittens.lang.grid import persistent as persistent
from pykittens.lang.grid import resident as resident
from pykittens.lang.grid import row_major as row_major
from pykittens.lang.grid import supergroup as supergroup
from pykittens.lang.pipeline import pipeline as pipeline
from pykittens.lang.pipeline import st as st
from pykittens.lang.pipeline import sv as sv
from pykittens.lang.roles import consumers as consumers
from pykittens.lang.roles import homes as homes
from pykittens.lang.roles import producer as producer
from pykittens.lang.roles import storer as storer
from pykittens.lang.roles import warpgroups as warpgroups
from pykittens.lang.roles import warps as warps
from pykittens.lang.shared import semaphore as semaphore
from pykittens.lang.shared import shared as shared
from pykittens.lang.std.complex_tile import ComplexTile as ComplexTile
from pykittens.lang.std.complex_tile import complex_mma_AB as complex_mma_AB
from pykittens.lang.std.lane_order import from_lane_order as from_lane_order
from pykittens.lang.std.lane_order import in_lane_order as in_lane_order
from pykittens.lang.std.masks import left_fill as left_fill
from pykittens.lang.std.masks import lower_fill as lower_fill
from pykittens.lang.std.masks import right_fill as right_fill
from pykittens.lang.std.masks import tril as tril
from pykittens.lang.std.masks import triu as triu
from pykittens.lang.std.masks import upper_fill as upper_fill
from pykittens.lang.std.online import inf as inf
from pykittens.lang.std.online import log2e as log2e
from pykittens.lang.std.online import normalize as normalize
from pykittens.lang.std.online import online_softmax as online_softmax
from pykittens.lang.std.outer import outer_add as outer_add
from pykittens.lang.std.outer import outer_mul as outer_mul
from pykittens.lang.std.outer import outer_sub as outer_sub
from pykittens.lang.std.publish import publish as publish
from pykittens.lang.std.random import uniform as uniform
from pykittens.lang.std.rotary import rotary as rotary
from pykittens.lang.std.rotary import rotate_half as rotate_half
from pykittens.lang.std.rotary import rotate_pairs as rotate_pairs
from pykittens.lang.std.slices import diagonal as diagonal
from pykittens.lang.std.slices import diagonal_matrix as diagonal_matrix
from pykittens.lang.std.slices import with_column as with_column
from pykittens.lang.std.slices import with_row as with_row
from pykittens.lang.trace import require as require
from pykittens.lang.turns import in_turn as in_turn
from pykittens.ops import arithmetic as _arithmetic
from pykittens.ops import debug as _debug
from pykittens.ops import reduce as _reduce
from pykittens.ops.arithmetic import clamp as clamp
from pykittens.ops.arithmetic import fma as fma
from pykittens.ops.arithmetic import maximum as maximum
from pykittens.ops.arithmetic import minimum as minimum
from pykittens.ops.async_copy import load_async as load_async
from pykittens.ops.async_copy import peers as peers
from pykittens.ops.async_copy import store_async as store_async
from pykittens.ops.atomic import atomic_add as atomic_add
from pykittens.ops.atomic import atomic_and as atomic_and
from pykittens.ops.atomic import atomic_cas as atomic_cas
from pykittens.ops.atomic import atomic_exchange as atomic_exchange
from pykittens.ops.atomic import atomic_load as atomic_load
from pykittens.ops.atomic import atomic_max as atomic_max
from pykittens.ops.atomic import atomic_min as atomic_min
from pykittens.ops.atomic import atomic_or as atomic_or
from pykittens.ops.atomic import atomic_xor as atomic_xor
from pykittens.ops.bits import bitwise_and as bitwise_and
from pykittens.ops.bits import bitwise_not as bitwise_not
from pykittens.ops.bits import bitwise_or as bitwise_or
from pykittens.ops.bits import bitwise_xor as bitwise_xor
from pykittens.ops.bits import shift_left as shift_left
from pykittens.ops.bits import shift_right as shift_right
from pykittens.ops.compare import where as where
from pykittens.ops.core import op as op
from pykittens.ops.creation import col_index as col_index
from pykittens.ops.creation import full as full
from pykittens.ops.creation import iota as iota
from pykittens.ops.creation import row_index as row_index
from pykittens.ops.creation import zeros as zeros
from pykittens.ops.debug import assert_ as assert_
from pykittens.ops.flags import signal as signal
from pykittens.ops.flags import wait as wait
from pykittens.ops.functions import cos as cos
from pykittens.ops.functions import erf as erf
from pykittens.ops.functions import exp as exp
from pykittens.ops.functions import exp2 as exp2
from pykittens.ops.functions import expm1 as expm1
from pykittens.ops.functions import gelu as gelu
from pykittens.ops.functions import log as log
from pykittens.ops.functions import log1p as log1p
from pykittens.ops.functions import log2 as log2
from pykittens.ops.functions import relu as relu
from pykittens.ops.functions import rsqrt as rsqrt
from pykittens.ops.functions import sigmoid as sigmoid
from pykittens.ops.functions import silu as silu
from pykittens.ops.functions import sin as sin
from pykittens.ops.functions import softplus as softplus
from pykittens.ops.functions import sqrt as sqrt
from pykittens.ops.functions import tanh as tanh
from pykittens.ops.gather import gather as gather
from pykittens.ops.gather import scatter as scatter
from pykittens.ops.inline import inline_cuda as inline_cuda
from pykittens.ops.logical import logical_and as logical_and
from pykittens.ops.logical import logical_not as logical_not
from pykittens.ops.logical import logical_or as logical_or
from pykittens.ops.logical import logical_xor as logical_xor
from pykittens.ops.mask import mask as mask
from pykittens.ops.memory import load as load
from pykittens.ops.memory import store as store
from pykittens.ops.mma import mma_AB as mma_AB
from pykittens.ops.mma import mma_ABt as mma_ABt
from pykittens.ops.mma import mma_AtB as mma_AtB
from pykittens.ops.mma import mma_AtBt as mma_AtBt
from pykittens.ops.prefetch import prefetch as prefetch
from pykittens.ops.random import random_bits as random_bits
from pykittens.ops.reduce import argmax as argmax
from pykittens.ops.reduce import argmin as argmin
from pykittens.ops.reduce import col_all as col_all
from pykittens.ops.reduce import col_any as col_any
from pykittens.ops.reduce import col_argmax as col_argmax
from pykittens.ops.reduce import col_argmin as col_argmin
from pykittens.ops.reduce import col_max as col_max
from pykittens.ops.reduce import col_min as col_min
from pykittens.ops.reduce import col_prod as col_prod
from pykittens.ops.reduce import col_sum as col_sum
from pykittens.ops.reduce import prod as prod
from pykittens.ops.reduce import row_all as row_all
from pykittens.ops.reduce import row_any as row_any
from pykittens.ops.reduce import row_argmax as row_argmax
from pykittens.ops.reduce import row_argmin as row_argmin
from pykittens.ops.reduce import row_max as row_max
from pykittens.ops.reduce import row_min as row_min
from pykittens.ops.reduce import row_prod as row_prod
from pykittens.ops.reduce import row_sum as row_sum
from pykittens.ops.scalars import cdiv as cdiv
from pykittens.ops.scalars import floor_div as floor_div
from pykittens.ops.scalars import floor_mod as floor_mod
from pykittens.ops.scan import col_cummax as col_cummax
from pykittens.ops.scan import col_cummin as col_cummin
from pykittens.ops.scan import col_cumprod as col_cumprod
from pykittens.ops.scan import col_cumsum as col_cumsum
from pykittens.ops.scan import cummax as cummax
from pykittens.ops.scan import cummin as cummin
from pykittens.ops.scan import cumprod as cumprod
from pykittens.ops.scan import cumsum as cumsum
from pykittens.ops.scan import row_cummax as row_cummax
from pykittens.ops.scan import row_cummin as row_cummin
from pykittens.ops.scan import row_cumprod as row_cumprod
from pykittens.ops.scan import row_cumsum as row_cumsum
from pykittens.ops.send import send as send
from pykittens.ops.shape import column as column
from pykittens.ops.shape import concat as concat
from pykittens.ops.shape import row as row
from pykittens.ops.shape import shifted as shifted
from pykittens.ops.shape import spread as spread
from pykittens.ops.shape import swap_pairs as swap_pairs
from pykittens.ops.shape import transpose as transpose
from pykittens.ops.sort import row_sort as row_sort
from pykittens.ops.sort import row_topk as row_topk
from pykittens.ops.sync import fence_async as fence_async
from pykittens.ops.sync import mma_wait as mma_wait
from pykittens.ops.sync import store_wait as store_wait
from pykittens.ops.sync import sync as sync
from pykittens.ops.tagged import load_tagged as load_tagged
from pykittens.ops.tagged import store_tagged as store_tagged
from pykittens.runtime.autotune import autotune as autotune
from pykittens.runtime.kernel import KernelFunction as KernelFunction
from pykittens.runtime.kernel import kernel as kernel
from pykittens.types.dtypes import DType as DType
from pykittens.types.dtypes import bf16 as bf16
from pykittens.types.dtypes import bool_ as bool_
from pykittens.types.dtypes import e4m3 as e4m3
from pykittens.types.dtypes import e5m2 as e5m2
from pykittens.types.dtypes import f16 as f16
from pykittens.types.dtypes import f32 as f32
from pykittens.types.dtypes import int8 as int8
from pykittens.types.dtypes import int32 as int32
from pykittens.types.dtypes import int64 as int64
from pykittens.types.dtypes import uint8 as uint8
from pykittens.types.tiles import Spread as Spread
from pykittens.types.tiles import lane_order as lane_order
from pykittens.types.tiles import per_column as per_column
from pykittens.types.tiles import per_row as per_row
from pykittens.types.tiles import plain as plain

# Names that their modules spell with `_`, so that they do not shadow Python's there.
abs = _arithmetic.abs_
all = _reduce.all_
any = _reduce.any_
max = _reduce.max_
min = _reduce.min_
pow = _arithmetic.pow_
print = _debug.print_
range = _grid.range_
static = _trace.make_static
sum = _reduce.sum_

__version__ = "0.1.0"

_Shown.make_html = lambda v: importlib.import_module("pykittens.pictures.notebook").html(v)

if typing.TYPE_CHECKING:
    from pykittens.checker.check import check as check
else:

    def __getattr__(name):
        """`check`, which is loaded when it is first used: kernels run without the checker."""
        if name == "check":
            return importlib.import_module("pykittens.checker.check").check
        help = f"; {text}" if (text := _habits.meant(name)) else ""
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{help}",
            name=name,
            obj=sys.modules[__name__],
        )

    # All names that are no modules; type checkers know the exports from the imports above.
    __all__ = [n for n, v in vars().items() if not (n.startswith("_") or inspect.ismodule(v))]
    __all__.append("check")
