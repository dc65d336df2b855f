"""Every way of filling and draining a stage, on a GPU."""

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("ragged", [False, True])
def test_tiles_arrive_where_they_belong(ragged):
    from tests.moving import run_all

    for name, (found, expected) in run_all("cuda", ragged).items():
        assert torch.equal(found, expected), name
