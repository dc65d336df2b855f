"""pykittens.torch.matmul against float64 and against torch.matmul."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import matmul  # noqa: E402
from tests.torch.bounds import Bounded  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    BF16,
    F16,
    assert_batched_gradients,
    assert_compiles,
    assert_exact_gradients,
    assert_exact_second_gradients,
    assert_fake_agrees,
    assert_operator,
    assert_signs,
    gradients,
    negated,
    normal,
    whole,
)

# Every rank beside every other, axes of 1 that repeat, and extents that no tile divides.
SHAPES = [
    ((5,), (5,)),
    ((5,), (5, 7)),
    ((3, 5), (5,)),
    ((70, 33), (33, 40)),
    ((5,), (2, 5, 7)),
    ((2, 3, 5), (5,)),
    ((2, 3, 5), (5, 7)),
    ((3, 5), (2, 5, 7)),
    ((2, 3, 5), (2, 5, 7)),
    ((2, 1, 3, 5), (4, 5, 7)),
    ((2, 1, 3, 5), (1, 3, 5, 7)),
]
NAMES = ["x".join(map(str, a)) + "@" + "x".join(map(str, b)) for a, b in SHAPES]


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=NAMES)
def test_a_product_is_rounded_once(a, b, dtype):
    a, b = normal(*a, dtype=dtype), normal(*b, dtype=dtype, seed=1)
    found = matmul(a, b)
    left, right = Bounded.of(a), Bounded.of(b)
    assert found.dtype == dtype
    exact = torch.matmul(left.exact, right.exact)
    sums = 2 * (a.shape[-1] + 1) * 2.0**-24 * torch.matmul(left.exact.abs(), right.exact.abs())
    Bounded(exact, sums).rounded(dtype).check(found)


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=NAMES)
def test_shapes_gradients_and_dtypes_are_those_of_torch(a, b):
    assert_exact_gradients(matmul, torch.matmul, whole(*a), whole(*b, seed=1))


def test_a_gradient_has_the_bounds_of_a_product():
    a, b = normal(40, 33), normal(33, 70, seed=1)
    result, of_a, of_b = gradients(matmul, a, b)
    given = Bounded.of(whole(*result.shape, seed=99))
    (given @ Bounded.of(b.mT)).rounded(BF16).check(of_a)
    (Bounded.of(a.mT) @ given).rounded(BF16).check(of_b)


@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("turn_b", [False, True])
def test_transposed_and_strided_operands_have_gradients(turn_a, turn_b):
    def cut(x, turn):
        return x.mT if turn else x[:, ::2]

    a = whole(9, 20) if turn_a else whole(20, 18)
    b = whole(31, 9, seed=1) if turn_b else whole(9, 62, seed=1)
    assert_exact_gradients(
        lambda a, b: matmul(cut(a, turn_a), cut(b, turn_b)),
        lambda a, b: torch.matmul(cut(a, turn_a), cut(b, turn_b)),
        a,
        b,
    )


def test_only_the_gradients_that_are_asked_for_are_made():
    a, b = whole(3, 5).requires_grad_(), whole(5, 7, seed=1)
    result = matmul(a, b)
    kept = [x for x in result.grad_fn.saved_tensors if x is not None]
    assert [x.data_ptr() for x in kept] == [b.data_ptr()]
    result.sum().backward()
    assert b.grad is None
    assert torch.equal(a.grad, b.sum(1).expand(3, 5))


def test_a_gradient_has_a_gradient():
    signs = whole(3, 5).sign(), whole(5, 7, seed=1).sign()
    assert_exact_second_gradients(matmul, torch.matmul, *signs)


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=NAMES)
def test_a_result_is_written_where_it_shall_be(a, b):
    a, b = whole(*a), whole(*b, seed=1)
    for dtype in (BF16, torch.float32):
        exact = torch.matmul(a.double(), b.double())
        out = torch.full((*exact.shape, 2), torch.nan, dtype=dtype)[..., 0]
        assert matmul(a, b, out=out) is out
        assert torch.equal(out.double(), exact)


def test_a_result_that_is_written_has_no_gradient():
    a, b, out = whole(3, 5).requires_grad_(), whole(5, 7), torch.empty(3, 7, dtype=BF16)
    with pytest.raises(ArgumentError, match="a product that is written to `out` has no gradient"):
        matmul(a, b, out=out)
    with torch.no_grad():
        matmul(a, b, out=out)
    assert torch.equal(out, torch.matmul(a.detach(), b))


WRITES = {
    "matrix": lambda a, b, out: matmul(a, b, out=out),
    "vector": lambda a, b, out: matmul(a[0], b, out=out[0]),
    "operator": lambda a, b, out: torch.ops.pykittens.matmul_into(a, b, out),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_backward_pass_knows_that_what_it_keeps_was_written(write):
    a, b = whole(3, 5).requires_grad_(), whole(5, 7)
    result = matmul(a, b)
    with torch.no_grad():
        write(whole(5, 5), whole(5, 7, seed=1), b)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_compiled_call_says_that_it_has_written(write, backend):
    out = torch.empty(3, 7, dtype=BF16)
    torch._dynamo.reset()

    def both(a, b, out):
        write(a, b, out)
        return a + 1

    torch.compile(both, fullgraph=True, backend=backend)(whole(3, 5), whole(5, 7), out)
    assert out._version > 0


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_tensor_of_inference_mode_can_be_written(write):
    a, b = whole(3, 5), whole(5, 7)
    with torch.inference_mode():
        out = torch.zeros(3, 7, dtype=BF16)
        write(a, b, out)
    assert torch.equal(out[0], torch.matmul(a, b)[0])
    write(a + 1, b, out)
    assert torch.equal(out[0], torch.matmul(a + 1, b)[0])


def test_a_view_that_negates_its_memory_counts_as_it_says():
    assert_signs(matmul, negated(3, 5), negated(5, 7, seed=1))
    assert_signs(matmul, negated(2, 3, 5), whole(5, 7))
    assert_signs(matmul, whole(5), negated(5, 7))
    half = torch.complex(torch.ones(3, 5), whole(3, 5, dtype=torch.float32)).conj().imag.half()
    assert torch.equal(matmul(half, whole(5, 7, dtype=F16)), half @ whole(5, 7, dtype=F16))


def test_many_gradients_at_once_are_those_one_by_one():
    for a, b in (((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((3, 5), (2, 5, 7)), ((5,), (5, 7))):
        assert_batched_gradients(matmul, whole(*a), whole(*b, seed=1))


def test_a_jacobian_in_one_pass_is_that_of_many():
    def product(a):
        return matmul(a, whole(5, 7))

    one = torch.autograd.functional.jacobian(product, whole(3, 5), vectorize=True)
    assert one.abs().max() > 0
    assert torch.equal(one, torch.autograd.functional.jacobian(product, whole(3, 5)))


def test_a_call_that_tunes_gives_the_same():
    a, b = whole(3, 5), whole(5, 7)
    assert torch.equal(matmul(a, b, tune=True), torch.matmul(a, b))
    assert torch.equal(torch.ops.pykittens.matmul(a, b, True), torch.matmul(a, b))


def test_empty_products():
    assert matmul(normal(0, 5), normal(5, 7)).shape == (0, 7)
    assert torch.equal(matmul(normal(3, 0), normal(0, 7)), torch.zeros(3, 7, dtype=BF16))
    assert matmul(normal(3, 5), normal(5, 0)).shape == (3, 0)
    assert matmul(normal(0, 3, 5), normal(0, 5, 7)).shape == (0, 3, 7)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3, 0), (0, 4)),
        ((3, 0), (2, 0, 4)),
        ((2, 0, 5), (5, 4)),
        ((2, 3, 5), (5, 0)),
        ((0,), (0,)),
    ],
    ids=str,
)
def test_empty_products_have_gradients(a, b):
    for found in gradients(matmul, whole(*a), whole(*b))[1:]:
        assert not found.any()
    assert [g.shape for g in gradients(matmul, whole(*a), whole(*b))[1:]] == [a, b]


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=NAMES)
def test_a_fake_result_is_like_a_real_one(a, b):
    assert_fake_agrees(matmul, normal(*a), normal(*b))


def test_a_product_of_tensors_without_memory_is_one():
    found = matmul(normal(3, 5).to("meta"), normal(5, 7).to("meta"))
    assert (found.device.type, found.shape, found.dtype) == ("meta", (3, 7), BF16)


@pytest.mark.parametrize(
    ("a", "b"), [((5,), (5, 7)), ((6, 5), (5, 7)), ((2, 1, 3, 5), (4, 5, 7))], ids=str
)
def test_a_compiled_product_is_the_same(a, b):
    assert_compiles(matmul, whole(*a), whole(*b, seed=1))


def test_a_compiled_product_is_written_where_it_shall_be():
    a, b, out = whole(3, 5), whole(5, 7), torch.full((3, 7), torch.nan, dtype=BF16)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def product(a, b, out):
        return matmul(a, b, out=out) + 1

    assert torch.equal(product(a, b, out), torch.matmul(a, b) + 1)
    assert torch.equal(out, torch.matmul(a, b))


def test_the_operators_pass_the_checks_of_torch():
    a, b = normal(6, 5), normal(5, 7)
    assert_operator(torch.ops.pykittens.matmul.default, a.requires_grad_(), b.requires_grad_())
    out = torch.empty(6, 7, dtype=BF16)
    assert_operator(torch.ops.pykittens.matmul_into.default, a.detach(), b.detach(), out)


def test_a_call_of_plain_tensors_goes_past_the_dispatcher(monkeypatch):
    def refuse(*_):
        raise AssertionError("the dispatcher was asked")

    monkeypatch.setattr(sys.modules["pykittens.torch.matmul"].MATMUL, "op", refuse)
    matmul(whole(3, 5), whole(5, 7))
    matmul(whole(3, 5).requires_grad_(), whole(5, 7)).sum().backward()
    with pytest.raises(AssertionError, match="the dispatcher was asked"):
        torch.vmap(matmul)(whole(2, 3, 5), whole(2, 5, 7))


def test_what_has_no_kernel_falls_back_to_torch():
    a, b = normal(3, 5, dtype=torch.float32), normal(5, 7, dtype=torch.float32)
    assert torch.equal(matmul(a, b, fallback=True), a @ b)
    out = torch.empty(3, 7)
    assert matmul(a, b, out=out, fallback=True) is out
    assert torch.equal(out, a @ b)
    torch._dynamo.reset()
    compiled = torch.compile(matmul, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, b, fallback=True), a @ b)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        matmul(a, a, fallback=True)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_autocast_converts_what_is_wider(dtype):
    a = whole(3, 5, dtype=torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        found = matmul(a, whole(5, 7))
    assert found.dtype == dtype
    assert torch.equal(found.double(), a.detach().double() @ whole(5, 7).double())
    found.sum().backward()
    assert a.grad.dtype == torch.float32
    assert torch.equal(a.grad, whole(5, 7).float().sum(1).expand(3, 5))
