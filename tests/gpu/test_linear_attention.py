"""Linear attention on a GPU: random calls with all gradients, long sequences, gates of channels, and steps."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.linear import (  # noqa: E402
    gated_linear_attention,
    gated_linear_attention_backward,
    linear_attention_step,
)
from pykittens.kernels.linear import linear_attention as attend  # noqa: E402
from tests.linear_random import (  # noqa: E402
    LinearProblem,
    by_channels,
    check,
    explicit,
    of_channels,
    problem,
    tensors,
)

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(20):
        check(problem(draw), "cuda")


@pytest.mark.parametrize("decay", ["none", "head", "position"])
def test_segments_of_a_long_sequence_are_one(decay):
    p = LinearProblem(1, 4, 4, 6000, 128, 128, decay, 0.1, True, False, False)
    q, k, v, log, state = tensors(p, "cuda")
    found = [
        attend(q, k, v, log, initial_state=state, return_state=True, segments=n)
        for n in (1, 2, 7, 32, None)
    ]
    wanted = explicit(*(x if x is None else x.double() for x in (q, k, v, log, state)))
    for some in found:
        for x, y in zip(some, wanted, strict=True):
            assert (x - y).abs().max() <= 2**-6 * y.abs().max()


def test_steps_on_the_gpu():
    p = LinearProblem(8, 6, 2, 16, 128, 192, "position", 0.1, True, True, False)
    q, k, v, log, state = tensors(p, "cuda")
    wanted, last = explicit(*(x.double() for x in (q, k, v, log, state)))
    for i in range(p.n):
        some = (x[:, :, i] for x in (q, k, v))
        out = linear_attention_step(*some, state, log[:, :, i])
        assert (out - wanted[:, :, i]).abs().max() <= 2**-7 * wanted.abs().max()
    assert (state - last).abs().max() <= 1e-5 * last.abs().max()


def test_steps_in_a_graph():
    """A state that is replaced by each replay."""
    p = LinearProblem(4, 2, 2, 1, 64, 64, "position", 0.1, True, False, False)
    q, k, v, log, state = tensors(p, "cuda")
    q, k, v, log = (x[:, :, 0].contiguous() for x in (q, k, v, log))
    own, out = state.clone(), torch.empty_like(v)
    linear_attention_step(q, k, v, own.clone(), log, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        linear_attention_step(q, k, v, own, log, out)
    own.copy_(state)
    for _ in range(3):
        graph.replay()
        linear_attention_step(q, k, v, state, log)
    torch.testing.assert_close(own, state)


@pytest.mark.parametrize("seed", range(12))
def test_random_calls_with_gates_of_channels(seed):
    """All gradients, of any heads, strides, widths, states and strengths."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(10):
        check(of_channels(draw, problem(draw)), "cuda")


@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0])
def test_gradients_of_segments_of_gates_of_channels(strength):
    """A sequence of many segments has the gradients of the chunk form, also with gates that keep nearly all."""
    p = LinearProblem(1, 2, 2, 3000, 128, 128, "channel", strength, True, False, False, gates=2)
    given = tensors(p, "cuda")
    exact = [x.double().requires_grad_() for x in given]
    outs = by_channels(*exact)
    weights = [torch.randn_like(x) for x in outs]
    weights[0] = weights[0].bfloat16().double()
    wanted = torch.autograd.grad(outs, exact, weights)
    own = given[0], given[1], given[2], weights[0].bfloat16(), given[3]
    words = {"initial_state": given[4], "state_gradient": weights[1].float()}
    for segments in (1, 2, 7, None):
        found = gated_linear_attention_backward(*own, segments=segments, **words)
        units = (2**-7, 2**-7, 2**-7, 2**-8, 2**-13)
        for x, y, unit in zip(found, wanted, units, strict=True):
            assert (x - y).abs().max() <= 2 * unit * y.abs().max()


@pytest.mark.parametrize("strength", [0.05, 1.0, 100.0])
@pytest.mark.parametrize(
    ("n", "d", "width", "groups", "gates"),
    [(1, 64, 64, 2, 2), (65, 128, 128, 4, 4), (1000, 128, 256, 2, 4), (200, 80, 40, 1, 2)],
)
def test_gates_of_channels(n, d, width, groups, gates, strength):
    """Also segments, which are one sequence, and one position more."""
    torch.manual_seed(n)
    p = LinearProblem(2, 4, groups, n, d, width, "none", 0.0, True, n % 2 == 0, False)
    q, k, v, _, state = tensors(p, "cuda")
    log = -strength * torch.rand(2, gates, n, d, device="cuda")
    wanted = by_channels(*(x.double() for x in (q, k, v, log, state)))
    for segments in (1, 3, None):
        words = {"initial_state": state, "return_state": True, "segments": segments}
        found = gated_linear_attention(q, k, v, log, **words)
        for x, y, unit in zip(found, wanted, (2**-7, 2**-13), strict=True):
            assert (x - y).abs().max() <= 2 * unit * y.abs().max()
    plain = gated_linear_attention(q, k, v, log, initial_state=state)
    assert (plain - wanted[0]).abs().max() <= 2**-6 * wanted[0].abs().max()
    some = (x[:, :, 0] for x in (q, k, v))
    one, own = gated_linear_attention(
        *(x[:, :, :1] for x in (q, k, v, log)), initial_state=state, return_state=True
    )
    out = linear_attention_step(*some, state, log[:, :, 0])
    assert (out - one[:, :, 0]).abs().max() <= 2**-6 * out.abs().max()
    assert (state - own).abs().max() <= 2**-13 * own.abs().max()
