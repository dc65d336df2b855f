"""Random programs on tiles are right on a GPU."""

import pytest
from hypothesis import given, settings

from tests.cases.core import unwritten
from tests.gpu.test_cases import on_gpu, on_host
from tests.tile_programs import programs
from tests.tolerance import assert_within

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs())
def test_a_random_program_is_right_on_the_gpu(program):
    inputs = program.inputs(0)
    out = unwritten(inputs[0].shape, program.dtype)
    tensors = [on_gpu(a) for a in (*inputs, out)]
    program.kernel()(*tensors)
    torch.cuda.synchronize()
    known = program.exact(*inputs)
    assert_within(on_host(tensors[-1], out), known.value, known.error)
