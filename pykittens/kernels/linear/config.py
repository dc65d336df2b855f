"""How the work of linear attention is cut."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.chunk import CHUNK, rows_of

# Microseconds of an H200 for a chunk of 64 columns, of its outputs and of its state alone; and for two more launches.
OUTPUT, STATE, LAUNCHES = 2.0, 1.2, 8.0
RESERVED = 1024  # bytes of shared memory that a block takes besides its own


@dataclass(frozen=True)
class LinearConfig:
    """The work of a block.

    columns: of the values and the state, of each of `groups` warpgroups. stages: chunks that are in flight. resident:
    blocks that share a multiprocessor.
    """

    columns: int
    groups: int
    stages: int
    resident: int = 1

    def shared_bytes(self, d: int, result_bytes: int = 2, values: int = 1) -> int:
        """Bytes of shared memory of a block: the stages, the output, a state, and values with decay.

        result_bytes: of an element of the output. values: tiles of a stage that have its columns.
        """
        rows, own = rows_of(d), self.columns * self.groups
        stage = 2 * CHUNK * (2 * rows + values * own) + 3 * 4 * CHUNK + 64
        return self.stages * stage + own * (2 * rows + (2 + result_bytes) * CHUNK) + 16


def config_for(
    d: int, width: int, limits: Limits, result_bytes: int = 2, values: int = 1
) -> LinearConfig:
    """The configuration for heads of d queries and `width` values.

    Registers hold up to 128 x 64 of a state, or half of it where warps multiply alone.
    """
    columns = 64 if d <= (128 if limits.warpgroups else 64) and width > 32 else 32
    groups = 2 if width > columns and limits.warpgroups else 1
    # A warpgroup alone leaves the registers of another to a second block.
    resident = 2 if groups == 1 and limits.warpgroups else 1
    configs = [LinearConfig(columns, groups, stages, resident) for stages in (3, 2, 1)]
    configs += [LinearConfig(32, 1, stages) for stages in (2, 1)]

    def shared_bytes(c: LinearConfig) -> int:
        """Of all blocks that share a multiprocessor, each of which takes some more."""
        own = c.shared_bytes(d, result_bytes, values)
        return c.resident * own + (c.resident - 1) * RESERVED

    return first_that_fits("linear_attention", configs, shared_bytes, limits)


def segments_for(
    tasks: int,
    chunks: int,
    limits: Limits,
    resident: int = 1,
    times: tuple[float, float] = (OUTPUT, STATE),
    shortest: int = 4,
) -> int:
    """How many parts of a sequence have blocks of their own: those with the least time.

    times: microseconds of a chunk, of its outputs and of its state alone. shortest: chunks that a part has at least.
    """

    def microseconds(segments: int) -> float:
        rounds = -(-tasks * segments // (limits.multiprocessors * resident))
        steps = rounds * -(-chunks // segments)
        if segments == 1:
            return steps * times[0]
        return steps * sum(times) + LAUNCHES

    counts: list[int] = [2**i for i in range(10) if 2**i <= max(chunks // shortest, 1)]
    return min(counts, key=microseconds)  # of equals the fewest
