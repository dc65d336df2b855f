"""Every operation has a lowering on every target, or a reason why not; docs/ops.md lists both."""

from pathlib import Path

import pytest

import pykittens  # noqa: F401  (fills the table of operations)
from pykittens.errors import UnsupportedError
from pykittens.ops.core import OPS
from pykittens.targets.architectures import TARGETS
from tests.support import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_an_operation_has_a_lowering_or_a_reason(name, arch):
    try:
        assert callable(TARGETS[arch].find(OPS[name]))
    except UnsupportedError:
        assert any(name in target.unsupported for target in TARGETS[arch].lineage())


def test_the_page_of_the_operations_is_what_the_tables_say(request):
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "`make golden` writes it anew"
