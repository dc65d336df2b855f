"""Kernels whose CUDA C++ misuses a hardware barrier; the warning shows its line."""

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind, Level
from tests.planted.core import empty, planted, product, whole

# The checker does not read the text, so it finds stores and a product that nothing orders.
UNREAD = (Kind.RACE, Kind.MISSING_FENCE)


NUMBERED = 'asm volatile("bar.sync %0, 128;" :: "r"({0} + 1) : "memory");'


def nothing(*operands):
    """The effect of a barrier on numbers: none."""


def squares(rows):
    """x, and an output for x @ x.T of each 64 rows."""
    return lambda rng: (whole(rng, (rows, 64), bf16), empty((rows, 64), f32))


def gram(x, y):
    tiles = [x[i : i + 64] for i in range(0, len(x), 64)]
    for i, t in enumerate(tiles):
        y[i * 64 : i * 64 + 64] = product(t, t.T)
    return {"y": y}


@planted(
    Kind.NAMED_BARRIER,
    'pk.inline_cuda("__syncthreads();", numpy=nothing)',
    arguments=squares(128),
    expected=gram,
    level=Level.WARNING,
    also=UNREAD,
)
@pk.kernel
def whole_block_in_a_role(x, y, *, broken):
    """Broken: one role calls __syncthreads(), which the warps of the other role never reach."""
    ring, staged = pk.pipeline(2, pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64))
    tasks = pk.persistent(x.tiles(64, 64))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[row, col])
    with pk.consumers(1):
        for row, col in tasks:
            with ring.drain() as t:
                pk.store(staged, pk.load(t))
            pk.fence_async()
            if broken:
                pk.inline_cuda("__syncthreads();", numpy=nothing)
            else:
                pk.sync()
            pk.store(y[row, col], pk.mma_ABt(staged, staged))
            pk.sync()


@planted(
    Kind.NAMED_BARRIER,
    'asm volatile("bar.sync 1, 128;" ::: "memory");',
    arguments=squares(256),
    expected=gram,
    level=Level.WARNING,
    also=UNREAD,
)
@pk.kernel
def one_barrier_for_two_groups(x, y, *, broken):
    """Broken: both groups use barrier 1, which counts the warps of only one of them."""
    staged = pk.shared(pk.st(bf16, 64, 64), count=2)
    (block,) = pk.grid(x.rows // 128)
    with pk.warpgroups(2) as w:
        pk.store(staged[w], pk.load(x[block * 2 + w], rows=64, cols=64))
        pk.fence_async()
        if broken:
            pk.inline_cuda('asm volatile("bar.sync 1, 128;" ::: "memory");', numpy=nothing)
        else:
            pk.sync()
        pk.store(y[block * 2 + w], pk.mma_ABt(staged[w], staged[w]))


@planted(
    Kind.NAMED_BARRIER,
    'asm volatile("bar.sync 9, 256;" ::: "memory");',
    arguments=squares(128),
    expected=gram,
    level=Level.WARNING,
    also=UNREAD,
)
@pk.kernel
def count_of_two_groups(x, y, *, broken):
    """Broken: the barrier counts 256 threads, and the role has 128."""
    staged, loaded = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    (row,) = pk.grid(x.rows // 64)
    with pk.producer():
        loaded.expect(staged)
        pk.load_async(staged, x[row], signal=loaded)
    with pk.warpgroups(1):
        loaded.wait(0)
        pk.store(staged, -pk.load(staged))
        pk.fence_async()
        if broken:
            pk.inline_cuda('asm volatile("bar.sync 9, 256;" ::: "memory");', numpy=nothing)
        else:
            pk.sync()
        pk.store(y[row], pk.mma_ABt(staged, staged))


@planted(
    Kind.NAMED_BARRIER,
    "pk.inline_cuda(NUMBERED, w, numpy=nothing)",
    arguments=lambda rng: (*squares(128)(rng), empty((128,), f32)),
    expected=lambda x, y, sums: {**gram(x, y), "sums": x.astype(float).sum(1)},
    level=Level.WARNING,
    also=UNREAD,
)
@pk.kernel
def barrier_counted_from_the_role(x, y, sums, *, broken):
    """Broken: groups use the barrier of their index plus one, and another role precedes theirs."""
    staged = pk.shared(pk.st(bf16, 64, 64), count=2)
    (block,) = pk.grid(x.rows // 128)
    with pk.warpgroups(1):
        for i in range(2):
            t = pk.load(x[block * 2 + i], rows=64, cols=64)
            pk.store(sums[block * 2 + i], pk.spread(pk.row_sum(t.to(f32)), pk.plain))
    with pk.warpgroups(2) as w:
        pk.store(staged[w], pk.load(x[block * 2 + w], rows=64, cols=64))
        pk.fence_async()
        if broken:
            pk.inline_cuda(NUMBERED, w, numpy=nothing)
        else:
            pk.sync()
        pk.store(y[block * 2 + w], pk.mma_ABt(staged[w], staged[w]))
