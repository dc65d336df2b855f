"""Vectors in global memory whose elements say that they are written: the low 4 bits of each f32 hold a tag.

A reader waits until all elements have the tag of its round, so data and news of it arrive in one access: no signal
follows the stores, no wait precedes the loads, and no fence is needed. An element keeps 20 bits of its significand, the
rest is cut off: an error of at most 2^-19 of its size.

The reader knows of the elements that it reads, and of nothing else that the writer did. Rounds that follow one another
in the same memory need tags that differ modulo 16, and an order, such as that of launches, in which every read of a
round comes before the writes of the next; a reader whose tag is written over waits for ever. All blocks of a kernel
that waits for tags run at once, as for flags.

`whole=True` promises that all of the vector lies inside the tensor: the program then has no test of its sides, and no
code for a vector that one cuts. The emulator, and a launch for debugging, find a promise that is not kept.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pykittens.errors import AccessError
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Global, Int, RegVector, TileRef, describe
from pykittens.ops.arguments import check_int32, check_truth
from pykittens.ops.core import op
from pykittens.ops.creation import check_spread, spread_array, vector_type
from pykittens.ops.memory import check_stored, check_tensor, check_width
from pykittens.types.dtypes import f32
from pykittens.types.tiles import RV, Spread

TAG = 15  # the bits of an element that hold the tag


@op(effects=Effects(writes=("dst",), tagged=True))
def store_tagged(dst: TileRef | Global, value: RegVector, tag: Int, *, whole: bool = False) -> None:
    """Write an f32 vector whose elements carry a tag: their low 4 bits are those of `tag`.

    `dst[i]` counts vectors of this length; elements outside the tensor are not written. whole: all are inside.
    """


@store_tagged.type
def _store_type(dst: Any, value: Any, tag: Any, whole: Any) -> None:
    _check(dst, "dst", tag, whole)
    if not isinstance(value, RegVector):
        raise Mismatch(f"`value` must be a register vector, not {describe(value)}")
    check_stored(value, dst)


def _check(tensor: Any, name: str, tag: Any, whole: Any) -> None:
    check_tensor(name, tensor)
    check_truth("whole", whole)
    if tensor.dtype is not f32:
        raise Mismatch(f"`{name}` must be f32, not {tensor.dtype}")
    check_int32("tag", tag)


@store_tagged.numpy
def _store_numpy(dst: Any, value: Any, tag: int, whole: bool) -> None:
    array = np.ascontiguousarray(value, np.float32).reshape(1, -1)
    _check_whole(dst, array.size, whole)
    bits = array.view(np.int32) & ~TAG | tag & TAG
    dst.write(bits.view(np.float32), None)


@op(effects=Effects(reads=("src",), waits=("src",), tagged=True))
def load_tagged(
    src: TileRef | Global,
    tag: Int,
    *,
    cols: int,
    spread: Spread = Spread.PLAIN,
    whole: bool = False,
) -> RegVector:
    """Wait until all elements of an f32 vector carry a tag, and load them; the bits of the tag are 0 in the result.

    Elements outside the tensor read as 0. whole: all are inside.
    """


@load_tagged.type
def _load_type(src: Any, tag: Any, cols: Any, spread: Any, whole: Any) -> RV:
    _check(src, "src", tag, whole)
    check_width(cols)
    check_spread("spread", spread)
    return vector_type(src.dtype, "cols", cols, spread)


@load_tagged.until
def _load_until(src: Any, tag: int, cols: int, spread: Spread, whole: bool) -> str | None:
    missing = np.count_nonzero((_bits(src, tag, cols) ^ tag) & TAG)
    return f"{missing} elements of {src} to have the tag {tag & TAG}" if missing else None


@load_tagged.numpy
def _load_numpy(src: Any, tag: int, cols: int, spread: Spread, whole: bool) -> Any:
    _check_whole(src, cols, whole)
    return spread_array((_bits(src, tag, cols) & ~TAG).view(np.float32), spread)


def _check_whole(tensor: Any, cols: int, whole: bool) -> None:
    """Raise if a vector is not inside the tensor, as promised."""
    inside = tensor.box(1, cols).inside
    if whole and (inside.right - inside.left, inside.bottom - inside.top) != (cols, 1):
        raise AccessError(f"{tensor} is not inside the tensor, and `whole` is True")


def _bits(src: Any, tag: int, cols: int) -> Any:
    """The bits of the elements; those outside the tensor have the tag."""
    found = src.read(None, cols, _fill(tag & TAG))
    return np.ascontiguousarray(found, np.float32).view(np.int32)


@functools.cache
def _fill(tag: int) -> Any:
    return np.array(tag, np.int32).view(np.float32)
