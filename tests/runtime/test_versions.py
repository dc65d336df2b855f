"""A kernel that writes a tensor raises its version, so that autograd detects changes of values that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pykittens as pk
from pykittens.kernels.rms_norm import rms_norm
from pykittens.runtime import kernel as kernel_file
from tests.runtime.c_programs import needs_compiler
from tests.runtime.calling import doubled, filled, fresh, matrix, scaled

torch = pytest.importorskip("torch")


@pk.kernel
def two_outputs(x, y, z):
    """y = x and z = x."""
    pk.grid(1)
    t = pk.load(x, rows=64, cols=64)
    pk.store(y, t)
    pk.store(z, t)


@pk.kernel
def nothing(x):
    """Writes nothing."""
    pk.grid(1)
    pk.assert_(pk.load(x[0, 0]) == 0.0, "x is 0")


def raised(call: Callable[[], object], *tensors: Any) -> list[int]:
    """How much a call raises the versions of tensors."""
    before = [x._version for x in tensors]
    call()
    return [x._version - v for x, v in zip(tensors, before, strict=True)]


def test_a_backward_pass_knows_that_a_kernel_wrote_what_it_keeps() -> None:
    for kept in (lambda x: x.exp(), lambda x: x.exp().detach().requires_grad_().exp()):
        result = kept(torch.ones(64, 64, requires_grad=True))
        with torch.no_grad():
            scaled(torch.ones(64, 64), result.detach(), 2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


class Tensors(NamedTuple):
    x: Any
    bias: Any
    y: Any


@pk.kernel
def shifted_by(scale, tensors, pair, out):
    """tensors.y = pair[1] = x + bias, for those that are no None."""
    pk.grid(1)
    t = pk.load(tensors.x, rows=64, cols=64)
    if tensors.bias is not None:
        t = t + pk.load(tensors.bias, rows=64, cols=64)
    for y in (tensors.y, pair[1], out):
        if y is not None:
            pk.store(y[0, 0], t)


@needs_compiler
def test_outputs_in_structures_and_after_none_have_a_new_version_at_each_call(
    gpu_tensors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(shifted_by)
    x, y, z, w = (matrix(64, 64) for _ in range(4))
    for number in range(3):
        if number == 1:  # calls of the same form check nothing
            monkeypatch.setattr(kernel_file, "check", lambda *a: pytest.fail("checked again"))
        assert raised(lambda: kernel(None, Tensors(x, None, y), (x, z), None), x, y, z) == [0, 1, 1]
    monkeypatch.undo()


@needs_compiler
def test_an_output_after_none_has_a_new_version_at_each_call(gpu_tensors: None) -> None:
    kernel = fresh(shifted_by)
    x, y = matrix(64, 64), matrix(64, 64)
    for _ in range(3):
        call = lambda: kernel(None, Tensors(x, x, None), (None, None), y)  # noqa: E731
        assert raised(call, x, y) == [0, 1]


def test_a_tensor_without_gradient_may_be_kept_too() -> None:
    weight, x = torch.ones(64, 64, requires_grad=True), torch.ones(64, 64)
    result = weight * x[:]
    scaled(torch.ones(64, 64), x.view(64, 64), 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_outputs_alone_have_a_new_version_in_the_emulator() -> None:
    x, y, z = (matrix(64, 64) for _ in range(3))
    assert raised(lambda: scaled(x, y, 2.0), x, y) == [0, 1]
    assert raised(lambda: scaled.debug(x, y, 2.0), x, y) == [0, 1]
    assert raised(lambda: two_outputs(x, y, z), x, y, z) == [0, 1, 1]
    assert raised(lambda: nothing(x), x) == [0]
    assert raised(lambda: scaled(x, y.numpy(), 2.0), x, y) == [0, 0]
    scaled(x.numpy(), np.zeros((64, 64), np.float32), 2.0)
    with torch.inference_mode():
        scaled(x, torch.zeros(64, 64), 2.0)  # such a tensor has no version


@needs_compiler
def test_outputs_alone_have_a_new_version_at_every_launch(gpu_tensors: None) -> None:
    x, y, z = (matrix(64, 64) for _ in range(3))
    for kernel, args, outputs in (
        (scaled, (x, y, 2.0), [0, 1, 0]),
        (filled, (z, 1), [0, 0, 1]),
        (doubled, (x, x), [1, 0, 0]),
        (two_outputs, (x, y, z), [0, 1, 1]),
        (nothing, (x,), [0, 0, 0]),
    ):
        kernel = fresh(kernel)
        for _ in range(3):
            assert raised(lambda k=kernel, a=args: k(*a), x, y, z) == outputs
    assert raised(lambda: scaled(x, y=y, factor=1.0), x, y) == [0, 1]


@needs_compiler
def test_a_host_function_raises_the_versions_of_what_it_was_given(gpu_tensors: None) -> None:
    x, weight, out = matrix(64, 64), matrix(1, 64)[0], matrix(64, 64)
    for _ in range(3):
        assert raised(lambda: rms_norm(x, weight, 1e-6, out), x, weight, out) == [0, 0, 1]
        assert raised(lambda: rms_norm(x, weight, out=out), x, weight, out) == [0, 0, 1]
        assert raised(lambda: rms_norm(x, weight, out=None), x, weight) == [0, 0]
