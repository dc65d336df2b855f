"""Packed sequences of all recurrences with a state on a GPU: long ones, thousands, and in graphs."""

from __future__ import annotations

import functools
import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.delta import gated_delta_rule  # noqa: E402
from pykittens.kernels.linear import (  # noqa: E402
    based_attention,
    gated_linear_attention,
    hedgehog_attention,
    linear_attention,
    mamba2,
)
from pykittens.torch import based_attention as based_operator  # noqa: E402
from pykittens.torch import gated_delta_rule as delta_operator  # noqa: E402
from pykittens.torch import gated_linear_attention as gated_operator  # noqa: E402
from pykittens.torch import hedgehog_attention as hedgehog_operator  # noqa: E402
from pykittens.torch import linear_attention as attention_operator  # noqa: E402
from pykittens.torch import mamba2 as mamba2_operator  # noqa: E402
from tests.linear_random import each, ends_of  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]

HEADS = 4


def with_maps(function):
    """The function with the same maps for all calls, which are made before a graph is recorded."""

    @functools.cache
    def maps(d, dtype):
        draw = torch.Generator("cuda").manual_seed(0)
        shape = (2, HEADS, d, 64)
        return torch.randn(shape, generator=draw, device="cuda").to(dtype) * d**-0.5

    def attend(q, k, v, **words):
        return function(q, k, v, *maps(q.shape[3], q.dtype), **words)

    return attend


OPERATORS = {
    "based_attention": (based_operator, {}),
    "hedgehog_attention": (with_maps(hedgehog_operator), {}),
    "linear_attention": (attention_operator, {}),
    "mamba2": (mamba2_operator, {"softplus": True}),
    "gated_linear_attention": (gated_operator, {}),
    "gated_delta_rule": (delta_operator, {}),
}
FUNCTIONS = {
    "based_attention": based_attention,
    "hedgehog_attention": with_maps(hedgehog_attention),
    "linear_attention": linear_attention,
    "mamba2": mamba2,
    "gated_linear_attention": gated_linear_attention,
    "gated_delta_rule": gated_delta_rule,
}
OF_ALL = pytest.mark.parametrize("name", OPERATORS)


def given(name, n, d=128, width=128):
    """The tensors of a call with a batch of 1."""
    torch.manual_seed(n)
    has_features = name in ("based_attention", "hedgehog_attention")
    heads, d = HEADS if has_features else 2, 16 if name == "based_attention" else d
    q, k, v = (
        torch.randn(1, n, h, s, device="cuda").bfloat16().transpose(1, 2)
        for h, s in ((heads, d), (heads, d), (HEADS, width))
    )
    if has_features:
        return [q, k, v]
    rate = torch.rand(1, HEADS, n, device="cuda")
    if name == "mamba2":
        own = torch.rand(2, HEADS, device="cuda")
        return [v, rate - 2, -own[0], q, k, own[1]]
    if name == "linear_attention":
        return [q, k, v, -0.1 * rate]
    if name == "gated_linear_attention":
        return [q, k, v, -0.1 * torch.rand(1, HEADS, n, d, device="cuda")]
    k = torch.nn.functional.normalize(k.float(), dim=-1).bfloat16()
    return [q, k, v, torch.rand_like(rate), -0.1 * rate]


def lengths_of(kind):
    draw = random.Random(0)
    if kind == "long":
        return (3000, 0, 1, 777, 64, 4096, 65, 500)
    return tuple(draw.randint(0, 40) for _ in range(3000))


@pytest.mark.parametrize("kind", ["long", "thousands"])
@OF_ALL
def test_packed_sequences_are_calls_of_each(name, kind):
    """With all gradients."""
    lengths, (operator, words) = lengths_of(kind), OPERATORS[name]
    tensors, sizes = given(name, sum(lengths)), (128, 128)
    if kind != "long":
        lengths = lengths[:300]
        tensors, sizes = given(name, sum(lengths), 64, 48), (64, 48)
    special = {"based_attention": (153, sizes[1]), "hedgehog_attention": (128, sizes[1] + 1)}
    state = torch.randn(len(lengths), HEADS, *special.get(name, sizes), device="cuda")
    tensors.append(state.abs() if name == "hedgehog_attention" else state)
    own, alone = ([x.clone().requires_grad_() for x in tensors] for _ in range(2))
    how = words | {"return_state": True}
    packed = operator(*own[:-1], **how, initial_state=own[-1], ends=ends_of(lengths, "cuda"))

    def of_one(*args):
        return operator(*args[:-1], **how, initial_state=args[-1])

    parts = each(of_one, lengths, *alone[:-1], state=alone[-1])
    weights = [torch.randn_like(x) for x in parts]
    for found in (packed, parts):
        sum((x * w).float().sum() for x, w in zip(found, weights, strict=True)).backward()
    pairs = [*zip(packed, parts, strict=True)]
    pairs += [(x.grad, y.grad) for x, y in zip(own, alone, strict=True)]
    for i, (x, y) in enumerate(pairs):
        assert x.isfinite().all(), i
        assert (x - y).abs().max() <= 2**-6 * y.abs().max(), i


@OF_ALL
def test_thousands_of_sequences_in_any_segments(name):
    lengths, (_, words) = lengths_of("thousands"), OPERATORS[name]
    tensors, ends = given(name, sum(lengths)), ends_of(lengths, "cuda")
    one, *others = (
        FUNCTIONS[name](*tensors, **words, ends=ends, segments=segments)
        for segments in (1, 2, None)
    )
    for other in others:
        assert (one - other).abs().max() <= 2**-6 * one.abs().max()
    for i in range(0, 3000, 131):
        at = slice(int(ends[i]), int(ends[i + 1]))
        if at.start < at.stop:
            own = [x[:, :, at] if x.dim() > 1 else x for x in tensors]
            alone = FUNCTIONS[name](*own, **words)
            assert (one[:, :, at] - alone).abs().max() <= 2**-6 * alone.abs().max(), i


@OF_ALL
def test_other_lengths_in_a_graph(name):
    """The lengths are read when the graph runs."""
    function, (_, words) = FUNCTIONS[name], OPERATORS[name]
    tensors, out = given(name, 1000), torch.empty(1, HEADS, 1000, 128, device="cuda").bfloat16()
    ends = ends_of((100, 400, 500), "cuda")
    function(*tensors, **words, ends=ends, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(*tensors, **words, ends=ends, out=out)
    for lengths in ((1000, 0, 0), (17, 63, 920), (333, 333, 334)):
        ends.copy_(ends_of(lengths, "cuda"))
        graph.replay()
        wanted = function(*tensors, **words, ends=ends.clone())
        torch.testing.assert_close(out, wanted, rtol=0, atol=0)
