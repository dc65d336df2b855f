"""Errors of attention on a GPU beside those of PyTorch, over FlashAttention's own grid of tests, and of its kernels.

The grid and its bound are those of flash-attention's hopper/test_flash_attn.py: of lengths and widths all, of the other
parameters one each, drawn at random.
"""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from pykittens.kernels.attention.reference import visible_of  # noqa: E402
from pykittens.torch import attention  # noqa: E402
from tests.gpu.test_attention import explicit, normal  # noqa: E402

pytestmark = pytest.mark.gpu

LENGTHS = [
    *((1, 1), (64, 128), (128, 192), (256, 256), (239, 1), (799, 3), (113, 203), (113, 128)),
    *((128, 217), (113, 211), (108, 256), (256, 512), (384, 256), (640, 128), (512, 256)),
    *((1024, 1024), (1023, 1024), (1024, 1023), (4096, 4096), (4224, 4224)),
]


def errors(function, gradient, exact, tensors):
    """The largest errors of a function and of its gradients."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    found = [out, *torch.autograd.grad(out, leaves, gradient.to(out.dtype))]
    return [float((f.detach() - e).abs().max()) for f, e in zip(found, exact, strict=True)]


def exact_of(function, gradient, tensors):
    """The result and the gradients in float64."""
    leaves = [x.double().requires_grad_() for x in tensors]
    out = function(*leaves)
    return [x.detach() for x in (out, *torch.autograd.grad(out, leaves, gradient.double()))]


@pytest.mark.parametrize("d", [64, 96, 128, 192, 256])
@pytest.mark.parametrize(("n", "m"), LENGTHS)
def test_errors_are_at_most_twice_those_of_plain_pytorch(n, m, d):
    draw = random.Random(f"{n} {m} {d}")
    torch.manual_seed(0)
    dtype, cap = draw.choice([torch.bfloat16, torch.float16]), draw.choice([0.0, 15.0])
    kv_heads, causal = draw.choice([6, 2, 1]), draw.choice([False, "bottom_right"])
    window = (draw.randrange(m), draw.randrange(m)) if draw.random() < 0.5 else None
    if window and causal:
        window = window[0], 0
    batch = 9 if m <= 2048 else 2
    shapes = (6, n, d), (kv_heads, m, d), (kv_heads, m, 128 if d == 192 else d)
    q, k, v = (normal(batch, *shape, dtype=dtype) for shape in shapes)
    q = q * cap / 4 if cap else q
    visible = torch.from_numpy(visible_of(causal, n, m, window)).cuda()
    gradient = normal(batch, 6, n, v.shape[-1], dtype=dtype)
    how = {"causal": causal, "window": window, "soft_cap": cap}

    def plain(*x):
        return explicit(*x, visible, cap=cap)

    exact = exact_of(plain, gradient, (q, k, v))
    ours, theirs = (
        errors(f, gradient, exact, (q, k, v)) for f in (lambda *x: attention(*x, **how), plain)
    )
    for mine, other, e in zip(ours, theirs, exact, strict=True):
        # Twice the rounding of a sum in the dtype; what a soft cap adds to gradients, or float32 where sums cancel.
        e = e.to(dtype)
        least = 2 * float((e + 0.3 - 0.3 - e).abs().max()) + (3e-4 if cap else 1e-5)
        assert mine <= (3 if cap else 2) * other + least, (ours, theirs, least, dtype, how)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 96, 128, 256])
@pytest.mark.parametrize("n", [128, 1000, 4096])
def test_errors_are_at_most_one_and_a_half_times_those_of_flash_attention(n, d, causal):
    torch.manual_seed(n + d)
    tensors = [normal(2, 4, n, d) for _ in range(3)]
    gradient = normal(2, 4, n, d)
    visible = torch.from_numpy(visible_of(causal, n, n)).cuda()

    def flash(*x):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(*x, is_causal=causal)

    exact = exact_of(lambda *x: explicit(*x, visible), gradient, tensors)
    theirs = errors(flash, gradient, exact, tensors)
    for deterministic in (False, True):
        ours = errors(
            lambda *x: attention(*x, causal=causal, deterministic=deterministic),  # noqa: B023
            *(gradient, exact, tensors),
        )
        assert all(a <= 1.5 * b for a, b in zip(ours, theirs, strict=True)), (ours, theirs)
