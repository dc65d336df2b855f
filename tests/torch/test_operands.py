"""Calls that the operators refuse, and the sentences of their errors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import gated_mlp, grouped_mm, linear, matmul, scaled_mm  # noqa: E402
from tests.torch.operators import F16, normal  # noqa: E402

E4M3, F32 = torch.float8_e4m3fn, torch.float32


def zeros(*shape, dtype=torch.bfloat16, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


def ends(*numbers, dtype=torch.int32):
    return torch.tensor(numbers, dtype=dtype)


def nested():
    return torch.nested.nested_tensor([zeros(2, 4), zeros(3, 4)])


# A call, and what is said of it.
REFUSED = {
    "matmul columns": (
        lambda: matmul(zeros(3, 4), zeros(5, 6)),
        "matmul: `b` must have the shape (4,) or (..., 4, n), not (5, 6)",
    ),
    "matmul vector": (
        lambda: matmul(zeros(4), zeros(5)),
        "matmul: `b` must have the shape (4,) or (..., 4, n), not (5,)",
    ),
    "matmul dtype": (
        lambda: matmul(zeros(3, 4, dtype=F32), zeros(4, 5)),
        "matmul: `a` must be bf16 or f16, not f32",
    ),
    "matmul fp8": (
        lambda: matmul(zeros(3, 4, dtype=E4M3), zeros(4, 5, dtype=E4M3)),
        "matmul: `a` must be bf16 or f16, not e4m3",
    ),
    "matmul integers": (
        lambda: matmul(zeros(3, 4), zeros(4, 5, dtype=torch.int64)),
        "matmul: `b` must be bf16 or f16, not int64",
    ),
    "matmul two dtypes": (
        lambda: matmul(zeros(3, 4), zeros(4, 5, dtype=F16)),
        "matmul: `b` must have the dtype of `a`, bf16, not f16",
    ),
    "matmul number": (
        lambda: matmul(zeros(), zeros(4)),
        "matmul: `a` must have the shape (k,) or (..., m, k), not ()",
    ),
    "matmul no tensor": (
        lambda: matmul(zeros(3, 4), [1.0]),
        "matmul: `b` must be a tensor, not list",
    ),
    "matmul nothing": (
        lambda: matmul(None, zeros(3, 4)),
        "matmul: `a` must be a tensor, not NoneType",
    ),
    "matmul sparse": (
        lambda: matmul(zeros(3, 4).to_sparse(), zeros(4, 5)),
        "matmul: `a` must be dense, not sparse_coo",
    ),
    "matmul devices": (
        lambda: matmul(zeros(3, 4), zeros(4, 5, device="meta")),
        "matmul: `a` is on cpu and `b` on meta",
    ),
    "matmul batches": (
        lambda: matmul(zeros(2, 3, 4), zeros(3, 4, 5)),
        "matmul: the batches (2,) and (3,) do not fit each other",
    ),
    "matmul out": (
        lambda: matmul(zeros(3, 4), zeros(4, 5), out=zeros(3, 4)),
        "matmul: `out` must have the shape (3, 5), not (3, 4)",
    ),
    "matmul nested": (
        lambda: matmul(nested(), zeros(4, 5)),
        "matmul: `a` must be one array, not a nested tensor",
    ),
    "matmul out fp8": (
        lambda: matmul(zeros(3, 4), zeros(4, 5), out=zeros(3, 5, dtype=E4M3)),
        "matmul: the result can be bf16, f16 or f32, not e4m3",
    ),
    "matmul out integers": (
        lambda: matmul(zeros(3, 4), zeros(4, 5), out=zeros(3, 5, dtype=torch.int32)),
        "matmul: the result can be bf16, f16 or f32, not int32",
    ),
    "matmul out of the operator": (
        lambda: torch.ops.pykittens.matmul_into(zeros(3, 4), zeros(4, 5), zeros(3, 5, dtype=E4M3)),
        "matmul: the result can be bf16, f16 or f32, not e4m3",
    ),
    "matmul sparse out": (
        lambda: matmul(zeros(3, 4), zeros(4, 5), out=zeros(3, 5).to_sparse()),
        "matmul: `out` must be dense, not sparse_coo",
    ),
    "matmul negated out": (
        lambda: matmul(zeros(3, 4), zeros(4, 5), out=torch._neg_view(zeros(3, 5))),
        "matmul: `out` must not be a negated view",
    ),
    "linear sparse bias": (
        lambda: linear(zeros(3, 4), zeros(5, 4), zeros(5).to_sparse()),
        "linear: `bias` must be dense, not sparse_coo",
    ),
    "linear sparse residual": (
        lambda: linear(zeros(3, 4), zeros(5, 4), residual=zeros(3, 5).to_sparse_csr()),
        "linear: `residual` must be dense, not sparse_csr",
    ),
    "linear nested residual": (
        lambda: linear(zeros(3, 4), zeros(5, 4), residual=nested()),
        "linear: `residual` must be one array, not a nested tensor",
    ),
    "linear activation in a list": (
        lambda: linear(zeros(3, 4), zeros(5, 4), activation=["relu"]),
        "linear: `activation` must be one of '', 'relu', 'gelu', 'silu', not ['relu']",
    ),
    "linear activation that torch lacks": (
        lambda: linear(zeros(3, 4), zeros(5, 4), activation="tanh", fallback=True),
        "linear: `activation` must be one of '', 'relu', 'gelu', 'silu', not 'tanh'",
    ),
    "gated_mlp activation in a list": (
        lambda: gated_mlp(zeros(3, 4), zeros(5, 4), zeros(5, 4), zeros(4, 5), ["relu"]),
        "gated_mlp: `activation` must be one of '', 'relu', 'gelu', 'silu', not ['relu']",
    ),
    "gated_mlp activation that torch lacks": (
        lambda: gated_mlp(
            zeros(3, 4), zeros(5, 4), zeros(5, 4), zeros(4, 5), "tanh", fallback=True
        ),
        "gated_mlp: `activation` must be one of '', 'relu', 'gelu', 'silu', not 'tanh'",
    ),
    "grouped_mm sparse offs": (
        lambda: grouped_mm(zeros(3, 4), zeros(2, 4, 5), ends(1, 3).to_sparse()),
        "grouped_mm: `offs` must be dense, not sparse_coo",
    ),
    "scaled_mm sparse scale": (
        lambda: scaled_mm(
            zeros(3, 4, dtype=E4M3),
            zeros(4, 5, dtype=E4M3),
            zeros(3, 1, dtype=F32).to_sparse(),
            zeros(1, 5, dtype=F32),
        ),
        "scaled_mm: `scale_a` must be dense, not sparse_coo",
    ),
    "linear columns": (
        lambda: linear(zeros(3, 4), zeros(4, 5)),
        "linear: `weight` must have the shape (n, 4), not (4, 5)",
    ),
    "linear rank": (
        lambda: linear(zeros(3, 4), zeros(3, 5, 4)),
        "linear: `weight` must have the shape (n, 4), not (3, 5, 4)",
    ),
    "linear number": (
        lambda: linear(zeros(), zeros(5, 4)),
        "linear: `x` must have rank 1 or more, not 0",
    ),
    "linear nothing": (
        lambda: linear(zeros(3, 4), None),
        "linear: `weight` must be a tensor, not NoneType",
    ),
    "linear bias": (
        lambda: linear(zeros(3, 4), zeros(5, 4), zeros(4)),
        "linear: `bias` must have the shape (5,), not (4,)",
    ),
    "linear wide bias": (
        lambda: linear(zeros(3, 4), zeros(5, 4), zeros(3, 5)),
        "linear: `bias` must have the shape (5,), not (3, 5)",
    ),
    "linear bias dtype": (
        lambda: linear(zeros(3, 4), zeros(5, 4).requires_grad_(), zeros(5, dtype=torch.int32)),
        "linear: `bias` must be bf16, f16 or f32, not int32",
    ),
    "linear residual": (
        lambda: linear(zeros(2, 3, 4), zeros(5, 4), residual=zeros(3, 5)),
        "linear: `residual` must have the shape (2, 3, 5), not (3, 5)",
    ),
    "linear activation": (
        lambda: linear(zeros(3, 4), zeros(5, 4), activation="swish"),
        "linear: `activation` must be one of '', 'relu', 'gelu', 'silu', not 'swish'",
    ),
    "gated_mlp w3": (
        lambda: gated_mlp(zeros(3, 4), zeros(5, 4), zeros(6, 4), zeros(4, 5)),
        "gated_mlp: `w3` must have the shape (5, 4), not (6, 4)",
    ),
    "gated_mlp w2": (
        lambda: gated_mlp(zeros(3, 4), zeros(5, 4), zeros(5, 4), zeros(4, 6)),
        "gated_mlp: `w2` must have the shape (n, 5), not (4, 6)",
    ),
    "gated_mlp columns": (
        lambda: gated_mlp(zeros(3, 4), zeros(5, 6), zeros(5, 6), zeros(4, 5)),
        "gated_mlp: `w1` must have the shape (hidden, 4), not (5, 6)",
    ),
    "gated_mlp dtype": (
        lambda: gated_mlp(zeros(3, 4), zeros(5, 4), zeros(5, 4), zeros(4, 5, dtype=F32)),
        "gated_mlp: `w2` must be bf16 or f16, not f32",
    ),
    "gated_mlp rank": (
        lambda: gated_mlp(zeros(3, 4), zeros(4), zeros(4), zeros(4, 5)),
        "gated_mlp: `w1` must have the shape (hidden, 4), not (4,)",
    ),
    "grouped_mm columns": (
        lambda: grouped_mm(zeros(3, 4), zeros(2, 5, 4), ends(1, 3)),
        "grouped_mm: `b` must have the shape (4, n) or (groups, 4, n), not (2, 5, 4)",
    ),
    "grouped_mm offs": (
        lambda: grouped_mm(zeros(3, 4), zeros(2, 4, 5), ends(1, 2, 3)),
        "grouped_mm: `offs` must have the shape (2,), not (3,)",
    ),
    "grouped_mm offs dtype": (
        lambda: grouped_mm(zeros(3, 4), zeros(2, 4, 5), ends(1, 3, dtype=torch.int64)),
        "grouped_mm: `offs` must be int32, not int64",
    ),
    "grouped_mm no offs": (
        lambda: grouped_mm(zeros(3, 4), zeros(4, 5)),
        "grouped_mm: `offs` must be a tensor, not NoneType",
    ),
    "grouped_mm offs of batches": (
        lambda: grouped_mm(zeros(2, 3, 4), zeros(2, 4, 5), ends(1, 3)),
        "grouped_mm: `offs` has no meaning if `a` and `b` have rank 3",
    ),
    "grouped_mm batches": (
        lambda: grouped_mm(zeros(2, 3, 4), zeros(3, 4, 5)),
        "grouped_mm: `b` must have the shape (4, n) or (2, 4, n), not (3, 4, 5)",
    ),
    "grouped_mm rank": (
        lambda: grouped_mm(zeros(3, 4), zeros(4), ends(1, 3)),
        "grouped_mm: `b` must have the shape (4, n) or (groups, 4, n), not (4,)",
    ),
    "scaled_mm dtype": (
        lambda: scaled_mm(zeros(3, 4), zeros(4, 5), zeros(dtype=F32), zeros(dtype=F32)),
        "scaled_mm: `a` must be e4m3 or e5m2, not bf16",
    ),
    "scaled_mm rank": (
        lambda: scaled_mm(
            zeros(2, 3, 4, dtype=E4M3), zeros(4, 5, dtype=E4M3), zeros(dtype=F32), zeros(dtype=F32)
        ),
        "scaled_mm: `a` must have rank 2, not 3",
    ),
    "scaled_mm nothing": (
        lambda: scaled_mm(zeros(3, 4, dtype=E4M3), zeros(4, 5, dtype=E4M3), None, None),
        "scaled_mm: `scale_a` must be a tensor, not NoneType",
    ),
    "scaled_mm scale": (
        lambda: scaled_mm(zeros(3, 4, dtype=E4M3), zeros(4, 5, dtype=E4M3), zeros(), zeros()),
        "scaled_mm: `scale_a` must be f32, not bf16",
    ),
    "scaled_mm out_dtype": (
        lambda: scaled_mm(
            zeros(3, 4, dtype=E4M3),
            zeros(4, 5, dtype=E4M3),
            zeros(dtype=F32),
            zeros(dtype=F32),
            out_dtype=torch.float64,
        ),
        "scaled_mm: the result can be bf16, f16 or f32, not float64",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence(name):
    call, text = REFUSED[name]
    with pytest.raises(ArgumentError) as fault:
        call()
    assert fault.value.message == text
    assert fault.value.loc is not None
    assert fault.value.loc.file == __file__


def test_a_refusal_shows_the_operands_the_line_and_a_way_out():
    with pytest.raises(ArgumentError) as fault:
        linear(normal(3, 4), normal(5, 4), torch.zeros(5, dtype=torch.float64))
    assert str(fault.value).splitlines() == [
        "linear: `bias` must be bf16, f16 or f32, not float64",
        "    x      : bf16 (3, 4) on cpu",
        "    weight : bf16 (5, 4) on cpu",
        "    bias   : float64 (5) on cpu",
        str(fault.value).splitlines()[4],
        "    linear(normal(3, 4), normal(5, 4), torch.zeros(5, dtype=torch.float64))",
        "    " + "^" * 71,
        "help: convert it with .to(torch.bfloat16), or let PyTorch do it with fallback=True",
    ]


def test_the_way_out_names_a_dtype_that_is_taken():
    with pytest.raises(ArgumentError) as fault:
        matmul(zeros(3, 4, dtype=F16), zeros(4, 5))
    assert fault.value.help.startswith("convert it with .to(torch.float16)")
    with pytest.raises(ArgumentError) as fault:
        scaled_mm(zeros(3, 4), zeros(4, 5), zeros(dtype=F32), zeros(dtype=F32))
    assert fault.value.help.startswith("convert it with .to(torch.float8_e4m3fn)")


def test_the_fallback_is_not_suggested_where_pytorch_refuses_the_dtype_too():
    with pytest.raises(ArgumentError) as fault:
        grouped_mm(zeros(3, 4), zeros(2, 4, 5), ends(1, 3, dtype=torch.int64))
    assert fault.value.help == "convert it with .to(torch.int32)"


def test_the_way_out_of_another_layout_names_the_tensor():
    with pytest.raises(ArgumentError) as fault:
        linear(zeros(3, 4), zeros(5, 4), residual=zeros(3, 5).to_sparse())
    assert fault.value.help == "pass residual.to_dense()"
    with pytest.raises(ArgumentError) as fault:
        matmul(zeros(3, 4), torch.nested.nested_tensor([zeros(4, 5)], layout=torch.jagged))
    assert "torch.nested.to_padded_tensor(b, 0)" in fault.value.help
    assert "b : bf16 (nested) on cpu" in str(fault.value)


def test_a_fake_call_is_refused_as_a_real_one_is():
    with (
        FakeTensorMode(),
        pytest.raises(ArgumentError, match=r"`b` must have the shape .*, not \(5, 6\)"),
    ):
        matmul(torch.zeros(3, 4, dtype=F16), torch.zeros(5, 6, dtype=F16))


@pytest.mark.parametrize(
    ("function", "shapes", "text"),
    [
        (
            matmul,
            [(3, 4), (5, 6)],
            "matmul: `b` must have the shape (4,) or (..., 4, n), not (5, 6)",
        ),
        (linear, [(3, 4), (6, 5)], "linear: `weight` must have the shape (n, 4), not (6, 5)"),
        (
            gated_mlp,
            [(3, 4), (5, 4), (6, 4), (4, 5)],
            "gated_mlp: `w3` must have the shape (5, 4), not (6, 4)",
        ),
        (matmul, [(), (4, 5)], "matmul: `a` must have the shape (k,) or (..., m, k), not ()"),
        (matmul, [(3, 4), ()], "matmul: `b` must have the shape (4,) or (..., 4, n), not ()"),
        (matmul, [(4,), (5,)], "matmul: `b` must have the shape (4,) or (..., 4, n), not (5,)"),
        (
            grouped_mm,
            [(2, 3, 4), (2, 5, 4)],
            "grouped_mm: `b` must have the shape (4, n) or (2, 4, n), not (2, 5, 4)",
        ),
    ],
)
def test_a_compiled_call_is_refused_when_it_is_traced(function, shapes, text):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError) as fault:
        compiled(*(zeros(*shape) for shape in shapes))
    assert text in str(fault.value)


@pytest.mark.parametrize(
    ("operator", "shapes", "text"),
    [
        ("matmul", [(4,), (4, 5)], "matmul: the operator takes matrices"),
        ("linear", [(4,), (5, 4)], "linear: the operator takes matrices"),
        ("gated_mlp", [(4,), (5, 4), (5, 4), (4, 5)], "gated_mlp: the operator takes matrices"),
    ],
)
def test_an_operator_takes_matrices(operator, shapes, text):
    for device in ("cpu", "meta"):
        with pytest.raises(ArgumentError, match=text):
            getattr(torch.ops.pykittens, operator)(*(zeros(*s, device=device) for s in shapes))
