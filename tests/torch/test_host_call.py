"""Operators that are a call of a host function: which calls go straight to it, and what they return."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.torch import (  # noqa: E402
    causal_conv,
    gated_linear_attention,
    linear,
    linear_attention,
    matmul,
    operator,
)
from pykittens.torch.linear import LINEAR  # noqa: E402
from tests.kernels.host_functions import Emulated  # noqa: E402
from tests.runtime.c_programs import needs_compiler  # noqa: E402
from tests.torch.operators import (  # noqa: E402
    BF16,
    F16,
    assert_batched_gradients,
    gradients,
    negated,
    normal,
    whole,
)
from tests.torch.test_registration import Functions, Seen  # noqa: E402

pytestmark = needs_compiler
X, WEIGHT, BIAS, ROW = whole(3, 8), whole(16, 8, seed=1), whole(16, seed=2), whole(3, 16, seed=3)


@pytest.fixture
def direct(emulated: list[Emulated], monkeypatch: pytest.MonkeyPatch):
    """`direct(call)` is the result of a second call, which must take no step of the operator's own."""

    def second(call):
        first = call()
        with monkeypatch.context() as patch:
            for name in ("plain_form_of", "is_direct"):
                patch.setattr(operator, name, lambda *_: pytest.fail("the long way"))
            patch.setattr(gemm, "plan", lambda *_, **__: pytest.fail("planned again"))
            again = call()
        assert type(first) is type(again)
        return again

    return second


def exact(x=X, weight=WEIGHT, bias=None, activation="", residual=None):
    found = functional.linear(x, weight, bias)
    found = getattr(functional, activation)(found) if activation else found
    return found if residual is None else found + residual


def test_a_known_form_goes_straight_to_its_launch(direct) -> None:
    for given in ((X, WEIGHT), (X, WEIGHT, BIAS), (X, WEIGHT, BIAS, "relu", ROW)):
        assert torch.equal(direct(lambda given=given: linear(*given)), exact(*given))
        frozen = torch.nn.Parameter(WEIGHT, requires_grad=False)
        assert torch.equal(linear(X, frozen, *given[2:]), exact(*given))
    b = WEIGHT.mT.contiguous()
    assert torch.equal(direct(lambda: matmul(X, b)), X @ b)
    out = torch.empty(3, 16, dtype=torch.float32)
    assert direct(lambda: matmul(X, b, out=out)) is out
    assert torch.equal(out, (X @ b).float())


def test_results_are_new_tensors_and_versions_rise(direct) -> None:
    first, second = linear(X, WEIGHT), direct(lambda: linear(X, WEIGHT))
    assert first.data_ptr() != second.data_ptr()
    assert (second.dtype, second.stride(), second._version) == (BF16, (16, 1), 0)
    b, out = WEIGHT.mT.contiguous(), torch.empty(3, 16, dtype=BF16)
    before = out._version
    for i in range(3):
        matmul(X, b, out=out)
        assert out._version == before + i + 1
    with torch.inference_mode():
        assert direct(lambda: linear(X, WEIGHT)).is_inference()


def test_arguments_of_one_shape_are_told_apart(emulated: list[Emulated]) -> None:
    square, other, row = whole(16, 16), whole(16, 16, seed=1), whole(16, 16, seed=2)
    for _ in range(3):
        assert torch.equal(linear(square, square), exact(square, square))
        assert torch.equal(linear(square, other), exact(square, other))
        assert torch.equal(linear(other, square), exact(other, square))
        for activation in ("", "relu"):
            assert torch.equal(
                linear(square, other, residual=row, activation=activation),
                exact(square, other, None, activation, row),
            )
        assert torch.equal(linear(square, other.mT), exact(square, other.mT))
        assert torch.equal(linear(square.to(F16), other.to(F16)), exact(square, other).to(F16))


def test_what_a_form_does_not_show_is_still_refused(emulated: list[Emulated]) -> None:
    square = whole(16, 16)
    for _ in range(2):
        matmul(square, square, out=torch.empty(16, 16, dtype=BF16))
    for _ in range(2):
        with pytest.raises(ArgumentError, match="shares memory with `A`"):
            matmul(square, square, out=square)
        minus = negated(16, 16)
        assert torch.equal(matmul(minus, square), minus.resolve_neg() @ square)
        with pytest.raises(ArgumentError, match="`activation` must be"):
            linear(square, square, activation="tanh")
        with pytest.raises(ArgumentError, match="`weight` must have the shape"):
            linear(square, WEIGHT)
        vector = whole(16, seed=4)
        assert torch.equal(linear(vector, square), exact(vector, square))


def test_what_is_forgotten_is_checked_and_planned_anew(
    emulated: list[Emulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    linear(X, WEIGHT)
    gemm.forget()
    plans, plan = [], gemm.plan
    monkeypatch.setattr(gemm, "plan", lambda *a, **w: plans.append(a) or plan(*a, **w))
    for _ in range(3):
        linear(X, WEIGHT)
    assert len(plans) == 1


@pytest.mark.parametrize(
    ("context", "is_asked"),
    [
        (nullcontext, True),
        (torch.no_grad, True),
        (torch.inference_mode, True),
        (Seen, False),
        (Functions, False),
        (lambda: torch.autocast("cpu", dtype=BF16), False),
    ],
    ids=["nothing", "no_grad", "inference", "dispatch", "function", "autocast"],
)
def test_what_intercepts_calls_sees_the_operator(
    context: Any, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear(X, WEIGHT)
    seen: list[Any] = []
    monkeypatch.setattr(LINEAR, "_known_to_host", lambda *given: seen.append(given))
    with context():
        assert torch.equal(linear(X, WEIGHT), exact())
    assert bool(seen) is is_asked


def test_a_profiler_sees_the_operator(emulated: list[Emulated]) -> None:
    for _ in range(2):
        linear(X, WEIGHT)
    with torch.profiler.profile() as profile:
        linear(X, WEIGHT)
    assert "pykittens::linear" in {e.key for e in profile.key_averages()}


def test_transforms_and_compilers_are_not_gone_past(emulated: list[Emulated]) -> None:
    kept: list[Any] = []
    torch.func.grad(lambda x: (kept.append(x), x.float().sum())[1])(X)
    rows = torch.stack([X, 2 * X])
    for _ in range(2):
        assert torch.equal(linear(X, WEIGHT), exact())
        assert torch.equal(torch.vmap(lambda x: linear(x, WEIGHT))(rows), exact(rows))
        with torch.no_grad():
            assert torch.equal(linear(*kept, WEIGHT), exact())  # what a transform has wrapped
    assert_batched_gradients(linear, X, WEIGHT, BIAS)


def test_compiled_programs_call_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[str] = []

    def backend(graph, _):
        graphs.append(graph.code)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(linear, fullgraph=True, backend=backend)
    assert torch.equal(compiled(X, WEIGHT), exact())
    assert "torch.ops.pykittens.linear.default(" in graphs[0]


def test_gradients_are_recorded(emulated: list[Emulated]) -> None:
    for bias in (None, BIAS):
        given = (X, WEIGHT) if bias is None else (X, WEIGHT, bias)
        expected = gradients(exact, *given)
        for _ in range(3):
            assert linear(X, torch.nn.Parameter(WEIGHT)).grad_fn is not None
            assert linear(X, WEIGHT).grad_fn is None
            for found, wanted in zip(gradients(linear, *given), expected, strict=True):
                assert torch.equal(found, wanted)
    with torch.no_grad():
        assert linear(X, torch.nn.Parameter(WEIGHT)).grad_fn is None


QKV = [normal(1, 2, 20, 16, seed=i) for i in range(3)]
GATES = -normal(1, 2, 20, 16, seed=3).abs()
RECURRENT = {
    "linear_attention": (linear_attention, QKV, {"scale": 0.5}),
    "gated_linear_attention": (gated_linear_attention, [*QKV, GATES], {"scale": 0.5}),
    "causal_conv": (causal_conv, [normal(1, 20, 16), normal(16, 4)], {"activation": "silu"}),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_states_come_if_they_are_asked_for(name, request: pytest.FixtureRequest) -> None:
    function, given, words = RECURRENT[name]
    expected, state = function(*given, return_state=True, **words)  # on the CPU
    plain = function(*given)
    direct = request.getfixturevalue("direct")
    for _ in range(2):
        assert torch.equal(direct(lambda: function(*given, **words)), expected)
        found = direct(lambda: function(*given, return_state=True, **words))
        assert isinstance(found, tuple)
        assert torch.equal(found[0], expected)
        assert torch.equal(found[1], state)
        assert torch.equal(direct(lambda: function(*given)), plain)
    assert not torch.equal(plain, expected)
