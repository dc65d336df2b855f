"""Matrix products with many tile shapes: the parts of the language and the hardware that the examples do not use."""

from dataclasses import dataclass, replace

import pykittens as pk
from pykittens import bf16, f16, f32


@dataclass(frozen=True)
class Tiles:
    """groups consumers of rows x cols, depth a step, stages; how the operands lie and where `a` comes from."""

    groups: int = 2
    rows: int = 64
    cols: int = 128
    depth: int = 64
    stages: int = 3
    transposed: bool = True  # b is n x k
    from_registers: bool = False
    half: bool = False  # f16
    products: int = 1  # a stage is taken in so many products
    halves: bool = False  # the output goes out in two halves


@pk.kernel
def tiled_matmul(A, B, C, *, tiles):
    """C = A @ B.T or A @ B."""
    g, r, n, d = tiles.groups, tiles.rows, tiles.cols, tiles.depth
    dtype = f16 if tiles.half else bf16
    depth = A.cols
    pk.require(depth == (B.cols if tiles.transposed else B.rows), "the inner sides must be equal")
    b_tile = pk.st(dtype, n, d) if tiles.transposed else pk.st(dtype, d, n)
    a_ring = None if tiles.from_registers else pk.pipeline(tiles.stages, pk.st(dtype, g * r, d))
    b_ring = pk.pipeline(tiles.stages, b_tile)
    out_cols = n // 2 if tiles.halves else n
    out = pk.pipeline(1, pk.st(dtype, g * r, out_cols))
    tasks = pk.persistent(C.tiles(g * r, n), order=pk.column_major)
    steps = pk.cdiv(depth, d)

    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                if a_ring is not None:
                    with a_ring.fill() as a:
                        pk.load_async(a, A[row, k])
                with b_ring.fill() as b:
                    pk.load_async(b, B[col, k] if tiles.transposed else B[k, col])

    with pk.consumers(g) as w:
        for row, col in tasks:
            acc = pk.zeros(f32, r, n)
            for k in pk.range(steps):
                if tiles.from_registers:
                    left = pk.load(A[row * g + w, k], rows=r, cols=d)
                    with b_ring.drain() as b:
                        acc = (
                            pk.mma_ABt(left, b, acc)
                            if tiles.transposed
                            else pk.mma_AB(left, b, acc)
                        )
                else:
                    with a_ring.drain() as a, b_ring.drain() as b:
                        part = d // tiles.products
                        for i in range(tiles.products):
                            x = a.tiles(r, part)[w, i]
                            if tiles.transposed:
                                acc = pk.mma_ABt(x, b.tiles(n, part)[0, i], acc)
                            else:
                                acc = pk.mma_AB(x, b.tiles(part, n)[i, 0], acc)
            for i in range(n // out_cols):
                with out.fill() as t:
                    pk.store(
                        t.tiles(r, out_cols)[w], acc[:, i * out_cols : (i + 1) * out_cols].to(dtype)
                    )

    with pk.storer():
        for row, col in tasks:
            for i in range(n // out_cols):
                with out.drain() as t:
                    pk.store_async(C[row, col * (n // out_cols) + i], t)


DEFAULT = Tiles()
VARIANTS = {
    "default": DEFAULT,
    "one_group": replace(DEFAULT, groups=1),
    "three_groups": replace(DEFAULT, groups=3, cols=160),
    "tall": replace(DEFAULT, groups=1, rows=128),
    "tall_two": replace(DEFAULT, rows=128, stages=2),
    "wide": replace(DEFAULT, cols=256, stages=2),
    "narrow": replace(DEFAULT, cols=16),
    "odd": replace(DEFAULT, cols=208, depth=48),
    "shallow": replace(DEFAULT, depth=16, stages=6),
    "deep": replace(DEFAULT, depth=128, stages=2),
    "depth_32": replace(DEFAULT, depth=32),
    "depth_96": replace(DEFAULT, depth=96, stages=2),
    "one_stage": replace(DEFAULT, stages=1),
    "f16": replace(DEFAULT, half=True),
    "straight": replace(DEFAULT, transposed=False),
    "straight_256": replace(DEFAULT, transposed=False, cols=256, stages=2),
    "straight_32": replace(DEFAULT, transposed=False, cols=32),
    "straight_16": replace(DEFAULT, transposed=False, cols=16),
    "straight_96": replace(DEFAULT, transposed=False, cols=96, depth=48),
    "registers": replace(DEFAULT, from_registers=True),
    "registers_straight": replace(DEFAULT, from_registers=True, transposed=False, depth=32),
    "registers_tall": replace(DEFAULT, from_registers=True, rows=128, groups=1, depth=32),
    "two_products": replace(DEFAULT, products=2),
    "two_products_32": replace(DEFAULT, products=2, depth=32),
    "four_products": replace(DEFAULT, products=4, transposed=False),
    "halves": replace(DEFAULT, halves=True, cols=256, stages=2),
}
