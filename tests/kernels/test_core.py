"""The kernels of the library against their references, on every case that the emulator runs in a moment."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import ml_dtypes
import numpy as np
import pytest

from pykittens import kernels, settings
from pykittens.errors import ArgumentError, ResourceError
from pykittens.kernels.core import KERNELS, Limits, check_floats, first_that_fits, limits_of
from pykittens.targets.architectures import TARGETS
from tests import tolerance

for module in pkgutil.iter_modules(kernels.__path__):
    importlib.import_module(f"{kernels.__name__}.{module.name}")

MOST = 100_000  # the product of the sizes of a case


def sizes(case):
    """The sizes of a case, without its flags."""
    return [v for v in case.values() if not isinstance(v, bool)]


CASES = [
    pytest.param(name, case, id=f"{name}-{'x'.join(map(str, case.values()))}")
    for name, entry in KERNELS.items()
    for case in entry.cases
    if np.prod(sizes(case)) <= MOST
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_kernel_is_its_reference(name, case):
    entry = KERNELS[name]
    arrays = entry.inputs(np.random.default_rng(0), **case)
    found, expected = entry.function(**arrays), entry.reference(**arrays)
    assert found.shape == expected.shape
    # A sum of n terms in f32, once more under a root, a few roundings of what it scales, and of the result's dtype.
    bound = (max(sizes(case)) + 8) * np.finfo(np.float32).eps + 3 * tolerance.unit(found.dtype)
    error = found.astype(np.float64) - expected
    assert np.linalg.norm(error) <= bound * np.linalg.norm(expected)


@pytest.mark.parametrize("name", KERNELS)
def test_an_entry_says_what_it_is(name):
    entry = KERNELS[name]
    assert inspect.getdoc(entry.function)
    assert any(np.prod(sizes(case)) <= MOST for case in entry.cases)


def test_an_array_of_the_cpu_has_the_limits_of_hopper():
    hopper = TARGETS["sm_90a"]
    assert limits_of(np.zeros(1)) == Limits("sm_90a", hopper.shared_bytes, warpgroups=True)


def test_a_chosen_target_gives_its_limits(monkeypatch):
    monkeypatch.setattr(settings, "target", lambda: "sm_80")
    assert limits_of(np.zeros(1)) == Limits("sm_80", TARGETS["sm_80"].shared_bytes, False)


def test_the_first_configuration_that_fits_is_taken():
    limits = Limits("sm_89", 1000, False)
    assert first_that_fits("k", [("large", 1001), ("medium", 1000), ("small", 10)], limits) == (
        "medium"
    )
    with pytest.raises(
        ResourceError, match="k: no configuration fits sm_89: the smallest takes 1001"
    ):
        first_that_fits("k", [("larger", 2000), ("large", 1001)], limits)
    with pytest.raises(ResourceError, match="there is none for its products"):
        first_that_fits("k", [], limits)


def test_arrays_that_do_not_go_together_are_refused():
    bf16, f16, f32 = (np.zeros((2, 2), t) for t in (ml_dtypes.bfloat16, np.float16, np.float32))
    check_floats("k", rank=2, a=bf16, b=bf16)
    with pytest.raises(ArgumentError, match="k: `b` must have the dtype of `a`"):
        check_floats("k", rank=2, a=bf16, b=f16)
    with pytest.raises(ArgumentError, match="k: `a` must be bf16 or f16, not f32"):
        check_floats("k", rank=2, a=f32, b=f32)
    with pytest.raises(ArgumentError, match="k: `b` must have rank 2, not 1"):
        check_floats("k", rank=2, a=bf16, b=bf16[0])
    with pytest.raises(ArgumentError, match="k: `b` must be an array, not list"):
        check_floats("k", rank=2, a=bf16, b=[[1.0]])
