"""Prints, by the device's printf, in any order of threads; assertions; and the start of debug programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, RegVector, Value, handle
from pykittens.ops.debug import pieces, spread_values
from pykittens.ops.map import together
from pykittens.targets.address import TileAddress
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.warp_assignment import first_group
from pykittens.targets.debug_sites import literal, stop_unless
from pykittens.targets.index import Index
from pykittens.targets.lines import unrolled
from pykittens.targets.simt.memory import chunks, extents
from pykittens.targets.target import Lowerings
from pykittens.types.dtypes import DType, f32, int32
from pykittens.types.tiles import RT

DEBUG = Lowerings()


@DEBUG.lower("print")
def lower_print(e: CudaEmitter, call: Call) -> None:
    texts, values = pieces(call.args["format"]), call.args["values"]
    formats = [_format(_dtype(v)) for v in values]
    line = "".join(t + f for t, f in zip(map(_quoted, texts), [*formats, ""], strict=True))
    arrays = spread_values(values)
    if not arrays:
        with e.one_thread():
            numbers = [_number(e, v, "", v) for v in values]
            operands = ", ".join([f'"{line}\\n"', *numbers])
            e.line(f"printf({operands});")
        return
    shape = handle(together(arrays))
    with _each_element(e, shape) as position:
        numbers = [_number(e, v, "i", shape) for v in values]
        label = f"[{', '.join(['%d'] * len(position))}] "
        e.line(f'printf("{label}{line}\\n", {", ".join([*position, *numbers])});')


@DEBUG.lower("assert")
def lower_assert(e: CudaEmitter, call: Call) -> None:
    if not e.debug:
        return
    condition, message = call.args["condition"], literal(call.args["message"])
    if not isinstance(condition, RegTile | RegVector):
        stop_unless(e, e.scalar(condition), "assert", message)
        return
    with _each_element(e, condition) as position:
        stop_unless(e, e.element(condition, "i", condition), "assert", message, *position)


# -- debug programs --------------------------------------------------------------------------------


def begin_debug(e: CudaEmitter, standing: int) -> None:
    """Define `debug`; `standing` is the offset of the groups' states in shared memory."""
    count = sum(r.groups for r in e.kernel.roles)
    e.line(f"Debug debug = {{report, patience, (Standing*)(shared + {standing}), {count}}};")
    e.line("debug.begin();")


def enter_debug(e: CudaEmitter, group: Index) -> None:
    """Set the group of a thread, and the thread that writes the state of each group."""
    e.line(f"debug.enter({group + first_group(e.team, e.kernel, e.target)}, {e.first_thread});")


@contextmanager
def _each_element(e: CudaEmitter, value: Value) -> Iterator[list[str]]:
    """A loop over the elements of a tile or vector, each in one lane; gives their coordinates."""
    is_tile, cols = isinstance(value.type, RT), str(extents(value)[1])
    held = chunks(e, value, TileAddress("", "0", Index(0), Index(0), "1", cols, False))
    tests = [held.owner] if held.owner else []
    if not is_tile:
        tests.append(f"{held.col} < {cols}")
    with e.braces(f"{unrolled(held.count)} {{"):
        if tests:
            e.line(f"if (!({' && '.join(tests)})) continue;")
        yield [str(held.row), str(held.col)] if is_tile else [str(held.col)]


def _dtype(value: Any) -> DType:
    if isinstance(value, Value):
        return value.dtype
    return f32 if isinstance(value, float) else int32


def _format(dtype: DType) -> str:
    if dtype.is_float:
        return "%g"
    return "%lld" if dtype.bits == 64 else "%d"


def _number(e: CudaEmitter, value: Any, index: str, shape: Any) -> str:
    """A value as an operand of printf."""
    element = e.element(value, index, shape, _dtype(value))
    return f"(int)({element})" if _dtype(value).kind == "bool" else element


def _quoted(text: str) -> str:
    """A text inside a format string of C."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"}
    return "".join(escapes.get(c, c) for c in text)
