"""The kernels of the library against their references, on every case that the emulator runs in a moment."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from pykittens.kernels.library import KERNELS, load_all
from pykittens.runtime.arrays import describe, empty
from tests import tolerance
from tests.kernels.host_functions import tensor_of
from tests.library import sizes, small_cases
from tests.runtime.c_programs import needs_compiler

CASES = [
    pytest.param(name, case, id=f"{name}-{'x'.join(map(str, case.values()))}")
    for name, entry in load_all().items()
    for case in small_cases(entry)
]


def assert_right(found, expected, case):
    assert found.shape == expected.shape
    # A sum of n terms in f32, once more under a root, a few roundings of what it scales, and of the result's dtype.
    bound = (max(sizes(case)) + 8) * np.finfo(np.float32).eps + 3 * tolerance.unit(found.dtype)
    error = found.astype(np.float64) - expected
    assert np.linalg.norm(error) <= bound * np.linalg.norm(expected)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_kernel_is_its_reference(name, case):
    entry = KERNELS[name]
    arrays = entry.inputs(np.random.default_rng(0), **case)
    assert_right(entry.function(**arrays), entry.reference(**arrays), case)


@needs_compiler
@pytest.mark.parametrize(("name", "case"), CASES)
def test_calls_of_a_form_compute_with_their_own_arrays(name, case, emulated):
    pytest.importorskip("torch")
    entry = KERNELS[name]
    for seed in range(3):
        arrays = entry.inputs(np.random.default_rng(seed), **case)
        expected = entry.reference(**arrays)
        given = {n: tensor_of(x) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
        found = empty(expected, expected.shape, describe(entry.function(**given)).dtype)
        found[...] = np.nan
        assert entry.function(**given, out=tensor_of(found)).data_ptr() == describe(found).address
        assert_right(found, expected, case)
    steps = len(entry.function.plan(**entry.inputs(np.random.default_rng(0), **case)).steps)
    assert len(emulated) <= 2 * steps  # with `out` and without


@pytest.mark.parametrize("name", load_all())
def test_an_entry_says_what_it_is(name):
    assert inspect.getdoc(KERNELS[name].function)


@pytest.mark.parametrize("name", load_all())
def test_an_entry_with_a_rival_counts_its_work(name):
    entry = KERNELS[name]
    assert (entry.rival is None) == (entry.work is None), "benchmarks/run.py needs both"
    for case in entry.cases if entry.work else ():
        amount, unit = entry.work(**case)
        assert amount > 0
        assert unit in ("FLOP", "bytes")


@pytest.mark.parametrize("name", [name for name, entry in load_all().items() if entry.rival])
def test_a_rival_computes_the_reference(name):
    torch = pytest.importorskip("torch")
    entry = KERNELS[name]
    case = small_cases(entry)[0]
    arrays = entry.inputs(np.random.default_rng(0), **case)
    given = {n: tensor_of(x) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
    try:
        found = entry.rival(torch, **given)
    except RuntimeError as fault:
        if "No viable backend" not in str(fault):
            raise
        pytest.skip("PyTorch has this kernel on GPUs only")
    assert_right(describe(found).numpy(), entry.reference(**arrays), case)
