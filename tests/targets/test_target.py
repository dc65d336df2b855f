"""Every operation has a lowering on every target, or the target says why not."""

import pytest

import pykittens  # noqa: F401  (fills both tables)
from pykittens.ops.core import OPS
from pykittens.targets.target import TARGETS


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_an_operation_has_a_lowering_or_a_reason(name, arch):
    if name not in TARGETS[arch].unsupported:
        assert callable(TARGETS[arch].find(OPS[name]))
