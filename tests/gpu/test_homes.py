"""Kernels whose values have homes give on a GPU what they say."""

import numpy as np
import pytest

from tests.lang import homes_kernels as kernels
from tests.lang.test_homes import CASES

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


def on_gpu(x):
    """A NumPy array, also of bf16, as a tensor of the GPU."""
    if x.dtype == np.float32:
        return torch.from_numpy(x).cuda()
    return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("by_roles", [False, True], ids=["homes", "roles"])
def test_it_computes_what_it_says(name, case, by_roles):
    arguments, constants, wanted = case
    given = [on_gpu(x) for x in arguments]
    getattr(kernels, f"{name}_by_roles" if by_roles else name)(*given, **constants)
    found = given[-1].double().cpu().numpy()
    assert np.linalg.norm(found - wanted) < 4e-3 * np.linalg.norm(wanted)
