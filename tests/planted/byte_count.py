"""Kernels in which a phase expects a number of bytes other than that of its copies."""

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import empty, planted, product, whole

# Who expects too little goes on too early, who expects too much for ever.
EARLY = (Kind.UNLANDED_COPY, Kind.BARRIER_COUNT, Kind.DEADLOCK, Kind.OVERWRITTEN_IN_USE)
NEVER = (Kind.DEADLOCK,)


@planted(
    Kind.BYTE_COUNT,
    "full[k % 2].expect(a)",
    "pk.load_async(b, B[col, k], signal=full[k % 2])",
    arguments=lambda rng: (
        whole(rng, (64, 256), bf16),
        whole(rng, (64, 256), bf16),
        empty((64, 64), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
    also=EARLY,
)
@pk.kernel
def expected_once_for_two_copies(A, B, C, *, broken):
    """Broken: a stage is two tiles, but its semaphore expects only the bytes of the first."""
    a_tiles = pk.shared(pk.st(bf16, 64, 64), count=2)
    b_tiles = pk.shared(pk.st(bf16, 64, 64), count=2)
    full = pk.semaphore(1, count=2)
    empty = pk.semaphore(1, count=2)
    row, col = pk.grid(A.rows // 64, B.rows // 64)
    steps = A.cols // 64
    with pk.producer():
        for k in pk.range(steps):
            a, b = a_tiles[k % 2], b_tiles[k % 2]
            empty[k % 2].wait(k // 2 + 1)
            if broken:
                full[k % 2].expect(a)
            else:
                full[k % 2].expect(a, b)
            pk.load_async(a, A[row, k], signal=full[k % 2])
            pk.load_async(b, B[col, k], signal=full[k % 2])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for k in pk.range(steps):
            full[k % 2].wait(k // 2)
            acc = acc + pk.mma_ABt(a_tiles[k % 2], b_tiles[k % 2])
            empty[k % 2].arrive()
        pk.store(C[row, col], acc)


@planted(
    Kind.BYTE_COUNT,
    "loaded.expect(64 * 128 * (4 + 4) if broken else 64 * 128 * (4 + 2))",
    arguments=lambda rng: (
        whole(rng, (64, 128), f32),
        whole(rng, (64, 128), bf16),
        empty((64, 128), f32),
    ),
    expected=lambda x, delta, y: {"y": x + delta.astype(np.float32)},
    also=NEVER,
)
@pk.kernel
def bytes_of_the_other_dtype(x, delta, y, *, broken):
    """Broken: the residual is f32 and the update bf16, but both are counted with four bytes per element."""
    residual, update = pk.shared(pk.st(f32, 64, 128)), pk.shared(pk.st(bf16, 64, 128))
    loaded = pk.semaphore(1)
    (row,) = pk.grid(x.rows // 64)
    with pk.producer():
        loaded.expect(64 * 128 * (4 + 4) if broken else 64 * 128 * (4 + 2))
        pk.load_async(residual, x[row], signal=loaded)
        pk.load_async(update, delta[row], signal=loaded)
    with pk.consumers(1):
        loaded.wait(0)
        pk.store(y[row], pk.load(residual) + pk.load(update).to(f32))


@planted(
    Kind.BYTE_COUNT,
    "loaded.expect(64 * 128 * 2 if broken else tile)",
    "pk.load_async(tile, x[row], signal=loaded)",
    arguments=lambda rng: (whole(rng, (64, 128), f32), empty((64, 128), f32)),
    expected=lambda x, y: {"y": x - x.max(1, keepdims=True)},
    also=EARLY,
)
@pk.kernel
def bytes_of_half_the_tile(x, y, *, broken):
    """Broken: the tile is f32, but the expected bytes are those of a bf16 tile."""
    tile = pk.shared(pk.st(f32, 64, 128))
    loaded = pk.semaphore(1)
    (row,) = pk.grid(x.rows // 64)
    with pk.producer():
        loaded.expect(64 * 128 * 2 if broken else tile)
        pk.load_async(tile, x[row], signal=loaded)
    with pk.consumers(1):
        loaded.wait(0)
        t = pk.load(tile)
        pk.store(y[row], t - pk.row_max(t))


@planted(
    Kind.BYTE_COUNT,
    "full.expect(tile)",
    "pk.load_async(half, x[block * 2 + i], signal=full)",
    arguments=lambda rng: (whole(rng, (128, 64), f32), empty((128, 64), f32)),
    expected=lambda x, y: {"y": 2 * x},
    also=NEVER,
)
@pk.kernel
def whole_expected_and_half_copied(x, y, *, broken):
    """Broken: halves of a tile that are outside are not copied, but the bytes of the whole tile are expected."""
    tile = pk.shared(pk.st(f32, 256, 64))
    full = pk.semaphore(1)
    (block,) = pk.grid(pk.cdiv(x.rows, 256))
    with pk.producer():
        full.expect(tile)
        for i in range(2):
            half = tile.tiles(128, 64)[i, 0]
            if not broken or (block * 2 + i) * 128 < x.rows:
                pk.load_async(half, x[block * 2 + i], signal=full)
    with pk.consumers(4) as w:
        full.wait(0)
        t = pk.load(tile.tiles(64, 64)[w, 0])
        pk.store(y[block * 4 + w], t + t)


@planted(
    Kind.BYTE_COUNT,
    "full[i % 2].expect(tiles[i % 2], added)",
    "pk.load_async(added, bias[row], signal=full[i % 2])",
    arguments=lambda rng: (
        whole(rng, (64, 256), f32),
        whole(rng, (64, 64), f32),
        empty((64, 256), f32),
    ),
    expected=lambda x, bias, y: {"y": x + np.tile(bias, 4)},
    also=(*EARLY, Kind.RACE),
)
@pk.kernel
def expected_under_a_condition(x, bias, y, *, broken):
    """Broken: the bytes of the bias are expected in the first pass, but the bias is copied in every pass."""
    tiles, added = pk.shared(pk.st(f32, 64, 64), count=2), pk.shared(pk.st(f32, 64, 64))
    full = pk.semaphore(1, count=2)
    empty = pk.semaphore(1, count=2)
    (row,) = pk.grid(x.rows // 64)
    steps = x.cols // 64
    with pk.producer():
        for i in pk.range(steps):
            empty[i % 2].wait(i // 2 + 1)
            if i == 0:
                full[i % 2].expect(tiles[i % 2], added)
            else:
                full[i % 2].expect(tiles[i % 2])
            pk.load_async(tiles[i % 2], x[row, i], signal=full[i % 2])
            if broken or i == 0:
                pk.load_async(added, bias[row], signal=full[i % 2])
    with pk.consumers(1):
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            pk.store(y[row, i], pk.load(tiles[i % 2]) + pk.load(added))
            empty[i % 2].arrive()


@planted(
    Kind.BYTE_COUNT,
    "full.expect(64 * 4 * pk.minimum(128, x.cols - 128 * i))",
    "pk.load_async(tile, x[0, i], signal=full)",
    arguments=lambda rng: (whole(rng, (64, 320), f32), empty((64, 320), f32)),
    expected=lambda x, y: {"y": 2 * x},
    also=(Kind.DEADLOCK,),
)
@pk.kernel
def bytes_inside_the_tensor(x, y, *, broken: bool):
    """Broken: only the bytes of the last tile inside the tensor are expected, but the copy fills the whole tile."""
    tile, full, free = pk.shared(pk.st(f32, 64, 128)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    steps = pk.cdiv(x.cols, 128)
    with pk.producer():
        for i in pk.range(steps):
            free.wait(i + 1)
            if broken:
                full.expect(64 * 4 * pk.minimum(128, x.cols - 128 * i))
            else:
                full.expect(tile)
            pk.load_async(tile, x[0, i], signal=full)
    with pk.warpgroups(1):
        for i in pk.range(steps):
            full.wait(i)
            t = pk.load(tile)
            free.arrive()
            pk.store(y[0, i], t + t)


@planted(
    Kind.BYTE_COUNT,
    "full.expect(*((x_tile,) if broken else (x_tile, y_tile)))",
    arguments=lambda rng: (
        whole(rng, (64, 64), f32),
        whole(rng, (64, 64), f32),
        empty((64, 64), f32),
    ),
    expected=lambda x, y, z: {"z": x + y},
    also=(Kind.UNLANDED_COPY, Kind.DEADLOCK, Kind.BARRIER_COUNT),
)
@pk.kernel
def second_operand_not_expected(x, y, z, *, broken):
    """Broken: two tiles are copied in one phase, but the semaphore expects only the bytes of the first."""
    x_tile, y_tile = pk.shared(pk.st(f32, 64, 64)), pk.shared(pk.st(f32, 64, 64))
    full = pk.semaphore(1)
    pk.grid(1)
    full.expect(*((x_tile,) if broken else (x_tile, y_tile)))
    pk.load_async(x_tile, x[0], signal=full)
    pk.load_async(y_tile, y[0], signal=full)
    full.wait(0)
    pk.store(z[0], pk.load(x_tile) + pk.load(y_tile))
