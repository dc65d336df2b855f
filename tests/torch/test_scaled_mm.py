"""pykittens.torch.scaled_mm against float64 and against torch._scaled_mm."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import pykittens as pk  # noqa: E402
from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import scaled_mm  # noqa: E402
from tests.torch.bounds import Bounded  # noqa: E402
from tests.torch.operators import BF16, F16, assert_fake_agrees, normal  # noqa: E402

E4M3, E5M2, F32 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float32
M, N, K = 20, 140, 300  # two blocks along n, three along k, none of them whole


def positive(*shape, seed=0):
    return normal(*shape, dtype=F32, seed=seed).abs() + 0.5


def column_major(x):
    """The same numbers, contiguous along columns, as cuBLAS takes scales of blocks."""
    return x.mT.contiguous().mT


# Scales, and what they are for each element of a and of b.
LINES = {
    "tensors": (positive(), positive(seed=1)),
    "tensors of rank 1": (positive(1), positive(1, seed=1)),
    "rows and columns": (positive(M, 1), positive(1, N, seed=1)),
    "rows": (positive(M, 1), positive(1, 1, seed=1)),
    "columns": (positive(1, 1), positive(1, N, seed=1)),
}
BLOCKS = {
    "blocks": (positive(M, 3), positive(3, 2, seed=1)),
    "blocks in columns": (column_major(positive(M, 3)), column_major(positive(3, 2, seed=1))),
    "blocks filled up to four": (positive(M, 3), positive(4, 2, seed=1)),
}


def operands(left=E4M3, right=E4M3):
    return normal(M, K, dtype=left), normal(N, K, dtype=right, seed=1).t()


def assert_scaled(found, a, b, scale_a, scale_b, bias=None, dtype=BF16):
    """Sums in f32 of scaled products, rounded once."""
    left, right = a.double() * scale_a.double(), b.double() * scale_b.double()
    exact, magnitude = left @ right, left.abs() @ right.abs()
    if bias is not None:
        exact, magnitude = exact + bias.double(), magnitude + bias.double().abs()
    assert found.dtype == dtype
    # The scales are multiplied in f32, too: three roundings besides those of the sum.
    Bounded(exact, 2 * (K + 4) * 2.0**-24 * magnitude).rounded(dtype).check(found)


@pytest.mark.parametrize(("left", "right"), [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)])
@pytest.mark.parametrize("scales", LINES)
def test_a_product_has_the_scales_of_its_lines(scales, left, right):
    a, b = operands(left, right)
    scale_a, scale_b = LINES[scales]
    assert_scaled(scaled_mm(a, b, scale_a, scale_b), a, b, scale_a, scale_b)


@pytest.mark.parametrize("scales", BLOCKS)
def test_a_product_has_the_scales_of_its_blocks(scales):
    a, b = operands()
    scale_a, scale_b = BLOCKS[scales]
    wide_a = scale_a.repeat_interleave(128, 1)[:, :K]
    wide_b = scale_b.repeat_interleave(128, 0)[:K].repeat_interleave(128, 1)[:, :N]
    bias = normal(N, seed=2)
    for given, dtype in ((None, BF16), (bias, F16)):
        found = scaled_mm(a, b, scale_a, scale_b, given, dtype)
        assert_scaled(found, a, b, wide_a, wide_b, given, dtype)


@pytest.mark.parametrize("dtype", [BF16, F16, F32])
def test_a_result_has_the_dtype_that_is_asked_for(dtype):
    a, b = operands()
    scales, bias = LINES["rows and columns"], normal(N, seed=2)
    found = scaled_mm(a, b, *scales, bias, dtype)
    assert_scaled(found, a, b, *scales, bias, dtype)


def test_one_scale_of_each_is_what_torch_takes():
    a, b = operands()
    a, b = a[:, :288], b[:288]
    scales = LINES["tensors"]
    theirs = torch._scaled_mm(a, b, *scales, out_dtype=F32)
    assert torch.allclose(scaled_mm(a, b, *scales, out_dtype=F32), theirs, rtol=1e-5, atol=1e-3)


def test_operands_may_lie_in_any_way():
    a, b = operands()
    scales = LINES["rows and columns"]
    found = scaled_mm(a.t().contiguous().t(), b.contiguous(), *scales)
    assert_scaled(found, a, b, *scales)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((M, 3), (3, N)), r"`scale_a` of \(20, 3\) and `scale_b` of \(3, 140\) do not fit"),
        (((M,), (N,)), r"`scale_a` of \(20,\) and `scale_b` of \(140,\) do not fit"),
        (((M, 2), (3, 2)), r"`scale_a` of \(20, 2\) and `scale_b` of \(3, 2\) do not fit"),
    ],
)
def test_scales_that_do_not_fit_are_refused_with_those_that_do(shapes, text):
    a, b = operands()
    with pytest.raises(ArgumentError, match=text) as fault:
        scaled_mm(a, b, *(positive(*s) for s in shapes))
    assert "lines, (20, 1) and (1, 140), and of blocks, (20, 3) and (3, 2)" in str(fault.value)


def test_there_is_no_gradient():
    a, b = operands()
    scale = positive().requires_grad_()
    with pytest.raises(ArgumentError, match="a product of fp8 has no gradient"):
        scaled_mm(a, b, scale, positive())
    with torch.no_grad():
        scaled_mm(a, b, scale, positive())


def test_a_fake_result_is_like_a_real_one():
    for scales in (*LINES.values(), *BLOCKS.values()):
        assert_fake_agrees(scaled_mm, *operands(), *scales, None, F16)


@pytest.mark.parametrize("scales", [LINES["tensors"], BLOCKS["blocks"]], ids=["tensors", "blocks"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_product_is_the_same(scales, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(scaled_mm, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    given = (*operands(), *scales, normal(N, seed=2))
    assert torch.equal(compiled(*given), scaled_mm(*given))


def test_the_operator_passes_the_checks_of_torch():
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    for scales in (LINES["rows"], BLOCKS["blocks"]):
        given = (*operands(), *scales, normal(N), torch.float16)
        # The check of the schema compares operands in their own dtype, which fp8 has no comparison for.
        found = torch.library.opcheck(
            torch.ops.pykittens.scaled_mm.default, given, test_utils=checks
        )
        assert set(found.values()) == {"SUCCESS"}


def test_what_has_no_kernel_falls_back_to_torch():
    a, b = operands()
    with pytest.raises((RuntimeError, ValueError), match="Invalid scaling configuration"):
        scaled_mm(a, b, positive(M, 7), positive(7, 2), fallback=True)  # nor has torch


@pytest.mark.parametrize(
    "dtype", ["bf16", pk.bf16, None, ["f32"]], ids=["str", "pk", "None", "list"]
)
def test_a_dtype_is_one_of_torch(dtype):
    a, b = operands()
    with pytest.raises(ArgumentError) as fault:
        scaled_mm(a, b, *LINES["tensors"], out_dtype=dtype)
    kind = type(dtype).__name__
    text = f"scaled_mm: `out_dtype` must be a torch dtype such as torch.bfloat16, not {kind}"
    assert fault.value.message == text


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, E4M3], ids=str)
def test_a_bias_is_a_float(dtype):
    a, b = operands()
    for call in (scaled_mm, torch.ops.pykittens.scaled_mm):
        with pytest.raises(ArgumentError, match="`bias` must be bf16, f16 or f32, not "):
            call(a, b, *LINES["tensors"], torch.ones(N).to(dtype))


def test_scales_that_are_views_that_negate_their_memory_count_as_they_say():
    a, b = operands()
    scales = [torch._neg_view(s) for s in LINES["rows and columns"]]
    assert torch.equal(
        scaled_mm(a, b, *scales), scaled_mm(a, b, *(s.resolve_neg() for s in scales))
    )
    one = torch._neg_view(LINES["rows"][1])
    found = scaled_mm(a, b, LINES["rows"][0], one)
    assert torch.equal(found, -scaled_mm(a, b, *LINES["rows"]))
