"""Every case is right in the emulator."""

import pytest

import pykittens  # noqa: F401  (fills the table of operations)
from pykittens.ops.core import OPS
from tests.cases import CASES

# tests/ops/test_debug.py covers it, since its output is text.
WITHOUT = {"print"}


def test_every_operation_has_a_case():
    ours = {name for name, op in OPS.items() if op.function.__module__.startswith("pykittens.")}
    shown = {name for case in CASES.values() for name in case.ops}
    assert ours - shown == WITHOUT
    assert shown <= ours


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_right_in_the_emulator(name):
    case = CASES[name]
    inputs, outputs = case.arrays()
    case.kernel(*inputs, *outputs, *case.scalars, **case.constants)
    case.check(inputs, outputs)
