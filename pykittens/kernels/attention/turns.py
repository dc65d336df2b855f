"""In which order blocks of keys add to a block of queries, so that equal launches round alike and few blocks wait.

Blocks of keys of a head that run at a time reach a block of queries one after another: a later one begins with later
queries. That is the order in which they add, after those that ran in rounds before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pykittens as pk
from pykittens.kernels.attention.visible import Blocks


class Beside(NamedTuple):
    """The blocks of keys of a head from `low` to before `high`, which run at a time; those before `low` ran before."""

    low: Any
    high: Any

    @classmethod
    def of(cls, j: Any, slot: Any, blocks: Any, width: Any, count: Any) -> Beside:
        """Those of the round of block j, of `count`, if tasks are in the order pk.longest_first.

        slot: the number of the task of block j in the round, which has as many tasks as there are persistent `blocks`.
        width: the heads of the section; so many tasks lie between one block of keys and the next.
        """
        before, after = slot // width, (blocks - 1 - slot) // width
        return cls(pk.maximum(j - before, 0), pk.minimum(j + after + 1, count))

    def start(self, j: Any, count: Any) -> Any:
        """Where block j begins if all of them go round `count` blocks of queries, evenly spread."""
        return (j - self.low) * count // (self.high - self.low)

    def block(self, step: Any, j: Any, count: Any) -> Any:
        """The block of queries of a step of block j, after the last of `count` the first again."""
        i = self.start(j, count) + step
        return i - pk.where(i < count, 0, count)

    def turn(self, i: Any, j: Any, seeing: Blocks, count: Any = None) -> Any:
        """How many blocks of keys add to block i of queries before block j does.

        seeing: the blocks of keys that the queries see. count: the blocks of queries, if `start` has spread them.
        """
        before = pk.maximum(self.low - seeing.first, 0)
        if count is None:
            return before + pk.minimum(seeing.stop, self.high) - 1 - j
        size = self.high - self.low
        first = self.low + ((i + 1) * size - 1) // count  # the last that begins at i or before
        return before + first - j + pk.where(j <= first, 0, size)
