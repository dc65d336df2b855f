"""Random programs of loops, branches and carried names: sources that Python runs as well."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import pykittens as pk
from pykittens.types.dtypes import f32, int32
from tests import lanes
from tests.cases.core import Case
from tests.running import UNWRITTEN

INTS, FLOATS, TRUTHS, VECTORS = ("a", "b", "c"), ("x", "y"), ("p", "q"), ("v", "w")
LENGTH = 8  # of a vector
HEAD = """
import pykittens as pk
from tests.running import put
f = float

def program(ints, floats, n, m, u):
    pk.grid(1)
    a, b, c = n, 3, m
    x, y = u, u + f(0.5)
    p, q = n < m, True
    v, w = pk.zeros(pk.f32, 8) + u, pk.zeros(pk.f32, 8)
"""
TAIL = """
    if p: c = (c + 1) % 97
    if q: c = (c + 2) % 97
    put(ints, 0, a); put(ints, 1, b); put(ints, 2, c)
    put(floats, 0, x); put(floats, 1, y); put(floats, 2, v); put(floats, 3, w)
"""


@st.composite
def integer(draw, names, depth=2):
    kind = draw(st.integers(0, 6 if depth else 1))
    if kind == 0:
        return str(draw(st.integers(-9, 9)))
    if kind == 1:
        return draw(st.sampled_from(names))
    left = draw(integer(names, depth - 1))
    match kind:
        case 2 | 3:
            return f"({left} {draw(st.sampled_from('+-'))} {draw(integer(names, depth - 1))})"
        case 4:
            return f"({left} * {draw(st.integers(-3, 3))})"
        case 5:
            operator = draw(st.sampled_from(["//", "%"]))
            return f"({left} {operator} {draw(st.sampled_from([-5, -2, 3, 7]))})"
        case _:
            return f"(-{left})"


@st.composite
def real(draw):
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        factor = draw(st.sampled_from(["f(0.5)", "f(-1.25)", "f(0.1)", "x", "y", "u"]))
        parts.append(f"{draw(st.sampled_from(FLOATS))} * {factor}")
    # With u in it the value is a run-time one, so it is rounded to f32 and not Python's float64.
    return draw(st.sampled_from([" + ", " - "])).join([*parts, "u"])


@st.composite
def truth(draw, names, depth=1):
    kind = draw(st.integers(0, 5 if depth else 2))
    one, two = draw(integer(names, 1)), draw(integer(names, 1))
    match kind:
        case 0:
            return f"{one} {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {two}"
        case 1:
            return draw(st.sampled_from(TRUTHS))
        case 2:
            return f"{draw(st.sampled_from(FLOATS))} < {draw(st.sampled_from(FLOATS))}"
        case 3:
            return f"{one} < {draw(integer(names, 1))} <= {two}"
        case 4:
            return f"not ({draw(truth(names, 0))})"
        case _:
            word = draw(st.sampled_from(["and", "or"]))
            return f"({draw(truth(names, 0))}) {word} ({draw(truth(names, 0))})"


@st.composite
def moves(draw):
    """Names that take the values of others, each for itself or all at once."""
    kind = draw(st.sampled_from([INTS, INTS, FLOATS, TRUTHS, VECTORS]))
    targets = draw(st.permutations(kind))[: draw(st.integers(1, len(kind)))]
    sources = [draw(st.sampled_from(kind)) for _ in targets]
    return f"{', '.join(targets)} = {', '.join(sources)}"


@st.composite
def vector(draw):
    """A vector from others."""
    one, two = draw(st.sampled_from(VECTORS)), draw(st.sampled_from([*VECTORS, *FLOATS, "u"]))
    forms = ("{} + {}", "pk.maximum({}, {})", "-{}", "{} * 0.5", "pk.zeros(pk.f32, 8) + {1}")
    return draw(st.sampled_from(forms)).format(one, two)


@st.composite
def ending(draw):
    """Names whose values nothing reads at the end."""
    values = {"a": "n", "b": "7", "c": "m", "x": "u", "y": "u", "p": "True", "q": "n < m"}
    values |= {"v": "w", "w": "pk.zeros(pk.f32, 8)"}
    unread = draw(st.sets(st.sampled_from(sorted(values)), max_size=4))
    return "".join(f"\n    {name} = {values[name]}" for name in sorted(unread))


@st.composite
def body(draw, names, numbers, indent, depth):
    pad = " " * indent
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(-1, 9 if depth else 5))
        match kind:
            case -1:
                lines.append(f"{pad}{draw(st.sampled_from(VECTORS))} = {draw(vector())}")
            case 0:
                target = draw(st.sampled_from(INTS))
                lines.append(f"{pad}{target} = {draw(integer(names))} % 97")
            case 1:
                lines.append(pad + draw(moves()))
            case 2:
                one, two = draw(st.permutations(INTS))[:2]
                lines.append(f"{pad}{one}, {two} = {two}, ({one} + {draw(integer(names, 1))}) % 89")
            case 3:
                lines.append(f"{pad}{draw(st.sampled_from(FLOATS))} = {draw(real())}")
            case 4:
                lines.append(f"{pad}{draw(st.sampled_from(TRUTHS))} = {draw(truth(names))}")
            case 5:
                lines.append(f"{pad}{draw(st.sampled_from(INTS))} = {draw(st.integers(-9, 9))}")
            case 6 | 7:
                index = f"i{next(numbers)}"
                start, stop = draw(integer(names, 1)), draw(integer(names, 1))
                step = draw(st.sampled_from([-3, -1, 1, 2]))
                lines.append(f"{pad}for {index} in pk.range({start} % 5, {stop} % 6, {step}):")
                lines += draw(body((*names, index), numbers, indent + 4, depth - 1))
            case 8:
                lines.append(f"{pad}if {draw(truth(names))}:")
                lines += draw(body(names, numbers, indent + 4, depth - 1))
                if draw(st.booleans()):
                    lines.append(f"{pad}elif {draw(truth(names))}:")
                    lines += draw(body(names, numbers, indent + 4, depth - 1))
                if draw(st.booleans()):
                    lines.append(f"{pad}else:")
                    lines += draw(body(names, numbers, indent + 4, depth - 1))
            case _:
                left = f"w{next(numbers)}"
                lines.append(f"{pad}{left} = (n + {draw(integer(names, 1))}) % 4")
                more = f" and {draw(truth(names, 0))}" if draw(st.booleans()) else ""
                lines.append(f"{pad}while {left} > 0{more}:")
                lines += draw(body(names, numbers, indent + 4, depth - 1))
                lines.append(f"{pad}    {left} = {left} - 1")
    return lines


@dataclass(frozen=True)
class Loop:
    """A program and its arguments: `program(ints, floats, n, m, u)` writes three rows of ints and four of floats."""

    source: str
    n: int
    m: int
    u: float


@st.composite
def programs(draw):
    number = st.integers(-10, 10)
    source = HEAD + "\n".join(draw(body(INTS, itertools.count(), 4, 3))) + draw(ending()) + TAIL
    return Loop(source, draw(number), draw(number), draw(st.sampled_from([0.0, 0.25, -1.5, 3.1])))


def with_python(loop: Loop) -> tuple[Any, Any]:
    """What the source gives as plain Python on numbers of the kernel's types."""
    ints, floats = outputs()
    space = {"__name__": "plain"}
    exec(loop.source, space)
    space["pk"] = SimpleNamespace(
        grid=lambda *_: None,
        range=range,
        f32=np.float32,
        zeros=lambda dtype, n: np.zeros(n, dtype),
        maximum=np.maximum,
    )
    space["put"] = lambda out, row, value: out.__setitem__(row, value)
    space["f"] = np.float32
    with np.errstate(all="ignore"):
        space["program"](ints, floats, loop.n, loop.m, np.float32(loop.u))
    return ints, floats


NUMBER = itertools.count()


def loaded(source: str, folder: Path) -> Any:
    """The program of a source that stands in a file, as a user's does."""
    path = folder / f"program{next(NUMBER)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program


def outputs() -> tuple[Any, Any]:
    """The arrays that a program writes, with nothing in them."""
    return np.full((3, LENGTH), UNWRITTEN, np.int32), np.full((4, LENGTH), np.nan, np.float32)


def with_emulator(loop: Loop, folder: Path) -> tuple[Any, Any]:
    """What it gives as a kernel in the emulator."""
    ints, floats = outputs()
    pk.kernel(loaded(loop.source, folder))(ints, floats, loop.n, loop.m, loop.u)
    return ints, floats


def with_text(loops: Sequence[Loop], folder: Path) -> list[tuple[Any, ...]]:
    """What the emitted text of each gives on the CPU."""
    shapes = (((3, LENGTH), int32), ((4, LENGTH), f32))
    cases = [
        Case(
            f"loop-{number}",
            (),
            pk.kernel(loaded(loop.source, folder)),
            lambda rng: (),
            shapes,
            lambda *_: (),
            scalars=(loop.n, loop.m, loop.u),
        )
        for number, loop in enumerate(loops)
    ]
    block = lanes.Block(folder, cases)
    return [tuple(block.run(case, 0)[1]) for case in cases]
