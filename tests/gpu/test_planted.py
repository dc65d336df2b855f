"""Planted bugs give wrong numbers on a GPU, as the checker reports without one; the fixed kernels do not."""

from __future__ import annotations

import pytest

from tests.planted.core import every
from tools.planted_matrix import in_a_process

pytestmark = pytest.mark.gpu

LAUNCHES = 50
# A bug whose kernel ends and whose numbers are wrong in some launch.
WRONG = ("copy_nobody_waits_for", "accumulator_of_two_groups", "split_k_that_reads_and_writes")


@pytest.mark.parametrize("name", WRONG)
def test_a_reported_bug_gives_wrong_numbers(name: str) -> None:
    assert name in {p.name for p in every()}
    found = in_a_process(name, LAUNCHES)
    assert found["broken_wrong"] > 0
    assert found["mended_wrong"] == 0
