"""Estimates of the time of a product, by which a configuration is picked.

The time is that of the slowest of four resources (products of the tensor cores and what they load from the L2 cache,
power, memory, lines outside of tensors), and fixed costs. Rates were measured on an H200 (docs/tuning/gemm.md);
`benchmarks/gemm_fit.py` fits them to measured products.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.kernels.gemm.config import (
    LINE,
    PIECE,
    Config,
    GemmShape,
    blocks_together,
    extents,
    few_rows,
    scaled,
    work,
)
from pykittens.kernels.limits import Limits


@dataclass(frozen=True)
class Rates:
    """Rates and costs. Cycles are those of a multiprocessor, and so are rates by cycle unless stated."""

    clock: float = 1840  # cycles per microsecond
    products: float = 4096  # bytes of A times bytes of B that are multiplied per cycle
    power: float = (
        706e6  # operations per microsecond at the power limit, in 16 bits; twice as many in 8 bits
    )
    memory: float = 0.885  # the part of the memory's rate by its data sheet that a product reaches
    copies: float = (
        0.8125  # the part that a launch before the product reaches, which reads and writes
    )
    cache: float = 87  # bytes per cycle from the L2 cache
    apart: float = (
        73  # the same if blocks have several tiles and do not read the same line at the same time
    )
    lanes: float = 5  # bytes per cycle that lanes load to shared memory from rows at any address
    # Rows of 128 bytes outside of their tensor that all multiprocessors together fill per cycle.
    outside: float = 12

    start: float = 3.3  # microseconds of a launch
    overlap: float = 1.0  # microseconds less if it starts while the launch before it ends
    step: float = 19  # cycles of a step of 128 bytes beside its products
    tile: float = 550  # cycles of a tile beside its steps and elements
    store: float = 0.054  # cycles of an element that is stored
    operand: float = 0.03  # more with operands of the epilogue or an activation
    turns: float = 0.012  # less if warpgroups store in turns, and the next tile hides it
    half_line: float = 0.1  # the part by which products are slower whose boxes are half a line
    scales: float = 140  # cycles of a product that is scaled, beside its elements
    scaled: float = 1 / 183  # cycles of an element that is scaled
    pieces: float = 20  # cycles of each piece after the first

    visible: float = 0.11  # the part of the time of the L2 cache that nothing hides
    hidden: float = 0.05  # the part of the whole time that hides lines outside of tensors
    uneven: float = (
        0.27  # what of the memory's time some blocks take that have one tile more than others
    )
    idle: float = 0.09  # more time of memory if all blocks but one were idle
    idle_swap: float = 0.02  # the same for the transposed product
    least_busy: float = 39  # multiprocessors that are enough for all of the memory's rate

    passing: float = 2.2  # microseconds in which blocks of a split tile exchange sums
    finishing: float = 0.5  # more if several finish parts
    passed: float = 6.4e-7  # microseconds of a sum that is exchanged by all blocks
    added: float = 1e-4  # microseconds of a sum that a block adds
    cluster: float = 0.3  # microseconds for the start of clusters
    clustered: float = 0.01  # the part by which their blocks wait for each other

    # Products by vectors: instructions of a warp, counted in the machine code; the rest is assumed.
    part: float = 75  # for a part of a row at any address
    part_aligned: float = 30
    piece: float = 30  # for each 512 bytes of it
    piece_aligned: float = 12
    product: float = 8.5  # for their product with one of the few rows
    shared: float = 9  # for the same bytes of one of the few rows, for all rows of a warp
    slots: float = 3  # instructions per cycle
    latency: float = 700  # cycles of a load from the L2 cache
    loads: float = 0.93  # the part of the memory's rate for products that loads of lanes reach
    ends: float = 1.0  # microseconds of the first load and of the last epilogue


RATES = Rates()


def estimate(config: Config, shape: GemmShape, limits: Limits, rates: Rates = RATES) -> float:
    """Estimated microseconds of a product."""
    c, s, r, blocks = config, shape, rates, limits.multiprocessors
    tiles, steps = work(c, s)
    if not tiles:
        return 0.0
    if c.vectors:
        return _by_vectors(c, s, r, limits)
    parts, loaded = tiles * c.splits, _loaded(c, s)
    of_tile = _tile(c, s, r, -(-steps // c.splits), loaded, tiles > blocks)
    compute = -(-parts // blocks) * of_tile / r.clock
    power = 2 * s.batch * s.m * s.n * s.k * (1 + s.gated) / (r.power * (3 - s.bytes))
    memory = _memory(c, s, r, parts, limits)
    longest = float((compute**9 + power**9 + memory**9) ** (1 / 9))
    cache = tiles * steps * loaded / blocks / r.cache / r.clock
    outside = _outside(c, s) * steps / r.outside / r.clock
    visible = r.visible * cache + max(outside - r.hidden * longest, 0.0)
    shared = r.cluster + r.clustered * longest if c.cluster > 1 else 0.0
    passed = _passed(c, s, r, tiles) if c.splits > 1 else 0.0
    copied = _copies(c, s, r, limits) if c.copied else 0.0
    return r.start - r.overlap * c.overlap + longest + visible + shared + passed + copied


def _by_vectors(c: Config, s: GemmShape, r: Rates, limits: Limits) -> float:
    """Microseconds of a product by vectors: those of instructions, of loads one after another, or of memory."""
    products, pieces, each = 1 + s.gated, c.depth // PIECE, c.rows // c.vectors
    few = few_rows(s, c.swap)
    blocks = blocks_together(c, few, products, s.operands)
    tiles, steps = work(c, s)
    aligned = steps_of_rows(c, s)[0] >= 16
    slots = (r.part_aligned if aligned else r.part) + pieces * (
        (r.piece_aligned if aligned else r.piece) + few * (r.product + r.shared / each / products)
    )
    if steps == 1 and s.k * s.bytes < c.depth and not aligned:
        slots *= 3  # tests of all elements
    parts = each * products * steps  # of rows of a warp, for a task
    issue = -(-tiles // limits.multiprocessors) * c.vectors * parts * slots / r.slots
    waits = -(-tiles // (limits.multiprocessors * blocks)) * parts * (slots + r.latency)
    memory = _memory(c, s, r, tiles, limits) / r.loads
    longest = float(((max(issue, waits) / r.clock) ** 9 + memory**9) ** (1 / 9))
    return r.start - r.overlap * c.overlap + longest + r.ends


def steps_of(s: GemmShape) -> dict[str, int]:
    """Bytes of which the places of all rows of an operand in memory are multiples, by its name."""
    return {"a": s.a_step, "b": s.b_step}


def steps_of_rows(c: Config, s: GemmShape) -> tuple[int, int]:
    """The same for the rows of A and of B as the kernel takes them."""
    a, b = (LINE if name in c.copied else step for name, step in steps_of(s).items())
    return (b, a) if c.swap else (a, b)


def _tile(c: Config, s: GemmShape, r: Rates, steps: int, loaded: float, is_followed: bool) -> float:
    """Cycles for one tile of `steps` steps that load `loaded` bytes each; `is_followed`: the block has another tile."""
    a, b = c.sides(s.gated)
    multiply = max(a * b, a * 48) * c.depth / r.products + r.step * c.depth / LINE
    if not (s.b_by_rows or c.swap) and c.cols * s.bytes % LINE:
        multiply *= 1 + r.half_line
    if s.blocks:
        each = r.scales + c.rows // c.consumers * c.scaled_cols * r.scaled
        multiply += (each + r.pieces * (c.pieces - 1)) * scaled(c, s)
    hidden = (r.turns if is_followed else -0.002) * c.turns
    of_element = r.store - hidden + r.operand * (s.activation or s.operands > 0)
    load = max(loaded / (r.apart if is_followed else r.cache), _by_lanes(c, s) / r.lanes)
    return steps * max(multiply, load) + r.tile + c.rows * c.cols * of_element


def _loaded(c: Config, s: GemmShape) -> float:
    """Bytes of a stage in whole lines: a copy of part of a line takes as long as one of the line.

    A row of a stage that starts anywhere in a line touches two. Blocks of a cluster share the copies of one side.
    """
    rows, cols = c.sides(s.gated)
    line = LINE // s.bytes
    if not s.b_by_rows and c.swap:
        rows = -(-rows // line) * line
    elif not s.b_by_rows:
        cols = -(-cols // line) * line
    of_a, of_b = (2 - step / LINE for step in steps_of_rows(c, s))
    sides = [rows * of_a, cols * of_b]
    sides[1 - c.cluster_axis] /= c.cluster
    return sum(sides) * c.depth


def _by_lanes(c: Config, s: GemmShape) -> float:
    """Bytes of a stage that lanes load, as their rows start at any address."""
    sides = zip(c.sides(s.gated), steps_of_rows(c, s), strict=True)
    return sum(x for x, step in sides if step < 16) * c.depth


def _outside(c: Config, s: GemmShape) -> int:
    """Lines of all boxes of a step that lie outside A and B, whose extents count as multiples of 16."""
    m, n = (-(-x // 16) * 16 for x in extents(c, s))
    rows, cols = -(-m // c.rows), -(-n // c.cols)
    lines = (rows * c.rows - m) * cols + (cols * c.cols - n) * rows * (1 + s.gated)
    return s.batch * lines * c.depth // LINE


def _memory(c: Config, s: GemmShape, r: Rates, tiles: int, limits: Limits) -> float:
    """Microseconds of memory reads and writes."""
    blocks = limits.multiprocessors
    moved = s.batch * (s.bytes * (s.m * s.k + s.n * s.k * (1 + s.gated)) + s.out_bytes * s.m * s.n)
    waves, busy = -(-tiles // blocks), min(tiles, blocks)
    more = 1 + r.uneven * (waves * busy / tiles - 1)
    # Two multiprocessors share a path to memory: if some have it alone, the others finish later.
    alone = (blocks - busy) / blocks if not c.swap and 0.65 < busy / blocks < 0.9 else 0.0
    rate = r.memory * limits.memory_rate / 1e6
    memory = moved / rate * max(1, r.least_busy / busy) * more * (1 + 0.3 * alone)
    memory *= 1 + (r.idle_swap if c.swap else r.idle) * (1 - busy / blocks)
    if c.swap and c.rows == 256:  # boxes of 256 rows of weights
        far = tiles > blocks or tiles < 0.35 * blocks
        memory *= 1.05 if far else 1.06 if s.b_by_rows or c.cols <= 32 else 0.99
    return memory


def _passed(c: Config, s: GemmShape, r: Rates, tiles: int) -> float:
    """Microseconds in which blocks exchange partial sums: the sums of all blocks, and those that one block adds."""
    finishing = min(c.splits, c.parts)
    sums = c.rows * c.cols * (1 + s.gated) * c.splits
    fixed = r.passing + r.finishing * (finishing > 1)
    return fixed + r.passed * tiles * sums + r.added * sums / finishing


def _copies(c: Config, s: GemmShape, r: Rates, limits: Limits) -> float:
    """Microseconds of the copies of operands before the product."""
    sizes = {"a": s.m * s.k, "b": s.n * s.k * (1 + s.gated)}
    moved = 2 * s.batch * s.bytes * sum(sizes[name] for name in c.copied)
    return r.start - r.overlap + moved / (r.copies * limits.memory_rate / 1e6)
