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
