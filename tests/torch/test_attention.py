"""pykittens.torch.attention and its drop-in against PyTorch's attention in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.kernels.attention.visible import packed  # noqa: E402
from pykittens.torch import attention, scaled_dot_product_attention  # noqa: E402
from pykittens.torch.attention import ATTENTION, GRADIENTS  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    BF16,
    F16,
    assert_compiles,
    assert_operator,
    normal,
)

SHAPES = ((2, 4, 70, 64), (2, 2, 90, 64), (2, 2, 90, 48))


def heads(*shapes, dtype=BF16):
    return [normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes or SHAPES)]


def wide(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def with_gradients(function, *tensors):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    gradient = normal(*out.shape, seed=9).to(out.dtype)
    return out, *torch.autograd.grad(out, leaves, gradient)


def assert_like(ours, theirs, *tensors):
    """Result and gradients are those of another function in float64, within some roundings of the largest."""
    found = with_gradients(ours, *tensors)
    exact = with_gradients(theirs, *map(wide, tensors))
    for f, e in zip(found, exact, strict=True):
        assert f.shape == e.shape
        assert f.isfinite().all()
        assert (f - e).abs().max() <= 2.0**-6 * e.abs().max() + 2.0**-8


CALLS = {
    "full": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "bools": {"attn_mask": torch.rand(70, 90, generator=torch.Generator().manual_seed(0)) < 0.4},
    "bools of a head": {"attn_mask": torch.ones(4, 70, 90).tril().bool()},
    "floats": {"attn_mask": normal(2, 1, 70, 90)},
    "floats of a column": {"attn_mask": normal(70, 1, dtype=torch.float32)},
}


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("name", CALLS)
def test_the_drop_in_is_pytorchs_attention(name, dtype):
    how = {"enable_gqa": True, **CALLS[name]}
    widened = {n: wide(x) for n, x in how.items()}
    assert_like(
        lambda *x: scaled_dot_product_attention(*x, **how),
        lambda *x: functional.scaled_dot_product_attention(*x, **widened),
        *heads(dtype=dtype),
    )


@pytest.mark.parametrize("lead", [(), (3,), (2, 1)], ids=str)
def test_the_drop_in_takes_any_leading_axes(lead):
    shapes = ((*lead, 2, 20, 32), (*lead, 2, 30, 32), (*lead, 2, 30, 32))
    assert_like(
        scaled_dot_product_attention, functional.scaled_dot_product_attention, *heads(*shapes)
    )


def test_calls_without_a_kernel_are_pytorchs():
    q, k, v = heads((1, 2, 20, 24), (1, 2, 30, 24), (1, 2, 30, 24))
    expected = functional.scaled_dot_product_attention(q, k, v)
    assert torch.equal(scaled_dot_product_attention(q, k, v), expected)
    q, k, v = heads((1, 2, 20, 32), (1, 2, 30, 32), (1, 2, 30, 32))
    mask = torch.zeros(20, 30, dtype=BF16, requires_grad=True)
    scaled_dot_product_attention(q, k, v, mask).sum().backward()
    assert mask.grad is not None
    both = (mask.detach(), 0.0, True)
    expected = functional.scaled_dot_product_attention(q, k, v, *both)
    assert torch.equal(scaled_dot_product_attention(q, k, v, *both), expected)


def explicit(q, k, v, visible, sinks=None, slopes=None, cap=None):
    """Attention in the operations of PyTorch."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    s = q @ k.mT * q.shape[-1] ** -0.5
    if cap is not None:
        s = torch.tanh(s / cap) * cap
    if slopes is not None:
        i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        s = s - (i - j).abs() * slopes[:, None, None]
    s = s.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks[:, None, None].expand(*s.shape[:-1], 1)], dim=-1)
    return torch.softmax(s, dim=-1)[..., : k.shape[2]] @ v


def test_windows_caps_slopes_and_sinks_together():
    i, j = torch.arange(70)[:, None], torch.arange(90)
    visible = (j <= i + 20) & (j >= i + 20 - 30)
    slopes, sinks = torch.tensor([0.1, 0.2, 0.0, 1.0]), torch.tensor([0.5, -1.0, 2.0, 0.0])
    assert_like(
        lambda q, k, v, sinks: attention(
            q,
            k,
            v,
            causal="bottom_right",
            window=(30, 0),
            soft_cap=2.0,
            slopes=slopes,
            sinks=sinks.float(),
        ),
        lambda q, k, v, sinks: explicit(q, k, v, visible, sinks, slopes.double(), 2.0),
        *heads(),
        sinks,
    )


def test_packed_sequences():
    low, high = (torch.from_numpy(x)[None] for x in packed([0, 30, 70], [0, 50, 90], None, 0))
    j = torch.arange(90)
    visible = (j >= low[0][:, None]) & (j < high[0][:, None])
    tensors = heads((1, 2, 70, 64), (1, 2, 90, 64), (1, 2, 90, 64))
    assert_like(
        lambda *x: attention(*x, key_start=low, key_stop=high),
        lambda *x: explicit(*x, visible),
        *tensors,
    )


def test_dropout_is_drawn_by_the_generator_of_pytorch():
    q, k, v = heads()
    torch.manual_seed(1)
    first, second = (attention(q, k, v, dropout=0.5) for _ in range(2))
    torch.manual_seed(1)
    again = attention(q, k, v, dropout=0.5)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    ones = torch.ones_like(v)
    assert abs(attention(q, k, ones, dropout=0.5).float().mean() - 1) < 0.05


def test_the_log_sum_exp_is_returned():
    q, k, v = heads()
    _, lse = attention(q, k, v, return_lse=True)
    s = q.double() @ k.double().repeat_interleave(2, dim=1).mT / 8
    assert (lse - torch.logsumexp(s, dim=-1)).abs().max() < 1e-4


def test_it_compiles_in_one_graph():
    mask = torch.rand(70, 90, generator=torch.Generator().manual_seed(0)) < 0.5
    assert_compiles(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, enable_gqa=True), *heads()
    )
    assert_compiles(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, mask, enable_gqa=True), *heads()
    )
    assert_compiles(lambda q, k, v: attention(q, k, v, causal=True, soft_cap=3.0), *heads())


def test_gradients_inside_transforms_are_those_of_autograd():
    q, k, v = heads((2, 1, 4, 6, 16), (1, 2, 9, 16), (1, 2, 9, 32))
    sinks = normal(4, dtype=torch.float32, seed=4)

    def total(q, k, v, sinks):
        return attention(q, k, v, causal="bottom_right", sinks=sinks).square().sum()

    leaves = [x.clone().requires_grad_() for x in (q[0], k, v, sinks)]
    expected = torch.autograd.grad(total(*leaves), leaves)
    found = torch.func.grad(total, (0, 1, 2, 3))
    torch._dynamo.reset()
    for call in (found, torch.compile(found, fullgraph=True, backend="aot_eager")):
        assert all(map(torch.equal, call(q[0], k, v, sinks), expected))
    many = torch.vmap(found, in_dims=(0, None, None, None))(q, k, v, sinks)
    assert all(torch.equal(m[0], e) for m, e in zip(many, expected, strict=True))
    with pytest.raises(ArgumentError, match="no second derivative"):
        torch.func.grad(lambda q: found(q, k, v, sinks)[0].float().sum())(q[0])
    with pytest.raises(ArgumentError, match="`mask` has no gradient"):
        torch.func.grad(lambda x: attention(q[0], k, v, mask=x).sum())(torch.zeros(6, 9))


def test_pytorch_finds_no_fault_in_the_operators():
    q, k, v = (x.requires_grad_() for x in heads())
    assert_operator(ATTENTION.op, q, k, v)
    out, lse = ATTENTION.op(q.detach(), k.detach(), v.detach())
    assert_operator(
        GRADIENTS.op, q.detach(), k.detach(), v.detach(), out, lse, torch.ones_like(out)
    )


def test_flops_are_counted():
    q, k, v = (x.requires_grad_() for x in heads())
    with FlopCounterMode(display=False) as counter:
        attention(q, k, v).sum().backward()
    rows = 2 * 4 * 70 * 90
    assert counter.get_total_flops() == 2 * rows * (64 + 48) + 2 * rows * (3 * 64 + 2 * 48)


def test_arguments_that_do_not_fit_are_refused():
    q, k, v = heads()
    for how, message in (
        ({"causal": "left"}, "`causal` must be one of"),
        ({"soft_cap": -1.0}, "`soft_cap` must be positive"),
        ({"scale": -1.0}, "`scale` must be positive"),
        ({"mask": torch.zeros(70, 90, requires_grad=True)}, "`mask` has no gradient"),
        ({"slopes": torch.ones(4, requires_grad=True)}, "`slopes` has no gradient"),
        ({"slopes": torch.ones(3)}, r"`slopes` must have the shape \(4,\)"),
    ):
        with pytest.raises(ArgumentError, match=message):
            attention(q, k, v, **how)
    out = attention(*(x.requires_grad_() for x in (q, k, v)))
    with pytest.raises(ArgumentError, match="no second derivative"):
        torch.autograd.grad(out.sum(), q, create_graph=True)
