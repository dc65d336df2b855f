"""Operators of kernels that pykittens.torch does not have, and calls that differ in what their form does not show."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.kernels.arrays import FLOATS, NARROW  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.kernels.rms_norm import rms_norm  # noqa: E402
from pykittens.torch import linear, matmul  # noqa: E402
from pykittens.torch.linear import LINEAR  # noqa: E402
from pykittens.torch.operator import Operator  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    BF16,
    assert_compiles,
    assert_fake_agrees,
    assert_operator,
    negated,
    normal,
    whole,
)


def check_norm(of, eps):
    of.shapes(x="rows cols", weight="cols")
    of.result("rows cols", of.dtypes("x", "weight", among=FLOATS))


def norm_setup(ctx, args, result):
    x, weight, ctx.eps = args
    ctx.save_for_backward(x, weight)


def norm_backward(ctx, gradient):
    with torch.enable_grad():
        x, weight = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        result = functional.rms_norm(x, weight.shape, weight, ctx.eps)
    return *torch.autograd.grad(result, (x, weight), gradient), None


NORM = Operator(
    "norm_of_tests(Tensor x, Tensor weight, float eps=1e-06) -> Tensor",
    check_norm,
    lambda x, weight, eps=1e-6: rms_norm(x, weight, eps),
    setup=norm_setup,
    backward=norm_backward,
)


def check_sums(of, axes):
    of.shapes(a="m k", b="n k")
    of.result("m n", of.dtypes("a", "b", among=NARROW))
    of.make("sums", "m", "f32")


SUMS = Operator(
    "sums_of_tests(Tensor a, Tensor b, int[] axes=[]) -> (Tensor, Tensor)",
    check_sums,
    lambda a, b, axes=(): gemm(a, b, row_sums=True),
)


def norm(x, weight, eps=1e-6, fallback=False):
    return NORM.call((x, weight), (eps,), fallback)


def test_an_operator_is_compiled_faked_and_recorded():
    x, weight = normal(6, 40, dtype=torch.float32), normal(40, dtype=torch.float32, seed=1)
    expected = functional.rms_norm(x, (40,), weight, 1e-3)
    assert torch.allclose(norm(x, weight, 1e-3), expected, rtol=1e-5, atol=1e-6)
    assert_fake_agrees(norm, x, weight)
    assert_operator(torch.ops.pykittens.norm_of_tests.default, x, weight, 1e-3)
    assert_operator(
        torch.ops.pykittens.norm_of_tests.default, x.requires_grad_(), weight.requires_grad_()
    )


def test_an_operator_is_compiled_with_its_gradients():
    assert_compiles(norm, normal(6, 40), normal(40, seed=1))


def test_an_operator_may_have_several_results():
    a, b = whole(3, 5), whole(7, 5, seed=1)
    exact = a.float() @ b.float().mT
    for call in (lambda a, b: SUMS.call((a, b), ([],), False), torch.ops.pykittens.sums_of_tests):
        for _ in range(2):  # a list is not hashable, and the second call is checked again
            out, sums = call(a, b)
            assert torch.equal(out.float(), exact)
            assert torch.equal(sums, exact.sum(1))
    assert_operator(torch.ops.pykittens.sums_of_tests.default, a, b)
    faked = torch.ops.pykittens.sums_of_tests(a.to("meta"), b.to("meta"))
    assert [(x.shape, x.dtype) for x in faked] == [((3, 7), BF16), ((3,), torch.float32)]


def test_an_operator_without_a_gradient_or_a_fallback_is_refused():
    a, b = whole(3, 5).requires_grad_(), whole(7, 5)
    with pytest.raises(ArgumentError, match="^sums_of_tests: there is no gradient"):
        SUMS.call((a, b), ([],), False)
    with pytest.raises(ArgumentError, match="^norm_of_tests: `weight` must have the shape"):
        norm(normal(3, 5), normal(4), fallback=True)


def test_a_form_is_checked_once(monkeypatch):
    checked, check = [], LINEAR.check
    monkeypatch.setattr(LINEAR, "check", lambda *given: checked.append(given) or check(*given))
    x, weight = whole(11, 13), whole(17, 13)
    for function in (linear, torch.ops.pykittens.linear):
        found = [function(x + i, weight) for i in range(3)]
        assert torch.equal(found[2], (x + 2) @ weight.mT)
    assert len(checked) == 1
    for other in (whole(11, 13, dtype=torch.float16), whole(12, 13), whole(13)):
        linear(other, weight.to(other.dtype))
        linear(other, weight.to(other.dtype))
    assert len(checked) == 4
    assert linear(x.clone().requires_grad_(), weight).requires_grad
    assert len(checked) == 4


def test_what_a_form_does_not_show_has_its_say():
    a, b = whole(3, 5), whole(5, 7, seed=1)
    expected = matmul(a, b)
    minus = negated(3, 5, seed=3)
    assert torch.equal(matmul(minus, b), matmul(minus.resolve_neg(), b))
    assert matmul(a.to("meta"), b.to("meta")).is_meta
    assert matmul(a.clone().requires_grad_(), b).grad_fn is not None
    with pytest.raises(ArgumentError, match="^matmul: `a` must be dense, not sparse_coo"):
        matmul(a.to_sparse(), b)
    with pytest.raises(ArgumentError, match="^matmul: `a` is on cpu and `b` on meta"):
        matmul(a, b.to("meta"))
    out = torch.zeros(3, 7, dtype=BF16)
    matmul(a, b, out=out)
    with pytest.raises(ArgumentError, match="`out` must not be a negated view"):
        matmul(a, b, out=torch._neg_view(out))
    square = whole(5, 5)
    matmul(square, square, out=torch.empty(5, 5, dtype=BF16))
    with pytest.raises(ArgumentError, match="gemm: `out` shares memory with `a`"):
        matmul(square, square, out=square)
    assert torch.equal(matmul(a, b), expected)


@pytest.mark.parametrize("fallback", [False, True])
def test_symbolic_extents_are_not_made_constants(fallback):
    count = []

    def backend(graph, _):
        count.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(linear, fullgraph=True, backend=backend, dynamic=True)
    for m, n, k in ((3, 6, 4), (5, 7, 8), (9, 10, 12)):
        given = whole(2, m, k), whole(n, k), whole(n), "", whole(2, m, n)
        assert torch.equal(compiled(*given, fallback=fallback), linear(*given))
    assert len(count) == 1


def test_what_does_not_fit_is_refused_with_symbolic_extents():
    torch._dynamo.reset()
    compiled = torch.compile(matmul, fullgraph=True, backend="aot_eager", dynamic=True)
    for b, text in (
        (whole(2, 6, 7), "`b` must have the shape"),
        (whole(3, 5, 7), r"the batches \(2,\) and \(3,\) do not fit each other"),
    ):
        with pytest.raises(RuntimeError, match=f"matmul: {text}"):
            compiled(whole(2, 4, 5), b)
    compiled = torch.compile(linear, fullgraph=True, backend="aot_eager", dynamic=True)
    x, weight, row = whole(2, 3, 4), whole(5, 4), whole(5, seed=1)
    found = compiled(x, weight, residual=row, fallback=True)  # PyTorch repeats what is added
    assert torch.equal(found, functional.linear(x, weight) + row)
