"""Launches that start before those before them have ended see all that those wrote, whoever launched them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import int32
from tests.targets.test_program import ready_weights

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

LAUNCHES = 200
# Rows of 37 numbers end inside a sector of the cache, so that neighbouring blocks write and read the same one.
ROWS, COLS = 150, 37


@pk.kernel
def turned(x, y, shift, *, early=True):
    """Row r of y from row r + shift of x, which another block wrote."""
    if early:
        pk.overlap()
    (row,) = pk.grid(x.rows)
    pk.store(y[row], pk.load(x[(row + shift) % x.rows], cols=pk.static(x.cols)) * 3 + shift)


@pk.kernel(inplace=True)
def in_place(x, y, add):
    """y = 5 x + add, which may be x."""
    pk.overlap()
    (row,) = pk.grid(x.rows)
    pk.store(y[row], pk.load(x[row], cols=pk.static(x.cols)) * 5 + add)


@pk.kernel
def late(x, y, steps):
    """A number that takes some time: y = 3 x + 1, so many times over."""
    pk.overlap()
    (row,) = pk.grid(x.rows)
    t = pk.load(x[row], cols=pk.static(x.cols))
    for _ in pk.range(steps):
        t = t * 3 + 1
    pk.store(y[row], t)


@pk.kernel
def counted(x, y, count):
    """y = 7 x + count, which all threads read before they do anything else."""
    pk.overlap()
    (block,) = pk.grid(pk.cdiv(x.rows, 4))
    n = pk.load(count[0])
    with pk.warps(4) as w:
        row = block * 4 + w
        pk.store(y[row], pk.load(x[row], cols=pk.static(x.cols)) * 7 + n)


@pk.kernel(warps=1)
def count_on(count):
    """One more."""
    pk.overlap()
    pk.grid(1)
    pk.store(count[0], 1, op="add")


@pk.kernel
def through_shared(x, y):
    """y = 9 x + 1; tiles come and go by the copy engine, and persistent blocks share them."""
    pk.overlap()
    inputs, outputs = pk.pipeline(2, pk.st(int32, 64, 32)), pk.pipeline(1, pk.st(int32, 64, 32))
    tasks = pk.persistent(y.tiles(64, 32))
    with pk.producer():
        for row, col in tasks:
            with inputs.fill() as s:
                pk.load_async(s, x[row, col])
    with pk.consumers(1):
        for row, col in tasks:
            with inputs.drain() as s:
                t = pk.load(s)
            with outputs.fill() as s:
                pk.store(s, t * 9 + 1)
    with pk.storer():
        for row, col in tasks:
            with outputs.drain() as s:
                pk.store_async(y[row, col], s)


@pk.kernel
def exchanged(x, y, *, early=True):
    """y = 3 x + 1, its rows of tiles in the opposite order; the next launch may start when the producer has ended."""
    if early:
        pk.overlap()
    ring = pk.pipeline(2, pk.st(int32, 64, 32))
    rows, cols = x.rows // 64, x.cols // 32
    tasks = pk.persistent((rows, cols))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as s:
                pk.load_async(s, x[rows - 1 - row, col])
    with pk.consumers(1):
        for row, col in tasks:
            with ring.drain() as s:
                t = pk.load(s)
            pk.store(y[row, col], t * 3 + 1)


def matrices(rng: np.random.Generator) -> tuple[Any, ...]:
    """A matrix beyond the reach of the copy engine, and one within it."""
    return tuple(
        rng.integers(-(2**31), 2**31, shape, np.int32) for shape in ((ROWS, COLS), (ROWS, 64))
    )


def chain(narrow: list[Any], wide: list[Any], count: Any, launches: int = LAUNCHES) -> None:
    """Launches of which each needs what the one before it wrote: from the first of two arrays and back to it."""
    for i in range(launches // 10):
        turned(narrow[0], narrow[1], i % 149 + 1)
        late(narrow[1], narrow[0], 100)
        in_place(narrow[0], narrow[0], i)
        count_on(count)
        counted(narrow[0], narrow[1], count)
        turned(narrow[1], narrow[0], 7)
        through_shared(wide[0], wide[1])
        counted(wide[1], wide[0], count)
        through_shared(wide[0], wide[1])
        turned(wide[1], wide[0], 1)


def expected(narrow: Any, wide: Any, launches: int = LAUNCHES) -> tuple[Any, Any]:
    """The same without kernels, modulo 2^32."""
    a, b = narrow.view(np.uint32), wide.view(np.uint32)
    for i in range(launches // 10):
        shift = i % 149 + 1
        a = np.roll(a, -shift, axis=0) * np.uint32(3) + np.uint32(shift)
        for _ in range(100):
            a = a * np.uint32(3) + np.uint32(1)
        a = (a * np.uint32(5) + np.uint32(i)) * np.uint32(7) + np.uint32(i + 1)
        a = np.roll(a, -7, axis=0) * np.uint32(3) + np.uint32(7)
        b = (b * np.uint32(9) + np.uint32(1)) * np.uint32(7) + np.uint32(i + 1)
        b = np.roll(b * np.uint32(9) + np.uint32(1), -1, axis=0) * np.uint32(3) + np.uint32(1)
    return a.view(np.int32), b.view(np.int32)


def on_gpu(array: Any) -> list[Any]:
    """A copy, and a second matrix of numbers that nothing may read."""
    x = torch.from_numpy(array).cuda()
    return [x, torch.full_like(x, -1234567891)]


def is_equal(found: Any, array: Any) -> bool:
    return bool((found.cpu().numpy() == array).all())


@pytest.fixture
def rng() -> Iterator[np.random.Generator]:
    yield np.random.default_rng(0)
    torch.cuda.synchronize()


def test_each_launch_of_a_chain_sees_what_the_one_before_wrote(rng: np.random.Generator) -> None:
    for _ in range(10):
        a, b = matrices(rng)
        narrow, wide = on_gpu(a), on_gpu(b)
        chain(narrow, wide, torch.zeros(1, dtype=torch.int32, device="cuda"))
        wanted = expected(a, b)
        assert is_equal(narrow[0], wanted[0])
        assert is_equal(wide[0], wanted[1])


def of_whole_tiles(rng: np.random.Generator) -> Any:
    return rng.integers(-(2**31), 2**31, (64 * 30, 32 * 40), np.int32)


def after_exchange(array: Any) -> Any:
    """What `exchanged` makes of a matrix of whole tiles."""
    return (array.reshape(-1, 64, array.shape[1])[::-1] * np.int32(3) + 1).reshape(array.shape)


def test_each_launch_of_a_chain_with_producers_sees_what_the_one_before_wrote(
    rng: np.random.Generator,
) -> None:
    a = of_whole_tiles(rng)
    x, y = on_gpu(a)
    for _ in range(LAUNCHES):
        exchanged(x, y)
        x, y, a = y, x, after_exchange(a)
    assert is_equal(x, a)


def test_a_chain_of_launches_of_which_some_overlap(rng: np.random.Generator) -> None:
    """With a producer and without, in every order of two."""
    a = of_whole_tiles(rng)
    x, y = on_gpu(a)
    orders = set()
    before = None
    for shift in range(1, LAUNCHES + 1):
        kind = of_producer, early = bool(rng.integers(2)), bool(rng.integers(2))
        if of_producer:
            exchanged(x, y, early=early)
            a = after_exchange(a)
        else:
            turned(x, y, shift, early=early)
            a = np.roll(a, -shift, axis=0) * np.int32(3) + np.int32(shift)
        x, y = y, x
        orders.add((before, kind))
        before = kind
    assert len(orders) == 16 + 1
    assert is_equal(x, a)


def test_a_chain_among_the_kernels_of_another_library(rng: np.random.Generator) -> None:
    for _ in range(10):
        a, b = matrices(rng)
        narrow, wide = on_gpu(a), on_gpu(b)
        count = torch.zeros(1, dtype=torch.int32, device="cuda")
        for _ in range(LAUNCHES // 10):
            chain(narrow, wide, count.zero_(), launches=10)
            narrow[0].mul_(3)
            narrow[1].copy_(narrow[0])
            narrow[0].zero_()
            narrow[0].add_(narrow[1])
            wide[1].copy_(wide[0])
            torch.bitwise_xor(wide[1], 0x5EA, out=wide[0])
            a, b = expected(a, b, launches=10)
            a, b = (a.view(np.uint32) * np.uint32(3)).view(np.int32), b ^ 0x5EA
        assert is_equal(narrow[0], a)
        assert is_equal(wide[0], b)


def test_a_chain_in_a_graph(rng: np.random.Generator) -> None:
    a, b = matrices(rng)
    narrow, wide = on_gpu(a), on_gpu(b)
    count = torch.zeros(1, dtype=torch.int32, device="cuda")
    chain(narrow, wide, count, launches=10)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        count.zero_()
        chain(narrow, wide, count)
        narrow[1].copy_(narrow[0])
        chain(narrow[::-1], wide, count.zero_())
    for _ in range(10):
        a, b = matrices(rng)
        narrow[0].copy_(torch.from_numpy(a))
        wide[0].copy_(torch.from_numpy(b))
        graph.replay()
        once = expected(a, b)
        again = expected(*once)
        assert is_equal(narrow[1], again[0])
        assert is_equal(wide[0], again[1])


def test_a_chain_that_goes_from_stream_to_stream(rng: np.random.Generator) -> None:
    a, b = matrices(rng)
    narrow, wide = on_gpu(a), on_gpu(b)
    count = torch.zeros(1, dtype=torch.int32, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    before = torch.cuda.current_stream()
    for i in range(LAUNCHES // 10):
        stream = streams[i % 2]
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            chain(narrow, wide, count.zero_(), launches=10)
        before = stream
        a, b = expected(a, b, launches=10)
    before.synchronize()
    assert is_equal(narrow[0], a)
    assert is_equal(wide[0], b)


def test_what_is_read_is_not_overwritten_by_a_later_launch(rng: np.random.Generator) -> None:
    """Each launch writes what the one before it still reads."""
    a, _ = matrices(rng)
    x = on_gpu(a)[0]
    outs = [torch.full_like(x, -1) for _ in range(LAUNCHES)]
    wanted = []
    for i, out in enumerate(outs):
        late(x, out, 200)
        in_place(x, x, i)
        late_of = a.view(np.uint32)
        wanted.append(late_of)
        a = (late_of * np.uint32(5) + np.uint32(i)).view(np.int32)
    for out, at_start in zip(outs, wanted, strict=True):
        for _ in range(200):
            at_start = at_start * np.uint32(3) + np.uint32(1)
        assert is_equal(out, at_start.view(np.int32))
    assert is_equal(x, a)


def test_weights_that_are_ready_are_read_before_the_launch_before_has_ended():
    """In a chain of products whose weights stay, each sees all that the one before it wrote."""
    n = 1024
    W = torch.randint(-1, 2, (n, n), device="cuda").float()
    vectors = torch.zeros((LAUNCHES, n), device="cuda")
    vectors[0] = torch.arange(n, device="cuda").float() % 5
    for i in range(LAUNCHES - 1):
        ready_weights(W, vectors[i], vectors[i + 1])
        vectors[i + 1] %= 7  # exact again
    for i in range(LAUNCHES - 1):
        assert torch.equal(vectors[i + 1], (W @ vectors[i]) % 7)
