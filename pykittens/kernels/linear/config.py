"""How the work of linear attention is cut."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.chunk import CHUNK, rows_of

# Microseconds of an H100: of the outputs and of the state of a chunk, at least and for each 64 x 64 of a state.
OUTPUT, STATE = (0.95, 0.27), (0.65, 0.15)
LAUNCHES, SCAN = 6.0, 0.15  # of two launches more, and of each segment in a scan
BANDWIDTH = 3.0e6  # bytes in a microsecond
EXCHANGE = 2048  # bytes for sums of two warpgroups, and for semaphores
RESERVED = 1024  # bytes of shared memory that a block takes besides its own


@dataclass(frozen=True)
class Tiles:
    """What is in shared memory: tiles of a stage with the rows of a state and with columns, of values that decay, of
    states, the bytes of an element of the output, and tiles of a stage with a weight for each two positions.
    """

    of_rows: int = 2
    of_columns: int = 1
    decayed: int = 2
    states: int = 1
    result_bytes: int = 2
    of_pairs: int = 0


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

    def shared_bytes(self, d: int, tiles: Tiles = Tiles()) -> int:  # noqa: B008 - it is frozen
        """Bytes of shared memory of a block."""
        rows, own = rows_of(d), self.columns * self.groups
        stage = 2 * CHUNK * (tiles.of_rows * rows + tiles.of_columns * own) + 3 * 4 * CHUNK + 64
        stage += tiles.of_pairs * 2 * CHUNK * CHUNK
        once = 2 * rows * tiles.states + (2 * tiles.decayed + tiles.result_bytes) * CHUNK
        return self.stages * stage + own * once + EXCHANGE


def config_for(d: int, width: int, limits: Limits, tiles: Tiles = Tiles()) -> LinearConfig:  # noqa: B008
    """The configuration for heads of d queries and `width` values.

    Registers hold up to 128 x 64 of a state, or half of it where warps multiply alone.
    """
    columns = 64 if d <= (128 if limits.warpgroups else 64) and width > 32 else 32
    groups = 2 if width > columns and limits.warpgroups else 1
    # A warpgroup alone leaves the registers of another to a second block.
    resident = 2 if groups == 1 and limits.warpgroups else 1
    configs = [LinearConfig(columns, groups, stages, resident) for stages in (6, 4, 3, 2, 1)]
    configs += [LinearConfig(32, 1, stages) for stages in (2, 1)]

    def shared_bytes(c: LinearConfig) -> int:
        """Of all blocks that share a multiprocessor, each of which takes some more."""
        return c.resident * c.shared_bytes(d, tiles) + (c.resident - 1) * RESERVED

    return first_that_fits("linear_attention", configs, shared_bytes, limits)


def segments_of_heads(
    heads: tuple[int, int],
    chunks: int,
    sizes: tuple[int, int],
    config: LinearConfig,
    limits: Limits,
) -> int:
    """As many parts of a sequence as `segments_for`, by the rates above.

    heads: of q and k, and of v, of all batches. sizes: rows and columns of a state.
    """
    (d, width), own = sizes, config.columns * config.groups
    unit = rows_of(d) * own / 4096
    output, state = (a + b * unit for a, b in (OUTPUT, STATE))
    of_positions = 2 * chunks * CHUNK * (heads[0] * d + heads[1] * width) / BANDWIDTH
    memory = of_positions, 4 * heads[1] * d * width / BANDWIDTH
    tasks = heads[1] * -(-width // own)
    return segments_for(tasks, chunks, limits, config.resident, (output, state), memory=memory)


def segments_for(
    tasks: int,
    chunks: int,
    limits: Limits,
    resident: int,
    times: tuple[float, float],
    shortest: int = 1,
    memory: tuple[float, float] = (0.0, 0.0),
) -> int:
    """How many parts of a sequence have blocks of their own: those with the least time.

    times: microseconds of a chunk, of its outputs and of its state alone. shortest: chunks that a part has at least.
    memory: microseconds that keys and values, and a state of each head, take to be loaded.
    """
    slots, (of_positions, of_states) = limits.multiprocessors * resident, memory

    def microseconds(segments: int) -> float:
        steps = -(-tasks * segments // slots) * -(-chunks // segments)
        first = max(steps * times[0], 2 * of_positions)
        if segments == 1:
            return first
        more = LAUNCHES + segments * (SCAN + 3 * of_states)
        return first + max(steps * times[1], of_positions) + more

    full = (slots * waves // tasks for waves in (1, 2))  # those that leave no multiprocessor idle
    counts = sorted({2**i for i in range(1, 10)} | set(full))
    most = max(chunks // shortest, 1)
    # Of equals the fewest.
    return min([1, *(x for x in counts if 1 < x <= most)], key=microseconds)
