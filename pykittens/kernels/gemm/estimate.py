"""Estimates of the time of a product on an H200, by which a configuration is picked.

Constants were fitted to products of 1 to 16384 rows; they are in cycles unless stated (docs/tuning/gemm.md).
"""

from __future__ import annotations

from pykittens.kernels.gemm.config import LINE, Config, GemmShape, extents, scaled, work
from pykittens.kernels.limits import Limits

CLOCK = 1840  # cycles per microsecond
PRODUCTS = 4096  # bytes of A times bytes of B that a multiprocessor multiplies per cycle
POWER = 706e6  # operations per microsecond at the power limit, in 16 bits; twice as many in 8 bits
MEMORY = 4.25e6  # bytes per microsecond
CACHE = 87  # bytes per cycle that a multiprocessor reads from the L2 cache
APART = 73  # the same if blocks have several tiles and do not read the same line at the same time
OUTSIDE = (
    12  # rows of 128 bytes outside their tensor that all multiprocessors together fill per cycle
)
START = 3.3  # microseconds that a launch takes
SKEWED = 24  # bytes per cycle that lanes load to shared memory from rows at any address
COPIED = 3.9e6  # bytes per microsecond that a launch before the product reads and writes


def estimate(config: Config, shape: GemmShape, limits: Limits) -> float:
    """Estimated microseconds of a product: the longest of computing, power and memory, plus overheads."""
    c, s, blocks = config, shape, limits.multiprocessors
    tiles, steps = work(c, s)
    if not tiles:
        return 0.0
    parts = tiles * c.splits
    waves, busy = -(-parts // blocks), min(parts, blocks)
    loaded = _loaded(c, s)
    compute = waves * _tile(c, s, -(-steps // c.splits), loaded, tiles > blocks) / CLOCK
    power = 2 * s.batch * s.m * s.n * s.k * (1 + s.gated) / (POWER * (3 - s.bytes))
    memory = _memory(c, s, parts, waves, busy, blocks)
    longest = float((compute**9 + power**9 + memory**9) ** (1 / 9))
    cache = tiles * steps * loaded / blocks / CACHE / CLOCK
    overhead = START + (_passed(c, s, tiles) if c.splits > 1 else 0.0) - 1.0 * c.overlap
    outside = _outside(c, s) * steps / OUTSIDE / CLOCK
    overhead += max(outside - 0.05 * longest, 0.0)  # so much is hidden
    shared = (
        0.3 + 0.01 * longest if c.cluster > 1 else 0.0
    )  # blocks of a cluster wait for each other
    return overhead + longest + 0.11 * cache + shared + _copies(c, s)


def _passed(c: Config, s: GemmShape, tiles: int) -> float:
    """Microseconds in which blocks exchange partial sums: the sums of all blocks, and those that one block adds."""
    finishing = min(c.splits, c.parts)
    sums = c.rows * c.cols * (1 + s.gated) * c.splits
    return 2.2 + 0.5 * (finishing > 1) + 6.4e-7 * tiles * sums + 1e-4 * sums / finishing


def _copies(c: Config, s: GemmShape) -> float:
    """Microseconds of the copies of operands before the product."""
    sizes = {"a": s.m * s.k, "b": s.n * s.k * (1 + s.gated)}
    moved = 2 * s.batch * s.bytes * sum(sizes[name] for name in c.copied)
    return START - 1 + moved / COPIED if moved else 0.0


def steps_of(s: GemmShape) -> dict[str, int]:
    """Bytes of which the places of all rows of an operand in memory are multiples, by its name."""
    return {"a": s.a_step, "b": s.b_step}


def steps_of_rows(c: Config, s: GemmShape) -> tuple[int, int]:
    """The same for the rows of A and of B as the kernel takes them."""
    a, b = (LINE if name in c.copied else step for name, step in steps_of(s).items())
    return (b, a) if c.swap else (a, b)


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
    sides = [
        x * (2 - step / LINE) for x, step in zip((rows, cols), steps_of_rows(c, s), strict=True)
    ]
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


def _tile(c: Config, s: GemmShape, steps: int, loaded: float, is_followed: bool) -> float:
    """Cycles for one tile of `steps` steps that load `loaded` bytes each; `is_followed`: the block has another tile."""
    a, b = c.sides(s.gated)
    multiply = max(a * b, a * 48) * c.depth / PRODUCTS + 19 * c.depth / LINE
    if not (s.b_by_rows or c.swap) and c.cols * s.bytes % LINE:
        multiply *= 1.1  # boxes of half a line
    if s.blocks:
        each = 140 + c.rows // c.consumers * c.scaled_cols / 183
        multiply += (each + 20 * (c.pieces - 1)) * scaled(c, s)
    hidden = (0.012 if is_followed else -0.002) * c.turns  # of storing, hidden by the next tile
    store = c.rows * c.cols * (0.054 - hidden + 0.03 * (s.activation or s.operands > 0))
    load = loaded / (APART if is_followed else CACHE)
    return steps * max(multiply, load, _by_lanes(c, s) / SKEWED) + 550 + store


def _memory(c: Config, s: GemmShape, tiles: int, waves: int, busy: int, blocks: int) -> float:
    """Microseconds of memory reads and writes."""
    moved = s.batch * (s.bytes * (s.m * s.k + s.n * s.k * (1 + s.gated)) + s.out_bytes * s.m * s.n)
    idle = 1 + 0.27 * (waves * busy / tiles - 1)  # some blocks have one tile more than others
    # Two multiprocessors share a path to memory: if some have it alone, the others finish later.
    alone = (blocks - busy) / blocks if not c.swap and 0.65 < busy / blocks < 0.9 else 0.0
    memory = moved / MEMORY * max(1, 39 / busy) * idle * (1 + 0.3 * alone)
    memory *= 1 + (0.02 if c.swap else 0.09) * (1 - busy / blocks)
    if c.swap and c.rows == 256:  # boxes of 256 rows of weights
        far = tiles > blocks or tiles < 0.35 * blocks
        memory *= 1.05 if far else 1.06 if s.b_by_rows or c.cols <= 32 else 0.99
    return memory
