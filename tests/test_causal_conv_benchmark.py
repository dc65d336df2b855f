"""benchmarks/causal_conv.py: its rows are parts of copies."""

from __future__ import annotations

import pytest

from tests.benches import program

pytest.importorskip("torch", reason="PyTorch is not installed")


def test_a_row_of_the_table_is_read_as_parts_of_copies(monkeypatch):
    conv = program("causal_conv", monkeypatch)
    row = {"problem": "x", "bytes": 5e6, "forward": 40.0, "copy": 30.0}
    row |= {"backward": 90.0, "copy_backward": 45.0}
    assert conv.cells(row) == ("x", "5", "40.0", "30.0", "90.0", "45.0", "0.75", "0.50")
    assert conv.Problem(2, 10, 30, 4, True).bytes == 1200
