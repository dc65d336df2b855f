"""The emitted text of random programs of loops does on the CPU what Python does with the source."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest

from tests import lanes
from tests.loop_programs import HEAD, TAIL, Loop, programs, with_python, with_text
from tests.tiers import sampled

pytestmark = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")

MANY, TOGETHER = 160, 40
# No pass of the first loop reads b, which is read after it; no one reads its last a.
FEW_PASSES = """
    for i in pk.range(m % 3, n):
        b, a = a, 7
    a, c = n, b
    for i in pk.range(n):
        x, y = y, x
        q, p = p, True
        for j in pk.range(i, m):
            c, b = b, (a + i) % 97
    a = a + 1
"""


def drawn(seed: int) -> list[Loop]:
    """Random programs."""
    found: list[Loop] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=TOGETHER,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(programs())
    def collect(loop):
        found.append(loop)

    collect()
    return found


def check(loops: list[Loop], folder) -> None:
    for loop, found in zip(loops, with_text(loops, folder), strict=True):
        for x, exact in zip(found, with_python(loop), strict=True):
            assert np.array_equal(x, exact, equal_nan=True), loop.source


def test_names_that_a_loop_exchanges_keep_their_values_if_it_has_few_passes(tmp_path):
    source = HEAD + FEW_PASSES + TAIL
    check([Loop(source, n, m, 0.25) for n in (-1, 0, 1, 2, 5) for m in (0, 2, 4)], tmp_path)


@pytest.mark.parametrize(
    "seed", sampled(range(MANY // TOGETHER), lambda seed: seed % 2, pytest.mark.soak)
)
def test_the_text_of_a_random_program_gives_what_python_gives(seed, tmp_path):
    check(drawn(seed), tmp_path)
