"""Texts by the device's printf, which orders nothing between threads; assertions; how programs for debugging begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pykittens.ir.nodes import Call, Kernel, group_name
from pykittens.ir.values import RegTile, RegVector, Value, handle
from pykittens.ops.debug import pieces, spread_values
from pykittens.ops.map import together
from pykittens.targets.address import TileAddress
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.warp_assignment import teams
from pykittens.targets.debug_sites import literal, stop_unless
from pykittens.targets.index import Index
from pykittens.targets.simt.memory import chunks
from pykittens.targets.source import GroupWarps
from pykittens.targets.target import Lowerings, Target
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
            e.line(f'printf("{", ".join([line + chr(92) + "n" + chr(34), *numbers])});')
        return
    shape = handle(together(arrays))
    with _each_element(e, shape) as place:
        numbers = [_number(e, v, "i", shape) for v in values]
        where = f"[{', '.join(['%d'] * len(place))}] "
        e.line(f'printf("{where}{line}\\n", {", ".join([*place, *numbers])});')


@DEBUG.lower("assert")
def lower_assert(e: CudaEmitter, call: Call) -> None:
    if not e.debug:
        return
    condition, message = call.args["condition"], literal(call.args["message"])
    if not isinstance(condition, RegTile | RegVector):
        stop_unless(e, e.scalar(condition), "assert", message)
        return
    with _each_element(e, condition) as place:
        stop_unless(e, e.element(condition, "i", condition), "assert", message, *place)


# -- programs for debugging ------------------------------------------------------------------------

STANDING_BYTES = 32  # what a group says of itself in shared memory: `Standing` in debug.cuh


def group_places(kernel: Kernel, target: Target) -> list[GroupWarps]:
    """The groups of a block and their warps, in the order in which they say where they stand."""
    return [
        GroupWarps(group_name(kernel, t.role, i), t.first_warp + i * t.role.warps, t.role.warps)
        for t in teams(kernel, target)
        for i in range(t.role.groups)
    ]


def begin(e: CudaEmitter, standing: int) -> None:
    """What all threads do first; `standing` is the byte of shared memory where the groups say where they stand."""
    count = sum(r.groups for r in e.kernel.roles)
    e.line(f"Debug debug = {{report, patience, (Standing*)(shared + {standing}), {count}}};")
    e.line("debug.begin();")


def enter_role(e: CudaEmitter, group: Index) -> None:
    """Say which group of the block this is, and which of its threads speaks for it."""
    warps = [p.first_warp for p in group_places(e.kernel, e.target)]
    leader = "thread == 0" if e.role.warps > 1 else "lane == 0"
    e.line(f"debug.enter({group + warps.index(e.team.first_warp)}, {leader});")


@contextmanager
def _each_element(e: CudaEmitter, value: Value) -> Iterator[list[str]]:
    """A loop over the elements of a tile or vector, each in one lane; gives their coordinates."""
    whole = TileAddress("", "0", Index(0), Index(0), "1", _length(value), False)
    parts = chunks(e, value, whole)
    inside = parts.owner
    if not isinstance(value.type, RT):
        inside = f"{inside + ' && ' if inside else ''}{parts.col} < {_length(value)}"
    with e.braces(f"UNROLL for (int i = 0; i < {parts.count}; ++i) {{"):
        if inside:
            e.line(f"if (!({inside})) continue;")
        yield [str(parts.row), str(parts.col)] if isinstance(value.type, RT) else [str(parts.col)]


def _length(value: Value) -> str:
    return str(value.type.cols if isinstance(value.type, RT) else value.type.length)  # type: ignore[union-attr]


def _dtype(value: Any) -> DType:
    if isinstance(value, Value):
        return value.dtype
    return f32 if isinstance(value, float) else int32


def _format(dtype: DType) -> str:
    if dtype.is_float:
        return "%g"
    return "%lld" if dtype.bits == 64 else "%d"


def _number(e: CudaEmitter, value: Any, index: str, shape: Any) -> str:
    """A value as printf takes it."""
    element = e.element(value, index, shape, _dtype(value))
    return f"(int)({element})" if _dtype(value).kind == "bool" else element


def _quoted(text: str) -> str:
    """A text inside a format string of C."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"}
    return "".join(escapes.get(c, c) for c in text)
