"""Random programs on tiles are right in the emulator."""

from hypothesis import given, settings

from tests.cases.core import unwritten
from tests.tile_programs import programs
from tests.tolerance import assert_within


@settings(max_examples=60, derandomize=True)
@given(programs())
def test_a_random_program_is_right_in_the_emulator(program):
    inputs = program.inputs(0)
    out = unwritten(inputs[0].shape, program.dtype)
    program.kernel()(*inputs, out)
    known = program.exact(*inputs)
    assert_within(out, known.value, known.error)
