"""The error function in float64 against that of C."""

import math

import numpy as np
import pytest

from pykittens.ops.erf import erf, erfc


@pytest.mark.parametrize(("ours", "theirs"), [(erf, math.erf), (erfc, math.erfc)])
def test_the_error_function_is_that_of_c(ours, theirs):
    x = np.concatenate(
        [np.linspace(-7, 7, 20_001), np.linspace(0, 26, 5_001), [0.46875, 4.0, -4.0]]
    )
    wanted = np.array([theirs(v) for v in x])
    # Rounding -x * x turns into a relative error of its exponential.
    assert (np.abs(ours(x) - wanted) <= np.abs(wanted) * (2.0**-50 + x * x * 2.0**-52)).all()


def test_the_error_function_of_special_numbers():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    assert np.array_equal(erf(x), [0, 0, 1, -1, np.nan], equal_nan=True)
    assert np.signbit(erf(x))[:2].tolist() == [False, True]
    assert np.array_equal(erfc(x), [1, 1, 0, 2, np.nan], equal_nan=True)
