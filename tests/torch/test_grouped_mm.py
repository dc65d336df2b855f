"""pykittens.torch.grouped_mm against products of the groups one by one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import grouped_mm  # noqa: E402
from tests.tiers import halved  # noqa: E402
from tests.torch.bounds import Bounded  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    BF16,
    F16,
    assert_batched_gradients,
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

ENDS = [9, 9, 20, 23]  # one group is empty
OFFS = torch.tensor(ENDS, dtype=torch.int32)
GROUPS, TOTAL = len(ENDS), ENDS[-1]
PARTS = [slice(a, b) for a, b in zip([0, *ENDS], ENDS, strict=False)]

# The shapes of a and b in each form.
FORMS = {
    "rows": ((TOTAL, 7), (GROUPS, 7, 12)),
    "parts of the sum": ((11, TOTAL), (TOTAL, 12)),
    "columns": ((GROUPS, 11, 7), (7, TOTAL)),
    "batches": ((GROUPS, 11, 7), (GROUPS, 7, 12)),
}


def one_by_one(a, b, offs=None):
    """The products of the groups, each by torch.matmul."""
    if offs is None:
        return a @ b
    if a.dim() == b.dim() == 2:
        return torch.stack([a[:, part] @ b[part] for part in PARTS])
    if a.dim() == 2:
        return torch.cat([a[part] @ b[i] for i, part in enumerate(PARTS)])
    return torch.cat([a[i] @ b[:, part] for i, part in enumerate(PARTS)], 1)


def operands(form, make=whole, dtype=BF16):
    """a, b and, where the form has them, the offsets."""
    shape_a, shape_b = FORMS[form]
    offs = () if form == "batches" else (OFFS,)
    return make(*shape_a, dtype=dtype), make(*shape_b, dtype=dtype, seed=1), *offs


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("form", FORMS)
def test_every_group_is_a_product_that_is_rounded_once(form, dtype):
    a, b, *offs = operands(form, normal, dtype)
    found = grouped_mm(a, b, *offs)
    exact = one_by_one(a.double(), b.double(), *offs)
    sums = 2 * (TOTAL + 1) * 2.0**-24 * one_by_one(a.double().abs(), b.double().abs(), *offs)
    assert found.dtype == dtype
    Bounded(exact, sums).rounded(dtype).check(found)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_groups(form):
    assert_exact_gradients(grouped_mm, one_by_one, *operands(form))


@pytest.mark.parametrize("form", FORMS)
def test_operands_and_gradients_may_be_transposed(form):
    a, b, *offs = operands(form)

    def turned(function):
        return lambda a, b, *offs: function(a.mT, b.mT, *offs).mT

    given = a.mT.contiguous(), b.mT.contiguous(), *offs
    assert_exact_gradients(turned(grouped_mm), turned(one_by_one), *given)


def with_nan(x, axis):
    """The matrix with three lines of NaN after its last along an axis."""
    return torch.cat([x, torch.full_like(x, torch.nan).narrow(axis, 0, 3)], axis)


@pytest.mark.parametrize("form", ["rows", "parts of the sum", "columns"])
def test_what_belongs_to_no_group_has_a_gradient_of_zero(form):
    a, b, offs = operands(form)
    if form != "columns":
        a = with_nan(a, 0 if form == "rows" else 1)
    if form != "rows":
        b = with_nan(b, 1 if form == "columns" else 0)
    a.requires_grad_()
    b.requires_grad_()
    result = grouped_mm(a, b, offs)
    if form == "rows":
        result = result[:TOTAL]
    elif form == "columns":
        result = result[:, :TOTAL]
    result.sum().backward()
    for leaf in (a, b):
        assert (leaf.grad[leaf.isnan()] == 0).all()
        assert leaf.grad.isfinite().all()
        assert leaf.grad.abs().max() > 0


@pytest.mark.parametrize("form", FORMS)
def test_a_gradient_has_a_gradient(form):
    a, b, *offs = operands(form)
    assert_exact_second_gradients(grouped_mm, one_by_one, a.sign(), b.sign(), *offs)


def test_only_the_gradients_that_are_asked_for_are_made():
    a, b, offs = operands("rows")
    b.requires_grad_()
    result = grouped_mm(a, b, offs)
    kept = [x.data_ptr() for x in result.grad_fn.saved_tensors if x is not None]
    assert kept == [a.data_ptr(), offs.data_ptr()]
    result.sum().backward()
    assert a.grad is None


@pytest.mark.parametrize("form", FORMS)
def test_a_fake_result_is_like_a_real_one(form):
    assert_fake_agrees(grouped_mm, *operands(form))


@pytest.mark.parametrize(("form", "dynamic"), halved([*FORMS], [False, True]))
def test_a_compiled_product_is_the_same(form, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(grouped_mm, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    given = operands(form)
    for found, expected in zip(
        gradients(compiled, *given), gradients(grouped_mm, *given), strict=True
    ):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("form", ["rows", "parts of the sum"])
def test_the_operator_passes_the_checks_of_torch(form):
    a, b, offs = operands(form)
    assert_operator(torch.ops.pykittens.grouped_mm.default, a, b, offs)
    given = a.requires_grad_(), b.requires_grad_(), offs
    assert_operator(torch.ops.pykittens.grouped_mm.default, *given)


def test_what_has_no_kernel_falls_back_to_torch():
    a, b = whole(TOTAL, 8, dtype=torch.float32), whole(GROUPS, 8, 12, dtype=torch.float32, seed=1)
    assert torch.equal(grouped_mm(a, b, OFFS, fallback=True), one_by_one(a, b, OFFS))


def test_autocast_converts_what_is_wider():
    a, b, offs = operands("rows", dtype=torch.float32)
    with torch.autocast("cpu", dtype=BF16):
        found = grouped_mm(a, b, offs)
    assert found.dtype == BF16
    assert torch.equal(found.float(), one_by_one(a, b, offs))


@pytest.mark.parametrize("form", FORMS)
def test_many_gradients_at_once_are_those_one_by_one(form):
    assert_batched_gradients(grouped_mm, *operands(form))


@pytest.mark.parametrize("form", FORMS)
def test_a_view_that_negates_its_memory_counts_as_it_says(form):
    a, b, *offs = operands(form, negated)
    assert_signs(lambda a, b: grouped_mm(a, b, *offs), a, b)


@pytest.mark.parametrize(
    ("shapes", "offs", "text"),
    [
        (((4, 3, 5), (4, 5, 6)), True, "`offs` has no meaning if `a` and `b` have rank 3"),
        (
            ((1, 3, 5), (4, 5, 6)),
            False,
            "`b` must have the shape (5, n) or (1, 5, n), not (4, 5, 6)",
        ),
        (((23, 5), (4, 5, 6)), False, "`offs` must be a tensor, not NoneType"),
        (((4, 6, 5), (4, 23)), True, "`b` must have the shape (5, n) or (4, 5, n), not (4, 23)"),
    ],
)
@pytest.mark.parametrize("gradient", [False, True])
def test_a_compiled_call_is_refused_as_an_eager_one_is(shapes, offs, text, gradient):
    torch._dynamo.reset()
    compiled = torch.compile(grouped_mm, fullgraph=True, backend="aot_eager")
    a, b = (whole(*shape).requires_grad_(gradient) for shape in shapes)
    for call in (grouped_mm, compiled):
        with pytest.raises((ArgumentError, RuntimeError)) as fault:
            call(a, b, OFFS if offs else None)
        assert f"grouped_mm: {text}" in str(fault.value)
