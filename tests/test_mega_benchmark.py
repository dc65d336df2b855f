"""benchmarks/mega.py: its program is right, and compiled without spills."""

from __future__ import annotations

import pytest

from pykittens.runtime import nvrtc
from tests.benches import by_letters, program
from tests.speed import least_seconds
from tests.targets.clean import frame, spills

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def mega(monkeypatch):
    """The program as a module."""
    torch.manual_seed(0)
    return program("mega", monkeypatch)


def test_every_variant_is_checked_and_beside_pytorch(mega):
    variants = [(4, None, 4, ""), (3, 2, 8, ""), (5, 2, 8, "tags"), (6, 2, 8, "tags, tensor cores")]
    rows = mega.rows_of(by_letters(mega), variants, 3, 2, 512)
    assert [row["kernel"].partition(" ")[0] for row in rows] == ["4", "3", "5", "6"]
    assert all(row["error"] < 0.01 and row["against"] == "PyTorch" for row in rows)


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize(("warps", "more"), [(8, ()), (16, ()), (8, (False,)), (8, (True,))])
def test_the_program_keeps_its_tiles_in_registers(mega, warps, more):
    x = mega.problem(2, mega.N, "cpu")
    make = mega.tagged_phases if more else mega.two_phases
    x = mega.tagged(x) if more else x
    made = make(mega.BLOCKS, 2, mega.N, 11, 3, warps, *more)
    compiled = made.kernel().compile(*made.arguments(made.scheduled(**x), **x))
    assert not spills(compiled)
    assert frame(compiled) == 0


@pytest.mark.slow
def test_ten_thousand_instructions_are_derived_and_proved_in_two_seconds(mega):
    layers, n = 74, 2048
    made = mega.two_phases(mega.BLOCKS, layers, n, 11, 3, 8)
    assert len(made.instructions) >= 10_000
    shapes = {"h": (layers + 1, n), "gain": (layers, n), "pre": (layers, 2 * n)}
    x = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    x["pre"], x["W"] = x["pre"].float(), torch.empty(layers, 2 * n, n, dtype=torch.bfloat16)
    assert least_seconds(lambda: made.scheduled(**x), 2, tries=10) <= 2
