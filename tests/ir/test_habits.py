"""What users of Python, NumPy, PyTorch and Triton write by habit is answered with a word of the language."""

from __future__ import annotations

import itertools
import linecache
import math
import re
import textwrap

import numpy as np
import pytest

import pykittens as pk
from pykittens.ir import habits

# A statement of a kernel that has a tile `t` and tensors `x` and `y`, and what the error's help must contain.
HABITS = {
    # Python
    "for i in range(x.rows): pass": "pk.range(n)",
    "a = [pk.load(x[i], cols=16) for i in pk.range(x.rows)]": "comprehension",
    "a = {i: 1 for i in pk.range(x.rows)}": "comprehension",
    "for k, i in enumerate(pk.range(x.rows)): pass": "pk.range(n)",
    "for k, i in zip(range(3), pk.range(x.rows)): pass": "pk.range(n)",
    "a = list(pk.range(x.rows))": "pk.range(n)",
    "for i in reversed(pk.range(x.rows)): pass": "pk.range(n - 1, -1, -1)",
    "a = min(x.rows, 5)": "pk.minimum",
    "a = max(t, t)": "pk.maximum",
    "a = min(pk.sum(t), 1.0)": "pk.minimum",
    "a = sum(t)": "pk.row_sum",
    "a = any(t > 0)": "pk.row_any",
    "a = all(t > 0)": "pk.row_all",
    "a = sorted(t)": "pk.row_sort",
    "a = len(x)": ".shape",
    "a = len(t)": ".shape",
    "a = int(pk.sum(t))": "pk.int32",
    "a = float(pk.sum(t))": "pk.f32",
    "a = bool(x.rows > 1)": "run-time bool",
    "a = round(t)": "pk.int32",
    "a = divmod(x.rows, 16)": "`//`",
    "a = f'{pk.sum(t):.3f}'": "pk.print",
    "assert pk.sum(t) > 0": "pk.assert_",
    "assert x.rows > 3, 'few'": "pk.require",
    "a = x.rows in (1, 2)": "==",
    "a = t if x.rows > 2 else t * 2": "pk.where",
    "a = t if t > 0 else 0.0": "pk.where",
    "if t > 0: pass": "pk.any(t)",
    "match x.rows:\n    case 1: pass": "`if`",
    "if x.rows > 5: return": "else",
    "for i in pk.range(x.rows):\n    if i > 2: break": "while",
    "for i in pk.range(x.rows):\n    if i > 2: continue": "if",
    "for a in t: pass": "pk.row(t, i)",
    "i = pk.grid(4)\n_ = i + 1": "(i,) =",
    "i = pk.grid(4)\na = pk.load(x[i, 0], cols=16)": "(i,) =",
    "x[0, 0] += 1": "pk.load",
    # NumPy
    "y[0, 0] = t": "pk.store(y[0, 0], value)",
    "t[0, 0] = 1.0": "never changed",
    "t[0:16, 0:16] += 1": "never changed",
    "a = t @ t": "pk.mma_AB",
    "a = np.exp(t)": "pk.exp(a)",
    "a = np.add(t, t)": "a + b",
    "a = np.sum(t)": "pk.row_sum",
    "a = np.maximum(t, 0)": "pk.maximum(a, b)",
    "a = np.where(t > 0, t, 0)": "pk.where(condition, a, b)",
    "a = np.arange(x.rows)": "pk.iota",
    "a = math.sqrt(pk.sum(t))": "pk.sqrt(a)",
    "a = math.exp(t)": "pk.exp(a)",
    "a = GLOBAL[x.rows]": "pk.load",
    "a = t + GLOBAL": "pk.load",
    "a = pk.zeros((16, 16), pk.f32)": "before the extents",
    "a = pk.zeros(16, 16, pk.f32)": "before the extents",
    "a = pk.full((16, 16), 1.0, pk.f32)": "before the extents",
    "a = pk.zeros(np.float32, 16, 16)": "use pk.f32",
    "a = pk.zeros('bfloat16', 16, 16)": "use pk.bf16",
    "a = pk.zeros(float, 16, 16)": "use pk.f32",
    "a = pk.zeros(np.float64, 16, 16)": "use pk.f32",
    "a = pk.zeros(bool, 16, 16)": "use pk.bool_",
    "a = pk.ones(pk.f32, 16, 16)": "pk.full",
    "a = pk.zeros_like(t)": "pk.full",
    "a = pk.arange(5)": "pk.iota(n)",
    "a = pk.mean(t)": "pk.row_sum(t) / t.cols",
    "a = pk.isnan(t)": "t != t",
    "a = pk.max(t, axis=1)": "row_*",
    "a = pk.sum(t, keepdims=True)": "per-row",
    "a = t[0]": "pk.row",
    "a = t[:, None]": "no axis is added",
    "a = t - pk.row_max(t)[:, None]": "combines with a tile as it is",
    "a = pk.iota(16)[:, None] * t": "pk.spread",
    "a = pk.where(pk.row_index(16)[:, None] > 3, t, 0)": "combines with a tile as it is",
    "a = pk.load(x[0:16, 0:16], rows=16, cols=16)": "counts tiles",
    "a = pk.load(x.tiles(16, 16)[0, 0])": "x[i, j] is a tile of a tensor",
    "a = pk.load(x[0][0], rows=16, cols=16)": "x[i, j]",
    "a = pk.load(x[pk.iota(16), 0], cols=16)": "pk.gather",
    "a = pk.row_mean(t)": "pk.row_sum(t) / t.cols",
    "a = pk.col_mean(t)": "pk.col_sum(t) / t.rows",
    "a = pk.row_softmax(t)": "pk.exp",
    "a = pk.sum(t, 1)": "pk.row_sum",
    "a = pk.zeros(pk.f32, (16, 16))": "separate arguments",
    "a = pk.bf16(3.0)": ".to(",
    "a = f32(3.0)": ".to(",
    "a = pk.load(x[0, 0], 16, 16)": "pk.load(x[i, j], rows=",
    "a = pk.shared(pk.f32, 16, 16)": "pk.shared(pk.st",
    "a = pk.shared(pk.st(pk.f32, 16, 16))[0:16, 0:16]": ".tiles(",
    "a = pk.where(t > 0, 1.0, 0.0)": "condition.to(dtype)",
    "a = t + pk.load(x[0, 0], cols=16)": "spread=",
    "a = x.rows / 16": "`//`",
    "a = t * x.rows": ".to(pk.f32)",
    "a = pk.iota(16) + pk.load(x[0], cols=16)": ".to(pk.f32)",
    # PyTorch
    "a = t.T": "pk.transpose",
    "a = t.sum()": "pk.row_sum",
    "a = t.sum(1)": "pk.row_sum",
    "a = t.exp()": "pk.exp(a)",
    "a = t.astype(pk.bf16)": ".to(",
    "a = t.half()": ".to(",
    "a = t.float()": ".to(",
    "a = t.type(pk.bf16)": ".to(",
    "a = t.to('bf16')": "use pk.bf16",
    "a = t.ndim": "len(x.shape)",
    "a = x.numel()": ".shape",
    "a = x.stride(0)": "x[i, j]",
    "a = t.reshape(8, 32)": "pk.transpose",
    "a = t.view(8, 32)": "pk.transpose",
    "a = pk.sum(t).item()": "pk.print",
    "a = pk.cat([t, t])": "pk.concat",
    "a = pk.stack([t, t])": "pk.concat",
    "a = pk.softmax(t)": "pk.exp",
    "a = pk.matmul(t, t)": "pk.mma_AB",
    "a = pk.rand(16, 16)": "pk.uniform",
    "a = pk.topk(t, 3)": "pk.row_topk",
    "a = pk.dropout(t)": "pk.uniform",
    "a = t.masked_fill(t > 0, 0)": "pk.where",
    "a = t + TENSOR": "as an argument",
    # Triton and CUDA
    "a = pk.program_id(0)": "pk.grid",
    "a = pk.num_programs(0)": "pk.grid",
    "a = pk.dot(t, t)": "pk.mma_AB",
    "for i in pk.static_range(4): pass": "`range`",
    "a = pk.load(x[0, 0], rows=16, cols=16, mask=True)": "no mask",
    "a = pk.load(x[0, 0], rows=16, cols=16, other=0.0)": "`fill`",
    "a = pk.load(x + 1)": "pk.load",
    "pk.store(t, y[0, 0])": "destination comes first",
    "pk.atomic_add(y[0, 0], t)": 'op="add"',
    "a = pk.mma(t, t, t)": "pk.mma_AB",
    "a = pk.mma_AB(t, t, t)": "pk.store",
    "a = pk.trans(t)": "pk.transpose",
    "pk.syncthreads()": "pk.sync()",
    "pk.debug_barrier()": "pk.sync()",
    "a = pk.threadIdx.x": "pk.row_index",
    "a = pk.blockIdx.x": "pk.grid",
    "a = pk.shared((16, 16), pk.f32)": "pk.shared(type",
    "a = pk.device_print('x', t)": "pk.print",
    "a = pk.cdvi(x.rows, 16)": "pk.cdiv",
    "for i in pk.arange(x.rows): pass": "pk.range",
    "a = pk.next_power_of_2(x.cols)": "multiple",
    "a = pk.multiple_of(x.rows, 16)": "alignment",
    "a = pk.assume(x.rows > 16)": "pk.require",
    "pk.load_async(pk.shared(pk.st(pk.f32, 16, 16)), x[0, 0])": "fill()",
}
GLOBAL = np.ones(16, np.float32)
_numbers = itertools.count()


class OfTorch:
    """An array of another library than NumPy."""

    def __dlpack__(self):
        return GLOBAL.__dlpack__()


def error_of(statement: str) -> pk.KernelError:
    """What a kernel with this statement raises."""
    lines = [
        "@pk.kernel(warps=1)",
        "def k(x, y):",
        "    t = pk.load(x[0, 0], rows=16, cols=16)",
        textwrap.indent(statement, "    "),
        "    pk.store(y[0, 0], t)",
    ]
    text, file = "\n".join(lines), f"<habit {next(_numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    scope = {"pk": pk, "np": np, "math": math, "f32": pk.f32, "GLOBAL": GLOBAL, "TENSOR": OfTorch()}
    exec(compile(text, file, "exec"), scope)
    with pytest.raises(pk.KernelError) as raised:
        scope["k"](np.ones((32, 32), np.float32), np.zeros((32, 32), np.float32))
    return raised.value


@pytest.mark.parametrize("statement", HABITS)
def test_a_habit_is_answered_with_the_word_of_the_language(statement):
    error = error_of(statement)
    assert HABITS[statement] in (error.help or ""), str(error)
    assert "^" in str(error), "the error shows the place"
    assert_is_true(error.help)


# A call of a kernel, and what the error's help must contain.
CALLS = {
    "copy(np.ones((16, 16)), y)": "x.astype(np.float32)",
    "copy([[1.0, 2.0], [3.0, 4.0]], y)": "np.asarray(x, np.float32)",
    "copy([x, x], y)": "a tuple",
    "copy(x, frozen)": "copy of `y`",
    "copy[(1,)](x, y)": "pk.grid",
    "copy(x, y, grid=(1,))": "pk.grid",
    "copy(x, y, num_warps=8)": "@pk.kernel(warps=4)",
    "copy(x, y, num_stages=3)": "pk.pipeline",
    "copy(x, y, BLOCK=64)": "keyword-only",
    "pk.check(copy(x, y))": "pk.check(kernel, x, y)",
}


def error_of_call(call):
    """What a call of a kernel `copy` with arrays `x`, `y` and `frozen` raises."""

    @pk.kernel(warps=1)
    def copy(x, y):
        pk.grid(1)
        pk.store(y[0, 0], pk.load(x[0, 0], rows=16, cols=16))

    x, y, frozen = (np.ones((16, 16), np.float32) for _ in range(3))
    frozen.flags.writeable = False
    with pytest.raises(pk.KernelError) as raised:
        eval(call, {"pk": pk, "np": np, "copy": copy, "x": x, "y": y, "frozen": frozen})
    return raised.value


@pytest.mark.parametrize("call", CALLS)
def test_a_call_by_habit_is_answered_with_the_word_of_the_language(call):
    error = error_of_call(call)
    assert CALLS[call] in (error.help or ""), str(error)
    assert_is_true(error.help)


def assert_is_true(help):
    """Every word that a help names exists."""
    for name in re.findall(r"pk\.([a-z]\w+)(?!\*)", help.replace("row_*", "").replace("col_*", "")):
        assert hasattr(pk, name), f"{help} names pk.{name}"


@pytest.mark.parametrize(
    "help", [*habits.WORDS.values(), *habits.KEYWORDS.values(), *habits._BUILTINS.values()]
)
def test_the_answers_name_words_that_exist(help):
    assert_is_true(help)


def test_no_word_of_the_language_is_answered_with_another():
    """A name may be both a word and a method of other libraries: those that both have reduce and scan."""
    both = {n for n in habits.WORDS if n in pk.__all__}
    assert both == {
        *("sum", "max", "min", "prod", "any", "all", "argmax", "argmin"),
        *("cumsum", "cumprod", "cummax", "cummin"),
    }


def test_a_users_own_error_stays_his():
    def refuse(x):
        raise ValueError("n must be even")

    @pk.kernel(warps=1)
    def k(x):
        (i,) = pk.grid(1)
        refuse(pk.load(x[i], cols=16))

    with pytest.raises(ValueError, match="^n must be even$"):
        k(np.ones((4, 16), np.float32))


def test_an_error_without_run_time_values_stays_pythons():
    @pk.kernel(warps=1)
    def k(x):
        (i,) = pk.grid(1)
        pk.load(x[i], cols={}["width"])

    with pytest.raises(KeyError):
        k(np.ones((4, 16), np.float32))

    @pk.kernel(warps=1)
    def broken(x):
        (i,) = pk.grid(1)
        len(3)

    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        broken(np.ones((4, 16), np.float32))


def test_outside_of_kernels_an_unknown_name_is_an_attribute_error_with_the_word():
    with pytest.raises(AttributeError, match="has no attribute 'arange'; pk.iota"):
        pk.arange  # noqa: B018
    assert not hasattr(pk, "arange")
