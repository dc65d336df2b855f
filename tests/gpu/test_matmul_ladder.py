"""The steps of examples/matmul_ladder/ on a GPU, at sizes that fit no tile, with and without the copy engine."""

import pytest

from examples.catalog import LADDER

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

# The third is a multiple of 8 along k, so within the reach of the copy engine; the last fills all blocks twice.
SIZES = [(1, 1, 1), (63, 129, 65), (200, 300, 200), (130, 15, 0), (4000, 2100, 520)]
EPS = 2.0**-8  # one rounding to bf16


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("listed", LADDER, ids=lambda e: e.file)
def test_a_step_is_right_on_any_shape(example, listed, size):
    m, n, k = size
    a, b = (torch.randn(r, k, device="cuda").bfloat16() for r in (m, n))
    c = torch.full((m, n), torch.nan, device="cuda", dtype=torch.bfloat16)
    example(listed.file.removesuffix(".py")).matmul(a, b, c)
    a, b = a.double(), b.double()
    expected = a @ b.T
    bound = EPS * expected.abs() + 2.0**-20 * (a.abs() @ b.abs().T)
    assert bool(((c.double() - expected).abs() <= bound).all())
