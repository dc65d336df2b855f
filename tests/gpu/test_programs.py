"""Random programs of loops, branches and carried names give on a GPU what they give in the emulator."""

import pytest

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")

from hypothesis import strategies as st  # noqa: E402

import pykittens as pk  # noqa: E402
from tests.lang.test_programs import loaded, program  # noqa: E402
from tests.running import UNWRITTEN  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


def run(kernel, device, *args):
    ints = torch.full((3, 8), UNWRITTEN, dtype=torch.int32, device=device)
    floats = torch.full((2, 8), torch.nan, device=device)
    kernel(ints, floats, *args)
    return ints.cpu(), floats.cpu()


@hypothesis.settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(
    source=program(),
    n=st.integers(-10, 10),
    m=st.integers(-10, 10),
    u=st.sampled_from([0.0, 0.25, -1.5, 3.1]),
)
def test_a_program_gives_what_the_emulator_gives(folder, source, n, m, u):
    kernel = pk.kernel(loaded(source, folder))
    (ints, floats), (expected_ints, expected_floats) = (
        run(kernel, d, n, m, u) for d in ("cuda", "cpu")
    )
    # A product that feeds a sum may be fused, so floats differ by roundings.
    assert torch.equal(ints, expected_ints)
    torch.testing.assert_close(floats, expected_floats, rtol=1e-4, atol=1e-4, equal_nan=True)
