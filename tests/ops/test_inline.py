"""The user's CUDA C++: its NumPy meaning in the emulator, its text in the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import f32

ROOT = Path(__file__).resolve().parent.parent.parent


@pk.kernel
def scaled(x, y, n):
    pk.grid(1)
    t = pk.load(x[0], rows=64, cols=16)
    pk.inline_cuda("for (int j = 0; j < {0}; ++j) {{ __nanosleep({1}); }}", n, 20, numpy=_nothing)
    made = pk.inline_cuda(
        "ldexpf({0}, {1}) + {2}", t, n, 0.25, like=t, dtype=f32, numpy=lambda t, n, c: t * 2**n + c
    )
    pk.store(y[0], made)


def _nothing(*args):
    assert args == (3, 20)


def test_an_expression_is_computed_in_f32_and_has_the_dtype_it_is_given():
    x = np.linspace(-2, 2, 1024).astype(ml_dtypes.bfloat16).reshape(64, 16)
    y = np.zeros((64, 16), np.float32)
    scaled(x, y, 3)
    assert np.array_equal(y, x.astype(np.float32) * 8 + np.float32(0.25))


def test_operands_stand_in_the_places_of_their_numbers():
    x = np.zeros((64, 16), ml_dtypes.bfloat16)
    text = scaled.source(x, np.zeros((64, 16), np.float32), 3)
    assert "{ for (int j = 0; j < n; ++j) { __nanosleep(20); } }" in text
    assert "made[i] = (ldexpf(from_bf16(t[i / 2], i), n) + 0.25f);" in text


def test_a_result_is_rounded_to_its_narrow_dtype_and_spread_over_the_shape():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=16)
        sums = pk.row_sum(t)
        pk.store(y[0], pk.inline_cuda("{0} / 3", sums, like=t, numpy=lambda s: s / np.float32(3)))

    x = np.arange(1024).reshape(64, 16).astype(np.float16)
    y = np.zeros_like(x)
    kernel(x, y)
    sums = x.astype(np.float32).sum(1, keepdims=True).astype(np.float16).astype(np.float32)
    assert np.array_equal(y, np.broadcast_to((sums / np.float32(3)).astype(np.float16), (64, 16)))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_user_s_file_adds_operations_of_its_own(arch):
    program = ROOT / "tests" / "outside" / "own_operations.py"
    code = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['x', {arch!r}]; "
    code += f"runpy.run_path({str(program)!r}, run_name='own_operations')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_expression_whose_value_is_not_used_stays():
    @pk.kernel
    def kernel(x, y, n):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=16)
        pk.inline_cuda("atomicAdd(&counter, {0})", t, like=t, numpy=seen)
        pk.inline_cuda("clock() + {0}", n, like=n, numpy=seen)
        for _ in pk.range(n):
            pk.store(y[0], t)

    calls = []

    def seen(value):
        calls.append(value)
        return value

    x, y = np.ones((64, 16), np.float32), np.zeros((64, 16), np.float32)
    kernel(x, y, 2)
    assert len(calls) == 2
    text = kernel.source(x, y, 2)
    assert "atomicAdd(&counter, t[i])" in text
    assert "clock() + n" in text


def test_an_expression_that_a_loop_reads_runs_before_the_loop():
    @pk.kernel
    def kernel(x, y, n):
        pk.grid(1)
        at = [pk.inline_cuda("clock() + {0}", n, like=n, numpy=lambda n: n)]
        for i in pk.range(n):
            pk.store(y[0], pk.load(x[0], rows=64, cols=16) + (at[0] + i).to(f32))

    x, y = np.ones((64, 16), np.float32), np.zeros((64, 16), np.float32)
    text = kernel.source(x, y, 2)
    assert text.index("clock() + n") < text.rindex("NO_UNROLL for (int i")
