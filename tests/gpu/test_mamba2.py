"""Mamba-2 on a GPU: random calls with all gradients, beside those of all pairs of positions in float64."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.linear import mamba2, mamba2_backward  # noqa: E402
from tests.linear_random import LENGTHS, WIDTHS, each, ends_of, explicit, some_lengths  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]

NAMES = ("x", "dt", "A", "B", "C", "D", "dt_bias", "initial_state")


def pairs(x, dt, A, B, C, D, dt_bias, initial_state):
    """All pairs of positions; explicit() scales by d."""
    step = torch.nn.functional.softplus(dt + dt_bias[:, None])
    values, scale = x * step[..., None], C.shape[3] ** 0.5
    out, state = explicit(C * scale, B, values, step * A[:, None], initial_state)
    return out + D[:, None, None] * x, state


@pytest.mark.parametrize("seed", range(8))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(8):
        groups, shared, batch = draw.randint(1, 3), draw.choice((1, 2, 4)), draw.randint(1, 3)
        is_packed = draw.random() < 0.3
        heads, n, d, width = (
            groups * shared,
            draw.choice(LENGTHS),
            draw.choice(WIDTHS),
            draw.choice(WIDTHS),
        )
        lengths = some_lengths(draw, n) if is_packed else ()
        batch = 1 if is_packed else batch

        def normal(*shape):
            return torch.randn(shape, device="cuda")

        given = {
            "x": normal(batch, heads, n, width).bfloat16(),
            "dt": normal(batch, heads, n) - draw.choice((1, 3, 6)),
            "A": -torch.rand(heads, device="cuda") * draw.choice((0.1, 1, 16)),
            "B": normal(batch, groups, n, d).bfloat16(),
            "C": normal(batch, groups, n, d).bfloat16(),
            "D": normal(heads),
            "dt_bias": normal(heads),
            "initial_state": normal(len(lengths) or batch, heads, d, width),
        }
        leaves = {name: x.double().requires_grad_() for name, x in given.items()}
        *of_positions, state = leaves.values()
        wanted = each(pairs, lengths, *of_positions, state=state)
        how = {"softplus": True, "ends": ends_of(lengths, "cuda")}
        out = mamba2(**given, **how, return_state=True)
        of_out = normal(*out[0].shape).bfloat16()
        grads = torch.autograd.grad(wanted[0], list(leaves.values()), of_out.double())
        found = mamba2_backward(**given, gradient=of_out, **how)
        for name, x, y in zip(
            ("y", "state", *NAMES), (*out, *found), (*wanted, *grads), strict=True
        ):
            assert x.isfinite().all(), (seed, name)
            error, most = (x - y).abs().max(), y.abs().max()
            assert error <= 2.0**-5 * most + 1e-5, (
                seed,
                name,
                n,
                d,
                width,
                float(error),
                float(most),
            )
