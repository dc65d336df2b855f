"""How the work of a product is cut: tiles, stages, clusters, shares; and which way is taken for a shape and a GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.kernels.core import Limits, first_that_fits

LINE = 128  # bytes of a row of a stage: what the copy engine swizzles at once
MOST_STAGES = 24
MOVING = 9.4e6  # bytes on their way that keep the memory of an H200 busy
MOST_SWAPPED = 128  # rows of a product up to which the transposed one may be made
SCALED = 128  # elements along k, and along n, that have one scale where there are scales of blocks


@dataclass(frozen=True)
class Config:
    """The work of a block.

    rows, cols: of its tile of the product. depth: bytes of a row of a stage, `stages` of which are in flight.
    consumers: warpgroups that share the rows. out_cols: columns of a part of the output, of which each warpgroup has
    out_stages on their way. cluster: blocks that share copies, neighbours along `cluster_axis`, 0 for rows. band: rows
    of tiles that are worked on together. turns: the warpgroups store one after another, so that one multiplies
    meanwhile. swap: the transposed product is made, so that its rows are the columns of the product. shares: tiles are
    cut along k, so that all blocks have equal shares of the work. overlap: a launch may start while the one before it
    still ends. warpgroups: for targets whose warpgroups multiply together, else for those whose warps multiply alone.
    """

    rows: int
    cols: int
    depth: int = LINE
    stages: int = MOST_STAGES
    consumers: int = 2
    out_cols: int = 64
    out_stages: int = 1
    cluster: int = 1
    cluster_axis: int = 0
    band: int = 8
    turns: bool = False
    swap: bool = False
    shares: bool = False
    overlap: bool = False
    warpgroups: bool = True

    def shared_bytes(self, out_bytes: int = 2, gated: bool = False, blocks: bool = False) -> int:
        """Shared memory of a block: the stages, the output, and the barriers."""
        a, b = self.rows * (1 + (gated and self.swap)), self.cols * (1 + (gated and not self.swap))
        scales = 1 + (1 + gated) * self.pieces if blocks else 0  # vectors, each in 1024 bytes
        stage = (a + b) * self.depth + 1024 * scales + 16
        outputs = self.out_stages * self.rows * self.out_cols * out_bytes
        return self.stages * stage + outputs + 8 * self.consumers * self.turns

    @property
    def pieces(self) -> int:
        """Parts of the columns of a tile that have one scale each, where blocks of 128 have."""
        return 1 if self.swap else self.cols // math.gcd(self.cols, SCALED)

    @property
    def scaled_cols(self) -> int:
        """Columns of a product that is scaled by itself."""
        return SCALED if not self.swap and self.cols % SCALED == 0 else self.cols

    @property
    def grain(self) -> int:
        """Columns of one of the sums that products with scales are added to."""
        return math.gcd(self.scaled_cols, self.cols // self.pieces)


@dataclass(frozen=True)
class Shape:
    """What the choice of a configuration depends on.

    bytes, out_bytes: of an element of the operands and of the result. blocks: whether blocks of 128 have scales of
    their own. may_swap: whether the transposed product will do. a_by_columns: whether a lies k x m. b_by_rows: whether
    b lies n x k. operands: how many the epilogue loads. activation: whether it has one.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    bytes: int = 2
    out_bytes: int = 2
    gated: bool = False
    blocks: bool = False
    may_swap: bool = True
    a_by_columns: bool = False
    b_by_rows: bool = True
    operands: int = 0
    activation: bool = False


def check(function: str, config: Any, shape: Shape) -> Config:
    """The configuration that a caller asked for; an ArgumentError unless it cuts such a product into whole tiles."""
    if not isinstance(config, Config):
        raise ArgumentError(f"{function}: `config` must be a Config, not {type(config).__name__}")
    c = config

    def refuse(message: str, help: str = "pass another configuration, or none") -> ArgumentError:
        return ArgumentError(f"{function}: {message}", help=help)

    for name in ("rows", "cols", "depth", "stages", "consumers", "out_cols", "out_stages", "band"):
        value = getattr(c, name)
        if type(value) is not int or value < 1:
            raise refuse(f"`{name}` of `config` must be an int from 1 on, not {value!r}")
    piece = c.grain if shape.blocks else c.cols
    if piece % c.out_cols:
        raise refuse(
            f"tiles of {piece} columns cannot be stored in parts of {c.out_cols}",
            help="pass a configuration whose `out_cols` divides `cols`, and where blocks have scales also 128",
        )
    if c.swap and not shape.may_swap:
        raise refuse(
            "a configuration with `swap` makes the transposed product, which has no `row_sums` and "
            "`column_sums` and takes no `epilogue`"
        )
    if c.shares and c.cluster != 1:
        raise refuse("a configuration has `shares` or a `cluster`, not both")
    if shape.blocks and (c.depth % shape.bytes or SCALED % (c.depth // shape.bytes)):
        raise refuse(f"a step of {c.depth // shape.bytes} elements has scales of several blocks")
    return c


# Warps that multiply alone read all columns of B for their own rows of A: with 16 rows each, shared memory would be
# slower than their products, so there a warpgroup has 128 rows, 32 a warp.
ALONE = (
    # sm_80, and cards of more memory that have no target of their own: 163 KiB, a whole output tile.
    Config(256, 128, depth=64, stages=4, out_cols=128, warpgroups=False),
    # sm_89 and sm_86: 99 KiB, the output in quarters.
    Config(256, 128, depth=64, stages=3, out_cols=32, warpgroups=False),
)


def joining(config: Config, shape: Shape) -> int:
    """Bytes besides, in which the warps of each group join what they have of sums of columns."""
    if shape.may_swap:
        return 0
    each = 4 * 4 * config.out_cols  # warps, and bytes of f32
    return (config.consumers + 1) * -(-each // 128) * 128  # the producer's warpgroup has some, too


def fitted(config: Config, shape: Shape, limits: Limits) -> Config | None:
    """The configuration with as many stages as shared memory holds; None if that is less than two."""
    out, room = shape.out_bytes, limits.shared_bytes - joining(config, shape)
    bare = replace(config, stages=0).shared_bytes(out, shape.gated, shape.blocks)
    each = replace(config, stages=1).shared_bytes(out, shape.gated, shape.blocks) - bare
    stages = min((room - bare) // each, config.stages)
    return replace(config, stages=stages) if stages >= 2 else None


def candidates(shape: Shape, limits: Limits) -> tuple[Config, ...]:
    """The configurations worth trying for a shape, the one that should be fastest first."""
    if not limits.warpgroups:
        return (_alone(shape, limits),)
    found = [
        c for c in map(lambda c: fitted(c, shape, limits), _all(shape, limits)) if c is not None
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda c: estimate(c, shape, limits)))


def _alone(shape: Shape, limits: Limits) -> Config:
    # The lanes turn round what lies along m, which takes registers.
    small = replace(ALONE[1], cols=96) if shape.a_by_columns else ALONE[1]
    tried = (ALONE[0], small, replace(small, stages=2, out_cols=16))
    out, gated = shape.out_bytes, shape.gated
    made = [(c, c.shared_bytes(out, gated, shape.blocks) + joining(c, shape)) for c in tried]
    return first_that_fits("gemm", made, limits)


@functools.lru_cache(4096)
def pick(shape: Shape, limits: Limits) -> Config:
    """The configuration for a shape and a GPU."""
    return candidates(shape, limits)[0]


def _all(shape: Shape, limits: Limits) -> Iterator[Config]:
    """Tiles of all sides that a warpgroup's registers hold."""
    # With few rows most of a box would lie outside the tensor, which is slow.
    few = _is_better_swapped(shape) and shape.m <= 32
    for rows, consumers in () if few else ((64, 1), (128, 2), (192, 3), (256, 2)):
        for cols in range(16, 257, 16):
            if _fits_registers(rows // consumers, cols, consumers, shape) and _is_even(cols, shape):
                yield from _ways(Config(rows, cols, consumers=consumers), shape)
    if _is_better_swapped(shape):
        cols = max(-(-shape.m // 16) * 16, 16)
        for rows, consumers in ((64, 1), (128, 2), (256, 2)):
            if _fits_registers(rows // consumers, cols, consumers, shape):
                c = Config(rows, cols, consumers=consumers, swap=True)
                yield from _ways(_reading(c, shape, limits), shape)


def _reading(c: Config, shape: Shape, limits: Limits) -> Config:
    """With as much of the weights on its way as keeps memory busy: more is slower where each block has one tile."""
    if (
        c.rows < 256 and c.cols <= 64
    ):  # longer rows are read at once where there is room for enough stages
        c = replace(c, depth=2 * LINE)
    tiles, _ = work(c, shape)
    if c.cols > 32 or not 0 < tiles <= limits.multiprocessors:
        return c
    least = 6 if c.rows == 64 else 2
    stages = round(MOVING / (tiles * c.rows * c.depth * (1 + shape.gated)))
    return replace(c, stages=max(stages, least))


def _is_better_swapped(shape: Shape) -> bool:
    """Whether the transposed product is worth a try: few rows, or some and tiles of b that are wide anyway."""
    most = 32 if shape.b_by_rows else MOST_SWAPPED
    return shape.may_swap and shape.m <= most and not shape.blocks


def _fits_registers(rows: int, cols: int, consumers: int, shape: Shape) -> bool:
    """Whether a warpgroup's sums, and the product that waits for its scales, leave registers to work with."""
    sums = rows * cols * (1 + shape.gated)
    if shape.blocks:
        waiting = rows * Config(rows, cols).scaled_cols
        return sums + waiting <= (64 * 256 if consumers == 3 else 64 * 384)
    # What the epilogue loads takes registers, too; three warpgroups have 160 each.
    return sums <= (64 * 128 if consumers == 3 else 64 * 256)


def _is_even(cols: int, shape: Shape) -> bool:
    """Whether boxes of b are wide enough, where its rows run along n; and scales of blocks fit pieces."""
    wide = shape.b_by_rows or cols * shape.bytes % (LINE // 2) == 0
    return wide and (not shape.blocks or cols % 32 == 0)


def _ways(c: Config, shape: Shape) -> Iterator[Config]:
    """The ways to work with tiles of some sides."""
    piece = math.gcd(c.cols, SCALED) if shape.blocks else c.cols  # a part of the output lies in one
    parts = [w for w in (64, 48, 32, 16) if piece % w == 0]
    loads = shape.operands > 0 or shape.activation
    c = replace(c, out_cols=parts[0])
    if c.rows * c.cols <= 64 * 64 and not loads and c.cols <= 64:
        c = replace(c, out_cols=c.cols)  # at once
    c = replace(c, overlap=_is_short(c, shape))
    if shape.blocks:
        if c.rows >= 128 and piece == SCALED and not loads:
            c = replace(c, out_cols=SCALED, out_stages=min(c.cols // SCALED, 2))
    elif c.rows == 128 and c.cols >= 128 and not loads and parts[0] == 64:
        yield replace(c, out_stages=2, turns=True)
    yield c
    if shape.blocks and shape.gated:
        return
    # Sums that others have left take registers beside what the epilogue loads.
    narrow = parts[-1] if loads and parts[-1] >= 32 else next(w for w in parts if w <= 32)
    yield replace(c, shares=True, out_cols=narrow, out_stages=1)


def _is_short(c: Config, shape: Shape) -> bool:
    """Whether a launch takes some microseconds only, in which blocks share little of what they read from memory."""
    moved = shape.batch * (shape.m * shape.k + shape.n * shape.k) * shape.bytes / 2**20
    if shape.m <= 64 and (c.swap or shape.b_by_rows):
        return moved < (45 if c.swap else 60)
    large = c.rows >= 128 and c.cols >= 128
    return shape.k * shape.bytes <= 1024 or moved <= (20 if large else 5)


def scaled(config: Config, shape: Shape) -> int:
    """How many products of a step a warpgroup scales one after another."""
    return config.cols // config.scaled_cols * (1 + shape.gated)


def work(config: Config, shape: Shape) -> tuple[int, int]:
    """How many tiles there are, and how many steps along k each takes."""
    m, n = (shape.n, shape.m) if config.swap else (shape.m, shape.n)
    tiles = shape.batch * -(-m // config.rows) * -(-n // config.cols)
    return tiles, max(-(-shape.k * shape.bytes // config.depth), 1)


@dataclass(frozen=True)
class Shares:
    """How the work is shared out evenly: `blocks` have `whole` tiles each, then `share` steps of what is left."""

    blocks: int
    whole: int
    share: int

    @staticmethod
    def of(config: Config, shape: Shape, multiprocessors: int) -> Shares:
        """Equal shares of the last one to two tiles a block; those before are done whole."""
        tiles, steps = work(config, shape)
        blocks = min(multiprocessors, tiles * steps)
        whole = max(tiles // max(blocks, 1) - 1, 0)
        return Shares(blocks, whole, max(-(-(tiles - whole * blocks) * steps // max(blocks, 1)), 1))


def estimate(config: Config, shape: Shape, limits: Limits) -> float:
    """Microseconds that a product should take: the longer of computing and reading memory, and what comes besides.

    The constants were fitted to products of 1 to 16384 rows on an H200 (docs/tuning/gemm.md).
    """
    c, s, blocks = config, shape, limits.multiprocessors
    tiles, steps = work(c, s)
    if not tiles:
        return 0.0
    a, b = c.rows * (1 + (s.gated and c.swap)), c.cols * (1 + (s.gated and not c.swap))
    multiply = max(a * b, a * 48) * c.depth / 4096 + 19 * c.depth / LINE
    if not s.b_by_rows and c.cols * s.bytes % LINE:
        multiply *= 1.1  # boxes of half a line
    if s.blocks:
        each = 140 + c.rows // c.consumers * c.scaled_cols / 183
        multiply += (each + 20 * (c.pieces - 1)) * scaled(c, s)
    load = (a + b) * c.depth / 111
    waves: float = -(-tiles // blocks)
    busy = min(tiles, blocks)
    hidden = 0.012 * c.turns if waves > 1 else -0.002 * c.turns  # of storing, behind the next tile
    tile = steps * max(multiply, load) + 550 + c.rows * c.cols * (0.054 - hidden)
    if s.activation or s.operands:
        tile += c.rows * c.cols * 0.03
    if c.shares:
        # Every block has the same, and some hand over what they have of a tile.
        waves, busy = max(tiles / blocks, 1 / steps), blocks
    compute = waves * tile / 1840
    flops = 2 * s.batch * s.m * s.n * s.k * (1 + s.gated) / (706e6 * (3 - s.bytes))
    moved = s.batch * (s.bytes * (s.m * s.k + s.n * s.k * (1 + s.gated)) + s.out_bytes * s.m * s.n)
    idle = 1 + 0.27 * (waves * busy / tiles - 1)  # where some blocks have a tile more than others
    # Two multiprocessors share a way to memory: where some of them have it alone, the others are late.
    alone = (blocks - busy) / blocks if not c.swap and 0.65 < busy / blocks < 0.9 else 0.0
    memory = moved / 4.25e6 * max(1, 39 / busy) * idle * (1 + 0.3 * alone)
    memory *= 1 + (0.02 if c.swap else 0.09) * (1 - busy / blocks)
    if c.swap and c.rows == 256:  # its boxes are wide where rows of weights are
        far = tiles > blocks or tiles < 0.35 * blocks
        memory *= 1.05 if far else 1.06 if s.b_by_rows or c.cols <= 32 else 0.99
    cache = tiles * steps * (a + b) * c.depth / blocks / 111 / 1840
    longest = float((compute**9 + flops**9 + memory**9) ** (1 / 9))
    wasted = 1.13 if not c.swap and s.m < c.rows // 2 else 1.0  # boxes outside the tensor are slow
    besides = 3.3 + (4 + c.rows * c.cols / 6000) * c.shares - 1.0 * c.overlap
    return besides + (longest + 0.096 * cache) * wasted * (1.02 if c.shares else 1)
