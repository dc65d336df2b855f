"""The kernels of the library against their references, on every case that the emulator runs in a moment."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

from pykittens import kernels
from pykittens.kernels.core import KERNELS

for module in pkgutil.iter_modules(kernels.__path__):
    importlib.import_module(f"{kernels.__name__}.{module.name}")

MOST = 100_000  # elements of all inputs of a case

CASES = [
    pytest.param(name, case, id=f"{name}-{'x'.join(map(str, case.values()))}")
    for name, entry in KERNELS.items()
    for case in entry.cases
    if np.prod(list(case.values())) <= MOST
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_kernel_is_its_reference(name, case):
    entry = KERNELS[name]
    arrays = entry.inputs(np.random.default_rng(0), **case)
    found, expected = entry.function(**arrays), entry.reference(**arrays)
    assert found.shape == expected.shape
    # A sum of n terms in f32, once more under a root, and a few roundings of what it scales.
    bound = (found.shape[-1] + 8) * np.finfo(np.float32).eps
    assert np.linalg.norm(found - expected) <= bound * np.linalg.norm(expected)


@pytest.mark.parametrize("name", KERNELS)
def test_an_entry_says_what_it_is(name):
    entry = KERNELS[name]
    assert inspect.getdoc(entry.function)
    assert any(np.prod(list(case.values())) <= MOST for case in entry.cases)
