"""Kernels that are right in ways that resemble faults: they have no fault, compile, and their numbers are right."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from tests.emulate.races import right_protocols, right_tiles
from tests.emulate.races.right import RIGHT

assert right_tiles
assert right_protocols


def made(name):
    kernel, arguments = RIGHT[name]
    return kernel, *arguments(np.random.default_rng(0))


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_compiles_and_has_no_error_and_no_warning(name):
    kernel, args, _ = made(name)
    report = pk.check(kernel, *args, costs=False)
    assert not report.errors, str(report)
    assert not report.warnings, str(report)


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
@pytest.mark.parametrize("name", RIGHT)
def test_the_numbers_of_a_right_kernel_are_right(name, seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", seed)
    kernel, args, expected = made(name)
    kernel(*args)
    for position, after in expected.items():
        np.testing.assert_array_equal(args[position], after)
