"""benchmarks/calls.py: its calls beside those of PyTorch have the same results."""

from __future__ import annotations

import pytest

from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_each_call_has_the_result_of_the_one_before(monkeypatch):
    calls = program("calls", monkeypatch).beside_torch("cpu")
    names = iter(calls)
    for theirs, ours in zip(names, names, strict=True):
        expected, found = calls[theirs](), calls[ours]()
        if expected is None:
            assert found is None  # the results are kept
            continue
        assert torch.allclose(found.float(), expected.float(), rtol=1e-2, atol=0.1)
        assert found.requires_grad == expected.requires_grad == theirs.endswith("gradient")
