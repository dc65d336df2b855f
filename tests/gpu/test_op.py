"""Operators of one's own kernels on a GPU: gradients, compilers, CUDA graphs, profiles, cost of a call."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import op  # noqa: E402
from tests.gpu.test_torch import microseconds  # noqa: E402
from tests.torch.operators import assert_operator  # noqa: E402
from tests.torch.test_op import add_rows, exact, scale_rows, scaled_rows, sums_of_rows  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of PyTorch's own compiler
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]


def x_and_scale(rows=200, cols=136):
    generator = torch.Generator().manual_seed(rows)
    given = torch.randn(rows, cols, generator=generator), torch.randn(rows, generator=generator)
    return [x.cuda() for x in given]


def test_results_and_gradients_are_those_of_the_formula():
    x, scale = (t.requires_grad_() for t in x_and_scale())
    wide = [t.detach().double().requires_grad_() for t in (x, scale)]
    for _ in range(3):
        found = scale_rows(x, scale)
    assert torch.equal(found, exact(x, scale))
    found.sum().backward()
    exact(*wide).sum().backward()
    for leaf, expected in zip((x, scale), wide, strict=True):
        assert torch.allclose(leaf.grad.double(), expected.grad, rtol=1e-5, atol=1e-5)


def test_pytorchs_own_checks_of_an_operator_pass():
    x, scale = x_and_scale()
    assert_operator(scale_rows.definition, x, scale)
    assert_operator(scale_rows.definition, x.requires_grad_(), scale.requires_grad_())
    assert_operator(add_rows.definition, x.detach(), scale.detach(), torch.zeros_like(x))
    a, b = (torch.randn(n, 64).bfloat16().cuda() for n in (72, 40))
    assert_operator(sums_of_rows.definition, a, b)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_calls_it(mode):
    def changed(x, scale):
        y = torch.ones_like(x)
        add_rows(scale_rows(x * 2, scale), scale, y)
        return y.relu()

    torch._dynamo.reset()
    compiled = torch.compile(changed, fullgraph=True, mode=mode)
    x, scale = x_and_scale()
    with torch.no_grad():
        for shift in range(4):  # warmed up, captured, replayed
            torch.compiler.cudagraph_mark_step_begin()
            given = x.roll(shift, 0), scale
            assert torch.allclose(compiled(*given), changed(*given), rtol=1e-6, atol=1e-6)


def test_a_graph_is_captured_and_replayed():
    x, scale = x_and_scale()
    scale_rows(x, scale)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = scale_rows(x, scale)
    x.copy_(x.roll(1, 0))
    graph.replay()
    assert torch.equal(found, exact(x, scale))


def test_transforms_go_through():
    x, scale = x_and_scale()

    def loss(call):
        return lambda x, scale: call(x, scale).square().sum()

    found = torch.func.grad(loss(scale_rows), (0, 1))
    expected = torch.func.grad(loss(exact), (0, 1))(x, scale)
    for call in (found, torch.compile(found, fullgraph=True)):
        for f, e in zip(call(x, scale), expected, strict=True):
            assert torch.allclose(f, e, rtol=1e-4, atol=1e-4)
    batch = torch.stack([x, x + 1], 1)
    found = torch.vmap(scale_rows, in_dims=(1, None))(batch, scale)
    assert torch.equal(found[1], exact(x + 1, scale))


def test_a_program_of_aotinductor_calls_it(tmp_path):
    class Scaled(torch.nn.Module):
        def forward(self, x, scale):
            return scale_rows(x, scale) + 1

    given = x_and_scale()
    program = torch.export.export(Scaled(), tuple(given))
    path = str(tmp_path / "scaled.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    compiled = torch._inductor.aoti_load_package(path)
    assert torch.equal(compiled(*given), exact(*given) + 1)


def test_a_tensor_that_a_repeated_launch_writes_is_declared():
    @op("pykittens_tests::undeclared_on_gpu")
    def undeclared(x: torch.Tensor, scale: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        scaled_rows(x, scale, cache.view(x.shape), 0.0)
        return torch.zeros_like(x)

    x, scale = x_and_scale()
    cache = torch.zeros(x.numel(), device="cuda")
    for _ in range(3):
        with pytest.raises(ArgumentError, match="the function writes to `cache`"):
            undeclared(x, scale, cache)


def test_a_profile_has_the_operator_and_its_kernel():
    x, scale = x_and_scale()
    scale_rows(x, scale)
    with torch.profiler.profile(acc_events=True) as profile:
        scale_rows(x, scale)
        torch.cuda.synchronize()
    names = [event.key for event in profile.key_averages()]
    assert scale_rows.name in names
    assert any("scaled_rows" in name for name in names)


def test_a_call_costs_less_than_by_the_dispatcher(capsys):
    x, scale = x_and_scale(16, 64)
    y = torch.empty_like(x)
    scale_rows(x, scale)
    costs = {
        "the kernel": microseconds(lambda: scaled_rows(x, scale, y, 0.5)),
        "the function": microseconds(lambda: scale_rows.function(x, scale)),
        "the operator": microseconds(lambda: scale_rows(x, scale)),
        "torch.ops": microseconds(lambda: torch.ops.pykittens_tests.scale_rows(x, scale)),
    }
    with capsys.disabled():
        print("\n" + "\n".join(f"{cost:6.2f} us  {name}" for name, cost in costs.items()))
    assert costs["the operator"] < costs["torch.ops"]
