"""Kernels that read memory that was never written, or do not write parts of an output."""

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind, Level
from tests.planted.core import empty, planted, product, whole


def differences(x, y):
    """Each tile of 64 rows minus the previous tile; the first has none."""
    tiles = x.reshape(-1, 64, x.shape[1])
    return {"y": np.diff(tiles, axis=0, prepend=0 * tiles[:1]).reshape(x.shape)}


@planted(
    Kind.UNWRITTEN_MEMORY,
    "before = pk.load(rows.tiles(64, 64)[0, 0])",
    arguments=lambda rng: (whole(rng, (192, 64), f32), empty((192, 64), f32)),
    expected=differences,
)
@pk.kernel
def halo_of_the_first_block(x, y, *, broken):
    """Broken: the first block has no rows before its own and copies none, but still reads them."""
    rows, loaded = pk.shared(pk.st(f32, 128, 64)), pk.semaphore(2)
    (block,) = pk.grid(x.rows // 64)
    with pk.producer():
        halo, own = rows.tiles(64, 64)[0, 0], rows.tiles(64, 64)[1, 0]
        loaded.expect(own)
        pk.load_async(own, x[block], signal=loaded)
        if not broken or block > 0:  # a copy from outside brings zeros
            loaded.expect(halo)
            pk.load_async(halo, x[block - 1], signal=loaded)
        else:
            loaded.arrive()
    with pk.consumers(1):
        loaded.wait(0)
        before = pk.load(rows.tiles(64, 64)[0, 0])
        pk.store(y[block], pk.load(rows.tiles(64, 64)[1, 0]) - before)


@planted(
    Kind.UNWRITTEN_MEMORY,
    "gathered = pk.load(staged)",
    arguments=lambda rng: (whole(rng, (64, 48), bf16), empty((64, 64), f32)),
    expected=lambda x, y: {"y": product(x, x.T)},
)
@pk.kernel
def padding_of_a_tile(x, y, *, broken):
    """Broken: rows of 48 elements are stored to a tile of 64, and the last columns are never set to zero."""
    staged = pk.shared(pk.st(bf16, 64, 64))
    (row,) = pk.grid(x.rows // 64)
    for i in range(3 if broken else 4):
        pk.store(staged.tiles(64, 16)[0, i], pk.load(x[row, i], rows=64, cols=16))
    pk.fence_async()
    pk.sync()
    gathered = pk.load(staged)
    pk.store(y[row], pk.mma_ABt(gathered, staged))


@planted(
    Kind.UNWRITTEN_MEMORY,
    "shift = pk.load(t.bias)",
    arguments=lambda rng: (
        whole(rng, (64, 192), f32),
        whole(rng, (64,), f32),
        empty((64, 64), f32),
    ),
    expected=lambda x, bias, y: {"y": x.reshape(64, 3, 64).sum(1) + bias},
)
@pk.kernel
def bias_of_the_first_stage(x, bias, y, *, broken):
    """Broken: the bias is copied with the first stage but read from the last."""
    ring = pk.pipeline(2, x=pk.st(f32, 64, 64), bias=pk.sv(f32, 64))
    (row,) = pk.grid(x.rows // 64)
    steps = x.cols // 64
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as t:
                pk.load_async(t.x, x[row, k])
                if k == (0 if broken else steps - 1):
                    pk.load_async(t.bias, bias)
    with pk.consumers(1):
        total = pk.zeros(f32, 64, 64)
        for k in pk.range(steps):
            with ring.drain() as t:
                total = total + pk.load(t.x)
                if k == steps - 1:
                    shift = pk.load(t.bias)
                    total = total + pk.spread(shift, pk.per_column)
        pk.store(y[row], total)


@planted(
    Kind.UNWRITTEN_MEMORY,
    "pk.store(y[row], t / (1 + abs(t)))",
    arguments=lambda rng: (whole(rng, (100, 64), f32), empty((100, 64), f32)),
    expected=lambda x, y: {"y": x / (1 + abs(x))},
    bound=lambda exact, x, y: 1e-6 * abs(exact),
)
@pk.kernel
def last_rows_dropped(x, y, *, broken):
    """Broken: the grid counts whole tiles, so the rows after the last whole tile are never written."""
    (row,) = pk.grid(x.rows // 64 if broken else pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(y[row], t / (1 + abs(t)))


@planted(
    Kind.UNWRITTEN_MEMORY,
    "pk.store(C[row, col], acc)",
    arguments=lambda rng: (
        whole(rng, (64, 64), bf16),
        whole(rng, (160, 64), bf16),
        empty((64, 160), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
)
@pk.kernel
def last_columns_dropped(A, B, C, *, broken):
    """Broken: the tasks cover the columns of whole tiles, but B has half a tile more."""
    ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    cols = C.cols // 64 if broken else pk.cdiv(C.cols, 64)
    tasks = pk.persistent((pk.cdiv(C.rows, 64), cols))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t.a, A[row])
                pk.load_async(t.b, B[col])
    with pk.consumers(1):
        for row, col in tasks:
            with ring.drain() as t:
                acc = pk.mma_ABt(t.a, t.b)
            pk.store(C[row, col], acc)


@planted(
    Kind.UNWRITTEN_MEMORY,
    "pk.store(scale[row], total)",
    arguments=lambda rng: (
        whole(rng, (128, 192), f32),
        empty((128, 192), f32),
        empty((128,), f32),
    ),
    expected=lambda x, y, scale: {"y": abs(x), "scale": abs(x).sum(1)},
)
@pk.kernel
def second_output_forgotten(x, y, scale, *, broken):
    """Broken: the sums should be stored in the last pass, but the condition is true one pass later."""
    (row,) = pk.grid(x.rows // 64)
    steps = x.cols // 64
    total = pk.row_sum(pk.zeros(f32, 64, 64))
    for k in pk.range(steps):
        t = abs(pk.load(x[row, k], rows=64, cols=64))
        total = total + pk.row_sum(t)
        pk.store(y[row, k], t)
        if k == (steps if broken else steps - 1):
            pk.store(scale[row], total)


@planted(
    Kind.UNWRITTEN_MEMORY,
    'pk.store(sums[0, 0], total, op="add")',
    arguments=lambda rng: (whole(rng, (64, 256), f32), empty((1, 64), f32)),
    expected=lambda x, sums: {"sums": x.sum(0).reshape(4, 64).sum(0)[np.newaxis]},
)
@pk.kernel
def sums_onto_nothing(x, sums, *, broken):
    """Broken: sums are added to an output that is never set to zero."""
    pk.grid(1)
    if not broken:
        pk.store(sums[0, 0], pk.col_sum(pk.zeros(f32, 64, 64)))
    for k in pk.range(x.cols // 64):
        total = pk.col_sum(pk.load(x[0, k], rows=64, cols=64))
        pk.store(sums[0, 0], total, op="add")


@planted(
    Kind.UNWRITTEN_MEMORY,
    "state = pk.load(states[chunk], rows=64, cols=64)",
    arguments=lambda rng: (
        whole(rng, (256, 64), f32),
        empty((320, 64), f32),
        empty((256, 64), f32),
    ),
    expected=lambda x, states, y: {"y": x.reshape(4, 64, 64).cumsum(0).reshape(256, 64)},
)
@pk.kernel
def state_before_the_first(x, states, y, *, broken):
    """Broken: every chunk begins with the state that the previous chunk stored, but no chunk stores the first state."""
    pk.grid(1)
    if not broken:
        pk.store(states[0], pk.zeros(f32, 64, 64))
    for chunk in pk.range(x.rows // 64):
        state = pk.load(states[chunk], rows=64, cols=64)
        state = state + pk.load(x[chunk], rows=64, cols=64)
        pk.store(states[chunk + 1], state)
        pk.store(y[chunk], state)


@planted(
    Kind.UNWRITTEN_MEMORY,
    "pk.store(y[0 if broken else head, row, 0], pk.exp(t))",
    arguments=lambda rng: (np.zeros((4, 64, 64), np.float32), empty((4, 64, 64), f32)),
    expected=lambda x, y: {"y": np.exp(x)},
    also=(Kind.BLOCK_CONFLICT,),
)
@pk.kernel
def heads_stored_over_the_first(x, y, *, broken):
    """Broken: each block stores its head to the first one, and three quarters of the output are never written."""
    head, row = pk.grid(x.shape[0], pk.cdiv(x.rows, 64))
    t = pk.load(x[head, row, 0], rows=64, cols=64)
    pk.store(y[0 if broken else head, row, 0], pk.exp(t))


@planted(
    Kind.UNWRITTEN_MEMORY,
    "pk.store(y[row], t)",
    arguments=lambda rng: (
        whole(rng, (256, 64), f32),
        np.array([1, 0, 1, 0], np.int32),
        empty((256, 64), f32),
    ),
    expected=lambda x, active, y: {"y": x * np.repeat(active, 64)[:, None]},
    level=Level.WARNING,
)
@pk.kernel
def inactive_rows_left_undefined(x, active, y, *, broken):
    """Broken: rows whose mask is off are skipped, but the output holds nothing before the launch."""
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    is_active = pk.load(active[row]) > 0
    t = pk.load(x[row], rows=64, cols=64)
    if not broken:
        pk.store(y[row], pk.where(is_active, t, 0.0))
    elif is_active:
        pk.store(y[row], t)


@planted(
    Kind.UNWRITTEN_MEMORY,
    "pk.store(x[row], pk.relu(t))",
    arguments=lambda rng: (whole(rng, (100, 64), f32),),
    expected=lambda x: {"x": np.maximum(x, 0)},
    level=Level.WARNING,
)
@pk.kernel(inplace=True)
def last_rows_dropped_in_place(x, *, broken):
    """Broken: the kernel works in place, and its grid drops the rows after the last whole tile."""
    (row,) = pk.grid(x.rows // 64 if broken else pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    pk.store(x[row], pk.relu(t))
