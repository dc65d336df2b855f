"""Clusters: multicast copies and barriers that count two blocks."""

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


def test_a_cluster_shares_an_operand():
    from tests.kernels_cluster import cluster_matmul

    # A K of 65 is out of the copy engine's reach: each block then copies the whole tile itself.
    for m, n, k in ((128, 256, 64), (129, 257, 65), (1000, 1000, 1000), (4096, 4096, 512)):
        a, b = (torch.randn(r, k, device="cuda").bfloat16() for r in (m, n))
        c = torch.full((m, n), torch.nan, device="cuda", dtype=torch.bfloat16)
        cluster_matmul(a, b, c)
        expected = a.double() @ b.double().T
        assert float((c.double() - expected).norm() / expected.norm()) < 4e-3


def test_a_cluster_shares_both_operands():
    from tests.kernels_cluster import cluster_of_both

    for sides in ((1, 2), (2, 2), (1, 4), (2, 4), (4, 2), (8, 1)):
        for m, n, k in ((70, 600, 200), (2048, 4096, 512), (1000, 3000, 1000)):
            a, b = (torch.randn(r, k, device="cuda").bfloat16() for r in (m, n))
            c = torch.full((m, n), torch.nan, device="cuda")
            cluster_of_both(a, b, c, sides=sides)
            expected = a.double() @ b.double().T
            assert float((c.double() - expected).norm() / expected.norm()) < 1e-5


def test_blocks_of_a_cluster_exchange_tiles():
    from pykittens.types.dtypes import bf16, f32
    from tests.kernels_send import all_to_all, product, ring

    for n in (2, 4, 8):
        for dtype, word in ((f32, torch.float32), (bf16, torch.bfloat16)):
            x = torch.randint(-4, 5, (16 * n * 64, 2000), device="cuda").to(word)
            tiles = x.reshape(-1, n, 64, 2000)
            y = torch.full_like(x, torch.nan)
            ring(n, dtype)(x, y)
            assert torch.equal(y.reshape(tiles.shape), tiles.roll(1, 1))
            y = torch.full_like(x, torch.nan)
            all_to_all(n, dtype)(x, y)
            assert torch.equal(
                y.reshape(tiles.shape), tiles.sum(1, keepdim=True).to(word).expand_as(tiles)
            )
    a, b = (torch.randint(-4, 5, (128, 64), device="cuda").bfloat16() for _ in range(2))
    c = torch.empty(128, 64, device="cuda")
    product(a, b, c)
    left, right = a.float().reshape(2, 64, 64), b.float().reshape(2, 64, 64).flip(0)
    assert torch.equal(c.reshape(2, 64, 64), left @ right.mT)
