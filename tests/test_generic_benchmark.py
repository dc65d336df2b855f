"""benchmarks/generic.py: its programs are right."""

import pytest

from tests.benches import by_letters, program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def generic(monkeypatch):
    """The program as a module."""
    torch.manual_seed(0)
    return program("generic", monkeypatch)


def test_a_token_is_right_in_all_variants(generic):
    sizes = generic.Sizes(2, 1024, 4, 2, 64, 1024, 512, 128)
    rows = generic.tokens(by_letters(generic), sizes, 3, [(1, 4, 2), (2, 5, 3)])
    assert [row["error"] < 1e-4 for row in rows] == [True, True]
    assert all(row["against"] == "PyTorch" for row in rows)


def test_products_and_attention_are_right(generic):
    bench = by_letters(generic)
    rows = [
        *generic.vectors(bench, [(2, 100, 2048)], 3),
        *generic.products(bench, [(130, 200, 70)], 2),
    ]
    assert all(row["error"] < 4e-3 for row in rows)
    generic.attention = lambda q, k, v, causal: None
    rows = list(generic.attentions(bench, [(2, 200, 64, True), (1, 130, 128, False)], 2))
    assert all(row["error"] < 4e-3 for row in rows)
