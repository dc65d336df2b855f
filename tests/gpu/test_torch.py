"""The PyTorch operators on a GPU: values, gradients, torch.compile, CUDA graphs, streams, devices, cost of a call."""

import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import gated_mlp, grouped_mm, linear, matmul, scaled_mm  # noqa: E402
from tests import tolerance  # noqa: E402
from tests.torch import operators  # noqa: E402
from tests.torch.bounds import Bounded  # noqa: E402
from tests.torch.operators import BF16, F16, assert_exact_gradients, gradients  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # Of PyTorch's own: its compiler uses what it calls old, and the mode that finds waits calls itself new.
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]

E4M3, F32 = torch.float8_e4m3fn, torch.float32
SLEEP = 200_000_000  # clock cycles of the GPU, about a tenth of a second


def normal(*shape, dtype=BF16, seed=0):
    return operators.normal(*shape, dtype=F32, seed=seed).cuda().to(dtype)


def whole(*shape, dtype=BF16, seed=0):
    return operators.whole(*shape, dtype=dtype, seed=seed).cuda()


def ends(*numbers):
    return torch.tensor(numbers, dtype=torch.int32, device="cuda")


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1024, 512), (512, 768)),
        ((300, 131), (131, 290)),
        ((1, 4096), (4096, 512)),
        ((5, 33, 70), (70, 50)),
        ((3, 1, 40, 70), (2, 70, 50)),
        ((70,), (70, 50)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_matmul_is_rounded_once(a, b, dtype):
    a, b = normal(*a, dtype=dtype), normal(*b, dtype=dtype, seed=1)
    exact, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    sums = 2 * (a.shape[-1] + 1) * 2.0**-24 * magnitude
    Bounded(exact, sums).rounded(dtype).check(matmul(a, b))
    out = torch.full_like(exact, torch.nan, dtype=F32)
    Bounded(exact, sums).rounded(F32).check(matmul(a, b, out=out))


@pytest.mark.parametrize(
    ("activation", "function", "slope"),
    [
        ("", lambda x: x, 1.0),
        ("gelu", torch.nn.functional.gelu, 1.13),
        ("silu", torch.nn.functional.silu, 1.1),
    ],
    ids=["none", "gelu", "silu"],
)
def test_linear_and_gated_mlp_lie_within_their_bounds(activation, function, slope):
    x, weight, bias = normal(200, 136), normal(264, 136, seed=1) / 8, normal(264, seed=2)
    residual, gate, down = (
        normal(200, 264, seed=3),
        normal(264, 136, seed=4) / 8,
        normal(104, 264, seed=5),
    )
    X, W, G = map(Bounded.of, (x, weight, gate))
    sums = X @ W.mT + Bounded.of(bias)
    expected = (sums.through(function, slope) + Bounded.of(residual)).rounded(BF16)
    expected.check(linear(x, weight, bias, activation, residual))
    hidden = ((X @ W.mT).through(function, slope) * (X @ G.mT)).rounded(BF16)
    expected = (hidden @ Bounded.of(down.mT)).rounded(BF16)
    expected.check(gated_mlp(x, weight, gate, down, activation))


M, N, K = 130, 272, 400


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [((), ()), ((M, 1), (1, N)), ((M, 4), (4, 3))],
    ids=["tensors", "lines", "blocks"],
)
def test_scaled_mm_has_the_scales_of_their_shapes(of_a, of_b):
    a, b = normal(M, K, dtype=E4M3), normal(N, K, dtype=E4M3, seed=1).t()
    scale_a, scale_b = (normal(*s, dtype=F32, seed=2).abs() + 0.5 for s in (of_a, of_b))
    wide_a, wide_b = scale_a.double(), scale_b.double()
    if of_a == (M, 4):
        wide_a = wide_a.repeat_interleave(128, 1)[:, :K]
        wide_b = wide_b.repeat_interleave(128, 0)[:K].repeat_interleave(128, 1)[:, :N]
    left, right = a.double() * wide_a, b.double() * wide_b
    expected = Bounded(left @ right, tolerance.fp8_sum(K) * (left.abs() @ right.abs()))
    expected.rounded(BF16).check(scaled_mm(a, b, scale_a, scale_b))
    expected.rounded(BF16).check(scaled_mm(a, b.contiguous(), scale_a, scale_b))


OFFS, PARTS = (70, 70, 300), (slice(0, 70), slice(70, 70), slice(70, 300))


def one_by_one(a, b, offs):
    """The products of the groups, each by torch.matmul."""
    if a.dim() == b.dim() == 2:
        return torch.stack([a[:, part] @ b[part] for part in PARTS])
    if a.dim() == 2:
        return torch.cat([a[part] @ b[i] for i, part in enumerate(PARTS)])
    return torch.cat([a[i] @ b[:, part] for i, part in enumerate(PARTS)], 1)


GROUPED = {
    "rows": ((300, 72), (3, 72, 104)),
    "parts of the sum": ((72, 300), (300, 104)),
    "columns": ((3, 72, 40), (40, 300)),
}


@pytest.mark.parametrize("form", GROUPED)
def test_grouped_mm_is_rounded_once(form):
    a, b = (normal(*shape, seed=i) for i, shape in enumerate(GROUPED[form]))
    exact = one_by_one(a.double(), b.double(), None)
    magnitude = one_by_one(a.double().abs(), b.double().abs(), None)
    expected = Bounded(exact, 2 * 301 * 2.0**-24 * magnitude).rounded(BF16)
    expected.check(grouped_mm(a, b, ends(*OFFS)))


# -- gradients -------------------------------------------------------------------------------------


def test_gradients_of_products_are_those_of_torch():
    for a, b in (((70, 33), (33, 40)), ((2, 9, 12), (12, 20)), ((9, 12), (2, 12, 20))):
        assert_exact_gradients(matmul, torch.matmul, whole(*a), whole(*b, seed=1))


def test_gradients_of_layers_are_those_of_torch():
    given = whole(2, 9, 12), whole(20, 12, seed=1), whole(20, seed=2), whole(2, 9, 20, seed=3)

    def layer(x, weight, bias, residual):
        return torch.nn.functional.linear(x, weight, bias).relu() + residual

    assert_exact_gradients(lambda x, w, b, r: linear(x, w, b, "relu", r), layer, *given)

    def mlp(x, w1, w3, w2):
        hidden = torch.nn.functional.linear(x, w1).relu() * torch.nn.functional.linear(x, w3)
        return torch.nn.functional.linear(hidden, w2)

    weights = (whole(6, 4, seed=1).sign(), whole(6, 4, seed=2).sign(), whole(5, 6, seed=3).sign())
    assert_exact_gradients(
        lambda *t: gated_mlp(*t, "relu"), mlp, whole(3, 4).sign(), *(w for w in weights)
    )


@pytest.mark.parametrize("form", GROUPED)
def test_gradients_of_groups_are_those_of_torch(form):
    # Of ones and zeros, so that the sums over 230 rows are exact.
    a, b = (whole(*shape, seed=i).clamp(0, 1) for i, shape in enumerate(GROUPED[form]))

    def signs(function):
        return lambda a, b, offs: function(a, b, offs).clamp(-1, 1)

    assert_exact_gradients(signs(grouped_mm), signs(one_by_one), a, b, ends(*OFFS))


def test_gradients_inside_a_transform_are_those_of_autograd():
    x, weight = normal(200, 136), normal(264, 136, seed=1)

    def total(weight):
        return linear(x, weight, None, "relu").sum()

    leaf = weight.clone().requires_grad_()
    total(leaf).backward()
    found = torch.func.grad(total)
    torch._dynamo.reset()
    for call in (found, torch.compile(found, fullgraph=True)):
        assert torch.allclose(call(weight), leaf.grad, rtol=2**-7)


# -- torch.compile, graphs, streams, devices -------------------------------------------------------


def network(x, weight, bias, w1, w3, w2, experts, offs):
    """All operators that have gradients, with torch's own between them."""
    h = linear(x, weight, bias, "relu", x) + 1
    h = h + gated_mlp(h.clamp(-1, 1), w1, w3, w2, "relu")
    h = grouped_mm(h.clamp(-1, 1), experts, offs)
    return matmul(h.clamp(-1, 1), weight.mT)


def operands_of_network():
    wide, small = (24, 24), (8, 24)
    return (
        *(whole(50, 24), whole(*wide, seed=1).sign(), whole(24, seed=2)),
        *(whole(*small, seed=3).sign(), whole(*small, seed=4).sign(), whole(24, 8, seed=5).sign()),
        *(whole(3, *wide, seed=6).sign(), ends(20, 20, 50)),
    )


def test_a_compiled_network_has_the_results_and_gradients_of_eager_mode():
    torch._dynamo.reset()
    given = operands_of_network()
    compiled = torch.compile(network, fullgraph=True)
    for found, expected in zip(
        gradients(compiled, *given), gradients(network, *given), strict=True
    ):
        # Sums of torch's own may be taken in another order: two roundings of the largest term.
        assert (found - expected).abs().max() <= 2.0**-7 * expected.abs().max()
        assert expected.abs().max() > 0


def test_a_compiled_network_runs_in_the_graphs_of_inductor():
    torch._dynamo.reset()
    given = operands_of_network()
    compiled = torch.compile(network, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for shift in range(4):  # warmed up, captured, replayed
            torch.compiler.cudagraph_mark_step_begin()
            changed = (given[0].roll(shift, 0), *given[1:])
            assert torch.equal(compiled(*changed), network(*changed))


def test_a_graph_is_captured_and_replayed_with_other_inputs():
    given = operands_of_network()
    x, w = normal(64, 4096), normal(64, 4096, seed=1)  # few tiles: the sum is split

    def step():
        return network(*given), matmul(x, w.mT)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        results = step()
    for seed in (10, 11):
        given[0].copy_(whole(50, 24, seed=seed))
        x.copy_(normal(64, 4096, seed=seed))
        graph.replay()
        found = [r.clone() for r in results]
        with torch.no_grad():
            for f, expected in zip(found, step(), strict=True):
                assert torch.equal(f, expected)


def test_training_is_captured_and_replayed():
    w = whole(24, 24, seed=1).sign().requires_grad_()
    x = whole(50, 24)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        linear(x, w, activation="relu").sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    w.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        linear(x, w, activation="relu").sum().backward()
    x.copy_(whole(50, 24, seed=7))
    graph.replay()
    leaf = w.detach().double().requires_grad_()
    torch.nn.functional.linear(x.double(), leaf).relu().sum().backward()
    assert torch.equal(w.grad.double(), leaf.grad)


def test_a_call_is_ordered_by_the_current_stream():
    a, b, other = whole(64, 64), whole(64, 64, seed=1), whole(64, 64, seed=2)
    matmul(a, b)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLEEP)
        a.copy_(other)
        found = matmul(a, b)  # on another stream it would read what a was before
    side.synchronize()
    assert torch.equal(found.double(), other.double() @ b.double())


def test_a_call_does_not_wait_for_the_gpu():
    a, b = normal(64, 256), normal(256, 64, seed=1)
    x, w, offs = normal(64, 256), normal(2, 256, 64, seed=1), ends(10, 64)
    fp8, scale = normal(64, 256, dtype=E4M3), torch.ones((), device="cuda")

    def calls():
        matmul(a, b)
        linear(a, b.mT, activation="silu")
        gated_mlp(a, b.mT, b.mT, a.mT)
        grouped_mm(x, w, offs)
        scaled_mm(fp8, fp8.t(), scale, scale)

    calls()
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("error")
        torch.cuda._sleep(SLEEP)
        calls()
        slept = torch.cuda.Event()
        slept.record()
        assert not slept.query(), "a call waited until the GPU had slept"
    finally:
        torch.cuda.set_sync_debug_mode(before)
    torch.cuda.synchronize()


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="there is one GPU"
)
@pytest.mark.parametrize(("current", "device"), [(0, 1), (1, 0)])
def test_a_call_runs_where_its_tensors_are(current, device):
    a, b = (whole(40, 40, seed=i).to(f"cuda:{device}") for i in range(2))
    a.requires_grad_()
    with torch.cuda.device(current):
        found = linear(a, b, activation="relu")
        found.sum().backward()
    leaf = a.detach().double().requires_grad_()
    exact = torch.nn.functional.linear(leaf, b.double()).relu()
    exact.sum().backward()
    assert found.device == a.device
    assert torch.equal(found.double(), exact)
    assert torch.equal(a.grad.double(), leaf.grad)


def test_a_gpu_that_is_too_old_is_told_or_left_to_torch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    a = normal(3, 3)
    leaf = a.clone().requires_grad_()
    with pytest.raises(ArgumentError, match="`a` is on a GPU of compute capability 7.5, and k"):
        matmul(a, leaf)
    assert torch.equal(matmul(a, leaf, fallback=True), torch.matmul(a, leaf))


# -- the cost of a call ----------------------------------------------------------------------------


def microseconds(call, count=2000):
    """What a call takes on the host, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - start) / count * 1e6)
    torch.cuda.synchronize()
    return best


def test_a_call_costs_less_than_by_the_dispatcher(capsys):
    a, b = normal(16, 64), normal(64, 64, seed=1)
    out, leaf = torch.empty(16, 64, dtype=BF16, device="cuda"), b.clone().requires_grad_()
    with torch.no_grad():
        costs = {
            "torch.matmul": microseconds(lambda: torch.matmul(a, b)),
            "pykittens.torch.matmul": microseconds(lambda: matmul(a, b)),
            "pykittens.torch.matmul, out": microseconds(lambda: matmul(a, b, out=out)),
            "torch.ops.pykittens.matmul": microseconds(lambda: torch.ops.pykittens.matmul(a, b)),
        }
    costs["torch.matmul, gradient"] = microseconds(lambda: torch.matmul(a, leaf))
    costs["pykittens.torch.matmul, gradient"] = microseconds(lambda: matmul(a, leaf))
    with capsys.disabled():
        print("\n" + "\n".join(f"{cost:6.2f} us  {name}" for name, cost in costs.items()))
    assert costs["pykittens.torch.matmul"] < costs["torch.ops.pykittens.matmul"]
