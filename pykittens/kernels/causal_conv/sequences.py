"""Where blocks of a convolution are: each has some positions of one sequence, alone or packed with others."""

from __future__ import annotations

from typing import Any

import pykittens as pk

RUN = 256  # sequences that are looked through at a time


def blocks_of(n: Any, span: int, ends: Any) -> Any:
    """The blocks of `span` positions that n positions take at most: a packed sequence has one of its own at least."""
    blocks = pk.cdiv(n, span)
    return blocks if ends is None else blocks + ends.shape[0] - 1


@pk.function
def place_of(ends: Any, b: Any, block: Any, span: int, n: Any) -> tuple[Any, Any, Any, Any]:
    """The sequence of a block, its first position in it, where the sequence starts, and its length.

    A block that no sequence needs begins past the end of the last one.
    """
    if ends is None:
        return b, block * span, 0, n
    found: Any = 0
    skipped: Any = 0
    before: Any = 0
    count = ends.shape[0] - 1
    for i in pk.range(pk.cdiv(count, RUN)):
        starts, stops = (
            pk.load(ends.window(0, first, count + first)[i], cols=RUN) for first in (0, 1)
        )
        blocks = pk.maximum((stops - starts + (span - 1)) // span, 1)
        sums = before + pk.cumsum(pk.where(pk.iota(RUN) + i * RUN < count, blocks, 0))
        is_past = sums <= block
        found = found + pk.sum(is_past.to(pk.int32))
        skipped = pk.maximum(skipped, pk.max(pk.where(is_past, sums, 0)))
        before = pk.max(sums)
    sequence = pk.minimum(found, count - 1)
    start, stop = pk.load(ends[sequence]), pk.load(ends[sequence + 1])
    first = pk.where(found < count, block - skipped, pk.cdiv(n, span)) * span
    return sequence, first, start, stop - start


def is_whole(*tensors: Any) -> bool:
    """Whether rows of tensors consist of whole chunks at multiples of 16 bytes; others take more registers to move."""
    return all(t is None or t.type.aligned and t.type.whole_rows for t in tensors)


def of_sequence(
    x: Any, ends: Any, b: Any, axis: int, start: Any, length: Any, stop: Any = None
) -> Any:
    """The matrix of a sequence, whose positions run along an axis, or of those of them before `stop`."""
    if stop is not None:
        length = pk.minimum(length, stop)
    elif ends is None:
        return x.at(b)
    return x.at(b if ends is None else 0).window(axis, start, start + length)
