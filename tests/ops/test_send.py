"""Tiles that blocks of a cluster send to one another: what may be sent where, and what is seen when."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError, ArgumentError, DeadlockError, KernelError, LanguageError
from pykittens.types.dtypes import DType, bf16, f32, int8, int64
from tests.cases.send import summed, turned
from tests.kernels_send import all_to_all, ring


def numbers(rows: int, cols: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, (rows, cols)).astype(np.float32)


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_a_ring_of_blocks_passes_tiles_on(cluster, seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", seed)
    x = numbers(2 * cluster * 64, 300)
    y = np.empty_like(x)
    ring(cluster)(x, y)
    assert np.array_equal(y, turned(cluster, 64)(x)[0])


@pytest.mark.parametrize("seed", ["0", "1", "2"])
@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_each_block_adds_the_tiles_of_all(cluster, seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", seed)
    x = numbers(2 * cluster * 64, 200)
    y = np.empty_like(x)
    all_to_all(cluster)(x, y)
    assert np.array_equal(y, summed(cluster, 64)(x)[0])


@pk.kernel(cluster=2)
def early(x, y, *, waits: bool):
    """Reads the place of a tile before the wait for it, or after; the registers change after the send."""
    place, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    (rank,) = pk.grid(2)
    t = pk.load(x[rank, 0], rows=64, cols=64)
    full.expect(place)
    pk.send(place, t, block=1 - rank, signal=full)
    t = t * 0.0
    if waits:
        full.wait(0)
    pk.store(y[rank, 0], pk.load(place) + t)
    if not waits:
        full.wait(0)


def test_a_tile_is_as_it_was_when_it_was_sent_and_is_seen_after_the_wait():
    x = numbers(128, 64)
    y = np.empty_like(x)
    early(x, y, waits=True)
    assert np.array_equal(y, np.concatenate([x[64:], x[:64]]))
    early(x, y, waits=False)
    assert np.isnan(y).any()


@pk.kernel(cluster=2)
def numbered(x, y, block):
    place, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(2)
    full.expect(place)
    pk.send(place, pk.load(x[0], rows=64, cols=64), block=block, signal=full)
    full.wait(0)
    pk.store(y[0], pk.load(place))


@pk.kernel(cluster=2)
def arrives(y, block):
    done = pk.semaphore(1)
    pk.grid(2)
    done.arrive(block=block)
    pk.store(y[0], pk.zeros(f32, 64))


@pytest.mark.parametrize("block", [-1, 2])
def test_a_block_outside_the_cluster_is_an_error(block):
    x = numbers(64, 64)
    with pytest.raises(AccessError, match=f"block {block} is outside the 2 of a cluster"):
        numbered(x, np.empty_like(x), block)
    with pytest.raises(AccessError, match=f"block {block} is outside the 2 of a cluster"):
        arrives(np.empty((1, 64), np.float32), block)


@pk.kernel(cluster=2)
def unexpected(x, y):
    """The receiver arrives and expects no bytes."""
    place, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    (rank,) = pk.grid(2)
    full.arrive()
    pk.send(place, pk.load(x[0], rows=64, cols=64), block=1 - rank, signal=full)
    full.wait(0)
    full.wait(1)


def test_a_receiver_that_expects_nothing_waits_for_ever():
    x = numbers(64, 64)
    with pytest.raises(DeadlockError) as fault:
        unexpected(x, np.empty_like(x))
    assert "16384 bytes more than expected" in str(fault.value)


# -- what the language refuses ---------------------------------------------------------------------


def sent(make, *, cluster: int = 2, dtype: DType = f32) -> None:
    """Record a kernel that calls `make` with a tile of registers, a place and a semaphore."""

    @pk.kernel(cluster=cluster)
    def kernel(y):
        ring = pk.pipeline(1, pk.st(dtype, 64, 64))
        place, full = pk.shared(pk.st(dtype, 64, 64)), pk.semaphore(1)
        vector = pk.shared(pk.sv(dtype, 64))
        pk.grid(y.rows)
        make(pk.zeros(dtype, 64, 64), place, full, ring, vector)

    kernel(np.zeros((8, 64), np.float32))


def to_a_stage(t, place, full, ring, vector):
    with ring.fill() as s:
        pk.send(s, t, block=0, signal=full)


REFUSED = {
    "a stage": (to_a_stage, "`dst` must be memory of pk.shared, not a stage of a pipeline"),
    "a vector": (
        lambda t, p, full, r, vector: pk.send(vector, t, block=0, signal=full),
        "`dst` must be a shared tile, not sv<f32, 64>",
    ),
    "a row": (
        lambda t, place, full, *_: pk.send(place.row(3), t, block=0, signal=full),
        "`dst` must be a shared tile, not row<f32, 64>",
    ),
    "another shape": (
        lambda t, place, full, *_: pk.send(place, t[:, 0:32], block=0, signal=full),
        "`value` must be a register tile of 64x64, not rt<f32, 64x32>",
    ),
    "another dtype": (
        lambda t, place, full, *_: pk.send(place, t.to(bf16), block=0, signal=full),
        "`value` must be f32 like `dst`, not bf16",
    ),
    "a block beyond": (
        lambda t, place, full, *_: pk.send(place, t, block=2, signal=full),
        "`block` must be a block of the cluster from 0 to 1, not 2",
    ),
    "no block": (
        lambda t, place, full, *_: pk.send(place, t, block=0.0, signal=full),
        "`block` must be an int32, not 0.0",
    ),
    "no semaphore": (
        lambda t, place, full, *_: pk.send(place, t, block=0, signal=place),
        "`signal` must be the semaphore that counts the bytes of `dst`, not st<f32, 64x64>",
    ),
    "an arrival beyond": (
        lambda t, place, full, *_: full.arrive(block=2),
        "arrive: `block` must be a block of the cluster from 0 to 1, not 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_sent_is_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(KernelError) as fault:
        sent(make)
    assert message in fault.value.message, fault.value.message


@pytest.mark.parametrize("dtype", [int8, int64])
def test_elements_of_other_sizes_are_refused_with_a_way_out(dtype):
    def make(t, place, full, *_):
        pk.send(place, t, block=0, signal=full)

    with pytest.raises(
        KernelError, match=f"`dst` must have elements of 16 or 32 bits, not {dtype}"
    ) as fault:
        sent(make, dtype=dtype)
    assert "convert" in fault.value.help


def test_without_clusters_there_is_no_other_block():
    def send(t, place, full, *_):
        pk.send(place, t, block=0, signal=full)

    for make in (send, lambda t, place, full, *_: full.arrive(block=0)):
        with pytest.raises(KernelError, match="not 0 in a kernel without clusters") as fault:
            sent(make, cluster=1)
        assert "@pk.kernel(cluster=2)" in fault.value.help


# -- grids of clusters -----------------------------------------------------------------------------


@pk.kernel(warps=1)
def ranks(y, *, cluster: int):
    """Each block of a cluster sends its number to the first one."""
    places, full = pk.shared(pk.st(f32, 16, 16), count=cluster), pk.semaphore(1)
    i, rank = pk.grid(y.rows, cluster, cluster=cluster)
    pk.send(places[rank], pk.zeros(f32, 16, 16) + rank.to(f32), block=0, signal=full)
    if rank == 0:
        full.expect(cluster * 1024)
        full.wait(0)
        for k in range(cluster):
            pk.store(y[i, k], pk.max(pk.load(places[k])))


@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
def test_the_blocks_of_a_cluster_are_neighbours_along_the_last_axis_of_a_grid(cluster):
    y = np.full((3, cluster), np.nan, np.float32)
    if cluster == 1:
        with pytest.raises(KernelError, match="without clusters"):
            ranks(y, cluster=cluster)
        return
    ranks(y, cluster=cluster)
    assert (y == np.arange(cluster)).all()
    report = pk.check(ranks, np.full_like(y, np.nan), cluster=cluster)
    assert report.ok, str(report)


def test_a_grid_that_no_clusters_divide_is_refused():
    x = numbers(3 * 64, 64)

    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows // 64, cluster=2)
        pk.store(y[i, 0], pk.load(x[i, 0], rows=64, cols=64))

    kernel(x[:128], np.empty_like(x[:128]))
    with pytest.raises(
        ArgumentError, match="a grid of 3 blocks cannot be divided into clusters of 2"
    ):
        kernel(x, np.empty_like(x))


@pytest.mark.parametrize("cluster", [0, 3, 16, True, 2.0, "2"])
def test_a_cluster_of_a_grid_has_as_many_blocks_as_the_hardware_allows(cluster):
    @pk.kernel
    def kernel(y):
        pk.grid(4, cluster=cluster)

    with pytest.raises(LanguageError, match="pk.grid: `cluster` must be 1, 2, 4 or 8, not"):
        kernel(np.zeros((4, 4), np.float32))
