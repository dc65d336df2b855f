"""Kernels made from templates on a GPU, at sizes that fit no tile, against float64."""

import pytest

from tests.templates import by_hand, kernels

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

EPS = 2.0**-8  # one rounding to bf16


def normal(*shape):
    return torch.randn(*shape, device="cuda").bfloat16()


def poisoned(*shape, dtype=torch.bfloat16):
    return torch.full(shape, torch.nan, device="cuda", dtype=dtype)


def assert_product(c, a, b, rounding):
    """c is a @ b: one rounding of a sum in f32, whose terms' sizes bound its own error."""
    exact, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    excess = (c.double() - exact).abs() - rounding * exact.abs() - 2.0**-20 * magnitude
    assert excess.max().item() <= 0.0


@pytest.mark.parametrize("size", [(1, 1, 1), (127, 129, 65), (129, 1000, 17), (3000, 5000, 1000)])
def test_matmul_at_every_size(example, size):
    m, n, k = size
    a, b, c = normal(m, k), normal(n, k), poisoned(m, n)
    example("08_lcsf").lcsf_matmul(a, b, c)
    assert_product(c, a, b.T, EPS)


@pytest.mark.parametrize("cols", [1, 17, 64, 100, 128])
@pytest.mark.parametrize("rows", [1, 129, 100000])
def test_rms_norm_at_every_size(rows, cols):
    x, ours, written = normal(rows, cols), poisoned(rows, cols), poisoned(rows, cols)
    kernels.rms_norm(x, ours)
    by_hand.rms_norm(x, written)
    exact = torch.nn.functional.rms_norm(x.double(), (cols,), eps=1e-6)
    assert ((ours.double() - exact).abs() - (EPS + 2.0**-16) * exact.abs()).max().item() <= 0.0
    assert torch.equal(ours, written)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("steps", [1, 7])
def test_an_output_at_every_step(steps, groups):
    rows = 20000
    a, b = normal(rows, 64 * steps), normal(64 * steps, 64)
    each = poisoned(rows, 64 * steps, dtype=torch.float32)
    total = poisoned(rows, 64, dtype=torch.float32)
    kernels.products(a, b, each, total, groups=groups)
    assert_product(total, a, b, 0.0)
    for k in range(0, 64 * steps, 64):
        part = slice(k, k + 64)
        assert_product(each[:, part], a[:, part], b[part], 0.0)
