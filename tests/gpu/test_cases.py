"""Every case is right on a GPU. With PYKITTENS_TARGET=sm_80 the lowerings of that target are the ones that run."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

from pykittens.errors import UnsupportedError
from pykittens.runtime import driver
from tests.cases import CASES
from tests.cases.core import Array

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


def compile_cases(names: Sequence[str], arch: str) -> None:
    """Compile cases into the cache, so that the tests find them there."""
    for name in names:
        case = CASES[name]
        inputs, outputs = case.arrays()
        try:
            case.kernel.compile(*inputs, *outputs, *case.scalars, arch=arch, **case.constants)
        except Exception:  # the test of the case tells it
            continue


def compile_all(names: Sequence[str], arch: str) -> None:
    """Compile cases by as many processes as there are processors."""
    workers = max((os.cpu_count() or 2) - 1, 1)
    parts = [names[i :: 4 * workers] for i in range(4 * workers)]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_cases, parts, [arch] * len(parts)))


@pytest.fixture(scope="module", autouse=True)
def _compiled(request: pytest.FixtureRequest) -> None:
    """The cases that are selected, compiled before the first is run."""
    items = (x for x in request.session.items if x.path == request.path)
    names = [x.callspec.params["name"] for x in items if isinstance(x, pytest.Function)]
    compile_all(names, driver.device(0).arch)


# What PyTorch takes from NumPy only as bits.
BY_BITS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def on_gpu(array: Array) -> Any:
    """A copy of an array on the GPU, whatever its dtype."""
    if array.dtype.name not in BY_BITS:
        return torch.from_numpy(np.array(array)).cuda()
    bits = np.array(array).view(np.uint8 if array.itemsize == 1 else np.int16)
    return torch.from_numpy(bits).view(getattr(torch, array.dtype.name)).cuda()


def on_host(tensor: Any, like: Array) -> Array:
    """The array that a tensor of the GPU holds."""
    if like.dtype.name in BY_BITS:
        tensor = tensor.view(torch.uint8 if like.itemsize == 1 else torch.int16)
    found: Array = tensor.cpu().numpy().view(like.dtype)
    return found


def fault_of(name: str) -> str:
    """What is wrong with a case on this GPU, empty if nothing; "skipped: ..." where the target cannot do it."""
    case = CASES[name]
    try:
        inputs, outputs = case.arrays()
        tensors = [on_gpu(a) for a in (*inputs, *outputs)]
        case.kernel(*tensors, *case.scalars, **case.constants)
        torch.cuda.synchronize()
        found = [on_host(t, a) for t, a in zip(tensors[len(inputs) :], outputs, strict=True)]
        case.check(inputs, found)
    except UnsupportedError as fault:
        return f"skipped: {fault.message}"
    except Exception as fault:  # told by the test, or by the table of all cases
        return f"{type(fault).__name__}: {fault}"
    return ""


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_right_on_the_gpu(name):
    fault = fault_of(name)
    if fault.startswith("skipped"):
        pytest.skip(fault)
    assert fault == ""
