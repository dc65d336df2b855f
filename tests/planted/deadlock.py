"""Kernels in which every group that has not ended waits for something that no group will do."""

import numpy as np

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.emulate.finding import Kind
from tests.planted.core import empty, planted, product, whole


def running(x):
    """The sum of the tiles of 64 rows up to and including each tile."""
    return x.reshape(-1, 64, x.shape[1]).cumsum(0).reshape(x.shape)


def causal(q, k, v):
    """(q @ k.T, columns beyond the diagonal 0) @ v."""
    return product(np.tril(product(q, k.T)), v)


@planted(
    Kind.DEADLOCK,
    "with ring.drain() as later:",
    arguments=lambda rng: (whole(rng, (128, 192), f32), empty((128,), f32)),
    expected=lambda x, y: {"y": x.max(1)},
    also=(Kind.BARRIER_COUNT,),
)
@pk.kernel
def drained_once_too_often(x, y, *, broken):
    """Broken: the first tile of a row is drained before the loop, and the loop counts it again."""
    ring = pk.pipeline(2, pk.st(f32, 64, 64))
    (row,) = pk.grid(x.rows // 64)
    steps = x.cols // 64
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as t:
                pk.load_async(t, x[row, k])
    with pk.consumers(1):
        with ring.drain() as first:
            most = pk.row_max(pk.load(first))
        for _ in pk.range(0 if broken else 1, steps):
            with ring.drain() as later:
                most = pk.maximum(most, pk.row_max(pk.load(later)))
        pk.store(y[row], most)


@planted(
    Kind.DEADLOCK,
    "with keys.fill() as t:",
    "with values.drain() as v:",
    arguments=lambda rng: (
        whole(rng, (64, 16), bf16),
        whole(rng, (256, 16), bf16),
        whole(rng, (256, 16), bf16),
        empty((64, 16), f32),
    ),
    expected=lambda Q, K, V, O: {"O": product(product(Q, K.T), V)},
)
@pk.kernel
def all_keys_before_all_values(Q, K, V, O, *, broken):
    """Broken: the producer copies all keys before the first value, but the ring of keys has fewer stages."""
    keys, values = pk.pipeline(2, pk.st(bf16, 64, 16)), pk.pipeline(2, pk.st(bf16, 64, 16))
    (row,) = pk.grid(Q.rows // 64)
    steps = K.rows // 64
    with pk.producer():
        for j in pk.range(steps):
            with keys.fill() as t:
                pk.load_async(t, K[j])
            if not broken:
                with values.fill() as t:  # beside its key
                    pk.load_async(t, V[j])
        if broken:
            for j in pk.range(steps):
                with values.fill() as t:
                    pk.load_async(t, V[j])
    with pk.consumers(1):
        q, o = pk.load(Q[row], rows=64, cols=16), pk.zeros(f32, 64, 16)
        for _ in pk.range(steps):
            with keys.drain() as k:
                s = pk.mma_ABt(q, k)
            p = s.to(bf16)
            with values.drain() as v:
                o = pk.mma_AB(p, v, o)
        pk.store(O[row], o)


@planted(
    Kind.DEADLOCK,
    "while pk.atomic_load(count[0]) < y.rows // 64:",
    arguments=lambda rng: (
        whole(rng, (512, 64), f32),
        np.zeros((512, 64), np.float32),
        np.zeros(1, np.int32),
    ),
    expected=lambda x, y, count: {"y": x, "count": np.array([8])},
)
@pk.kernel
def spins_until_all_have_come(x, y, count, *, broken):
    """Broken: blocks wait for all others in a loop over an atomic, and nothing guarantees that all run at once."""
    (block,) = pk.grid(y.rows // 64)
    t = pk.load(x[block], rows=64, cols=64)
    pk.atomic_add(count[0], 1)
    if broken:
        while pk.atomic_load(count[0]) < y.rows // 64:
            pass
    else:
        pk.wait(count[0], y.rows // 64)  # so the launch is cooperative
    pk.store(y[block], t)


@planted(
    Kind.DEADLOCK,
    "with left.drain() as t:",
    "with right.drain() as t:",
    arguments=lambda rng: (whole(rng, (128, 128), f32), empty((128, 128), f32)),
    expected=lambda x, y: {"y": np.tile(x[:, :64] + x[:, 64:], 2)},
)
@pk.kernel
def both_receive_first(x, y, *, broken):
    """Broken: two groups exchange partial sums, and each waits for the other's sums before it sends its own."""
    left, right = pk.pipeline(1, pk.st(f32, 64, 64)), pk.pipeline(1, pk.st(f32, 64, 64))
    (row,) = pk.grid(x.rows // 64)

    def send(ring, part):
        with ring.fill() as t:
            pk.store(t, part)

    with pk.warpgroups(1):
        mine = pk.load(x[row, 0], rows=64, cols=64)
        if not broken:
            send(left, mine)
        with right.drain() as t:
            pk.store(y[row, 0], mine + pk.load(t))
        if broken:
            send(left, mine)
    with pk.warpgroups(1):
        mine = pk.load(x[row, 1], rows=64, cols=64)
        with left.drain() as t:
            pk.store(y[row, 1], mine + pk.load(t))
        send(right, mine)


@planted(
    Kind.DEADLOCK,
    "loaded.wait(i if broken else 0)",
    arguments=lambda rng: (
        whole(rng, (256, 64), bf16),
        whole(rng, (64, 64), bf16),
        empty((256, 64), f32),
    ),
    expected=lambda x, W, y: {"y": product(x, W)},
    also=(Kind.BARRIER_COUNT,),
)
@pk.kernel
def weights_awaited_each_pass(x, W, y, *, broken):
    """Broken: weights are copied once but waited for with the phase of each pass; the second phase never completes."""
    weights, loaded = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    with pk.producer():
        loaded.expect(weights)
        pk.load_async(weights, W[0], signal=loaded)
    with pk.consumers(1):
        for i in pk.range(x.rows // 64):
            t = pk.load(x[i], rows=64, cols=64)
            loaded.wait(i if broken else 0)
            pk.store(y[i], pk.mma_AB(t, weights))


@planted(
    Kind.DEADLOCK,
    "turn[w].wait(i if broken else i + 1 - w)",
    arguments=lambda rng: (whole(rng, (384, 64), f32), empty((384, 64), f32)),
    expected=lambda x, y: {"y": running(x)},
)
@pk.kernel
def nobody_begins(x, y, *, broken):
    """Broken: two groups pass a turn to each other, and the group that should begin waits for the other, too."""
    total, turn = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1, count=2)
    pk.grid(1)
    with pk.warpgroups(2) as w:
        for i in pk.range(x.rows // 128):
            row = 2 * i + w
            t = pk.load(x[row], rows=64, cols=64)
            turn[w].wait(i if broken else i + 1 - w)
            if row > 0:
                t = t + pk.load(total)
            pk.store(total, t)
            turn[1 - w].arrive()
            pk.store(y[row], t)


@planted(
    Kind.DEADLOCK,
    "pk.wait(flags[expert - 1], 1)",
    arguments=lambda rng: (
        np.array([3, 0, 2, 5], np.int32),
        empty((4,), int32),
        np.zeros(4, np.int32),
    ),
    expected=lambda counts, ends, flags: {"ends": counts.cumsum()},
)
@pk.kernel
def silent_block(counts, ends, flags, *, broken):
    """Broken: the block of an expert without tokens does not signal its flag, and the next block waits for it."""
    (expert,) = pk.grid(counts.shape[0])
    count = pk.load(counts[expert])
    if not broken or count > 0:
        end = count
        if expert > 0:
            pk.wait(flags[expert - 1], 1)
            end = end + pk.load(ends[expert - 1])
        pk.store(ends[expert], end)
        pk.signal(flags[expert], 1)


@planted(
    Kind.DEADLOCK,
    "with pk.in_turn():",
    arguments=lambda rng: (whole(rng, (192, 128), f32), empty((2, 128), f32)),
    expected=lambda x, y: {"y": np.stack([x[:128].sum(0), x[128:].sum(0)])},
)
@pk.kernel
def skipped_turn(x, y, *, broken):
    """Broken: a group whose rows are outside takes no turn, and the other group never gets a second turn."""
    (block,) = pk.grid(pk.cdiv(x.rows, 128))
    with pk.warpgroups(2) as w:
        row = block * 2 + w
        for k in pk.range(x.cols // 64):
            if not broken or row * 64 < x.rows:
                total = pk.col_sum(pk.load(x[row, k], rows=64, cols=64))
                with pk.in_turn():
                    if w == 0:
                        pk.store(y[block, k], total)
                    else:
                        pk.store(y[block, k], total, op="add")


@planted(
    Kind.DEADLOCK,
    "with ring.fill() as t:",
    arguments=lambda rng: (
        whole(rng, (320, 16), bf16),
        whole(rng, (320, 16), bf16),
        whole(rng, (320, 16), bf16),
        empty((320, 16), f32),
    ),
    expected=lambda Q, K, V, O: {"O": causal(Q, K, V)},
    also=(Kind.BARRIER_COUNT, Kind.UNLANDED_COPY),
)
@pk.kernel
def skipped_tile(Q, K, V, O, *, broken):
    """Broken: keys past the diagonal are copied, but the consumer does not drain them."""
    ring = pk.pipeline(2, k=pk.st(bf16, 64, 16), v=pk.st(bf16, 64, 16))
    (row,) = pk.grid(Q.rows // 64)
    steps = K.rows // 64 if broken else row + 1
    with pk.producer():
        for j in pk.range(steps):
            with ring.fill() as t:
                pk.load_async(t.k, K[j])
                pk.load_async(t.v, V[j])
    with pk.consumers(1):
        q, o = pk.load(Q[row], rows=64, cols=16), pk.zeros(f32, 64, 16)
        for j in pk.range(steps):
            if not broken or j <= row:
                with ring.drain() as t:
                    s = pk.mma_ABt(q, t.k)
                    seen = row * 64 + pk.row_index(64) >= j * 64 + pk.col_index(64)
                    o = pk.mma_AB(pk.where(seen, s, 0).to(bf16), t.v, o)
        pk.store(O[row], o)


@planted(
    Kind.DEADLOCK,
    "empty[i % 2].wait(i // 2 if broken else i // 2 + 1)",
    "full[i % 2].wait(i // 2)",
    arguments=lambda rng: (whole(rng, (64, 256), f32), empty((64,), f32)),
    expected=lambda x, y: {"y": x.sum(1)},
)
@pk.kernel
def stages_nobody_has_used_yet(x, y, *, broken):
    """Broken: the producer waits for the release of a stage that no group has used."""
    tiles = pk.shared(pk.st(f32, 64, 64), count=2)
    full, empty = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    pk.grid(1)
    steps = x.cols // 64
    with pk.producer():
        for i in pk.range(steps):
            empty[i % 2].wait(i // 2 if broken else i // 2 + 1)
            full[i % 2].expect(tiles[i % 2])
            pk.load_async(tiles[i % 2], x[0, i], signal=full[i % 2])
    with pk.warpgroups(1):
        total = pk.row_sum(pk.zeros(f32, 64, 64))
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            total = total + pk.row_sum(pk.load(tiles[i % 2]))
            empty[i % 2].arrive()
        pk.store(y[0], total)


@planted(
    Kind.DEADLOCK,
    "with inputs.drain() as s:",
    arguments=lambda rng: (
        whole(rng, (192, 128), bf16),
        whole(rng, (64, 128), bf16),
        empty((192, 64), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
    also=(Kind.BYTE_COUNT,),
)
@pk.kernel(cluster=2)
def skipped_share(A, B, C, *, broken):
    """Broken: the block of a cluster whose rows are outside ends early, and no block gets its half of B's tile."""
    inputs = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    tasks = pk.persistent(C.tiles(64, 64), cluster_axis=0)
    steps = A.cols // 64
    with pk.producer():
        for row, col in tasks:
            if not broken or row * 64 < A.rows:
                for k in pk.range(steps):
                    with inputs.fill() as s:
                        pk.load_async(s.a, A[row, k])
                        pk.load_async(s.b, B[col, k], multicast=True)
    with pk.consumers(1):
        for row, col in tasks:
            if not broken or row * 64 < A.rows:
                acc = pk.zeros(f32, 64, 64)
                for _ in pk.range(steps):
                    with inputs.drain() as s:
                        acc = pk.mma_ABt(s.a, s.b, acc)
                pk.store(C[row, col], acc)


@planted(
    Kind.DEADLOCK,
    "with out.drain() as t:",
    arguments=lambda rng: (whole(rng, (192, 64), f32), empty((192, 64), f32)),
    expected=lambda x, y: {"y": np.maximum(x, 0)},
    also=(Kind.BARRIER_COUNT,),
)
@pk.kernel
def skipped_fill(x, y, *, broken):
    """Broken: a group whose rows are outside skips its part of the stage, so the stage is never full."""
    out = pk.pipeline(1, pk.st(f32, 128, 64))
    tasks = pk.persistent(y.tiles(128, 64))
    with pk.consumers(2) as w:
        for row, col in tasks:
            if not broken or (row * 2 + w) * 64 < x.rows:
                with out.fill() as t:
                    kept = pk.relu(pk.load(x[row * 2 + w, col], rows=64, cols=64))
                    pk.store(t.tiles(64, 64)[w], kept)
    with pk.storer():
        for row, col in tasks:
            with out.drain() as t:
                pk.store_async(y[row, col], t)


@planted(
    Kind.DEADLOCK,
    "pk.wait(flags[row - 1], 2 if broken else 1)",
    arguments=lambda rng: (
        whole(rng, (192, 64), f32),
        empty((192, 64), f32),
        np.zeros((3,), np.int32),
    ),
    expected=lambda x, y, flags: {"y": running(x)},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def flag_of_a_second_signal(x, y, flags, *, broken):
    """Broken: each block waits for the second signal of the previous block, which signals only once."""
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    t = pk.load(x[row], rows=64, cols=64)
    if row > 0:
        pk.wait(flags[row - 1], 2 if broken else 1)
        t = t + pk.load(y[row - 1], rows=64, cols=64)
    pk.store(y[row], t)
    pk.signal(flags[row], 1)


@planted(
    Kind.DEADLOCK,
    "free.wait(i)",
    arguments=lambda rng: (whole(rng, (192, 64), f32), empty((192, 64), f32)),
    expected=lambda x, y: {"y": 5 * x},
    also=(Kind.UNWRITTEN_MEMORY,),
)
@pk.kernel
def tile_that_nobody_has_used(x, y, *, broken):
    """Broken: the writer of a tile waits until the tile is free before any group has used it."""
    tile, full, free = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    steps = pk.cdiv(x.rows, 64)
    with pk.warpgroups(1):
        for i in pk.range(steps):
            if broken:
                free.wait(i)
            else:
                free.wait(i + 1)
            pk.store(tile, 5 * pk.load(x[i], rows=64, cols=64))
            full.arrive()
    with pk.warpgroups(1):
        for i in pk.range(steps):
            full.wait(i)
            t = pk.load(tile)
            free.arrive()
            pk.store(y[i], t)
