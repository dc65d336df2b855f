"""Kernels synchronised by hand, with semaphores, turns, flags and waits, as GPU libraries write them."""

from __future__ import annotations

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def ring(A, B, C, *, stages: int):
    """C = A B^T through a ring: one product is always queued, and a stage is free when the next has started."""
    a = pk.shared(pk.st(bf16, 64, 64), count=stages)
    b = pk.shared(pk.st(bf16, 64, 64), count=stages)
    full, free = pk.semaphore(1, count=stages), pk.semaphore(1, count=stages)
    row, col = pk.grid(*C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for i in pk.range(steps):
            s = i % stages
            free[s].wait(i // stages + 1)
            full[s].expect(a[s], b[s])
            pk.load_async(a[s], A[row, i], signal=full[s])
            pk.load_async(b[s], B[col, i], signal=full[s])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for i in pk.range(steps):
            s = i % stages
            full[s].wait(i // stages)
            acc = pk.mma_ABt(a[s], b[s], acc, managed=False)
            pk.mma_wait(1)
            if i > 0:
                free[(i - 1) % stages].arrive()
        pk.mma_wait()
        pk.store(C[row, col], acc)


@pk.kernel
def ring_to_ring(x, y):
    """y = 2 x + 1: one ring brings tiles, a second of another length takes them to the storer."""
    raw, done = pk.shared(pk.st(f32, 64, 64), count=2), pk.shared(pk.st(f32, 64, 64), count=3)
    raw_full, raw_free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    done_full, done_free = pk.semaphore(1, count=3), pk.semaphore(1, count=3)
    pk.grid(1)
    tiles = pk.cdiv(x.rows, 64)
    with pk.producer():
        for i in pk.range(tiles):
            raw_free[i % 2].wait(i // 2 + 1)
            raw_full[i % 2].expect(raw[i % 2])
            pk.load_async(raw[i % 2], x[i], signal=raw_full[i % 2])
    with pk.consumers(1):
        for i in pk.range(tiles):
            raw_full[i % 2].wait(i // 2)
            t = pk.load(raw[i % 2])
            raw_free[i % 2].arrive()
            done_free[i % 3].wait(i // 3 + 1)
            pk.store(done[i % 3], t * 2 + 1)
            pk.fence_async()
            done_full[i % 3].arrive()
    with pk.storer():
        for i in pk.range(tiles):
            done_full[i % 3].wait(i // 3)
            pk.store_async(y[i], done[i % 3])
            pk.store_wait(1, read=True)
            if i > 0:
                done_free[(i - 1) % 3].arrive()


@pk.kernel
def ping_pong(A, B, C):
    """C = A B^T by two consumers that take the tensor cores in turn: one multiplies while the other stores."""
    a, b = pk.shared(pk.st(bf16, 64, 64), count=3), pk.shared(pk.st(bf16, 64, 64), count=3)
    full, free = pk.semaphore(1, count=3), pk.semaphore(1, count=3)
    order = pk.semaphore(1, count=2)
    tasks = pk.persistent(C.tiles(128, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        i = 0
        for row, col in tasks:
            for half in range(2):
                for k in pk.range(steps):
                    s = i % 3
                    free[s].wait(i // 3 + 1)
                    full[s].expect(a[s], b[s])
                    pk.load_async(a[s], A[2 * row + half, k], signal=full[s])
                    pk.load_async(b[s], B[col, k], signal=full[s])
                    i = i + 1
    with pk.consumers(2) as w:
        turn = 0
        if w == 1:
            order[0].arrive()
        for row, col in tasks:
            acc = pk.zeros(f32, 64, 64)
            order[w].wait(turn)
            for k in pk.range(steps):
                i = (2 * turn + w) * steps + k
                full[i % 3].wait(i // 3)
                acc = pk.mma_ABt(a[i % 3], b[i % 3], acc, managed=False)
                pk.mma_wait()
                free[i % 3].arrive()
            order[1 - w].arrive()
            pk.store(C[2 * row + w, col], acc)
            turn = turn + 1


@pk.kernel
def stored_in_slices(A, B, C):
    """C = A B^T: a result leaves in slices through two tiles, one of which is stored while the other is written."""
    operands = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    out = pk.shared(pk.st(f32, 64, 16), count=2)
    tasks = pk.persistent(C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                with operands.fill() as s:
                    pk.load_async(s.a, A[row, k])
                    pk.load_async(s.b, B[col, k])
    with pk.consumers(1):
        for row, col in tasks:
            acc = pk.zeros(f32, 64, 64)
            for _ in pk.range(steps):
                with operands.drain() as s:
                    acc = pk.mma_ABt(s.a, s.b, acc)
            for j in range(4):
                pk.store_wait(1, read=True)
                pk.sync()
                pk.publish(out[j % 2], acc[:, 16 * j : 16 * j + 16])
                pk.store_async(C[row, 4 * col + j], out[j % 2])


@pk.kernel
def depth_split_in_a_block(A, B, C):
    """C = A B^T: two consumers take every other step, and one adds the sums of both by way of a shared tile."""
    a, b = pk.shared(pk.st(bf16, 64, 64), count=4), pk.shared(pk.st(bf16, 64, 64), count=4)
    full, free = pk.semaphore(1, count=4), pk.semaphore(1, count=4)
    part, there, gone = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    tasks = pk.persistent((pk.cdiv(A.rows, 64),))
    steps = pk.cdiv(A.cols, 128) * 2
    with pk.producer():
        i = 0
        for (row,) in tasks:
            for k in pk.range(steps):
                s = i % 4
                free[s].wait(i // 4 + 1)
                full[s].expect(a[s], b[s])
                pk.load_async(a[s], A[row, k], signal=full[s])
                pk.load_async(b[s], B[0, k], signal=full[s])
                i = i + 1
    with pk.consumers(2) as w:
        turn = 0
        for (row,) in tasks:
            acc = pk.zeros(f32, 64, 64)
            for k in pk.range(steps // 2):
                i = turn * steps + 2 * k + w
                full[i % 4].wait(i // 4)
                acc = pk.mma_ABt(a[i % 4], b[i % 4], acc, managed=False)
                pk.mma_wait()
                free[i % 4].arrive()
            if w == 1:
                gone.wait(turn + 1)
                pk.store(part, acc)
                there.arrive()
            else:
                there.wait(turn)
                total = acc + pk.load(part)
                gone.arrive()
                pk.store(C[row], total)
            turn = turn + 1
