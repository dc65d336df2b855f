"""Names: those of the emitted program do not collide with the user's."""

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.runtime import cubin, nvrtc
from tests.targets.compiling import matrix

F32 = np.dtype(np.float32)
X, Y = matrix(64, 32, dtype=F32), matrix(64, 32, dtype=F32)
needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


@pk.kernel
def like_a_ring(x, y):
    k = pk.pipeline(2, pk.st(f32, 64, 32))
    tasks = pk.persistent(y.tiles(64, 32))
    k_full = pk.cdiv(x.rows, 64)
    with pk.producer():
        for row, col in tasks:
            k_empty = k_full * 1
            t_full = k_empty + 0
            for k_fill in pk.range(k_full + k_empty - t_full):
                with k.fill() as t:
                    pk.load_async(t, x[row, col])
    with pk.storer():
        for k_back, k_drain in tasks:
            for _ in pk.range(k_full):
                with k.drain() as t:
                    pk.store_async(y[k_back, k_drain], t)


def test_a_scalar_named_like_a_barrier_of_a_ring():
    text = like_a_ring.source(X, Y)
    declared = re.findall(
        r"(?:const int|const u32|Turn<2>|int|,) (k_\w+|t_full\w*)\b(?: =|;|,)", text
    )
    assert (
        len(declared) == len(set(declared)) + 1
    )  # each stage has its `t_full` or none; `k_full` once


@needs_compiler
def test_a_scalar_named_like_a_barrier_of_a_ring_compiles():
    like_a_ring.compile(X, Y)


@pk.kernel
def one_warp(x, y):
    ring = pk.pipeline(1, pk.st(f32, 64, 32))
    tasks = pk.persistent(y.tiles(64, 32))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[row, col])  # one warp, one thread
    with pk.warps(1):
        for row, col in tasks:
            with ring.drain() as t:
                pk.store_async(y[row, col], t)


def test_words_in_a_users_comment_are_no_variables():
    text = one_warp.source(X, Y)
    assert "const int warp =" not in text
    assert "const int thread =" not in text


def named(name):
    """A kernel of this name."""

    def plain(x, y):
        row, col = pk.grid(*y.tiles(64, 32))
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=32))

    made = pk.kernel(plain)
    made._rewritten.__name__ = name
    return made


@needs_compiler
@pytest.mark.parametrize(
    "name", ["norm", "exp2", "rsqrt", "free", "y0", "Turn", "size_t", "nullptr", "int"]
)
def test_a_kernel_named_like_something_of_the_compiler(name):
    compiled = named(name).compile(X, Y)
    assert compiled.source.name != name
    assert cubin.resources(compiled.cubin).max_threads == 128


@needs_compiler
def test_arguments_with_letters_that_the_compiler_does_not_know():
    @pk.kernel
    def greek(α, β, nullptr, bitand):
        row, col = pk.grid(*β.tiles(64, 32))
        pk.store(β[row, col], pk.load(α[row, col], rows=64, cols=32) * nullptr + bitand)

    greek.compile(X, Y, 2.0, 1.0)


@pk.kernel
def trading(y, next0, next1):
    pk.grid(1)
    next1, next0 = next1 + 1, next0 + 1
    for _ in pk.range(3):
        next0, next1 = next1, next0
    pk.store(y[next0, next1], pk.zeros(f32, 64, 16))


def test_values_that_trade_places_under_any_name():
    lines = [line.strip() for line in trading.source(Y, 0, 1).splitlines()]
    assert not any(re.search(r"(\w+) = \1;", line) for line in lines)
