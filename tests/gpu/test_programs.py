"""Random programs of loops, branches and carried names give on a GPU what they give in the emulator."""

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")

from tests.loop_programs import programs  # noqa: E402
from tools.soak.programs import loop_fault  # noqa: E402

pytestmark = pytest.mark.gpu


@hypothesis.settings(max_examples=60, derandomize=True)
@hypothesis.given(programs())
def test_a_program_gives_what_the_emulator_gives(loop):
    assert loop_fault(loop, on_gpu=True) == ""
