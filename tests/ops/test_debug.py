"""Prints and assertions: the emulator prints the same text as a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import int32
from pykittens.errors import AssertError


def test_scalars_are_printed_in_one_line_a_group(capsys):
    @pk.kernel
    def kernel(x, n, s):
        pk.grid(1)
        with pk.warps(2) as w, pk.in_turn():
            pk.print("group {}: {} {} {{}} 100% {} {}", w, n, s, n > 2, 1.5)

    kernel(np.zeros(1, np.float32), 3, 0.1)
    assert capsys.readouterr().out == "group 0: 3 0.1 {} 100% 1 1.5\ngroup 1: 3 0.1 {} 100% 1 1.5\n"


def test_tiles_and_vectors_are_printed_by_element(capsys):
    @pk.kernel
    def kernel(x, n):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=16)
        pk.print("{} < {}", t, pk.row_max(t))
        pk.print("{}", pk.row_max(t))
        pk.print("{} of {}", pk.load(x[1], cols=3), n)

    x = np.arange(64 * 16, dtype=np.float32).reshape(64, 16) / 4
    kernel(x, 7)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 64 * 16 + 64 + 3
    assert lines[17] == "[1, 1] 4.25 < 7.75"
    assert lines[1024 + 2] == "[2] 11.75"
    assert lines[-3:] == ["[0] 4 of 7", "[1] 4.25 of 7", "[2] 4.5 of 7"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(1e-7, "1e-07"), (float("inf"), "inf"), (1234567.0, "1.23457e+06"), (-0.0, "-0"), (3.0, "3")],
)
def test_a_float_is_printed_as_c_does(capsys, number, text):
    @pk.kernel
    def kernel(x, s):
        pk.grid(1)
        pk.print("{}", s)

    kernel(np.zeros(1, np.float32), number)
    assert capsys.readouterr().out == f"{text}\n"


def test_an_assertion_that_holds_says_nothing_and_one_that_fails_says_where():
    @pk.kernel
    def kernel(x, n):
        pk.grid(1)
        pk.assert_(n > 0, "some")
        pk.assert_(pk.load(x[0], cols=8) > 0, "all are positive")

    x = np.ones((1, 8), np.float32)
    kernel(x, 1)
    with pytest.raises(AssertError, match="some"):
        kernel(x, 0)
    x[0, 3] = np.nan
    with pytest.raises(AssertError, match="all are positive") as caught:
        kernel(x, 1)
    assert caught.value.operands == {"fails at": "[3], 1 of 8 elements"}


@pk.kernel
def told(x, n):
    pk.grid(1)
    t = pk.load(x[0], rows=64, cols=16)
    v = pk.load(x[1], cols=100)
    with_quotes = '"a\\b" 5%: {}'
    pk.print(with_quotes, n)
    pk.print("{} {}", t, pk.row_max(t))
    pk.print("{}", v.to(int32))
    pk.assert_(v > 0, "positive")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_text_of_the_gpu_has_the_same_format(arch):
    x = np.zeros((64, 100), np.float32)
    text = told.source(x, 1, arch=arch)
    text = text[text.index('extern "C"') :]
    assert r'printf("\"a\\b\" 5%%: %d\n", n);' in text
    assert (
        r'printf("[%d, %d] %g %g\n", tile_row<16, 4>(i, warp, lane), tile_col<16>(i, lane),' in text
    )
    assert r'printf("[%d] %d\n", vector_at<2, 128>(i, thread),' in text
    assert "vector_at<2, 128>(i, thread) < 100" in text
    assert "__trap" not in text
    told.compile(x, 1, arch=arch)
