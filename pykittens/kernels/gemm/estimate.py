"""Estimates of the time of a product, by which a configuration is picked.

The time is that of the slowest of four resources (tensor cores and what they load from the L2 cache, power, memory,
lines outside of tensors), and fixed costs. Rates are of an H200: `benchmarks/gemm_fit.py` fits them to measured
products of random shapes (docs/tuning/gemm.md, "Random shapes").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pykittens.kernels.gemm.config import (
    LINE,
    PIECE,
    Config,
    GemmShape,
    blocks_together,
    extents,
    few_rows,
    loads_together,
    scaled,
    sides_in_tiles,
    work,
)
from pykittens.kernels.limits import Limits
from pykittens.kernels.lines import WIDEST
from pykittens.types.layouts import LANES

NARROW = 4  # bytes of the narrowest pieces that lanes copy
SECTOR = 32  # bytes that memory reads and writes at least
UNALIKE = 4  # pieces of 16 bytes that a lane has in flight if they have several shifts
SCHEDULERS = 4  # of a multiprocessor, among which its warps are divided


@dataclass(frozen=True)
class Rates:
    """Rates and costs. Cycles are those of a multiprocessor, and so are rates by cycle unless stated."""

    clock: float = 1840  # cycles per microsecond
    products: float = 4096  # bytes of A times bytes of B that are multiplied per cycle
    # Operations per microsecond at the power limit, in 16 bits; twice as many in 8 bits.
    power: float = 855e6
    narrow: float = 7.3  # more power by 1 / columns, for each of which A is read from shared memory
    moved: float = 5.93  # more power by bytes from the L2 cache for each pair that is multiplied
    memory: float = 0.85  # the part of the memory's rate by its data sheet that a product reaches
    copies: float = 0.78  # the part that a launch before the product reaches, with its writes
    cache: float = 100  # bytes per cycle from the L2 cache to one multiprocessor
    shared: float = 82  # the same if all of them load
    # The part by which that is less for blocks that share copies, and where rows start at sectors; the same for blocks
    # that exchange sums, and by which it is more for others, if several tiles side by side need what is loaded of the
    # longer side.
    strewn: float = 0.1
    strewn_sectors: float = 0.4
    apart_in_grid: float = 0.4
    side_by_side: float = 0.1
    latency: float = 1800  # cycles until a stage that is requested begins to arrive
    # Cycles of a step of 128 bytes for each block that requests a row at a time, if rows start at 16 bytes or a line
    # has several, and the part of them by which memory takes longer.
    asked: float = 1.5
    queued: float = 0.3
    # Lanes that load rows at any address to shared memory: cycles until what is in flight has arrived, and cycles of a
    # scheduler for a piece of 16 bytes of each lane of a warp. Narrow pieces, of 4 or 8 bytes, land without a wait:
    # cycles of a multiprocessor for each line of which an instruction reads a part, cycles less with two loaders on a
    # scheduler, and the part of the stage's time from the L2 cache that is added.
    lane_wait: float = 2470
    lane_piece: float = 62
    narrow_line: float = 4.2
    narrow_less: float = 0.3
    narrow_beside: float = 0.5
    # Rows of 128 bytes outside of their tensor that all multiprocessors together fill per cycle.
    outside: float = 33.5

    crossing: float = 0.42  # a row of a box that crosses from line to line takes so much longer
    sector: float = 0.55  # and so much if it starts at 16 bytes, and touches a fifth sector
    # A row of a part of a line takes as long as a line, or less by a part of the rest of it if rows start at lines.
    short: float = 0.55
    start: float = 3.7  # microseconds of a launch, until the first stage is there
    apart: float = 0.14  # more for an operand whose rows do not start at lines
    overlap: float = 0.7  # microseconds less if it starts while the launch before it ends
    copy: float = 3.7  # microseconds of a launch before the product that copies
    copied: float = 32  # parts of rows that each multiprocessor copies in that time
    step: float = 16.1  # cycles of a step of 128 bytes beside its products
    alone: float = 50  # the same for one warpgroup, which waits for its products
    tile: float = 118  # cycles of a tile beside its steps and elements
    part: float = 177  # cycles of a part of the columns that is stored
    store: float = 0.056  # cycles of an element that is stored
    line: float = 1.7  # cycles of a line of a row that is stored
    # More if lanes store it, to rows at any address; less where rows are longer than a line, and have fewer ends.
    lane_store: float = 0.14
    operand: float = 0.03  # more with operands of the epilogue or an activation
    turns: float = 0.026  # less if warpgroups store in turns, and the next tile hides it
    scales: float = 140  # cycles of a product that is scaled, beside its elements
    scaled: float = 1 / 183  # cycles of an element that is scaled
    later: float = 0.65  # the part of that which further products of a step take, which others hide
    pieces: float = 57  # cycles of each further piece of a product

    hidden: float = 0.045  # the part of the whole time that hides lines outside of tensors
    # More bytes for each byte of results whose rows start in the middle of sectors, and more if tiles are turned.
    halves: float = 0.7
    halves_turned: float = 0.4
    uneven: float = 0.21  # the part of memory's time that blocks take with a tile more than others
    least_busy: float = 24  # multiprocessors that are enough for all of the memory's rate
    idle: float = 0.058  # more time of memory if all blocks but one were idle

    passing: float = 1.1  # microseconds in which blocks of a split tile exchange sums
    passing_in_clusters: float = 0.6  # more for blocks that share copies in clusters
    passed: float = 1.1e-6  # microseconds of a sum that is exchanged by all blocks
    split: float = 0.1  # the part by which the cache and the memory take longer for them
    sent: float = 1.2e-4  # microseconds of a sum that a block of a cluster sends
    added: float = 4.7e-5  # microseconds of a sum that a block adds
    gathered: float = 0.11  # microseconds of a cluster's start, for each doubling of its blocks
    clustered: float = 0.05  # the part by which blocks of a cluster wait for each other
    reached: float = 0.91  # the part of the multiprocessors that larger clusters than two reach

    # Products by vectors, fitted to 25 measured ones of 1 to 8 rows: instructions of a warp.
    row_part: float = 66  # for a part of a row at any address
    row_piece: float = 12  # for each 512 bytes of it
    row_product: float = 52  # for their product with one of the few rows
    row_few: float = 24  # for the same bytes of one of the few rows, for all rows of a warp
    row_slots: float = 3  # instructions per cycle
    row_latency: float = 700  # cycles of a load from the L2 cache
    row_loads: float = 0.78  # the part of the memory's rate for products that loads of lanes reach


RATES = Rates()


def estimate(config: Config, shape: GemmShape, limits: Limits, rates: Rates = RATES) -> float:
    """Estimated microseconds of a product."""
    c, s, r, blocks = config, shape, rates, blocks_at_once(config.cluster, limits, rates)
    tiles, steps = work(c, s)
    if not tiles:
        return 0.0
    if c.vectors:
        return _by_vectors(c, s, r, limits)
    parts = tiles * c.splits
    rounds, steps_of_part = -(-parts // blocks), -(-steps // c.splits)
    loaded = _loaded(c, s, r)
    asked = _asked(c, s, r, limits)
    load = _load(c, s, r, loaded, parts / blocks, asked)
    tile = _tile(c, s, r, steps_of_part, load, parts / blocks)
    compute = rounds * tile / r.clock * (1 + r.clustered * (c.sharing > 1))
    power = 2 * s.batch * s.m * s.n * s.k * (1 + s.gated) / (r.power * (3 - s.bytes))
    power *= 1 + r.narrow / c.cols + r.moved * loaded / (c.rows * c.cols * c.depth)
    memory = _memory(c, s, r, parts, limits)
    memory += r.queued * asked * steps_of_part * rounds / r.clock
    longest = float((compute**9 + power**9 + memory**9) ** (1 / 9))
    outside = _outside(c, s) * steps / r.outside / r.clock
    visible = max(outside - r.hidden * longest, 0.0)
    passed = _passed(c, r, tiles, 1 + s.gated) if c.splits > 1 else 0.0
    copied = _copies(c, s, r, limits) if c.copied else 0.0
    # A block with several tiles stays until the end of the launch, so the next one does not start earlier.
    earlier = r.overlap if c.overlap and tiles <= blocks else 0.0
    start = r.start + r.gathered * math.log2(c.cluster)
    start += r.apart * sum(step in range(16, LINE) for step in steps_of_rows(c, s))
    return start - earlier + longest + visible + passed + copied


def blocks_at_once(cluster: int, limits: Limits, rates: Rates = RATES) -> int:
    """The blocks, in clusters of this size, that run at once: one on each multiprocessor that clusters reach."""
    reached = limits.multiprocessors * (rates.reached if cluster > 2 else 1)
    return max(round(reached) // cluster, 1) * cluster


def _by_vectors(c: Config, s: GemmShape, r: Rates, limits: Limits) -> float:
    """Microseconds of a product by vectors: those of instructions, of loads one after another, or of memory."""
    products, pieces, each = 1 + s.gated, c.depth // PIECE, c.rows // c.vectors
    few = few_rows(s, c.swap)
    blocks = blocks_together(c, few, products, s.operands)
    tiles, steps = work(c, s)
    of_piece = r.row_piece + few * (r.row_product + r.row_few / each / products)
    slots = r.row_part + pieces * of_piece
    if steps == 1 and s.k * s.bytes < c.depth:
        slots *= 3  # tests of all elements
    parts = each * products * steps  # of rows of a warp, for a task
    issue = -(-tiles // limits.multiprocessors) * c.vectors * parts * slots / r.row_slots
    waits = -(-tiles // (limits.multiprocessors * blocks)) * parts * (slots + r.row_latency)
    memory = _memory(c, s, r, tiles, limits) / r.row_loads
    longest = float(((max(issue, waits) / r.clock) ** 9 + memory**9) ** (1 / 9))
    return r.start - r.overlap * c.overlap + longest


def steps_of(s: GemmShape) -> dict[str, int]:
    """Bytes of which the places of all rows of an operand in memory are multiples, by its name."""
    return {"a": s.a_step, "b": s.b_step}


def steps_of_rows(c: Config, s: GemmShape) -> tuple[int, int]:
    """The same for the rows of A and of B as the kernel takes them."""
    a = LINE if "a" in c.copied else s.a_step
    b = LINE if "b" in c.copied else s.b_step
    return (b, a) if c.swap else (a, b)


def _tile(c: Config, s: GemmShape, r: Rates, steps: int, load: float, waves: float) -> float:
    """Cycles of a block for a tile, or its part of one, if each multiprocessor has `waves` of them.

    It has so many steps, each of which loads a stage in so many cycles.
    """
    a, b = c.sides(s.gated)
    multiply = max(a * b, a * 48) * c.depth / r.products
    multiply += (r.alone if c.consumers == 1 else r.step) * c.depth / LINE
    if s.blocks:
        count, each = scaled(c, s), r.scales + c.rows // c.consumers * c.scaled_cols * r.scaled
        multiply += each * (1 + r.later * (count - 1))
        multiply += r.pieces * (c.pieces * (1 + s.gated) - count)
    hidden = (r.turns if waves > 1 else -0.002) * c.turns
    of_element = r.store - hidden + r.operand * (s.activation or s.operands > 0)
    of_element += r.lane_store * (s.out_step < 16) * LINE / max(_stored_row(c, s), LINE)
    stored = c.rows * c.cols * of_element + r.part * c.parts * (c.splits == 1)
    stored += r.line * _lines_stored(c, s)
    return steps * max(multiply, load) + r.tile + stored


def _load(c: Config, s: GemmShape, r: Rates, loaded: float, waves: float, asked: float) -> float:
    """Cycles of a stage, of which so many bytes in lines are loaded, and blocks wait `asked` cycles for each other."""
    of_byte = math.hypot(1 / r.cache, min(waves, 1) / r.shared * (1 + _strewn(c, s, r)))
    load = loaded * of_byte * (1 + r.split * c.sums_in_memory)
    load += asked
    pieces, narrow = _by_lanes(c, s, r)
    if narrow:
        load = max(load, narrow + r.narrow_beside * load)
    # While one stage is multiplied, the others are on their way.
    return max(load, (r.latency + load) / (c.stages - 1), pieces + narrow)


def _asked(c: Config, s: GemmShape, r: Rates, limits: Limits) -> float:
    """Cycles of a stage in which blocks that load the same lines wait for each other.

    Requests for a line are answered one after another, which takes time where rows start at 16 bytes, or a line has
    several rows: each block requests it several times then, and some are answered together.
    """
    counts, lengths, turned = sides_in_tiles(c, s), extents(c, s), _turned(c, s)
    at_once, sides = limits.multiprocessors / c.splits, [0.0, 0.0]
    for axis, step in enumerate(steps_of_rows(c, s)):
        rows_of_line = max(LINE / (lengths[axis] * s.bytes), 1) if turned[axis] else 1
        if step >= 16 and (step < SECTOR or rows_of_line > 1):
            blocks = min(at_once / counts[axis], counts[1 - axis])
            sides[axis] = blocks * math.sqrt(rows_of_line)
    return r.asked * sum(_shared(c, sides)) * c.depth / LINE


def _strewn(c: Config, s: GemmShape, r: Rates) -> float:
    """The part by which a byte from the L2 cache takes longer, as neighbours in the grid load other lines at a time."""
    if c.sharing > 1:
        return r.strewn if min(steps_of_rows(c, s)) < SECTOR else r.strewn_sectors
    if min(sides_in_tiles(c, s)) == 1:
        return 0.0
    return r.apart_in_grid if c.exchanges else -r.side_by_side


def _stored_row(c: Config, s: GemmShape) -> int:
    """Bytes of a row of a part of an output tile, as it lies in memory."""
    return (c.rows // c.consumers if c.swap else c.out_cols) * s.out_bytes


def _lines_stored(c: Config, s: GemmShape) -> float:
    """Lines of memory in which the rows of the boxes of an output tile lie, each counted for each box."""
    width = min(_stored_row(c, s), LINE)
    crossed = 1 + max(width - s.out_step, 0) / LINE
    return c.rows * c.cols * s.out_bytes / width * crossed


def _loaded(c: Config, s: GemmShape, r: Rates) -> float:
    """Bytes of a stage in whole lines: the copy of a row of a box that is part of a line takes as long as one.

    Blocks of a cluster share the copies of one side.
    """
    sides = []
    for x, step, turned in zip(c.sides(s.gated), steps_of_rows(c, s), _turned(c, s), strict=True):
        width = math.gcd(x * s.bytes, LINE) if turned else LINE  # of a row of a box
        further = r.crossing + r.sector * (step < SECTOR)
        crossed = max(width - step, 0) / max(LINE - step, 1) if step >= 16 else 0.0
        whole = 1 + (r.short if step >= LINE else 1) * (LINE / width - 1)
        sides.append(x * whole * (1 + further * crossed))
    return sum(_shared(c, sides)) * c.depth


def _by_lanes(c: Config, s: GemmShape, r: Rates) -> tuple[float, float]:
    """Cycles in which lanes load what of a stage starts at any address: pieces that they shift, and narrow ones."""
    most, all_together = loads_together(c, 1 + s.gated)
    lines, pieces, flights, are_alike = 0.0, 0, 0, True
    for x, step, turned in zip(c.sides(s.gated), steps_of_rows(c, s), _turned(c, s), strict=True):
        row = x * s.bytes if turned else c.depth
        if NARROW <= step < 16:
            together = min(LANES * step, row)
            lines += x * c.depth / together * (1 + (together - step) / LINE)
        elif step < NARROW:
            own = -(-x * c.depth // (PIECE * c.loaders))
            # Where rows do not divide the lanes evenly, the pieces of a lane have several shifts.
            alike = PIECE * c.loaders % row == 0
            flights += -(-own // (most if alike else min(most, UNALIKE)))
            pieces, are_alike = pieces + own, are_alike and alike
    if are_alike and pieces <= all_together:
        flights = min(flights, 1)
    of_pieces = pieces * r.lane_piece * -(-c.loaders // SCHEDULERS)
    of_line = r.narrow_line - r.narrow_less * (c.loaders > SCHEDULERS)
    return flights * r.lane_wait + of_pieces, lines * of_line


def _turned(c: Config, s: GemmShape) -> tuple[bool, bool]:
    """Whether neighbours along the rows, or columns, of the product that is computed lie side by side in memory."""
    a, b = s.a_by_columns, not s.b_by_rows
    return (b, a) if c.swap else (a, b)


def _outside(c: Config, s: GemmShape) -> float:
    """Lines of all boxes of a step that lie outside A and B, whose extents count as multiples of 16."""
    m, n = (-(-x // 16) * 16 for x in extents(c, s))
    rows, cols = sides_in_tiles(c, s)
    lines = [(rows * c.rows - m) * cols, (cols * c.cols - n) * rows * (1 + s.gated)]
    return s.batch * sum(_shared(c, lines)) * c.depth / LINE


def _shared(c: Config, sides: Sequence[float]) -> list[float]:
    """What each block loads of both sides: blocks of a cluster share rows with their row, columns with their column."""
    return [x / blocks for x, blocks in zip(sides, reversed(c.spread), strict=True)]


def _memory(c: Config, s: GemmShape, r: Rates, parts: int, limits: Limits) -> float:
    """Microseconds of memory reads and writes."""
    blocks = limits.multiprocessors
    written = s.batch * s.out_bytes * s.m * s.n
    read = s.batch * s.bytes * (s.m * s.k + s.n * s.k * (1 + s.gated))
    busy = min(parts, blocks)
    more = 1 + r.uneven * (-(-parts // blocks) * busy / parts - 1)
    more *= max(1, r.least_busy / busy) * (1 + r.idle * (1 - busy / blocks))
    halves = (r.halves + r.halves_turned * c.swap) * (s.out_step == SECTOR // 2)
    moved = (read + written * (1 + halves)) * (1 + r.split * c.sums_in_memory)
    return moved / (r.memory * limits.memory_rate / 1e6) * more


def _passed(c: Config, r: Rates, tiles: int, products: int) -> float:
    """Microseconds in which blocks exchange partial sums: the sums of all blocks, and those that one block adds."""
    sums = c.rows * c.cols * products * c.splits
    if c.exchanges:
        return r.sent * sums / c.splits * (1 - 1 / c.splits)
    passing = r.passing + r.passing_in_clusters * (c.sharing > 1)
    return passing + r.passed * tiles * sums + r.added * sums / min(c.splits, c.parts)


def _copies(c: Config, s: GemmShape, r: Rates, limits: Limits) -> float:
    """Microseconds of the copies of operands before the product, in parts of rows that all take equally long."""
    sides = {"a": (s.m, s.k), "b": (s.n * (1 + s.gated), s.k)}
    by_columns = {"a": s.a_by_columns, "b": not s.b_by_rows}
    parts = 0
    for name in c.copied:
        rows, width = sides[name][::-1] if by_columns[name] else sides[name]
        parts += rows * -(-width * s.bytes // WIDEST)
    further = max(s.batch * parts - r.copied * limits.multiprocessors, 0)
    later = 0.0 if c.overlap else r.overlap
    return r.copy + later + 2 * further * WIDEST / (r.copies * limits.memory_rate / 1e6)
