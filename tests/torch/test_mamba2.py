"""Mamba-2 as an operator of PyTorch: gradients beside those of the recurrence, compilers, autocast, errors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import mamba2  # noqa: E402
from tests.kernels.test_mamba2 import explicit  # noqa: E402
from tests.linear_random import each, ends_of  # noqa: E402

NAMES = ("x", "dt", "A", "B", "C", "D", "dt_bias", "initial_state")


def given(heads=2, n=70, d=32, width=24):
    torch.manual_seed(0)
    found = {
        "x": torch.randn(1, heads, n, width).bfloat16(),
        "dt": torch.randn(1, heads, n) - 2,
        "A": -torch.rand(heads),
        "B": torch.randn(1, 1, n, d).bfloat16(),
        "C": torch.randn(1, 1, n, d).bfloat16(),
        "D": torch.randn(heads),
        "dt_bias": torch.randn(heads),
        "initial_state": torch.randn(1, heads, d, width),
    }
    return {name: found[name] for name in NAMES}


def test_gradients_are_those_of_the_recurrence():
    own, exact = (
        {n: x.to(t).requires_grad_() for n, x in given().items()} for t in (None, torch.double)
    )
    out, state = mamba2(**own, softplus=True, return_state=True)
    wanted = explicit(torch, **exact)
    weights = [torch.randn(x.shape) for x in (out, state)]
    for found in ((out, state), wanted):
        sum((x * w).sum() for x, w in zip(found, weights, strict=True)).backward()
    for name in NAMES:
        x, y = own[name], exact[name]
        assert x.grad.dtype == x.dtype
        assert (x.grad - y.grad).abs().max() <= 2**-5 * y.grad.abs().max(), name


def test_packed_sequences_are_calls_of_each():
    lengths, arrays = (30, 0, 40), given()
    arrays["initial_state"] = torch.randn(3, 2, 32, 24)
    own, alone = ({n: x.clone().requires_grad_() for n, x in arrays.items()} for _ in range(2))
    ends = ends_of(lengths, "cpu")
    packed = mamba2(**own, softplus=True, ends=ends, return_state=True)
    *rest, state = alone.values()

    def of_one(*args):
        how = {"softplus": True, "initial_state": args[-1], "return_state": True}
        return mamba2(*args[:-1], **how)

    parts = each(of_one, lengths, *rest, state=state)
    for found in (packed, parts):
        sum(x.float().square().sum() for x in found).backward()
    for name in NAMES:
        x, y = own[name].grad, alone[name].grad
        assert (x - y).abs().max() <= 2**-8 * y.abs().max(), name


def test_what_is_not_given_has_no_gradient():
    arrays = given()
    arrays["D"], arrays["initial_state"] = None, None
    own = {n: None if x is None else x.requires_grad_() for n, x in arrays.items()}
    mamba2(**own, softplus=True).float().sum().backward()
    assert all(x is None or x.grad.isfinite().all() for x in own.values())


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_operator_is_what_pytorch_expects(is_packed):
    tensors = (x.requires_grad_() for x in given(n=20).values())
    tests = "test_schema", "test_autograd_registration", "test_faketensor"
    ends = torch.tensor([0, 20], dtype=torch.int32) if is_packed else None
    args = (*tensors, ends, True, True)
    torch.library.opcheck(torch.ops.pykittens.mamba2.default, args, test_utils=tests)


def test_it_is_compiled_whole():
    arrays = given(n=20)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(**words):
        return mamba2(**words, softplus=True) * 2

    own, compiled = ({n: x.clone().requires_grad_() for n, x in arrays.items()} for _ in range(2))
    (mamba2(**own, softplus=True) * 2).sum().backward()
    layer(**compiled).sum().backward()
    for name in NAMES:
        torch.testing.assert_close(own[name].grad, compiled[name].grad)


def test_autocast_narrows_what_is_multiplied():
    arrays = given(n=20)
    wide = {n: x.float() for n, x in arrays.items()}
    with torch.autocast("cpu", torch.bfloat16):
        found = mamba2(**wide, softplus=True)
    torch.testing.assert_close(found, mamba2(**arrays, softplus=True))


def test_what_does_not_fit_is_refused():
    arrays = given(n=20)
    with pytest.raises(ArgumentError, match="`A`"):
        mamba2(**arrays | {"A": torch.zeros(3)})
