"""Every way of filling and draining a stage, in the emulator, under several schedules."""

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", ["0", "1", "2"])
@pytest.mark.parametrize("ragged", [False, True])
def test_tiles_arrive_where_they_belong(ragged, seed, monkeypatch):
    from tests.moving import run_all

    monkeypatch.setenv("PYKITTENS_SEED", seed)
    for name, (found, expected) in run_all("cpu", ragged).items():
        assert torch.equal(found, expected), name
