"""Every case is right in the emulator."""

import pytest

from tests.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_right_in_the_emulator(name):
    case = CASES[name]
    inputs, outputs = case.arrays()
    case.kernel(*inputs, *outputs, *case.scalars, **case.constants)
    case.check(inputs, outputs)
