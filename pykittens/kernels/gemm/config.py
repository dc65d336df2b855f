"""Configurations of a product: its tiles, stages, clusters and splits of the sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import is_int, number
from pykittens.lang.roles import COPY_WARPS

LINE = 128  # bytes of a row of a stage: the widest swizzle of the copy engine
MOST_STAGES = 24
FEW = 8  # rows of a product that warps multiply by vectors
UNIT = 16  # the side of the tiles in which they do the epilogue
PIECE = 512  # bytes of a row that the lanes of a warp multiply at a time
SCALED = 128  # elements along k, and along n, of a block that has one scale
REGISTERS = 512  # of a multiprocessor, for each thread of a warpgroup
LOADING = 168  # registers of a lane for eight loads at a time
BESIDE = 52  # registers of a lane that multiplies, beside its sums and an eighth of them


@dataclass(frozen=True)
class Config:
    """The work of a block.

    rows, cols: the sides of its tile of the product. depth: bytes of a row of a stage, `stages` of which are in flight.
    consumers: warpgroups that share the rows. out_cols: columns of a part of the output; each warpgroup has out_stages
    parts in flight. cluster: blocks that share copies, neighbours along `cluster_axis`, 0 for rows; as many as `splits`
    are instead those of a split tile, which send their sums to each other's shared memory. across: the blocks of a
    cluster that are neighbours along the other axis; each shares one operand with its row of blocks and one with its
    column. band: rows of tiles that are processed together; blocks that share a tile's sum go down all rows, or along
    the columns if it is 1. turns: the warpgroups store one after another, so that one multiplies meanwhile. swap: the
    transposed product is computed. splits: the most blocks that share the sum of a tile; no more than fit the GPU.
    overlap: a launch may start before the previous one has ended. warpgroups: for targets whose warpgroups multiply
    together, else for those whose warps multiply alone. copied: those of "a" and "b" that a launch before it copies, so
    that rows start at lines of 128 bytes; a gate goes with b. loaders: warps that load rows which the copy engine does
    not reach. vectors: warps that multiply up to 8 rows of a, or of b without `swap`, by rows of the other at any
    address, as vectors in place of tiles on the tensor cores.
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
    across: int = 1
    band: int = 8
    turns: bool = False
    swap: bool = False
    splits: int = 1
    overlap: bool = False
    warpgroups: bool = True
    copied: tuple[str, ...] = ()
    loaders: int = 4
    vectors: int = 0

    @property
    def exchanges(self) -> bool:
        """Whether the blocks of a split tile are a cluster."""
        return self.splits == self.cluster > self.across == 1

    @property
    def sums_in_memory(self) -> bool:
        """Whether the blocks of a split tile pass their sums through global memory."""
        return self.splits > 1 and not self.exchanges

    @property
    def sharing(self) -> int:
        """Blocks that share copies."""
        return 1 if self.exchanges else self.cluster

    @property
    def spread(self) -> tuple[int, int]:
        """The tiles of blocks that share copies, along the rows and along the columns."""
        along = self.sharing // self.across
        return (self.across, along) if self.cluster_axis else (along, self.across)

    @property
    def places(self) -> int:
        """Parts of the sums of other blocks of a cluster that a block has room for, for each product."""
        return self.consumers * -(-self.parts // self.splits) * (self.splits - 1) * self.exchanges

    def shared_bytes(self, out_bytes: int = 2, gated: bool = False, blocks: bool = False) -> int:
        """Bytes of shared memory of a block: the stages, the output, and the barriers."""
        if self.vectors:  # stages of the few rows, and two of sums in f32
            return self.stages * (FEW * self.depth + 16) + 2 * (1 + gated) * self.rows * UNIT * 4
        return self.stages * self.stage_bytes(gated, blocks) + self.other_bytes(out_bytes, gated)

    def stage_bytes(self, gated: bool = False, blocks: bool = False) -> int:
        """Bytes of shared memory of a stage."""
        scales = 1 + (1 + gated) * self.pieces if blocks else 0  # vectors, each in 1024 bytes
        return sum(self.sides(gated)) * self.depth + 1024 * scales + 16

    def sides(self, gated: bool = False) -> tuple[int, int]:
        """Rows of A and columns of B in a stage."""
        return self.rows * (1 + (gated and self.swap)), self.cols * (1 + (gated and not self.swap))

    def other_bytes(self, out_bytes: int = 2, gated: bool = False) -> int:
        """Bytes of shared memory of a block without the stages."""
        outputs = self.out_stages * self.rows * self.out_cols * out_bytes
        # Each warpgroup, the producer's too, has a line for the state of its tile.
        states = LINE * (self.consumers + 1)
        place = self.rows // self.consumers * self.out_cols * 4
        sums = self.places * (1 + gated) * place + 16 * self.consumers * self.exchanges
        states *= self.sums_in_memory
        return outputs + 8 * self.consumers * self.turns + states + sums

    @property
    def parts(self) -> int:
        """The number of parts of the columns of a tile, which are stored one after another."""
        return self.cols // self.out_cols

    @property
    def pieces(self) -> int:
        """The number of pieces of the columns of a tile that have one scale each, if blocks have scales."""
        return 1 if self.swap else self.cols // math.gcd(self.cols, SCALED)

    @property
    def scaled_cols(self) -> int:
        """Columns that one instruction multiplies and that are scaled before the next."""
        return SCALED if not self.swap and self.cols % SCALED == 0 else self.cols

    @property
    def grain(self) -> int:
        """Columns of a piece: the width of the sums that products with scales are added to."""
        return self.cols // self.pieces


@dataclass(frozen=True)
class GemmShape:
    """The inputs to the choice of a configuration.

    bytes, out_bytes: of an element of the operands and of the result. blocks: whether blocks of 128 have scales.
    may_swap: whether the transposed product may be computed instead. a_by_columns: whether a is k x m in memory.
    b_by_rows: whether b is n x k in memory. operands: the number of operands that the epilogue loads. activation:
    whether it has an activation. a_step, b_step, out_step: bytes of which the places of all rows of a, of b and of the
    result in memory are multiples, 128 at most; below 16, the copy engine does not reach them.
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
    a_step: int = LINE
    b_step: int = LINE
    out_step: int = LINE


def check(function: str, config: Any, shape: GemmShape) -> Config:
    """The configuration that a caller asked for; an ArgumentError unless it suits a product of this shape."""
    if not isinstance(config, Config):
        raise ArgumentError(f"{function}: `config` must be a Config, not {type(config).__name__}")

    def refuse(message: str, help: str = "pass another configuration, or none") -> ArgumentError:
        return ArgumentError(f"{function}: {message}", help=help)

    counts = ["rows", "cols", "depth", "stages", "consumers", "out_cols", "out_stages", "band"]
    counts += ["splits", "loaders", "vectors", "across"]
    given = {name: number(getattr(config, name)) for name in counts}
    for name, value in given.items():
        least = int(name != "vectors")
        if not is_int(value) or value < least:
            raise refuse(f"`{name}` of `config` must be an int from {least} on, not {value!r}")
    c = replace(config, **given)
    if not (isinstance(c.copied, tuple) and set(c.copied) <= {"a", "b"}):
        raise refuse(f'`copied` of `config` must be a tuple of "a" and "b", not {c.copied!r}')
    piece = c.grain if shape.blocks else c.cols
    if piece % c.out_cols:
        raise refuse(
            f"tiles of {piece} columns cannot be stored in parts of {c.out_cols}",
            help="pass a configuration whose `out_cols` divides `cols`, and also 128 if blocks have scales",
        )
    if c.swap and not shape.may_swap:
        raise refuse(
            "a configuration with `swap` computes the transposed product, which has no `row_sums` and "
            "`column_sums` and takes no `epilogue`"
        )
    if c.loaders not in COPY_WARPS:
        raise refuse(f"`loaders` of `config` must be one of {COPY_WARPS}, not {c.loaders}")
    if c.cluster % c.across:
        raise refuse(f"a cluster of {c.cluster} blocks has no rows of {c.across}")
    if c.vectors:
        _check_vectors(c, shape, refuse)
    if shape.blocks and c.swap and SCALED % c.rows:
        raise refuse(f"transposed tiles of {c.rows} rows have scales of several blocks")
    if shape.blocks and (c.depth % shape.bytes or SCALED % (c.depth // shape.bytes)):
        raise refuse(f"a step of {c.depth // shape.bytes} elements has scales of several blocks")
    return c


def _check_vectors(c: Config, shape: GemmShape, refuse: Callable[..., ArgumentError]) -> None:
    """Raise unless warps can multiply this product by vectors as a configuration says."""
    if not takes_vectors(shape, c.swap):
        raise refuse(
            f"a configuration with `vectors` is for 1 to {FEW} rows of a, or of b without `swap` and a gate; for a by "
            "rows and b by rows, n x k, of 16-bit elements, and an epilogue that needs no whole rows"
        )
    if c.cluster > 1 or c.splits > 1:
        raise refuse("a configuration with `vectors` has neither `splits` nor a `cluster`")
    if (c.cols, c.out_cols, c.consumers * UNIT) != (UNIT, UNIT, c.rows):
        raise refuse(
            f"with `vectors`, `cols` and `out_cols` are {UNIT}, and each of `consumers` has {UNIT} `rows`"
        )
    if c.vectors % 4 or c.rows % c.vectors or c.depth % PIECE:
        raise refuse(
            f"`vectors` of `config` must be a multiple of 4 that divides `rows`, and `depth` one of {PIECE}"
        )


def takes_vectors(shape: GemmShape, swap: bool) -> bool:
    """Whether warps can multiply a product by vectors: it has few rows, and neighbours along k lie side by side.

    Without `swap` it is b that has few rows, and a gate would have as many more.
    """
    by_rows = shape.b_by_rows and not shape.a_by_columns
    plain = shape.bytes == 2 and shape.may_swap and not shape.blocks and (swap or not shape.gated)
    return 0 < few_rows(shape, swap) <= FEW and by_rows and plain


def few_rows(shape: GemmShape, swap: bool) -> int:
    """The columns of the product that is computed: the rows of a or of b that are few."""
    return shape.m if swap else shape.n


def blocks_together(config: Config, few: int, products: int, operands: int) -> int:
    """Blocks on a multiprocessor that multiply by vectors: two if lanes with a single sum need few registers."""
    sums = few * products * config.rows // config.vectors
    return 2 if sums == 1 and config.depth <= 2 * PIECE and operands <= 3 else 1


def together(config: Config, shape: GemmShape, multiprocessors: int) -> Config:
    """The configuration with few enough splits that all blocks of a launch can run at once: no block waits long."""
    tiles, _ = work(config, shape)
    if config.exchanges:
        return config
    made = replace(config, splits=min(config.splits, max(multiprocessors // max(tiles, 1), 1)))
    if made.exchanges:  # there is no room for the sums of others
        return replace(made, cluster=1)
    return made


def loading_registers(config: Config, products: int) -> int | None:
    """Registers of a lane that loads rows at any address: for eight loads at a time, if sums leave them, else None."""
    if not config.warpgroups or config.consumers > 2:
        return None
    rows = config.rows // config.consumers
    sums = rows * config.cols * products // 128  # of a lane that multiplies
    return LOADING if sums + sums // 8 + BESIDE <= registers_beside(config) else None


def registers_beside(config: Config) -> int:
    """Registers of a lane that multiplies beside lanes that have LOADING of them."""
    return (REGISTERS - LOADING * config.loaders // 4) // config.consumers


def loads_together(config: Config, products: int) -> tuple[int, int]:
    """Pieces of 16 bytes that a lane loads at a time, of one side of a stage and of all of them."""
    if loading_registers(config, products):
        return 8, 12
    return (4 if config.loaders // 4 + config.consumers <= 3 else 2), 0


def scaled(config: Config, shape: GemmShape) -> int:
    """The number of products of a step that a warpgroup scales one after another."""
    return config.cols // config.scaled_cols * (1 + shape.gated)


def extents(config: Config, shape: GemmShape) -> tuple[int, int]:
    """Rows and columns of the product that is computed: the transposed one with `swap`."""
    return (shape.n, shape.m) if config.swap else (shape.m, shape.n)


def sides_in_tiles(config: Config, shape: GemmShape) -> list[int]:
    """Tiles along the rows and along the columns of the product that is computed."""
    m, n = extents(config, shape)
    return [-(-m // config.rows), -(-n // config.cols)]


def work(config: Config, shape: GemmShape) -> tuple[int, int]:
    """The number of tiles, and the number of steps along k of each."""
    sides = zip(sides_in_tiles(config, shape), config.spread, strict=True)
    tiles = shape.batch * math.prod(-(-tiles // blocks) * blocks for tiles, blocks in sides)
    return tiles, max(-(-shape.k * shape.bytes // config.depth), 1)
