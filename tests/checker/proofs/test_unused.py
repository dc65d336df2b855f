"""What a kernel has and does not use is a note at its line."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16
from pykittens.checker.proofs.unused import unused
from pykittens.emulate.finding import Kind, Level
from tests.running import recorded

X = np.zeros((64, 64), bf16.numpy)


@pk.kernel
def wasteful(x, bias, y, n, sized, *, uses=False):
    ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    other = pk.pipeline(2, pk.st(bf16, 64, 64))
    whole = pk.shared(pk.st(bf16, 64, 64))
    full = pk.semaphore(1)
    (row,) = pk.grid(sized.rows)
    with pk.producer():
        with ring.fill() as s:
            pk.load_async(s.a, x[row])
            if uses:
                pk.load_async(s.b, bias.window(0, 0, n)[row])
        if uses:
            with other.fill() as t:
                pk.load_async(t, x[row])
    with pk.consumers(1):
        with ring.drain() as s:
            t = pk.load(s.a)
            if uses:
                t = t + pk.load(s.b)
        if uses:
            with other.drain() as u:
                t = t + pk.load(u)
            pk.store(whole.tiles(64, 32)[0, 1], pk.zeros(bf16, 64, 32))
            full.arrive()
        pk.store(y[row], t)


def notes(**constants):
    return unused(recorded(wasteful, X, X, X, 3, X[:1], **constants))


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("`bias` is an argument", "def wasteful("),
        ("`n` is an argument", "def wasteful("),
        ("the tile `b` of the pipeline `ring`, which takes 16384 bytes", "ring = "),
        ("no role fills or drains the pipeline `other`, which takes 16384 bytes", "other = "),
        ("the shared memory `whole`", "whole = "),
        ("the semaphore `full`", "full = "),
    ],
)
def test_each_is_a_note_at_its_line(what, line):
    (note,) = (f for f in notes() if what in f.message)
    assert (note.kind, note.level) == (Kind.UNUSED, Level.NOTE)
    assert note.steps[0].loc.text.strip().startswith(line)


def test_a_tensor_whose_extent_counts_is_used():
    assert len(notes()) == 6
    assert not any("`sized`" in f.message for f in notes())


def test_nothing_is_said_about_what_is_used():
    assert notes(uses=True) == []
