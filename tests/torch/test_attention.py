"""pykittens.torch.attention and its drop-in against PyTorch's attention in float64."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_few_queries_of_grouped_heads(n, by_position):
    shapes = (2, 8, n, 64), (2, 2, 300, 64), (2, 2, 300, 64)
    q, k, v = heads(*shapes)
    if by_position:
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    slopes, mask = torch.rand(8), normal(n, 300, dtype=torch.float32, seed=3) < 1
    i, j = torch.arange(n)[:, None], torch.arange(300)
    bias = -(i - j).abs() * slopes[:, None, None].double()
    for how, added in (
        ({"causal": "bottom_right"}, torch.where(j <= i + 300 - n, 0.0, -torch.inf)),
        ({"mask": mask, "slopes": slopes}, torch.where(mask, bias, -torch.inf)),
    ):
        wide = [x.double() for x in (q, k, v)]
        of = {"attn_mask": added.double(), "enable_gqa": True}
        exact = torch.nn.functional.scaled_dot_product_attention(*wide, **of)
        assert (attention(q, k, v, **how) - exact).abs().max() < 0.02


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


def test_operands_of_any_kind_are_refused_with_a_sentence():
    q, k, v = heads()
    for how, message in (
        ({"window": 3}, r"`window` must be \(left, right\), not 3"),
        ({"window": (1, 2, 3)}, r"`window` must be \(left, right\), not \(1, 2, 3\)"),
        ({"mask": torch.ones(71, 90)}, r"`mask` must have the shape \(2, 4, 70, 90\)"),
        ({"mask": torch.ones(1, 1, 1, 70, 90)}, r"`mask` must have the shape \(2, 4, 70, 90\)"),
        ({"mask": [1]}, "`mask` must be a tensor, not list"),
        ({"mask": torch.ones(70, 90).double()}, "`mask` must be bf16, f16, f32 or uint8"),
        ({"soft_cap": torch.inf}, "`soft_cap` must be positive, from"),
        ({"soft_cap": None}, "`soft_cap` must be positive, from .* not None"),
        ({"soft_cap": 1e-46}, "`soft_cap` must be positive, from"),
        ({"scale": True}, "`scale` must be positive, from"),
        ({"scale": torch.tensor(0.5)}, "`scale` must be positive, from"),
        ({"dropout": "a"}, "`dropout` must be from 0 to below 1, not 'a'"),
        ({"causal": None}, "`causal` must be one of"),
    ):
        with pytest.raises(ArgumentError, match=message):
            attention(q, k, v, **how)
    for given in ((q[0], k[0], v[0]), ([1], k, v)):
        with pytest.raises(ArgumentError, match="`q` must"):
            attention(*given, mask=torch.ones(70, 90), dropout=0.5)
    with pytest.raises(ArgumentError) as error:
        attention(q.double(), k.double(), v.double())
    assert "torch.nn.functional.scaled_dot_product_attention" in error.value.help


def test_numbers_are_of_any_type():
    q, k, v = heads()
    ours = attention(q, k, v, scale=1, soft_cap=3, dropout=0)
    assert torch.equal(ours, attention(q, k, v, scale=1.0, soft_cap=3.0))
    assert torch.equal(ours, attention(q, k, v, scale=np.float32(1), soft_cap=np.int64(3)))


@pytest.mark.parametrize("shape", [(90,), (70, 1), (4, 1, 90), (2, 1, 1, 1), ()], ids=str)
def test_a_mask_of_any_shape_that_broadcasts(shape):
    mask = normal(*shape, dtype=torch.float32, seed=5)
    whole = mask.expand(2, 4, 70, 90).contiguous()
    for table, same in ((mask, whole), (mask > 0, whole > 0)):
        q, k, v = heads()
        assert torch.equal(attention(q, k, v, mask=table), attention(q, k, v, mask=same))
        assert torch.equal(
            scaled_dot_product_attention(q, k, v, table, enable_gqa=True),
            scaled_dot_product_attention(q, k, v, same, enable_gqa=True),
        )


def test_operands_of_any_strides():
    q, k, v = heads()
    one, zero = torch.ones(1).expand(4), torch.zeros(1, 1, dtype=torch.int32).expand(2, 70)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    ours = attention(*leaves, slopes=one, sinks=one, key_start=zero)
    theirs = attention(*leaves, slopes=one.clone(), sinks=one.clone())
    assert torch.equal(ours, theirs)
    expected = torch.autograd.grad(theirs, leaves, torch.ones_like(theirs))
    assert all(map(torch.equal, torch.autograd.grad(ours.sum(), leaves), expected))


@pytest.mark.parametrize(
    "lengths", [(0, 4, 70, 90), (2, 0, 70, 90), (2, 4, 0, 90), (2, 4, 70, 0)], ids=str
)
def test_empty_calls_have_gradients_of_zero(lengths):
    batch, count, n, m = lengths
    for function, kv_heads in ((attention, 2), (scaled_dot_product_attention, count)):
        shapes = ((batch, count, n, 32), (batch, kv_heads, m, 32), (batch, kv_heads, m, 32))
        leaves = [torch.ones(shape, dtype=BF16, requires_grad=True) for shape in shapes]
        out = function(*leaves)
        assert out.shape == shapes[0]
        out.sum().backward()
        assert not any(x.grad.any() for x in leaves)


def test_bounds_that_fall_end():
    q, k, v = (x.requires_grad_() for x in heads((1, 2, 140, 64), (1, 2, 300, 64), (1, 2, 300, 64)))
    falling = torch.arange(300, 20, -2, dtype=torch.int32)[None]
    attention(q, k, v, key_stop=falling).sum().backward()
    attention(q, k, v, key_start=falling - 20).sum().backward()


def test_symbolic_extents_and_numbers_compile_once():
    def call(q, k, v, mask):
        how = {"scale": q.shape[-1] ** -0.5, "window": (q.shape[2] // 2, None)}
        return attention(q, k, v, mask=mask, soft_cap=float(k.shape[2]), **how)

    torch._dynamo.reset()
    compiled = torch.compile(call, dynamic=True, fullgraph=True, backend="aot_eager")
    for n, m in ((70, 90), (33, 50)):
        args = [x.requires_grad_() for x in heads((2, 4, n, 64), (2, 2, m, 64), (2, 2, m, 64))]
        mask = normal(n, m) < 0.5
        found, expected = compiled(*args, mask), call(*args, mask)
        assert torch.equal(found, expected)
        of = [torch.autograd.grad(x.sum(), args) for x in (found, expected)]
        assert all(map(torch.equal, *of))
