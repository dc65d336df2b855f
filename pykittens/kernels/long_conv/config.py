"""How the work of long convolutions is cut."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.long_conv.tables import COLS, INNER, Fourier

TILE = 2 * COLS * COLS  # bytes of a tile of 16-bit elements
OF_A_FILTER = 0.3  # of the time of a step, to begin with another filter


@dataclass(frozen=True)
class ConvForm:
    """What a launch computes.

    is_paired: two sequences are the real and the imaginary part of one. is_adjoint: with the conjugates of the
    transforms of filters. is_scaled: sequences are scaled, if they are not already.
    """

    is_paired: bool
    is_adjoint: bool = False
    is_scaled: bool = True


@dataclass(frozen=True)
class ConvConfig:
    """The work of a block: `groups` warpgroups with a tile each, and stages of inputs and of filters in flight.

    parts: into which a batch is cut, each with blocks of its own; chosen for each call if None. shared_factors: twiddle
    factors are in shared memory, not in registers.
    """

    groups: int
    stages: int
    filters: int = 1
    parts: int | None = None
    shared_factors: bool = False

    def shared_bytes(self, tiles: int, results: int) -> int:
        """Bytes of shared memory of a block with so many tiles of a stage, and of results, for each warpgroup."""
        own = 2 + self.stages * tiles + results + 2 * self.filters
        matrices = 4 + 2 * self.shared_factors if tiles else 8
        return TILE * (matrices + self.groups * own) + 256 * self.groups + 1024


def config_for(tiles: int, results: int, limits: Limits) -> ConvConfig:
    """The configuration for stages of so many tiles for each warpgroup; 0 if no copy engine brings them."""
    # A second filter comes before a third stage: without it, no input of the next filter is on its way.
    rings = ((3, 2), (2, 2), (2, 1), (1, 1))
    if limits.warpgroups:
        configs = [ConvConfig(groups, *ring) for groups in (2, 1) for ring in rings]
    else:  # all warps have as many registers: too few for two groups, and better without factors
        in_shared = (True, False)
        configs = [ConvConfig(1, *r, shared_factors=own) for own in in_shared for r in rings]

    def shared_bytes(c: ConvConfig) -> int:
        return c.shared_bytes(tiles, results)

    return first_that_fits("long_conv", configs, shared_bytes, limits)


def parts_for(tiles: int, steps: int, config: ConvConfig, limits: Limits) -> int:
    """Into how many parts the steps of a tile's filter are cut: those with the least time of the busiest block."""
    if config.parts is not None:
        return config.parts
    blocks = -(-tiles // config.groups)

    def steps_of_a_block(parts: int) -> float:
        return -(-blocks * parts // limits.multiprocessors) * (-(-steps // parts) + OF_A_FILTER)

    counts: list[int] = sorted({-(-steps // each) for each in range(1, steps + 1)})
    return min(counts, key=steps_of_a_block)  # of equals the fewest


def outer_blocks(limits: Limits) -> int:
    """Blocks of an outer level that share a multiprocessor: one loads while another multiplies."""
    each = 4 * TILE + 2 * 1024  # with a vector of zeros, and what any block takes
    return min(3, (limits.shared_bytes + 1024) // each)


# Cycles of a multiprocessor for 4096 complex elements: of their transforms, measured on an H200, and of an outer level
# in shared memory, from its instructions.
OF_A_TILE, OF_A_LEVEL = 4500, 1500
ALONE = 1.5  # of them, if no other warpgroup multiplies while one combines
BYTES_A_CYCLE = 19.0  # of memory, for each multiprocessor of an H200
OF_A_LAUNCH = 5000  # cycles between launches that follow one another
LAUNCHES = 4  # more of them, through memory: scales, the first and the last level


@dataclass(frozen=True)
class FusedConfig:
    """The work of a block of fused_tiles: `groups` warpgroups in `teams`, each with the tiles of a sequence or a pair.

    shared_factors: the twiddle factors of the innermost level are in shared memory, not in registers.
    """

    groups: int
    teams: int
    shared_factors: bool = False

    def shared_bytes(self, points: int) -> int:
        """Bytes of shared memory of a block for sequences of so many tiles."""
        tiles = 2 * points * self.teams + 2 * self.groups + 4 + 2 * self.shared_factors
        return TILE * tiles + 16 * COLS * points + 1024 * (self.groups + 1) + 512


FUSED = (
    *(FusedConfig(2, 2), FusedConfig(2, 2, True), FusedConfig(2, 1, True)),
    *(FusedConfig(2, 1), FusedConfig(1, 1)),
)
MOST_POINTS = 8  # whose elements a warpgroup has in its registers
FEW_POINTS = 2  # which leave registers to twiddle factors


def fused_for(fourier: Fourier, sequences: int, limits: Limits) -> FusedConfig | None:
    """The configuration of fused_tiles for so many sequences or pairs; None if passes through memory are better."""
    points = points_of_fused(fourier)
    fitting = [
        config
        for config in FUSED
        if points
        if config.shared_factors or points <= FEW_POINTS
        if config.shared_bytes(points) <= limits.shared_bytes
    ]
    if not fitting:
        return None
    best = min(fitting, key=lambda config: fused_cycles(config, points, sequences, limits))
    is_better = fused_cycles(best, points, sequences, limits) <= passes_cycles(
        fourier, sequences, limits
    )
    return best if is_better else None


def points_of_fused(fourier: Fourier) -> int:
    """The points of the outer level of fused_tiles; 0 if a transform has no such level."""
    rows = [level.rows for level in fourier.outer]
    return rows[0] if len(rows) == 1 and rows[0] <= MOST_POINTS else 0


def fused_cycles(config: FusedConfig, points: int, sequences: int, limits: Limits) -> float:
    """Cycles of the busiest multiprocessor for sequences or pairs of so many tiles each, in one launch."""
    tiles = -(-sequences // (config.teams * limits.multiprocessors)) * config.teams * points
    return tiles * (OF_A_TILE + OF_A_LEVEL) * (ALONE if config.groups == 1 else 1.0)


def passes_cycles(fourier: Fourier, sequences: int, limits: Limits) -> float:
    """The same through memory, which all multiprocessors share alike.

    An element is read for the scales, and read and written by the first level, the transforms and the last level: in
    16 bits a part, of which quarters have one at both ends and pairs two.
    """
    bytes_each = 28 if fourier.is_cyclic else 22
    tiles = sequences * fourier.length // INNER / limits.multiprocessors
    return tiles * (OF_A_TILE + bytes_each * INNER / BYTES_A_CYCLE) + LAUNCHES * OF_A_LAUNCH
