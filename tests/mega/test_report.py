"""What a report says of a program: kinds and their registers, rings, waits and what is read ahead."""

from __future__ import annotations

import pytest

from pykittens.mega import report
from pykittens.runtime import nvrtc
from tests.mega.test_rings import shared_ring
from tests.mega.test_tags import cells, filled


def test_it_has_a_row_for_each_kind_and_each_ring(monkeypatch):
    monkeypatch.setattr(report.nvrtc, "available", lambda: "no compiler")
    program, tensors = shared_ring()
    kinds, rings = program.report(**tensors).tables
    assert kinds[1] == [
        ("add_one", "4", "", "", "0", "x"),
        ("multiply", "4", "", "", "1", "m"),
        ("all kinds", "8", "", "", "", ""),
    ]
    assert rings[1] == [("page", "2", "5,120", "1", "add_one, multiply")]


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
def test_it_shows_the_registers_of_a_kind_alone():
    program, tensors = shared_ring()
    (_, kinds), _ = program.report(**tensors).tables
    used = {name: int(registers) for name, _, registers, *_ in kinds}
    assert all(spilled == "0" for _, _, _, spilled, *_ in kinds)
    assert 0 < used["add_one"] < used["multiply"] <= used["all kinds"] + 8
    text = str(program.report(**tensors))
    assert "8 instructions on 2 blocks, at most 5 on one; 4 counters and 4 waits for them." in text


def test_it_names_the_tensors_with_tags(monkeypatch):
    monkeypatch.setattr(report.nvrtc, "available", lambda: "no compiler")
    program = cells(2)
    tensors, _ = filled(program, 1, 5)
    found = program.report(**tensors)
    assert "the elements of x have tags." in found.schedule
    assert found.schedule in repr(found)
