"""Based linear attention on a GPU: random calls with all gradients, and long sequences in segments."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.linear import based_attention  # noqa: E402
from tests.based_random import BasedProblem, check, explicit, problem, tensors  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")]


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(15):
        check(problem(draw), "cuda")


@pytest.mark.parametrize("normalize", [False, True])
def test_segments_of_a_long_sequence_are_one(normalize):
    torch.manual_seed(0)
    p = BasedProblem(1, 4, 6000, 16, 64, normalize, True, False, False)
    given = tensors(p, "cuda")
    wanted = explicit(p, *(x.double() for x in given))
    for segments in (1, 2, 7, 32, None):
        how = {"normalize": normalize, "segments": segments, "return_state": True}
        found = based_attention(*given[:3], initial_state=given[3], **how)
        for x, y in zip(found, wanted, strict=True):
            assert (x - y).abs().max() <= 2**-6 * y.abs().max()
