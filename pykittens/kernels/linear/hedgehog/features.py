"""The features of Hedgehog attention, softmax(x matrix) and softmax(-x matrix), and the keys that a softmax sees."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK, ROWS
from pykittens.kernels.linear.totals import Sums, add_keys

SIGNS = 1.0, -1.0  # of the map in the parts of the features
PARTS = len(SIGNS)
# Registers of a thread of gradients, most of which accumulators take: of groups, and of the producer, whose lanes copy
# the first and last rows of packed sequences.
REGISTERS, OF_PACKED = (240, 24), (208, 88)
NO_SCORE = -1e30  # the largest score of no key


def sign_of(group: Any) -> Any:
    """The sign of the features of the first group, or the second."""
    return 1.0 - (group * 2).to(pk.f32)


def wide(size: int) -> int:
    """The columns of shared tiles of so many elements, of which each of two groups takes half; 128 at most."""
    return next((columns for columns in (32, 64) if size <= columns), 128)


def feature_map(x: Any, matrix: Any, sign: Any, count: int, factor: Any = 1.0) -> Any:
    """factor * softmax(sign * x matrix) along rows, of the first `count` columns.

    The product is found for each sign: to keep it for both would take registers beside a state.
    """
    z = pk.mma_AB(x, matrix) * (sign * pk.log2e)
    if count < ROWS:
        z = pk.where(pk.col_index(ROWS) < count, z, -pk.inf)
    z = pk.exp2(z - pk.row_max(z))
    return z * (factor / pk.row_sum(z))


def feature_gradient(phi: Any, of_phi: Any) -> Any:
    """The gradient of what features are the softmax of, of their own."""
    return phi * (of_phi - pk.row_sum(phi * of_phi))


def at_index(index: Any, group: Any, x: Any) -> Any:
    """A group's tile of scores with x, along rows, at the position of an index into both chunks, else 0."""
    return pk.where(pk.col_index(CHUNK) == index.to(pk.int32) - group * CHUNK, x, 0.0)


def near_keys(group: Any, past: Any) -> Any:
    """The last column that each row of a group's scores sees: of the chunk before, which has `past`, or of its own."""
    row = pk.row_index(CHUNK)
    return pk.where(group == 0, row * 0 + (past - 1), row)


def scores(q: Any, k: Any, scale: Any, last: Any) -> Any:
    """The scores of the softmax, to base 2; -inf for keys past the last that a query sees."""
    s = pk.mma_ABt(q, k) * (scale * pk.log2e)
    return pk.where(pk.col_index(CHUNK) <= last, s, -pk.inf)


@pk.function
def publish_keys(keys: Any, k: Any, of_map: tuple[Any, Any, int], left: Any, sums: Sums) -> None:
    """Store the features of a chunk's keys, up to `left`, with which the group multiplies next, and add them to sums.

    of_map: the matrix of their map, its sign, and the count of its columns.
    """
    x = pk.where(pk.row_index(CHUNK) < left, feature_map(k, *of_map), 0.0)
    pk.mma_wait()
    pk.sync()
    pk.store(keys, x.to(keys.dtype))
    add_keys(sums, x, 0)
    pk.fence_async()
    pk.sync()


def apart(state: list[Any]) -> list[Any]:
    """The state for products to add to: where they add to values that have been read, they copy these first."""
    return [x * 1.0 for x in state]


def of_sign(state: Any, group: Any, count: int) -> Any:
    """The rows of a state in memory that have the features of a group."""
    return state.window(0, group * count, (group + 1) * count)
