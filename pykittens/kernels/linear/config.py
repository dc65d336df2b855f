"""How the work of linear attention is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import itemgetter

from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.chunk import CHUNK, ROWS, rows_of
from pykittens.kernels.linear.scan import at_once

# Microseconds of an H100: of the outputs and of the state of a chunk, at least and for each 64 x 64 of a state.
OUTPUT, STATE = (0.95, 0.27), (0.65, 0.15)
LAUNCH, SCAN = 3.0, 0.15  # of a launch more beside its loads, and of each segment in a scan
ROUND = 0.5  # until what is loaded at a time by a warpgroup begins to arrive
# Bytes in a microsecond: of memory, and what a multiprocessor and all of them read of the L2 cache.
BANDWIDTH, OF_MULTIPROCESSOR, OF_CACHE = 3.0e6, 0.08e6, 5.0e6
GAIN = 0.9  # of the time with which a configuration with fewer columns is worth its loads
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


def config_for(
    d: int,
    width: int,
    limits: Limits,
    tiles: Tiles = Tiles(),  # noqa: B008
    like: LinearConfig | None = None,
) -> LinearConfig:
    """The configuration for heads of d queries and `width` values, or for blocks with the columns of another.

    Registers hold up to 128 x 64 of a state, or half of it where warps multiply alone.
    """
    if like is None:
        columns = 64 if d <= (128 if limits.warpgroups else 64) and width > 32 else 32
        groups = 2 if width > columns and limits.warpgroups else 1
        # A warpgroup alone leaves the registers of another to a second block.
        like = LinearConfig(columns, groups, 1, 2 if groups == 1 and limits.warpgroups else 1)
    configs = [replace(like, stages=stages) for stages in (6, 4, 3, 2, 1)]
    configs += [LinearConfig(32, 1, stages) for stages in (2, 1)]

    def shared_bytes(c: LinearConfig) -> int:
        """Of all blocks that share a multiprocessor, each of which takes some more."""
        return c.resident * c.shared_bytes(d, tiles) + (c.resident - 1) * RESERVED

    return first_that_fits("linear_attention", configs, shared_bytes, limits)


def blocks_for(name: str, shared_bytes: int, most: int, limits: Limits) -> int:
    """How many blocks that take so much shared memory share a multiprocessor; a ResourceError if none fits.

    name: of the function that is called.
    """

    def of_all(blocks: int) -> int:
        return blocks * shared_bytes + (blocks - 1) * RESERVED

    return first_that_fits(name, range(most, 0, -1), of_all, limits)


def narrower(d: int, config: LinearConfig, limits: Limits, tiles: Tiles) -> list[LinearConfig]:
    """Configurations with fewer columns, for few blocks: a chunk takes less time, and all blocks together more."""
    shapes = [(x, y) for x in {config.columns, 32} for y in {config.groups, 1}]
    own = config.columns, config.groups
    likes = (LinearConfig(*shape, 1) for shape in sorted(shapes) if shape != own)
    return [config_for(d, 0, limits, tiles, like) for like in likes]


@dataclass(frozen=True)
class Cut:
    """How sequences are cut: into segments that have blocks of their own; and whether each block of outputs finds the
    state at its start itself, by `after_segments`, in place of a scan.
    """

    segments: int = 1
    inside: bool = False


@dataclass(frozen=True)
class Work:
    """A pass over sequences, for the time of it.

    tasks: blocks without segments. chunks: of a sequence. times: microseconds of a chunk, of its outputs and of its
    state alone. resident: blocks that share a multiprocessor. sides: rows and columns of the part of a state that a
    block has, of which a warpgroup loads so many `columns`. memory: microseconds that keys and values, and a state of
    each head, take to be loaded. shortest: chunks that a segment has at least.
    """

    tasks: int
    chunks: int
    times: tuple[float, float]
    resident: int
    sides: tuple[int, int]
    columns: int
    memory: tuple[float, float] = (0.0, 0.0)
    shortest: int = 1

    def microseconds(self, cut: Cut, multiprocessors: int) -> float:
        """The time of the outputs and of all launches before, beside that of one launch."""
        segments, (of_positions, of_states) = cut.segments, self.memory
        blocks, slots = self.tasks * segments, multiprocessors * self.resident
        turns = -(-blocks // slots)
        steps = turns * -(-self.chunks // segments)
        first = max(steps * self.times[0], 2 * of_positions)
        if segments == 1:
            return first
        found = first + max(steps * self.times[1], of_positions) + LAUNCH + segments * of_states
        if not cut.inside:
            return found + LAUNCH + segments * (SCAN + 2 * of_states)
        return found + self.reading(
            segments, turns, min(self.resident, -(-blocks // multiprocessors))
        )

    def reading(self, segments: int, turns: int, sharing: int) -> float:
        """The time in which blocks, so many of which share a multiprocessor, load what segments before theirs add."""
        past, (rows, columns) = segments - 1, self.sides
        of_segment = 4 * rows * columns
        rounds = -(-past // at_once(-(-rows // ROWS), self.columns))
        own = rounds * ROUND + sharing * past * of_segment / OF_MULTIPROCESSOR
        return max(turns * own, self.tasks * segments * past / 2 * of_segment / OF_CACHE)


def cut_of(
    work: Work, limits: Limits, given: int | None = None, is_fixed: bool = False
) -> tuple[float, Cut]:
    """The least time, and the cut that takes it, of those with so many segments if they are given.

    is_fixed: whether states are for a scan only.
    """
    slots = limits.multiprocessors * work.resident
    # Those that leave no multiprocessor idle, and segments of as many chunks.
    full = (slots * waves // work.tasks for waves in (1, 2))
    even = {-(-work.chunks // i) for i in range(1, 9)}
    counts = sorted({2**i for i in range(1, 10)} | {*full, *even}) if given is None else [given]
    most = max(work.chunks // work.shortest, 1) if given is None else given
    found = [Cut()] if given in (None, 1) else []
    # Where all roles have as many registers, those that multiply have none left for what they load.
    for inside in (False,) if is_fixed or not limits.warpgroups else (False, True):
        found += [Cut(x, inside) for x in counts if 1 < x <= most]
    times = [(work.microseconds(cut, limits.multiprocessors), cut) for cut in found]
    return min(times, key=itemgetter(0))  # of equals the first


def work_of_heads(
    heads: tuple[int, int], chunks: int, sizes: tuple[int, int], config: LinearConfig
) -> Work:
    """The work of a pass by the rates above.

    heads: of q and k, and of v, of all batches. sizes: rows and columns of a state.
    """
    (d, width), own = sizes, config.columns * config.groups
    unit = rows_of(d) * own / 4096
    output, state = (a + b * unit for a, b in (OUTPUT, STATE))
    of_positions = 2 * chunks * CHUNK * (heads[0] * d + heads[1] * width) / BANDWIDTH
    memory = of_positions, 4 * heads[1] * d * width / BANDWIDTH
    tasks, sides = heads[1] * -(-width // own), (d, min(own, width))
    return Work(tasks, chunks, (output, state), config.resident, sides, config.columns, memory)
