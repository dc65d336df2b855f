"""Random host expressions have the same value in C and in Python, or are refused if Python or int64 has no value."""

from __future__ import annotations

import ctypes
import random
from ctypes import c_bool, c_float, c_int32, c_int64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.aot.expressions import HostNumbers
from pykittens.aot.text import template
from pykittens.errors import AccessError
from pykittens.ir.nodes import Call, Kernel, Require, walk
from pykittens.ir.values import Value
from tests.aot.programs import (
    C_FLAGS,
    Tensor,
)
from tests.running import recorded
from tests.runtime.c_programs import build, needs_compiler

pytestmark = needs_compiler

COUNT, DEPTH = 80, 4
INPUTS = (
    (64, 5, 3, 0.5, True),
    (0, -7, 2, -1.0, False),
    (1, 2**31 - 1, -(2**31), 3.25, True),
    (2**31 - 1, -1, 0, 0.1, False),
    (1000, -100, 7, 1e-3, True),
)


def integer(rng: random.Random, leaves: list[Any], depth: int) -> Any:
    """A random int of the host."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([*leaves, *leaves, rng.randint(-5, 5), 2**31 - 2])
    a, b = (_int32(integer(rng, leaves, depth - 1)) for _ in range(2))
    match rng.randrange(14):
        case 0 | 1:
            return a + b
        case 2 | 3:
            return a - b
        case 4:
            return a * b
        case 5 | 6:
            return a // (b if isinstance(b, Value) else b or 1)
        case 7:
            return a % (b if isinstance(b, Value) else b or 1)
        case 8:
            return pk.cdiv(a, b if isinstance(b, Value) else b or 1)
        case 9:
            return pk.maximum(a, b)
        case 10:
            return pk.minimum(a, b)
        case 11:
            return -a
        case 12:
            return rng.choice([lambda: a & b, lambda: a | b, lambda: a ^ b])()
        case _:
            chosen = truth(rng, leaves, depth - 1)
            needs_value = isinstance(a, Value) or isinstance(b, Value)
            return pk.where(chosen, a, b) if needs_value and isinstance(chosen, Value) else a


def _int32(value: Any) -> Any:
    """What Python computed already, inside int32: compilers warn of comparisons with its very ends."""
    return value if isinstance(value, Value) else max(1 - 2**31, min(int(value), 2**31 - 2))


def truth(rng: random.Random, leaves: list[Any], depth: int) -> Any:
    """A random truth of the host."""
    a, b = (_int32(integer(rng, leaves, depth)) for _ in range(2))
    return rng.choice(
        [
            lambda: a < b,
            lambda: a <= b,
            lambda: a > b,
            lambda: a >= b,
            lambda: a == b,
            lambda: a != b,
        ]
    )()


@pk.kernel
def expressions(x, a, b, f, t, *, seed: int):
    """Requirements that are never checked: the test reads their expressions from the recorded kernel."""
    rng = random.Random(seed)
    leaves = [x.shape[0], a, b]
    for i in range(COUNT):
        value = integer(rng, leaves, DEPTH)
        if isinstance(value, Value):
            pk.require(value == i, "a random number")
    pk.require((f > 0.1 or t) and (f * 2.0 - f / 4.0 >= pk.maximum(f, 0.5) or not t), "floats")
    pk.require((not (a > b and t)) or (a == b) or (t and f <= -f), "truths")
    pk.require(pk.minimum(f, -f) + 1.0 < 0.75, "more floats")
    (i,) = pk.grid(1)
    pk.store(x[i], pk.load(x[i], cols=8))


SIGNATURE = "const pk_tensor *x, int32_t a, int32_t b, float f, bool t, int64_t *result"


def as_functions(kernel: Kernel, values: list[Any]) -> str:
    """A C function for each value, which returns 1 if it refuses."""
    functions = []
    for i, value in enumerate(values):
        names = {p.name: p.name for p in kernel.params}
        numbers = HostNumbers(kernel, names, {*names, "result"})
        made = numbers(value)
        lines = [*numbers.take_lines(), f"*result = {made.text};", "return 0;"]
        unused = ["(void)x; (void)a; (void)b; (void)f; (void)t;"]
        functions += [f"int e{i}({SIGNATURE}) {{", *unused, *lines, "}"]
    text = "\n".join(functions)
    tensor = "typedef struct { void *data; int64_t shape[5], strides[5]; } pk_tensor;"
    includes = [f"#include <{h}.h>" for h in ("stdbool", "stdint")]
    refuse = "#define refuse(code, what) 1"
    return "\n".join([*includes, refuse, tensor, template("numbers.c"), text, ""])


def evaluated(value: Any, known: dict[Any, Any]) -> tuple[Any, int]:
    """A number in Python's own arithmetic, and the largest magnitude among those it is computed from."""
    if not isinstance(value, Value):
        return value, 0
    if value in known:
        return known[value], 0
    assert isinstance(value.source, Call)
    parts = {n: evaluated(a, known) for n, a in value.source.args.items()}
    made = value.source.op.evaluate({n: number for n, (number, _) in parts.items()})
    number = made.item() if hasattr(made, "item") else made
    return number, max([abs(int(number)), *(size for _, size in parts.values())])


@pytest.mark.parametrize("seed", range(2))
def test_c_computes_what_python_does(seed: int, tmp_path: Path) -> None:
    kernel = recorded(expressions, np.zeros((8, 8), np.float32), 1, 1, 1.0, True, seed=seed)
    conditions = [n.condition for n in walk(kernel.body) if isinstance(n, Require)]
    *equalities, floats, truths, more = conditions
    values = [c.source.args["a"] for c in equalities] + [*equalities, floats, truths, more]
    (tmp_path / "e.c").write_text(as_functions(kernel, values))
    build(*C_FLAGS, "-Wno-tautological-compare", "-fsanitize=undefined", "-fno-sanitize-recover", "-shared", "-fPIC",
          "-o", tmp_path / "e.so", tmp_path / "e.c")  # fmt: skip
    library = ctypes.CDLL(str(tmp_path / "e.so"))
    computed = refused = 0
    for extent, a, b, f, t in INPUTS:
        x, *scalars = kernel.params
        known = dict(zip(scalars, (a, b, f, t), strict=True)) | {
            x.extents[0]: extent,
            x.extents[1]: 8,
        }
        tensor = Tensor(None, (c_int64 * 5)(extent, 8), (c_int64 * 5)(8, 1))
        for i, value in enumerate(values):
            result = c_int64()
            code = getattr(library, f"e{i}")(
                ctypes.byref(tensor), c_int32(a), c_int32(b), c_float(f), c_bool(t),
                ctypes.byref(result),
            )  # fmt: skip
            try:
                expected, size = evaluated(value, known)
            except (AccessError, OverflowError):  # of NumPy's maximum and minimum
                assert code == 1, f"e{i}: what has no value is refused"
                refused += 1
                continue
            if code == 0:
                assert result.value == int(expected), f"e{i}"
                computed += 1
            else:
                assert size > 8 * 10**18, f"e{i}: a number that fits is not refused"
                refused += 1
    assert computed > 300
    assert refused > 30
