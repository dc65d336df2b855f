"""Random programs of loops, branches and carried names do what Python does with the same source."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from tests.loop_programs import programs, with_emulator, with_python


@settings(
    max_examples=150,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(loop=programs())
def test_a_program_gives_what_python_gives(tmp_path, loop):
    for found, expected in zip(with_emulator(loop, tmp_path), with_python(loop), strict=True):
        assert np.array_equal(found, expected, equal_nan=True)
