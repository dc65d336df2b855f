"""Products of many shapes of tile on a GPU."""

import pytest

from tests import kernels_flight
from tests.kernels_matmul import VARIANTS, tiled_matmul

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", VARIANTS)
def test_a_shape_of_tile_is_right(name):
    tiles = VARIANTS[name]
    dtype = torch.float16 if tiles.half else torch.bfloat16
    for m, n, k in ((200, 304, 136), (1024, 1024, 1024), (65, 1000, 40)):
        a = torch.randn(m, k, device="cuda").to(dtype)
        b = torch.randn(*((n, k) if tiles.transposed else (k, n)), device="cuda").to(dtype)
        c = torch.full((m, n), torch.nan, device="cuda", dtype=dtype)
        tiled_matmul(a, b, c, tiles=tiles)
        expected = a.double() @ (b.double().T if tiles.transposed else b.double())
        assert float((c.double() - expected).norm() / expected.norm()) <= 2.0**-8


@pytest.mark.parametrize("way", kernels_flight.WAYS)
def test_products_carried_round_a_loop(way):
    a, b = (torch.randn(500, 1000, device="cuda").bfloat16() for _ in range(2))
    c = torch.full((500, 500), torch.nan, device="cuda")
    kernels_flight.carried_products(a, b, c, way=way)
    exact = kernels_flight.expected(a.double(), b.double(), way)
    assert float((c.double() - exact).abs().max()) <= 1e-3
