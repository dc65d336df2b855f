"""Exits from loops: `break`, `continue`, `return` and `else`, in Python's loops and in run-time ones."""

from __future__ import annotations

import pytest

import pykittens as pk
from tests.running import first, put


def test_a_loop_of_python_is_unrolled_and_may_be_left():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = n
        for i in range(10):
            if i == 2:
                continue
            if i == 5:
                break
            x = x + i
        else:
            x = x + 1000
        put(out, 0, x)

    assert first(kernel, 1) == 1 + 0 + 1 + 3 + 4


def test_a_helper_may_return_from_inside_a_loop_of_python():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)

        def found():
            for i in range(10):
                if i * i > 20:
                    return i
            return -1

        put(out, 0, n + found())

    assert first(kernel, 1) == 6


def test_the_else_of_a_run_time_loop_always_runs():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        x = 0
        for i in pk.range(n):
            x = x + i
        else:
            x = x + 100
        put(out, 0, x)

    assert [first(kernel, n) for n in (0, 3)] == [100, 103]


@pytest.mark.parametrize("word", ["break", "continue", "return"])
def test_a_run_time_loop_cannot_be_left(word, tmp_path):
    source = f"""
import pykittens as pk

@pk.kernel
def kernel(out, n):
    pk.grid(1)
    for i in pk.range(n):
        for j in range(2):
            if j == 1 and i > 2:
                {word}
"""
    path = tmp_path / "leaving.py"
    path.write_text(source)
    space: dict = {}
    exec(compile(source, str(path), "exec"), space)
    with pytest.raises(pk.KernelError, match=f"`{word}` inside a run-time") as caught:
        first(space["kernel"], 1)
    assert f"{word}\n" + " " * 4 + "^" * len(word) in str(caught.value)
