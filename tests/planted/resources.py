"""Kernels that ask for more shared memory, registers, threads or blocks than a Hopper GPU has."""

import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.planted.core import empty, planted, product, whole


def matrices(rng):
    """A, B and an output for C = A @ B.T, one tile of it."""
    return whole(rng, (128, 128), bf16), whole(rng, (256, 128), bf16), empty((128, 256), bf16)


def rounded(A, B, C):
    return {"C": product(A, B.T).astype(C.dtype)}


@planted(
    Kind.RESOURCES,
    "inputs = pk.pipeline(5 if broken else 4, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 256, 64))",
    arguments=matrices,
    expected=rounded,
)
@pk.kernel
def one_stage_too_many(A, B, C, *, broken):
    """Broken: five stages of 48 KiB are more than the 227 KiB of shared memory that a block can have."""
    inputs = pk.pipeline(5 if broken else 4, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 256, 64))
    row, col = pk.grid(A.rows // 128, B.rows // 256)
    steps = A.cols // 64
    with pk.producer():
        for k in pk.range(steps):
            with inputs.fill() as s:
                pk.load_async(s.a, A[row, k])
                pk.load_async(s.b, B[col, k])
    with pk.consumers(2) as w:
        acc = pk.zeros(f32, 64, 256)
        for _ in pk.range(steps):
            with inputs.drain() as s:
                acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
        pk.store(C[row * 2 + w, col], acc.to(bf16))


@planted(
    Kind.RESOURCES,
    "inputs = pk.pipeline(5, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 256, 64))",
    arguments=lambda rng: (
        whole(rng, (64, 128), bf16),
        whole(rng, (256, 128), bf16),
        empty((64, 256), bf16),
    ),
    expected=rounded,
)
@pk.kernel
def output_beside_its_inputs(A, B, C, *, broken):
    """Broken: the output tile has its own 32 KiB, although the inputs are no longer needed when it is filled."""
    inputs = pk.pipeline(5, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 256, 64))
    outputs = pk.pipeline(1, pk.st(bf16, 64, 256), reuse=None if broken else inputs)
    row, col = pk.grid(A.rows // 64, B.rows // 256)
    steps = A.cols // 64
    with pk.producer():
        for k in pk.range(steps):
            with inputs.fill() as s:
                pk.load_async(s.a, A[row, k])
                pk.load_async(s.b, B[col, k])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 256)
        for _ in pk.range(steps):
            with inputs.drain() as s:
                acc = pk.mma_ABt(s.a, s.b, acc)
        half = acc.to(bf16)
        with outputs.fill() as t:
            pk.store(t, half)
    with pk.storer(), outputs.drain() as t:
        pk.store_async(C[row, col], t)


@planted(
    Kind.RESOURCES,
    "with pk.consumers(3, registers=240 if broken else 160) as w:",
    arguments=lambda rng: (
        whole(rng, (192, 64), bf16),
        whole(rng, (64, 64), bf16),
        empty((192, 64), f32),
    ),
    expected=lambda A, B, C: {"C": product(A, B.T)},
)
@pk.kernel
def registers_of_two_groups_for_three(A, B, C, *, broken):
    """Broken: 240 registers per thread fit two groups and a producer, but the kernel has three groups."""
    ring = pk.pipeline(2, a=pk.st(bf16, 192, 64), b=pk.st(bf16, 64, 64))
    row, col = pk.grid(A.rows // 192, B.rows // 64)
    steps = A.cols // 64
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as s:
                pk.load_async(s.a, A[row, k])
                pk.load_async(s.b, B[col, k])
    with pk.consumers(3, registers=240 if broken else 160) as w:
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(steps):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
        pk.store(C[row * 3 + w, col], acc)


@planted(
    Kind.RESOURCES,
    "def eight_groups_and_a_producer(",
    arguments=lambda rng: (whole(rng, (256, 32), f32), empty((256, 32), f32)),
    expected=lambda x, y: {"y": np.maximum(x, 0)},
)
@pk.kernel
def eight_groups_and_a_producer(x, y, *, broken):
    """Broken: eight groups fill a block of 1024 threads, and the producer needs 128 more."""
    groups = 8 if broken else 4
    side_by_side = groups // 4
    cols = 16 * side_by_side
    ring = pk.pipeline(1, pk.st(f32, 256, cols))
    tasks = pk.persistent(x.tiles(256, cols))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[row, col])
    with pk.warpgroups(groups) as w:
        for row, col in tasks:
            with ring.drain() as t:
                part = pk.relu(pk.load(t.tiles(64, 16)[w % 4, w // 4]))
            pk.store(y[row * 4 + w % 4, col * side_by_side + w // 4], part)


@planted(
    Kind.RESOURCES,
    "(first,) = pk.grid(x.rows // 128)",
    "pk.wait(flags[block - 1], 1)",
    arguments=lambda rng: (
        whole(rng, (140 * 128, 64), f32),
        empty((140,), f32),
        np.zeros(140, np.int32),
    ),
    expected=lambda x, ends, flags: {"ends": x.reshape(140, -1).sum(1).cumsum()},
)
@pk.kernel
def more_blocks_than_run_at_once(x, ends, flags, *, broken):
    """Broken: each block waits for the previous block, and there are more blocks than a GPU can run at once."""
    ring = pk.pipeline(4, pk.st(f32, 128, 64))  # a multiprocessor holds one block

    def add(block):
        with ring.fill() as t:
            pk.load_async(t, x[block])
        with ring.drain() as t:
            end = pk.sum(pk.load(t))
        if block > 0:
            pk.wait(flags[block - 1], 1)
            end = end + pk.load(ends[block - 1])
        pk.store(ends[block], end)
        pk.signal(flags[block], 1)

    if broken:
        (first,) = pk.grid(x.rows // 128)
        add(first)
    else:
        for (block,) in pk.persistent((x.rows // 128,)):
            add(block)
