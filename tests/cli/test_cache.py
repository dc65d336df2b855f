"""`pykittens cache` lists, limits and removes compiled kernels."""

from __future__ import annotations

import pytest

from pykittens.cli import main
from pykittens.runtime import cache


@pytest.fixture
def entries(tmp_path, monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PYKITTENS_CACHE_LIMIT", "64")
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    cache.fetch("one", lambda: {"cubin": bytes(2**20), "about": b"matmul for sm_90a"})
    cache.fetch("two", lambda: {"cubin": bytes(2**20), "about": b"softmax for sm_80"})
    return tmp_path


def test_the_size_and_the_limit_are_printed(entries, capsys):
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == (
        f"{entries}: 2 kernels, 2.0 MiB, at most 64 MiB (PYKITTENS_CACHE_LIMIT)\n"
    )


def test_the_entries_are_listed(entries, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    cache.entry_path("two").write_bytes(b"damaged")
    assert main(["cache", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "matmul for sm_90a" in shown
    assert "damaged" in shown
    assert "1024" in shown


def test_the_entries_are_removed(entries, capsys):
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 2 kernels, 2.0 MiB from {entries}\n"
    assert list(entries.iterdir()) == []
    assert main(["cache", "--list"]) == 0
    assert "0 kernels" in capsys.readouterr().out
