"""Attention and its gradients on a GPU: random configurations and every operand against float64."""

from __future__ import annotations

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.attention import attention as attend  # noqa: E402
from pykittens.kernels.attention import attention_backward  # noqa: E402
from pykittens.kernels.attention.config import GRADIENT_CONFIGS  # noqa: E402
from pykittens.kernels.attention.reference import visible_of  # noqa: E402
from pykittens.kernels.attention.visible import packed  # noqa: E402
from pykittens.kernels.limits import limits_of  # noqa: E402
from pykittens.torch import attention, scaled_dot_product_attention  # noqa: E402

# The threads of PyTorch's backward pass make their context when they first need it, and say so.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]

LENGTHS = (1, 17, 64, 129, 500, 1000, 2048)


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def explicit(q, k, v, visible, scale=None, sinks=None, slopes=None, cap=None):
    """Attention in the operations of PyTorch; 0 for a query that sees nothing."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap:
        s = torch.tanh(s / cap) * cap
    if slopes is not None:
        i, j = (torch.arange(x.shape[2], device=q.device) for x in (q, k))
        s = s - (i[:, None] - j).abs() * slopes[:, None, None]
    s = s.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks[:, None, None].expand(*s.shape[:-1], 1)], dim=-1)
    p = torch.softmax(s, dim=-1).nan_to_num(0.0)
    return p[..., : k.shape[2]] @ v


def assert_like(ours, theirs, *tensors):
    """Result and gradients are those of another function in float64, within some roundings of the largest."""
    found, exact = [], []
    gradient = None
    for results, function, wide in ((found, ours, False), (exact, theirs, True)):
        leaves = [(x.double() if wide else x).detach().requires_grad_() for x in tensors]
        out = function(*leaves)
        gradient = normal(*out.shape) if gradient is None else gradient
        results += [out, *torch.autograd.grad(out, leaves, gradient.to(out.dtype))]
    for f, e in zip(found, exact, strict=True):
        assert f.shape == e.shape
        assert f.isfinite().all()
        assert (f - e).abs().max() <= 2.0**-6 * e.abs().max() + 2.0**-7


@pytest.mark.parametrize("seed", range(120))
def test_a_random_configuration_is_right(seed):
    draw = random.Random(seed)
    batch, kv_heads, group = draw.randint(1, 3), draw.randint(1, 3), draw.choice([1, 1, 2, 4])
    n, m = draw.choice(LENGTHS), draw.choice(LENGTHS)
    d = 16 * draw.choice([1, 3, 4, 4, 5, 6, 8, 8, 12, 16])
    width = d if draw.random() < 0.7 else 16 * draw.randint(1, 8)
    causal = draw.choice([False, False, "top_left", "bottom_right"])
    how = {"causal": causal, "deterministic": draw.random() < 0.5}
    if draw.random() < 0.3:
        how["window"] = (draw.choice([None, 0, 100]), None if causal else draw.choice([None, 50]))
    dtype = draw.choice([torch.bfloat16, torch.float16])
    torch.manual_seed(seed)
    heads = kv_heads * group
    tensors = [
        normal(batch, h, length, x, dtype=dtype)
        for h, length, x in ((heads, n, d), (kv_heads, m, d), (kv_heads, m, width))
    ]
    if draw.random() < 0.5:  # heads side by side
        tensors = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    visible = torch.from_numpy(visible_of(causal, n, m, how.get("window"))).cuda()
    assert_like(lambda *x: attention(*x, **how), lambda *x: explicit(*x, visible), *tensors)


@pytest.mark.parametrize(
    "config", GRADIENT_CONFIGS, ids=lambda c: f"{c.queries}x{c.keys}x{c.stages}"
)
@pytest.mark.parametrize("causal", [False, True])
def test_a_configuration_of_the_backward_pass_is_right(config, causal):
    limits = limits_of(torch.empty(0, device="cuda"))
    if config.warpgroups != limits.warpgroups:
        pytest.skip("it is for another target")
    tensors = [normal(2, 4, 1000, config.widest) for _ in range(4)]
    out, lse = attend(*tensors[:3], causal=causal, return_lse=True)
    found = attention_backward(*tensors[:3], out, lse, tensors[3], causal=causal, config=config)
    leaves = [x.double().requires_grad_() for x in tensors[:3]]
    visible = torch.from_numpy(visible_of(causal, 1000, 1000)).cuda()
    exact = torch.autograd.grad(explicit(*leaves, visible), leaves, tensors[3].double())
    for f, e in zip(found, exact, strict=True):
        assert (f - e).abs().max() <= 2.0**-6 * e.abs().max()


def test_every_operand_together():
    slopes, sinks = torch.rand(8, device="cuda"), torch.randn(8, device="cuda")
    visible = torch.from_numpy(visible_of("bottom_right", 300, 700, (200, 0))).cuda()
    assert_like(
        lambda q, k, v, sinks: attention(
            *(q, k, v),
            causal="bottom_right",
            window=(200, 0),
            soft_cap=3.0,
            slopes=slopes,
            sinks=sinks.float(),
            scale=0.2,
        ),
        lambda q, k, v, sinks: explicit(q, k, v, visible, 0.2, sinks, slopes.double(), 3.0),
        *(normal(2, h, n, 64) for h, n in ((8, 300), (2, 700), (2, 700))),
        sinks,
    )


def test_packed_sequences():
    ends = np.cumsum([0, 300, 0, 1, 700, 47])
    low, high = (torch.from_numpy(x)[None].cuda() for x in packed(ends, ends, None, 0))
    j = torch.arange(int(ends[-1]), device="cuda")
    visible = (j >= low[0][:, None]) & (j < high[0][:, None])
    assert_like(
        lambda *x: attention(*x, key_start=low, key_stop=high),
        lambda *x: explicit(*x, visible),
        *(normal(1, 4, int(ends[-1]), 128) for _ in range(3)),
    )


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("m", [100, 4096, 30000])
@pytest.mark.parametrize("window", [None, (99, 0)], ids=str)
def test_few_queries_against_many_keys(n, m, window):
    q, k, v = normal(1, 32, n, 128), normal(1, 8, m, 128), normal(1, 8, m, 128)
    visible = torch.from_numpy(visible_of("bottom_right", n, m, window)).cuda()
    exact = explicit(*(x.double() for x in (q, k, v)), visible)
    first = attention(q, k, v, causal="bottom_right", window=window)
    assert (first - exact).abs().max() <= 2.0**-7 * exact.abs().max()
    for _ in range(10):
        assert torch.equal(attention(q, k, v, causal="bottom_right", window=window), first)


@pytest.mark.parametrize("group", [2, 4, 8, 16])
@pytest.mark.parametrize(("n", "m"), [(1, 700), (3, 700), (8, 4000)])
@pytest.mark.parametrize("by_position", [False, True])
def test_few_queries_of_a_group_have_their_own_operands(group, n, m, by_position):
    torch.manual_seed(0)
    heads = 2 * group
    tensors = [normal(2, h, x, 128) for h, x in ((heads, n), (2, m), (2, m))]
    if by_position:
        tensors = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    slopes, sinks = torch.rand(heads, device="cuda"), torch.randn(heads, device="cuda")
    mask = torch.rand(2, heads, n, m, device="cuda") < 0.7
    seen = torch.from_numpy(visible_of("bottom_right", n, m, (500, 0))).cuda()
    how = {"causal": "bottom_right", "window": (500, 0), "slopes": slopes}
    assert_like(
        lambda q, k, v, sinks: attention(q, k, v, **how, mask=mask, sinks=sinks.float()),
        lambda q, k, v, sinks: explicit(q, k, v, seen & mask, None, sinks, slopes.double()),
        *(*tensors, sinks),
    )
    low, high = packed([0, n - n // 2, n], [0, m // 3, m], None, 0)
    bounds = {"key_start": low, "key_stop": high}
    bounds = {x: torch.from_numpy(y).expand(2, n).contiguous().cuda() for x, y in bounds.items()}
    j = np.arange(m)
    visible = torch.from_numpy((j >= low[:, None]) & (j < high[:, None])).cuda()
    assert_like(lambda *x: attention(*x, **bounds), lambda *x: explicit(*x, visible), *tensors)


@pytest.mark.parametrize("window", [(None, -2), (None, -6), (-70, None), (-5, 2)], ids=str)
def test_windows_may_leave_out_the_own_key(window):
    visible = torch.from_numpy(visible_of(False, 130, 200, window)).cuda()
    tensors = [normal(1, 2, n, d) for n, d in ((130, 192), (200, 192), (200, 192))]
    assert_like(lambda *x: attention(*x, window=window), lambda *x: explicit(*x, visible), *tensors)


@pytest.mark.parametrize("mask", ["bools", "floats"])
def test_masks(mask):
    table = torch.rand(500, 600, device="cuda")
    table = table < 0.5 if mask == "bools" else table.bfloat16()
    wide = table if mask == "bools" else table.double()
    function = torch.nn.functional.scaled_dot_product_attention
    assert_like(
        lambda *x: scaled_dot_product_attention(*x, table),
        lambda *x: function(*x, wide),
        *(normal(2, 4, n, 64) for n in (500, 600, 600)),
    )


def test_dropout_is_the_same_in_both_passes():
    """With values of a unit matrix, the result is the weights; their gradient is that of the weights that stay."""
    q, k = (normal(1, 2, 256, 64).requires_grad_() for _ in range(2))
    v = torch.eye(256, device="cuda", dtype=torch.bfloat16).expand(1, 2, 256, 256)
    kept = attention(q, k, v, dropout=0.4)
    assert abs((kept != 0).float().mean() - 0.6) < 0.02
    gradient = normal(*kept.shape)
    found = torch.autograd.grad(kept, (q, k), gradient)
    wide = [x.detach().double().requires_grad_() for x in (q, k)]
    p = torch.softmax(wide[0] @ wide[1].mT / 8, -1) * (kept != 0) / 0.6
    for f, e in zip(found, torch.autograd.grad(p, wide, gradient.double()), strict=True):
        assert (f - e).abs().max() <= 2.0**-5 * e.abs().max()


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_deterministic(causal):
    q, k, v, gradient = (normal(4, 8, 2000, 128) for _ in range(4))
    out, lse = attend(q, k, v, causal=causal, return_lse=True)
    first = attention_backward(q, k, v, out, lse, gradient, causal=causal)
    for _ in range(10):
        again = attention_backward(q, k, v, out, lse, gradient, causal=causal)
        assert all(map(torch.equal, again, first))


def test_a_graph_replays_both_passes():
    q, k, v = (normal(2, 4, 300, 64).requires_grad_() for _ in range(3))
    gradient = normal(2, 4, 300, 64)

    def both():
        return torch.autograd.grad(attention(q, k, v, causal=True), (q, k, v), gradient)

    expected = both()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        both()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = both()
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, found, expected))
