"""One's own kernels as operators: calls, gradients, compilers and export."""

from __future__ import annotations

import pickle
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.torch import op  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    assert_batched_gradients,
    assert_compiles,
    assert_fake_agrees,
    assert_operator,
)

# Of PyTorch's own code, when it compiles.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROWS, COLS = 5, 7


@pk.kernel
def scaled_rows(x, scale, y, eps):
    """y = x * (scale + eps), with a scale for each row."""
    row, col = pk.grid(*x.tiles(64, 64))
    s = pk.load(scale[row], cols=64, spread=pk.per_row) + eps
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * s)


@op("pykittens_tests::scale_rows", flops=lambda x, scale, eps: x.numel())
def scale_rows(x: torch.Tensor, scale: torch.Tensor, eps: float = 0.5) -> torch.Tensor:
    y = torch.empty_like(x)
    scaled_rows(x, scale, y, eps)
    return y


@scale_rows.setup_context
def _(ctx, inputs, output):
    x, scale, ctx.eps = inputs
    ctx.save_for_backward(x, scale)


@scale_rows.backward
def _(ctx, dy):
    x, scale = ctx.saved_tensors
    return scale_rows(dy, scale, ctx.eps), (dy * x).sum(1), None


@op("pykittens_tests::add_rows", mutates={"y"})
def add_rows(x: torch.Tensor, scale: torch.Tensor, y: torch.Tensor) -> None:
    product = torch.empty_like(y)
    scaled_rows(x, scale, product, 0.0)
    y += product


@op("pykittens_tests::sums_of_rows")
def sums_of_rows(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, *, wide: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """A function of the library, an optional tensor, a keyword and two results."""
    out_dtype = pk.f32 if wide else None
    product, sums = gemm(a, b, bias=bias, row_sums=True, out_dtype=out_dtype)
    return product, sums


@sums_of_rows.setup_context
def _(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(*inputs[:2])


@sums_of_rows.backward
def _(ctx, of_product, of_sums):
    a, b = ctx.saved_tensors
    total = (of_product + of_sums[:, None]).to(a.dtype)
    return total @ b, total.mT @ a, None


def x_and_scale(rows=ROWS, cols=COLS):
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, cols, generator=generator), torch.randn(rows, generator=generator)


def exact(x, scale, eps=0.5):
    return x * (scale[:, None] + eps)


def test_a_call_runs_the_function():
    x, scale = x_and_scale()
    for _ in range(2):  # the first goes through the dispatcher
        assert torch.equal(scale_rows(x, scale), exact(x, scale))
        assert torch.equal(scale_rows(x, scale=scale, eps=1.0), exact(x, scale, 1.0))
        assert torch.equal(torch.ops.pykittens_tests.scale_rows(x, scale), exact(x, scale))


def test_a_call_of_plain_tensors_bypasses_the_dispatcher(monkeypatch):
    x, scale = x_and_scale()
    scale_rows(x, scale)
    monkeypatch.setattr(scale_rows, "_operator", None)
    scale_rows(x, scale)
    with torch.no_grad():
        scale_rows(x.clone().requires_grad_(), scale)
    for other in (x.clone().requires_grad_(), x.to("meta"), torch._neg_view(x)):
        with pytest.raises(TypeError, match="NoneType"):
            scale_rows(other, scale)


def test_the_gradients_are_those_of_the_formula_in_float64():
    x, scale = (t.requires_grad_() for t in x_and_scale())
    wide = [t.detach().double().requires_grad_() for t in (x, scale)]
    weights = torch.randn(ROWS, COLS).double()
    (scale_rows(x, scale) * weights.float()).sum().backward()
    (exact(*wide) * weights).sum().backward()
    for found, expected in zip((x, scale), wide, strict=True):
        assert torch.allclose(found.grad.double(), expected.grad, rtol=1e-5, atol=1e-6)
    first = torch.autograd.grad(scale_rows(x, scale).square().sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), scale)[0]
    expected = 4 * (scale + 0.5) * x.sum(1)
    assert torch.allclose(second, expected, rtol=1e-5, atol=1e-5)


def test_a_gradient_that_is_repeated_or_transposed_reaches_kernels_contiguous():
    x, scale = (t.requires_grad_() for t in x_and_scale())
    scale_rows(x, scale).sum().backward()
    assert torch.equal(x.grad, exact(torch.ones_like(x), scale))
    assert_batched_gradients(scale_rows, *x_and_scale())


def test_pytorchs_own_checks_of_an_operator_pass():
    x, scale = x_and_scale()
    assert_operator(scale_rows.definition, x, scale)
    assert_operator(scale_rows.definition, x.requires_grad_(), scale.requires_grad_())
    assert_operator(add_rows.definition, x.detach(), scale.detach(), torch.zeros(ROWS, COLS))
    a, b = (torch.randn(n, 8).bfloat16() for n in (3, 4))
    assert_operator(sums_of_rows.definition, a, b)
    assert_operator(sums_of_rows.definition, a.requires_grad_(), b, torch.ones(4).bfloat16())


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (64, 64), (70, 200)])
def test_the_function_is_its_own_fake_implementation(shape):
    assert_fake_agrees(scale_rows, *x_and_scale(*shape))
    a, b = (torch.randn(n, shape[1]).bfloat16() for n in shape)
    assert_fake_agrees(lambda a, b: sums_of_rows(a, b)[0], a, b)
    assert_fake_agrees(lambda a, b: sums_of_rows(a, b, wide=True)[1], a, b)
    assert_fake_agrees(lambda x, s: scale_rows(x[:, ::1].contiguous(), s), *x_and_scale(*shape))


def test_it_is_compiled_in_one_graph_with_its_gradients():
    assert_compiles(lambda x, s: scale_rows(x + 1, s).relu(), *x_and_scale())
    a, b = (torch.randn(n, 8).bfloat16() for n in (3, 4))
    assert_compiles(lambda a, b: sums_of_rows(a, b, wide=True)[0].relu(), a, b)


@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_calls_it(dynamic):
    def changed(x, scale):
        y = torch.ones_like(x)
        add_rows(scale_rows(x * 2, scale), scale, y)
        return y.relu()

    torch._dynamo.reset()
    compiled = torch.compile(changed, fullgraph=True, dynamic=dynamic)
    for rows in (5, 9):
        x, scale = x_and_scale(rows)
        assert torch.allclose(compiled(x, scale), changed(x, scale), rtol=1e-6, atol=1e-6)


def test_extents_that_change_need_no_second_graph():
    count = []

    def backend(graph, _):
        count.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(lambda x, s: scale_rows(x, s) + 1, fullgraph=True, backend=backend)
    for rows, cols in ((5, 7), (9, 70), (130, 3)):
        x, scale = x_and_scale(rows, cols)
        torch._dynamo.mark_dynamic(x, (0, 1))
        torch._dynamo.mark_dynamic(scale, 0)
        assert torch.equal(compiled(x, scale), exact(x, scale) + 1)
    assert len(count) == 1


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(x_and_scale()[1])

    def forward(self, x):
        return scale_rows(x.mT.contiguous(), self.scale) + 1


@pytest.mark.parametrize("strict", [False, True])
def test_it_is_exported_saved_loaded_and_run(tmp_path, strict):
    cols = torch.export.Dim("cols", min=2)
    layer, x = Scaled(), x_and_scale()[0]
    shapes = ({0: cols, 1: None},)
    program = torch.export.export(layer, (x.mT.contiguous(),), dynamic_shapes=shapes, strict=strict)
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2")
    targets = [str(node.target) for node in loaded.graph.nodes]
    assert targets.count("pykittens_tests.scale_rows.default") == 1
    for count in (7, 70):
        given = torch.randn(count, ROWS)
        assert torch.equal(loaded.module()(given), layer(given))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_program_of_aotinductor_calls_it(tmp_path):
    layer, x = Scaled(), x_and_scale()[0].mT.contiguous()
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("cols")},))
    path = str(tmp_path / "layer.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    compiled = torch._inductor.aoti_load_package(path)
    for given in (x, torch.randn(70, ROWS)):
        assert torch.allclose(compiled(given), layer(given), rtol=1e-6)


def test_a_call_of_a_kernel_that_is_no_operator_is_not_lost_in_an_exported_program():
    class Bare(torch.nn.Module):
        def forward(self, x, scale):
            y = torch.empty_like(x)
            scaled_rows(x, scale, y, 0.5)
            return y

    with pytest.raises(ArgumentError, match="make it an operator with pykittens.torch.op"):
        torch.export.export(Bare(), x_and_scale(), strict=False)


def test_floating_point_operations_are_counted():
    x, scale = x_and_scale()
    with FlopCounterMode(display=False) as counter:
        scale_rows(x, scale)
        scale_rows(x, scale, eps=1.0)
    assert counter.get_total_flops() == 2 * ROWS * COLS


def test_a_profiler_shows_its_name():
    x, scale = x_and_scale()
    scale_rows(x, scale)
    with torch.profiler.profile() as profile:
        scale_rows(x, scale)
    assert [e.count for e in profile.key_averages() if e.key == scale_rows.name] == [1]


def test_a_tensor_that_is_written_is_declared():
    x, scale = x_and_scale()
    y = torch.ones(ROWS, COLS)
    version = y._version
    add_rows(x, scale, y)
    assert torch.equal(y, 1 + exact(x, scale, 0.0))
    assert y._version > version

    @op("pykittens_tests::undeclared", mutates={"x"})
    def undeclared(x: torch.Tensor, all: list[torch.Tensor]) -> None:
        for cache in all:
            scaled_rows(x, x[:, 0].contiguous(), cache.view(ROWS, COLS), 0.0)

    with pytest.raises(ArgumentError, match="the function writes to `all`, which is not in") as e:
        undeclared(x, [torch.zeros(ROWS * COLS)])
    assert 'mutates={"x", "all"}' in e.value.help
    with torch.inference_mode():  # has no versions
        scale_rows(torch.ones(2, 2), torch.ones(2))


def test_an_operator_that_writes_has_no_gradient():
    with pytest.raises(ArgumentError, match="that writes to its arguments has no gradient") as e:
        add_rows.backward(lambda ctx: None)
    assert e.value.help.startswith("let it return new tensors")


def added(x, scale):
    y = torch.ones_like(x)
    add_rows(x * 2, scale, y)
    return y


def test_a_gradient_does_not_pass_what_is_overwritten_unnoticed():
    x, scale = x_and_scale()
    leaf = x.clone().requires_grad_()
    for call in (added, torch.func.grad(lambda x, scale: added(x, scale).sum())):
        with pytest.raises(
            ArgumentError, match="has no gradient, and one of its tensors asks"
        ) as e:
            call(leaf, scale)
        assert e.value.help == "pass tensors after .detach(), or call it under torch.no_grad()"
    torch._dynamo.reset()
    compiled = torch.compile(added, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="has no gradient, and one of its tensors asks"):
        compiled(leaf, scale)
    with torch.no_grad():
        for call in (added, compiled):
            assert torch.equal(call(leaf, scale), added(x, scale))
    found = torch.func.grad(lambda z: (added(x, scale) * z).sum())(x)
    assert torch.equal(found, added(x, scale))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_tangent_is_not_lost():
    x, scale = x_and_scale()
    expected = scale_rows(x, scale)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        for call in (scale_rows, torch.ops.pykittens_tests.scale_rows):
            with pytest.raises(ArgumentError, match="there is no derivative in forward mode"):
                call(dual, scale)
        assert torch.equal(scale_rows(x.clone(), scale), expected)
    with pytest.raises(ArgumentError, match="there is no derivative in forward mode"):
        torch.func.linearize(lambda x: scale_rows(x, scale), x)


def test_an_int_for_a_float_is_the_float():
    x, scale = x_and_scale()
    for _ in range(2):
        assert torch.equal(scale_rows(x, scale, 2), exact(x, scale, 2.0))
        assert torch.equal(scale_rows(x, scale, eps=2), exact(x, scale, 2.0))


def test_an_operator_without_a_gradient_says_so():
    @op("pykittens_tests::twice")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    leaf = torch.ones(3, requires_grad=True)
    with pytest.raises(ArgumentError, match="pykittens_tests::twice: there is no gradient") as e:
        twice(leaf).sum().backward()
    assert e.value.help == "give it one with @twice.backward"


def test_tensors_in_lists_have_gradients():
    @op("pykittens_tests::all_scaled")
    def all_scaled(xs: list[torch.Tensor], scale: torch.Tensor) -> list[torch.Tensor]:
        results = [torch.empty_like(x) for x in xs]
        for x, y in zip(xs, results, strict=True):
            scaled_rows(x, scale, y, 0.5)
        return results

    @all_scaled.setup_context
    def _(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @all_scaled.backward
    def _(ctx, gradients):
        assert all(g.is_contiguous() for g in gradients)
        return all_scaled(gradients, *ctx.saved_tensors), None

    x, scale = x_and_scale()
    xs = [x.clone().requires_grad_(), (x + 1).requires_grad_()]
    first, second = all_scaled(xs, scale)
    (first.sum() + 2 * second.sum()).backward()
    assert torch.equal(xs[0].grad, exact(torch.ones_like(x), scale))
    assert torch.equal(xs[1].grad, 2 * xs[0].grad)
    for transform in (torch.func.grad, torch.vmap):
        with pytest.raises(ArgumentError, match="torch.func do not go through lists of tensors"):
            transform(lambda x: all_scaled([x], scale)[0].sum())(x)


def test_it_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(scale_rows)) is scale_rows
    assert sys.modules[__name__].scale_rows.__name__ == "scale_rows"
    shown = "<operator pykittens_tests::scale_rows(x: 'torch.Tensor'"
    assert repr(scale_rows).startswith(shown)
