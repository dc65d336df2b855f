"""In which order blocks of keys add to a block of queries, so that equal launches round alike and few blocks wait.

Blocks of keys of a head that run at a time reach a block of queries one after another: a later one begins with later
queries. That is the order in which they add, after those that ran in rounds before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pykittens as pk
from pykittens.kernels.attention.visible import Blocks


class Beside(NamedTuple):
    """The blocks of keys of a head from `low` to before `high`, which run at a time; those before `low` add before."""

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

    def spread(self, j: Any, count: Any) -> Beside:
        """Those with block j in runs of at most `count`, the blocks of queries, of which each begins with another."""
        low = self.low + (j - self.low) // count * count
        return Beside(low, pk.minimum(low + count, self.high))

    def start(self, j: Any, count: Any) -> Any:
        """Where block j begins if all of them go round `count` blocks of queries, evenly spread."""
        return (j - self.low) * count // (self.high - self.low)

    def turn(self, j: Any, seeing: Blocks) -> Any:
        """How many blocks of keys add to a block of queries before block j does. seeing: those that the queries see."""
        return pk.maximum(self.low - seeing.first, 0) + pk.minimum(seeing.stop, self.high) - 1 - j

    def first_step(self, j: Any, count: Any) -> tuple[Any, Any, Any]:
        """Where block j begins, its turn there if the queries see all keys, and what is left for `next_step`."""
        i = self.start(j, count)
        begun = (i + 1) * (self.high - self.low) - 1  # in units of 1 / count
        return i, begun // count + 2 * self.low - j, begun % count

    def next_step(self, i: Any, turn: Any, rest: Any, count: Any) -> tuple[Any, Any, Any]:
        """The same for the next step: the block of keys that begins there adds before block j, too."""
        rest = rest + (self.high - self.low)
        begins = rest >= count
        return (
            pk.where(i + 1 < count, i + 1, 0),
            turn + begins.to(pk.int32),
            pk.where(begins, rest - count, rest),
        )
