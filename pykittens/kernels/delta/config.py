"""How the work of the delta rule is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pykittens.kernels.delta.chunk import COLUMNS
from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.chunk import CHUNK, rows_of
from pykittens.kernels.linear.config import RESERVED

WIDE = 128  # rows of a state that registers hold in f32 and rounded, beside two products
# Microseconds of an H200 for a chunk of the outputs and of the state alone, of each of the warpgroups of a
# multiprocessor, and how many times as long one takes alone. Then those of a step of the scan of segments, and of the
# launches that segments add.
OUTPUT, STATE, ALONE, STEP, LAUNCHES = 1.1, 0.63, 1.22, 1.6, 13.0
BANDWIDTH = 3.0e6  # bytes in a microsecond of what segments write and read


@dataclass(frozen=True)
class DeltaConfig:
    """The work of a block.

    groups: warpgroups, of 64 columns of the values each. stages: chunks that are in flight. resident: blocks that share
    a multiprocessor. in_memory: whether products read a rounded state in shared memory, as registers hold no copy of a
    wide one.
    """

    groups: int
    stages: int
    resident: int = 1
    in_memory: bool = False

    def shared_bytes(self, d: int) -> int:
        """Bytes of shared memory of a block: the stages, and tiles that have its columns."""
        own = COLUMNS * self.groups
        of_state = 2 * own * rows_of(d) if self.in_memory else 0
        stage = 2 * CHUNK * (2 * rows_of(d) + own + 2 * CHUNK) + 4 * 4 * CHUNK + 64
        return self.stages * stage + 2 * CHUNK * own + of_state + 1024


def config_for(d: int, width: int, heads: int, limits: Limits) -> DeltaConfig:
    """The configuration for so many heads of d queries and `width` values.

    Two warpgroups share what they read of q and k. One has a block of its own where there is a multiprocessor for each,
    and where registers do not hold a wide state of two.
    """
    wide = rows_of(d) > WIDE and limits.warpgroups
    together = width > COLUMNS and not wide and limits.warpgroups
    together = together and heads * -(-width // COLUMNS) > limits.multiprocessors
    configs = [DeltaConfig(2, stages) for stages in (3, 2)] if together else []
    if rows_of(d) <= CHUNK and limits.warpgroups:
        configs += [DeltaConfig(1, stages, 2) for stages in (3, 2)]
    configs += [DeltaConfig(1, stages, in_memory=wide) for stages in (3, 2, 1)]

    def shared_bytes(c: DeltaConfig) -> int:
        """Of all blocks that share a multiprocessor, each of which takes some more."""
        return c.resident * c.shared_bytes(d) + (c.resident - 1) * RESERVED

    return first_that_fits("gated_delta_rule", configs, shared_bytes, limits)


def config_of_states(config: DeltaConfig, d: int, limits: Limits) -> DeltaConfig:
    """The configuration of what segments change: two blocks of one warpgroup share a multiprocessor if they fit."""
    if config.groups > 1 or config.in_memory or not limits.warpgroups:
        return config
    stage = 2 * CHUNK * (rows_of(d) + COLUMNS + CHUNK) + 4 * 4 * CHUNK + 64
    shared = config.stages * stage + 1024
    return replace(config, resident=2) if 2 * shared + RESERVED <= limits.shared_bytes else config


def microseconds(
    blocks: int, length: int, each: float, config: DeltaConfig, limits: Limits
) -> float:
    """An estimate of the time of blocks that go through `length` chunks, each of which takes a warpgroup so long."""
    rounds = -(-blocks // (limits.multiprocessors * config.resident))
    at_once = config.groups * min(config.resident, -(-blocks // limits.multiprocessors))
    return rounds * length * max(at_once, ALONE) * each


def cut_for(
    heads: int,
    n: int,
    sizes: tuple[int, int],
    limits: Limits,
    segments: int | None = None,
    config: DeltaConfig | None = None,
    backward: bool = False,
) -> tuple[int, DeltaConfig]:
    """How many parts of a sequence have blocks of their own, and the configuration: those with the least estimate.

    sizes: of a query and of a value. What is given stays. backward: of the passes of gradients, one of which goes in
    reverse and shares what segments multiply states by.
    """
    chunks, (d, width) = -(-n // CHUNK), sizes

    def cut(segments: int) -> DeltaConfig:
        return config or config_for(d, width, heads * segments, limits)

    def estimate(segments: int) -> float:
        own, length = cut(segments), -(-chunks // segments)

        def of(sides: tuple[int, ...], parts: int, each: float, config: DeltaConfig) -> float:
            columns = sum(-(-x // COLUMNS) for x in sides)
            blocks = heads * parts * -(-columns // config.groups)
            return microseconds(blocks, length, each, config, limits)

        passes = 2 if backward else 1
        outputs = passes * of((width,), segments, OUTPUT, own)
        if segments == 1:
            return outputs
        past, of_states = segments - 1, config_of_states(own, d, limits)
        moved = 4 * heads * d * past * (2 * (width + d) + 2 * width)  # each is written and read
        states = of((width, d), past, STATE, of_states)
        states += of((width,), past, OUTPUT, own) if backward else 0.0
        return outputs + states + passes * (STEP * past + moved / BANDWIDTH + LAUNCHES)

    # Those that are powers of two, and those whose blocks fill the multiprocessors once or twice.
    full = {
        waves * limits.multiprocessors // (heads * -(-side // own)) + more
        for waves in (1, 2)
        for own in (COLUMNS, 2 * COLUMNS)
        for side, more in ((width, 0), (width + d, 1))
    }
    most = max(chunks // 4, 1)
    counts = sorted(x for x in {2**i for i in range(8)} | full if 1 <= x <= most)
    segments = segments or min(counts, key=estimate)  # of equals the fewest
    return segments, cut(segments)
