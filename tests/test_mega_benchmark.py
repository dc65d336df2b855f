"""benchmarks/mega.py: its program is right, and compiled without spills."""

from __future__ import annotations

import pytest

from pykittens.runtime import nvrtc
from tests.benches import by_letters, program
from tests.targets.clean import frame, spills

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def mega(monkeypatch):
    """The program as a module."""
    torch.manual_seed(0)
    return program("mega", monkeypatch)


def test_every_variant_is_checked_and_beside_pytorch(mega):
    variants = [(4, None, 4), (3, 2, 8)]
    rows = mega.rows_of(by_letters(mega), variants, 3, 2, 512)
    assert [row["kernel"].partition(" ")[0] for row in rows] == ["4", "3"]
    assert all(row["error"] < 0.01 and row["against"] == "PyTorch" for row in rows)


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize("warps", [8, 16])
def test_the_program_keeps_its_tiles_in_registers(mega, warps):
    x = mega.problem(2, mega.N, "cpu")
    made = mega.two_phases(mega.BLOCKS, 2, mega.N, 11, 3, warps)
    compiled = made.kernel().compile(*made.arguments(made.scheduled(**x), **x))
    assert not spills(compiled)
    assert frame(compiled) == 0
