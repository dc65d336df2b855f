"""How long a product should take on an H200: what a configuration is picked by.

Constants were fitted to products of 1 to 16384 rows, and are cycles where nothing else is said (docs/tuning/gemm.md).
"""

from __future__ import annotations

from pykittens.kernels.gemm.config import LINE, Config, GemmShape, extents, scaled, work
from pykittens.kernels.limits import Limits

CLOCK = 1840  # cycles a microsecond
PRODUCTS = 4096  # bytes of A times bytes of B that the tensor cores of a multiprocessor multiply in a cycle
POWER = 706e6  # operations a microsecond in 16 bits at the limit of power; in 8 bits twice as many
MEMORY = 4.25e6  # bytes a microsecond
CACHE = 87  # bytes that a multiprocessor gets from the L2 cache in a cycle
APART = 73  # the same where blocks have several tiles and do not ask for one line at one time
OUTSIDE = 12  # rows of boxes outside their tensor, 128 bytes each, that all multiprocessors together fill in a cycle
START = 3.3  # microseconds of a launch


def estimate(config: Config, shape: GemmShape, limits: Limits) -> float:
    """Microseconds that a product should take: the longest of computing, power and memory, and what comes besides."""
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
    besides = START + (_passed(c, s, tiles) if c.splits > 1 else 0.0) - 1.0 * c.overlap
    outside = _outside(c, s) * steps / OUTSIDE / CLOCK
    besides += max(outside - 0.05 * longest, 0.0)  # as much is hidden
    return besides + longest + 0.11 * cache


def _passed(c: Config, s: GemmShape, tiles: int) -> float:
    """Microseconds in which sums pass from block to block: the sums of all of them, and what one block finishes."""
    finishing = min(c.splits, c.parts)
    sums = c.rows * c.cols * (1 + s.gated) * c.splits
    return 2.2 + 0.5 * (finishing > 1) + 6.4e-7 * tiles * sums + 1e-4 * sums / finishing


def _sides(c: Config, s: GemmShape) -> tuple[int, int]:
    """Rows of A and columns of B in a stage."""
    return c.rows * (1 + (s.gated and c.swap)), c.cols * (1 + (s.gated and not c.swap))


def _loaded(c: Config, s: GemmShape) -> int:
    """Bytes of a stage, in whole lines, which take as long as parts of them."""
    rows, cols = _sides(c, s)
    line = LINE // s.bytes
    if not s.b_by_rows and c.swap:
        rows = -(-rows // line) * line
    elif not s.b_by_rows:
        cols = -(-cols // line) * line
    return (rows + cols) * c.depth


def _outside(c: Config, s: GemmShape) -> int:
    """Rows of all tiles' boxes of a step that lie outside A and B; none of the 16 that a tile has at least."""
    m, n = (-(-x // 16) * 16 for x in extents(c, s))
    rows, cols = -(-m // c.rows), -(-n // c.cols)
    lines = (rows * c.rows - m) * cols + (cols * c.cols - n) * rows * (1 + s.gated)
    return s.batch * lines * c.depth // LINE


def _tile(c: Config, s: GemmShape, steps: int, loaded: int, is_followed: bool) -> float:
    """Cycles of so many steps of a tile, of `loaded` bytes each, which is followed by another one or not."""
    a, b = _sides(c, s)
    multiply = max(a * b, a * 48) * c.depth / PRODUCTS + 19 * c.depth / LINE
    if not (s.b_by_rows or c.swap) and c.cols * s.bytes % LINE:
        multiply *= 1.1  # boxes of half a line
    if s.blocks:
        each = 140 + c.rows // c.consumers * c.scaled_cols / 183
        multiply += (each + 20 * (c.pieces - 1)) * scaled(c, s)
    hidden = (0.012 if is_followed else -0.002) * c.turns  # of storing, behind the next tile
    store = c.rows * c.cols * (0.054 - hidden + 0.03 * (s.activation or s.operands > 0))
    load = loaded / (APART if is_followed else CACHE)
    return steps * max(multiply, load) + 550 + store


def _memory(c: Config, s: GemmShape, tiles: int, waves: int, busy: int, blocks: int) -> float:
    """Microseconds in which memory is read and written."""
    moved = s.batch * (s.bytes * (s.m * s.k + s.n * s.k * (1 + s.gated)) + s.out_bytes * s.m * s.n)
    idle = 1 + 0.27 * (waves * busy / tiles - 1)  # where some blocks have a tile more than others
    # Two multiprocessors share a way to memory: where some of them have it alone, the others are late.
    alone = (blocks - busy) / blocks if not c.swap and 0.65 < busy / blocks < 0.9 else 0.0
    memory = moved / MEMORY * max(1, 39 / busy) * idle * (1 + 0.3 * alone)
    memory *= 1 + (0.02 if c.swap else 0.09) * (1 - busy / blocks)
    if c.swap and c.rows == 256:  # its boxes are wide where rows of weights are
        far = tiles > blocks or tiles < 0.35 * blocks
        memory *= 1.05 if far else 1.06 if s.b_by_rows or c.cols <= 32 else 0.99
    return memory
