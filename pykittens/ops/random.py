"""Random bits of a counter-based generator: they depend on the coordinates of an element, not on tiles or warps."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from pykittens.ir.values import Int, RegTile, RegVector, Scalar
from pykittens.ops.arguments import check_int32
from pykittens.ops.core import op, typed
from pykittens.ops.creation import plain_type, tile_type
from pykittens.types.dtypes import int32
from pykittens.types.tiles import RT, RV

Words = np.ndarray[Any, np.dtype[np.uint32]]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Words, ...]:
    """Four words for a counter of four words and a key of two: Philox4x32-10, element by element.

    Source: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
    """
    a, b, c, d = np.broadcast_arrays(*(np.asarray(w, np.uint32) for w in counter))
    for i in range(ROUNDS):
        k0, k1 = (
            np.uint32((k + i * step) & 0xFFFFFFFF) for k, step in zip(key, KEY_STEPS, strict=True)
        )
        first = a.astype(np.uint64) * np.uint64(MULTIPLIERS[0])
        second = c.astype(np.uint64) * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (
            _high(second) ^ b ^ k0,
            second.astype(np.uint32),
            _high(first) ^ d ^ k1,
            first.astype(np.uint32),
        )
    return a, b, c, d


def _high(product: Any) -> Words:
    high: Words = (product >> np.uint64(32)).astype(np.uint32)
    return high


class RandomBits:
    """The type of `random_bits`, for type checkers."""

    @overload
    def __call__(
        self,
        seed: Int,
        row: Int,
        col: Int,
        *,
        rows: int,
        cols: int,
        stream: Int = 0,
        seed_high: Int = 0,
    ) -> RegTile: ...
    @overload
    def __call__(
        self, seed: Int, row: Int, col: Int, *, cols: int, stream: Int = 0, seed_high: Int = 0
    ) -> RegVector: ...
    def __call__(self, *coordinates: Any, **words: Any) -> Any:
        """See `random_bits`."""


@op()
@typed(RandomBits)
def random_bits(
    seed: Int,
    row: Int,
    col: Int,
    *,
    rows: int | None = None,
    cols: int,
    stream: Int = 0,
    seed_high: Int = 0,
) -> Any:
    """An int32 tile of random bits; without `rows`, a plain vector.

    The bits of element (r, c) are word c' % 4 of Philox4x32-10 with the counter (c' // 4, row + r, stream, 0) and the
    key (seed, seed_high), with c' = col + c; both coordinates are taken modulo 2**32.
    """


@random_bits.type
def _random_bits_type(
    seed: Any, row: Any, col: Any, rows: Any, cols: Any, stream: Any, seed_high: Any
) -> RT | RV:
    words = {"seed": seed, "row": row, "col": col, "stream": stream, "seed_high": seed_high}
    for name, x in words.items():
        wide = name == "seed" and (isinstance(x, int) or (isinstance(x, Scalar) and x.dtype.is_int))
        help = "pass a 64-bit seed as two words: seed=..., seed_high=..."
        check_int32(name, x, help if wide else None)
    if rows is None:
        return plain_type(int32, "cols", cols)
    return tile_type(int32, rows, cols)


@random_bits.numpy
def _random_bits_numpy(
    seed: int, row: int, col: int, rows: int | None, cols: int, stream: int, seed_high: int
) -> Any:
    word = 0xFFFFFFFF
    r = (np.arange(rows or 1)[:, None] + row) & word
    c = ((np.arange(cols) + col + 2**31) & word) - 2**31  # an int32: `c // 4` rounds down
    counter = ((c // 4) & word, r, stream & word, 0)
    quarters = np.stack(philox(counter, (seed & word, seed_high & word)))
    bits = np.take_along_axis(quarters, np.broadcast_to(c % 4, r.shape[:1] + c.shape)[None], 0)[0]
    return bits.view(np.int32) if rows is not None else bits[0].view(np.int32)
