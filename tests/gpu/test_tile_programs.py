"""Random programs on tiles are right on a GPU."""

import pytest
from hypothesis import given, settings

from tests.tile_programs import programs
from tools.soak.programs import tile_fault

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@settings(max_examples=60, derandomize=True)
@given(programs())
def test_a_random_program_is_right_on_the_gpu(program):
    assert tile_fault(program, on_gpu=True) == ""
