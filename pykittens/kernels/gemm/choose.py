"""The candidates for a product of a shape on a GPU, and the one that should be fastest."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace

from pykittens.kernels.gemm.config import (
    LINE,
    PIECE,
    SCALED,
    UNIT,
    Config,
    GemmShape,
    blocks_together,
    extents,
    few_rows,
    loading_registers,
    sides_in_tiles,
    takes_vectors,
    work,
)
from pykittens.kernels.gemm.estimate import blocks_at_once, estimate, steps_of, steps_of_rows
from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.lang.grid import CLUSTERS

MOVING = 9_400_000  # bytes in flight that keep the memory of an H200 busy
MOST_SPLITS = 32
LEAST_STAGES = 4  # of blocks that exchange sums in clusters
CLOSE = 32  # configurations of which each way to read fewer lines is a candidate
WIDEST = 256  # columns of a tile
DEEPER = 96  # rows of a stage, of which lanes load so few pieces that they may be twice as long
LONGEST = 256  # elements of a row of a stage, which may be as many rows of a box
BESIDE_LOADS = 64 * 320  # sums of a warpgroup whose registers suffice beside lanes that load
SHORT = 15  # tiles along the shorter side that are processed before the next along the other; of more, two bands
# The tiles of clusters that share copies, along the rows and along the columns.
SPREADS = ((2, 1), (1, 2), (4, 1), (1, 4), (2, 2), (4, 2), (2, 4))
NARROW = 96  # columns of the tiles of a transposed product that has several side by side

# A warp that multiplies alone reads all columns of B for its rows of A. With 16 rows per warp, shared memory would be
# slower than the tensor cores, so a warpgroup has 128 rows, 32 per warp.
ALONE = (
    # sm_80, and GPUs with more memory that have no own target: 163 KiB, a whole output tile.
    Config(256, 128, depth=64, stages=4, out_cols=128, warpgroups=False),
    # sm_89 and sm_86: 99 KiB, the output in quarters.
    Config(256, 128, depth=64, stages=3, out_cols=32, warpgroups=False),
)


def joining(config: Config, shape: GemmShape) -> int:
    """Extra bytes of shared memory for joining the warps' partial column sums."""
    if shape.may_swap:
        return 0
    each = 4 * 4 * config.out_cols  # four warps, four bytes of f32
    return (config.consumers + 1) * -(-each // 128) * 128  # the producer's warpgroup has its share


def shared_bytes(config: Config, shape: GemmShape) -> int:
    """Bytes of shared memory of a block for a product of this shape."""
    own = config.shared_bytes(shape.out_bytes, shape.gated, shape.blocks)
    return own + joining(config, shape)


def fitted(config: Config, shape: GemmShape, limits: Limits) -> Config | None:
    """The configuration with as many stages as shared memory holds; None if it holds fewer than two."""
    stages = _stages(config, shape, limits)
    return replace(config, stages=stages) if stages >= 2 else None


def _stages(config: Config, shape: GemmShape, limits: Limits) -> int:
    """The number of a configuration's stages that shared memory holds."""
    room = (
        limits.shared_bytes
        - joining(config, shape)
        - config.other_bytes(shape.out_bytes, shape.gated)
    )
    return min(room // config.stage_bytes(shape.gated, shape.blocks), config.stages)


def candidates(shape: GemmShape, limits: Limits) -> tuple[Config, ...]:
    """The configurations worth trying for a shape, the one that should be fastest first."""
    if not limits.warpgroups:
        return (_alone(shape, limits),)
    cost = functools.cache(lambda c: estimate(c, shape, limits))
    found = dict.fromkeys(fitted(c, shape, limits) for c in _all(shape, limits))
    ranked = sorted(_reaching([c for c in found if c], shape), key=cost)
    ranked = sorted([*ranked, *_copying(ranked[:CLOSE], shape)], key=cost)
    # Rows that the copy engine reaches stay with it: it has more in flight than lanes.
    vectors = [c for c in by_vectors(shape, limits) if steps_of_rows(c, shape)[0] < 16]
    every = sorted([*ranked, *_sharing(ranked[:CLOSE], shape, limits), *vectors], key=cost)
    return tuple(_in_order(c, shape) for c in every)


def _in_order(c: Config, shape: GemmShape) -> Config:
    """The configuration in the order of tiles that goes along the shorter side of the product first, if that is short.

    Neighbours in the grid then load the same part of the larger operand at a time, of which less is read from memory.
    """
    rows, cols = sides_in_tiles(c, shape)
    m, n = extents(c, shape)
    if c.sharing > 1 or c.vectors or max(m, n) < 2 * min(m, n):
        return c
    if n < m and 1 < cols <= SHORT:
        return replace(c, band=1)
    return replace(c, band=SHORT) if m < n and c.band < rows <= SHORT else c


def _alone(shape: GemmShape, limits: Limits) -> Config:
    cols, (large, small) = _alone_cols(shape), ALONE
    if cols < large.cols:
        width = 32 if cols % 32 == 0 else cols
        large, small = (replace(c, cols=cols, out_cols=width) for c in ALONE)
    if shape.a_by_columns:
        small = replace(
            small, cols=min(small.cols, 96)
        )  # lanes transpose elements that are contiguous along m
    tried = (large, small, replace(small, stages=2, out_cols=16))
    return first_that_fits("gemm", tried, lambda c: shared_bytes(c, shape), limits)


def _alone_cols(shape: GemmShape) -> int:
    """Columns of tiles that leave registers for products that wait for scales, a gate's sums, and the epilogue."""
    if shape.blocks:
        return 32 if shape.gated else 64
    if shape.gated:
        return 48
    return 96 if shape.operands or not shape.may_swap else 128


@functools.lru_cache(4096)
def pick(shape: GemmShape, limits: Limits) -> Config:
    """The configuration for a shape and a GPU."""
    return candidates(shape, limits)[0]


def _all(shape: GemmShape, limits: Limits) -> Iterator[Config]:
    """Configurations with tiles of all sides that a warpgroup's registers hold."""
    widths = _swapped_widths(shape)
    # With few rows most of a box would lie outside the tensor, which is slow.
    few = widths and shape.m <= 32
    for rows, consumers in () if few else ((64, 1), (128, 2), (192, 3), (256, 2)):
        for cols in range(16, WIDEST + 1, 16):
            c = Config(rows, cols, consumers=consumers)
            if _fits_registers(c, shape) and _is_even(cols, shape):
                yield from _ways(c, shape, limits)
    for rows, consumers in ((64, 1), (128, 2), (192, 3), (256, 2)):
        for cols in widths:
            c = Config(rows, cols, consumers=consumers, swap=True)
            if _fits_registers(c, shape):
                yield from _ways(_reading(c, shape, limits), shape, limits)


def _reaching(configs: list[Config], shape: GemmShape) -> Iterator[Config]:
    """The configurations, also with copies of the operands that the copy engine does not reach, or more loaders."""
    apart = [name for name, step in steps_of(shape).items() if step < 16]
    for copied in _some(apart):
        for c in configs:
            loads = len(copied) < len(apart)
            if loads and c.rows // c.consumers * c.cols * (1 + shape.gated) > BESIDE_LOADS:
                continue
            yield (made := replace(c, copied=copied))
            more = replace(made, loaders=2 * made.loaders)
            # Products that wait for scales take the registers.
            if loads and not shape.blocks and loading_registers(more, 1 + shape.gated):
                yield more
                deeper = replace(more, depth=2 * c.depth, stages=c.stages // 2)
                few = sum(c.sides(shape.gated)) <= DEEPER and c.stages >= 4
                if few and deeper.depth <= LONGEST * shape.bytes:
                    yield deeper


def _copying(configs: list[Config], shape: GemmShape) -> Iterator[Config]:
    """The configurations with copies of operands whose rows do not start at lines."""
    apart = [name for name, step in steps_of(shape).items() if step in range(16, LINE)]
    for c, copied in itertools.product(configs, _some(apart)):
        if copied:
            yield replace(c, copied=tuple(sorted({*c.copied, *copied})))


def _sharing(configs: list[Config], shape: GemmShape, limits: Limits) -> Iterator[Config]:
    """The configurations with clusters of blocks that share copies, if rows start at small enough multiples."""
    # Where each row of a box lies in one line, blocks of a cluster wait for each other longer than sharing saves.
    alone = [c for c in configs if not c.exchanges and 16 <= min(steps_of_rows(c, shape)) < LINE]
    for c, (rows, cols) in itertools.product(alone, SPREADS):
        # Each block copies as many rows of what they share, in units of eight.
        if c.cols % (8 * rows) or c.rows % (8 * cols):
            continue
        across = cols if rows > 1 else 1
        made = replace(c, cluster=rows * cols, cluster_axis=int(rows == 1), across=across)
        if made.exchanges:
            continue
        blocks = work(made, shape)[0] * c.splits
        if c.splits == 1 or blocks <= blocks_at_once(made.cluster, limits):
            yield made


def by_vectors(shape: GemmShape, limits: Limits) -> Iterator[Config]:
    """The configurations whose warps multiply by vectors: the sums and parts of rows that their registers hold."""
    sides = itertools.product((True, False), (1, 2, 4), (PIECE, 2 * PIECE, 4 * PIECE))
    for swap, each, depth in sides:
        few, rows, pieces = few_rows(shape, swap), each * (1 + shape.gated), depth // PIECE
        fits = rows * (few + 2 * pieces) <= 20 and (pieces < 4 or rows * few <= 6)
        if shape.gated:
            has_room = few < 6 or shape.operands <= 3  # operands of the epilogue take registers
            fits = fits and each == 1 and pieces < (4 if has_room else 2)
        if fits and takes_vectors(shape, swap):
            c = Config(16 * each, UNIT, depth, consumers=each, out_cols=UNIT, swap=swap, vectors=16)
            blocks = blocks_together(c, few, 1 + shape.gated, shape.operands)
            ahead = limits.multiprocessors * blocks * 16 * rows * depth
            yield replace(c, stages=max(-(-MOVING // ahead), 2), overlap=_is_short(c, shape))


def _some(names: list[str]) -> Iterator[tuple[str, ...]]:
    """Every choice of these names, none of them first."""
    for count in range(len(names) + 1):
        yield from itertools.combinations(names, count)


def _reading(c: Config, shape: GemmShape, limits: Limits) -> Config:
    """The configuration with enough bytes in flight to keep memory busy; with one tile per block, more is slower."""
    if c.rows < 256 and c.cols <= 64:
        c = replace(c, depth=2 * LINE)  # one copy, if there is room for enough stages
    tiles, _ = work(c, shape)
    if c.cols > 32 or not 0 < tiles <= limits.multiprocessors:
        return c
    least = 4 if c.rows == 128 else 6
    stages = -(-MOVING // (tiles * c.rows * c.depth * (1 + shape.gated)))
    return replace(c, stages=max(stages, least))


def _swapped_widths(shape: GemmShape) -> set[int]:
    """Columns of tiles of the transposed product, if it is a candidate: its rows may not fit tiles of 64 well."""
    if (
        not shape.may_swap
        or shape.blocks
        or (shape.m > 32 and shape.m % 64 == 0 and shape.b_by_rows)
    ):
        return set()
    if shape.m > WIDEST:
        return {*range(NARROW, WIDEST + 1, 16)}
    # Of up to 64 rows, several tiles side by side would read the weights that bound the time.
    shares = [-(-shape.m // tiles) for tiles in (1, 2) if tiles == 1 or shape.m > 64]
    # Rows of an `a` that is k x m in memory are copied in boxes as wide as the tile: lines, or halves, are faster.
    units = (16, LINE // 2 // shape.bytes, LINE // shape.bytes) if shape.a_by_columns else (16,)
    return {max(-(-share // unit) * unit, 16) for share in shares for unit in units}


def _fits_registers(c: Config, shape: GemmShape) -> bool:
    """Whether a warpgroup's sums and a product that waits for its scales leave enough registers."""
    rows, is_narrow = c.rows // c.consumers, c.consumers == 3
    sums = rows * c.cols * (1 + shape.gated)
    if shape.blocks:
        return sums + rows * c.scaled_cols <= (64 * 256 if is_narrow else 64 * 384)
    # Operands of the epilogue and transposed bytes take registers. With three warpgroups a lane has 160, else 240.
    takes_more = _transposes_bytes(shape) or (shape.operands > 3 and shape.activation)
    if c.swap and shape.operands:  # transposed operands are loaded element by element
        return sums <= 64 * (160 if not is_narrow else 112 if takes_more else 128)
    if takes_more:
        return sums <= 64 * (96 if is_narrow else 176 if c.swap else 192)
    return sums <= 64 * (192 if is_narrow else 256 if shape.gated else 384)


def _transposes_bytes(shape: GemmShape) -> bool:
    """Whether b is fp8 and is transposed in registers before it is multiplied."""
    return shape.bytes == 1 and not shape.b_by_rows


def _is_even(cols: int, shape: GemmShape) -> bool:
    """Whether boxes of a b that is k x n in memory are wide enough, and scales of blocks fit pieces."""
    wide = shape.b_by_rows or cols * shape.bytes % (LINE // 2) == 0
    return wide and (not shape.blocks or cols % 32 == 0)


def _ways(c: Config, shape: GemmShape, limits: Limits) -> Iterator[Config]:
    """The configurations with tiles of these sides: output stages, turns and splits."""
    piece = c.grain if shape.blocks else c.cols  # a part of the output lies in one piece
    width = _widths(piece)[0]
    loads = shape.operands > 0 or shape.activation
    c = replace(c, out_cols=width, overlap=_is_short(c, shape))
    if c.rows * c.cols <= 64 * 64 and not loads:
        c = replace(c, out_cols=c.cols)  # at once
    elif width < min(c.cols, 64) and not shape.blocks:
        wider = [replace(c, out_cols=c.cols)] if c.cols <= 96 and not loads else []
        wider.append(replace(c, out_stages=2))
        most = _stages(c, shape, limits)
        c = next((x for x in wider if _stages(x, shape, limits) == most), c)
    if shape.blocks:
        if c.rows >= 128 and piece == SCALED and not loads:
            c = replace(c, out_cols=SCALED, out_stages=min(c.cols // SCALED, 2))
    elif c.rows == 128 and c.cols >= 128 and not loads and width == 64 and shape.out_step >= 16:
        yield replace(c, out_stages=2, turns=True)
    elif shape.gated and (c.rows, c.cols) == (128, 128) and shape.out_bytes <= 2:
        yield replace(c, out_cols=c.cols, turns=True)
    wide = 2 * LINE // shape.out_bytes  # columns of two lines: lanes store longer rows faster
    if shape.out_step < 16 and c.cols % wide == 0 and not (c.swap or loads or shape.blocks):
        yield replace(c, out_cols=wide, out_stages=1)
    yield c
    yield from _split(c, piece, shape, limits)


def _split(c: Config, piece: int, shape: GemmShape, limits: Limits) -> Iterator[Config]:
    """The configurations with blocks that share each tile, whose parts lie in pieces of its columns."""
    # Blocks that exchange sums end later if the next launch reads much beside them.
    moved, few = _moved(shape), shape.m <= 64
    for splits in _splits(c, shape, limits):
        # Parts so narrow that each block has one to finish; or a single part, for which no block waits.
        wide = c.cols == 32 or (piece % 32 == 0 and c.cols // 32 >= splits)
        made = replace(c, splits=splits, out_cols=32 if wide else 16, out_stages=1)
        yield replace(made, overlap=c.overlap and moved <= 3)
    for splits in _splits_of_clusters(c, shape, limits):
        made = replace(c, splits=splits, cluster=splits, out_cols=_unit(c, piece, splits))
        made = replace(made, out_stages=1, overlap=c.overlap and (few or moved <= 5))
        if _stages(made, shape, limits) >= LEAST_STAGES:  # the sums of others take the room of some
            yield made


def _splits(c: Config, shape: GemmShape, limits: Limits) -> set[int]:
    """The numbers of blocks that may share each tile, if all blocks run at once."""
    if _transposes_bytes(shape) and c.cols > 128:  # registers are few
        return set()
    tiles, steps = work(c, shape)
    found: set[int] = set()
    for blocks in (limits.multiprocessors, limits.multiprocessors // 2):
        most = min(blocks // max(tiles, 1), steps // 2, MOST_SPLITS)
        if most > 1:
            longest = -(-steps // most)
            found.add(-(-steps // longest))  # the fewest splits with this number of steps per block
    return found


def _splits_of_clusters(c: Config, shape: GemmShape, limits: Limits) -> Iterator[int]:
    """The sizes of the clusters that may share each tile."""
    tiles, steps = work(c, shape)
    for cluster in CLUSTERS:
        if 1 < cluster <= steps // 2 and tiles * cluster <= blocks_at_once(cluster, limits):
            yield cluster


def _unit(c: Config, piece: int, splits: int) -> int:
    """Columns of a part of a tile: the widest of which each block of a cluster has one to finish, at least 16."""
    return next((w for w in _widths(piece) if c.consumers * (c.cols // w) >= splits), 16)


def _widths(piece: int) -> list[int]:
    """The widths of parts into which so many columns can be cut, the widest first."""
    return [w for w in (64, 48, 32, 16) if piece % w == 0]


def _is_short(c: Config, shape: GemmShape) -> bool:
    """Whether a launch takes only some microseconds, in which blocks share few of their reads."""
    moved = _moved(shape)
    if shape.m <= 64 and (c.swap or shape.b_by_rows):
        return moved < (45 if c.swap else 60)
    large = c.rows >= 128 and c.cols >= 128
    return shape.k * shape.bytes <= 1024 or moved <= (20 if large else 5)


def _moved(shape: GemmShape) -> float:
    """MiB of A and B."""
    return shape.batch * (shape.m * shape.k + shape.n * shape.k) * shape.bytes / 2**20
