"""Groups of blocks of a cluster that share copies: along the rows and the columns of a cluster of both."""

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16
from pykittens.emulate.finding import Kind
from pykittens.ir.peers import Peers, writers
from tests.kernels_cluster import cluster_of_both
from tests.races import faults, findings


def matrices(m, n, k):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((r, k)).astype(ml_dtypes.bfloat16) for r in (m, n))
    return a, b, np.full((m, n), np.nan, np.float32)


@pytest.mark.parametrize("sides", [(1, 2), (2, 1), (2, 2), (1, 4), (2, 4), (4, 2), (8, 1)])
@pytest.mark.parametrize("shape", [(256, 512, 128), (70, 600, 200)])
def test_blocks_share_one_operand_with_their_row_and_one_with_their_column(sides, shape):
    a, b, c = matrices(*shape)
    cluster_of_both(a, b, c, sides=sides)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.allclose(c, expected, rtol=1e-4, atol=1e-3)
    assert faults(cluster_of_both, *matrices(*shape), sides=sides) == set()


@pk.kernel(cluster=4)
def copies(x, y, *, peers):
    """Each block of a cluster copies a row of tiles, which the blocks of a group should share."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    cluster, rank = pk.grid(pk.cdiv(y.rows, 256), 4)
    with pk.producer():
        for col in pk.range(2):
            with ring.fill() as s:
                pk.load_async(s, x[rank // 2, col], multicast=peers)
    with pk.storer():
        for col in pk.range(2):
            with ring.drain() as s:
                pk.store_async(y[cluster * 4 + rank, col], s)


def tensors():
    x = np.arange(128 * 128).reshape(128, 128).astype(ml_dtypes.bfloat16)
    return x, np.full((512, 128), np.nan, ml_dtypes.bfloat16)


@pytest.mark.parametrize("peers", [False, pk.peers(1), pk.peers(2), pk.peers(2, step=1)])
def test_groups_that_name_the_same_tile_are_right(peers):
    x, y = tensors()
    assert faults(copies, x, y, peers=peers) == set()
    copies(x, y, peers=peers)
    assert np.array_equal(
        y, np.tile(np.repeat(x.reshape(2, 64, 128), 2, 0).reshape(256, 128), (2, 1))
    )


@pytest.mark.parametrize("peers", [True, pk.peers(2, step=2), pk.peers(4)])
def test_groups_that_name_different_tiles_are_found(peers):
    found = findings(copies, *tensors(), peers=peers)
    assert {f.kind for f in found} == {Kind.MULTICAST}
    assert "multicast=pk.peers(...)" in found[0].help


def test_the_blocks_of_a_group():
    assert [[*Peers(2, 4).ranks(r)] for r in (0, 1, 5, 7)] == [[0, 4], [1, 5], [1, 5], [3, 7]]
    assert [Peers(4).number(r) for r in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert writers([Peers(4), Peers(2, 4)], 6) == [2, 4, 5, 6, 7]
    assert writers([], 3) == [3]


@pytest.mark.parametrize(
    ("peers", "message"),
    [
        (pk.peers(3), r"groups that a cluster of 4 blocks divides into, not pk.peers\(3, step=1\)"),
        (pk.peers(2, step=4), "groups that a cluster of 4 blocks divides into"),
        (2, "must be a compile-time bool, not 2"),
    ],
)
def test_groups_that_do_not_divide_a_cluster_are_refused(peers, message):
    with pytest.raises(pk.KernelError, match=message):
        copies(*tensors(), peers=peers)


@pytest.mark.parametrize(("given", "name"), [((0,), "count"), ((2, -1), "step"), ((2.5,), "count")])
def test_sizes_of_groups_are_positive_ints(given, name):
    with pytest.raises(pk.KernelError, match=f"`{name}` must be a positive compile-time int"):
        pk.peers(*given)
