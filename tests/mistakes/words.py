"""Rows of the words of the language that are no operations."""

from __future__ import annotations

from tests.mistakes.operands import (
    all_of,
    any_of,
    boolean,
    compile_time_int,
    dtype_word,
    index,
    nothing,
    one_of,
    size,
    text,
)
from tests.mistakes.rows import row_with

_EXTENT = all_of(index(), lambda t: t.name != "long")
_NUMBERS = dtype_word("float", "int")

row_with(
    "st",
    "pk.st({dtype}, {rows}, {cols})",
    {"dtype": ("pk.f32", _NUMBERS), "rows": ("64", size(16, 256)), "cols": ("64", size(16))},
    scalars=True,
    word=True,
)
row_with(
    "sv",
    "pk.sv({dtype}, {length})",
    {"dtype": ("pk.f32", _NUMBERS), "length": ("64", size(16))},
    scalars=True,
    word=True,
)
_TYPE = one_of("pk.st(pk.f32,64,64)")
row_with(
    "pipeline",
    "pk.pipeline({stages}, {tile}, reuse={reuse})",
    {
        "stages": ("3", size()),
        "tile": ("pk.st(pk.f32,64,64)", _TYPE),
        "reuse": ("None", one_of("None", "ring")),
    },
    shown="pk.pipeline",
    scalars=True,
    word=True,
)
row_with(
    "shared",
    "pk.shared({type}, count={count})",
    {"type": ("pk.st(pk.f32,64,64)", _TYPE), "count": ("3", any_of(size(), nothing))},
    shown="pk.shared",
    scalars=True,
    word=True,
)
row_with(
    "semaphore",
    "pk.semaphore({arrivals}, count={count})",
    {"arrivals": ("3", size()), "count": ("3", any_of(size(), nothing))},
    shown="pk.semaphore",
    scalars=True,
    word=True,
)
row_with(
    "grid",
    "pk.grid({m}, {n})",
    {"m": ("3", _EXTENT), "n": ("3", _EXTENT)},
    shown="pk.grid",
    blames={"m": "dims", "n": "dims"},
    word=True,
)
row_with(
    "persistent",
    "pk.persistent(({m}, {n}), order={order}, cluster={cluster}, "
    "cluster_axis={cluster_axis}, blocks={blocks}, tickets={tickets})",
    {
        "m": ("3", _EXTENT),
        "n": ("3", _EXTENT),
        "order": ("pk.row_major", one_of("pk.row_major")),
        "cluster": ("2", one_of("None")),
        "cluster_axis": ("0", compile_time_int(0, 1)),
        "blocks": ("16", any_of(nothing, one_of("16", "64", "count"))),
        "tickets": ("None", nothing),
    },
    shown="pk.persistent",
    blames={"m": "dims", "n": "dims"},
    word=True,
)
row_with(
    "resident",
    "pk.resident({blocks})",
    {"blocks": ("2", compile_time_int(1, 16))},
    shown="pk.resident",
    scalars=True,
    word=True,
)
row_with(
    "overlap",
    "pk.overlap(ready={tensor})",
    {"tensor": ("A", one_of("A", "flags", "ints", "narrow"))},
    shown="pk.overlap",
    blames={"tensor": "ready"},
    scalars=True,
    word=True,
)
row_with(
    "range",
    "pk.range({start}, {stop}, {step})",
    {
        "start": ("3", index()),
        "stop": ("3", any_of(index(), nothing)),
        "step": ("3", all_of(compile_time_int(-(2**31), 2**31), lambda t: t.name != "0")),
    },
    shown="pk.range",
    scalars=True,
    word=True,
)
row_with(
    "peers",
    "pk.peers({count}, {step})",
    {"count": ("2", size()), "step": ("1", size())},
    scalars=True,
    word=True,
)
row_with("supergroup", "pk.supergroup({rows})", {"rows": ("3", size())}, scalars=True, word=True)
row_with(
    "longest_first",
    "pk.longest_first({heads})",
    {"heads": ("3", any_of(size(), one_of("count")))},
    scalars=True,
    word=True,
)
row_with("static", "pk.static({value})", {"value": ("3", index())}, scalars=True, word=True)
row_with(
    "require",
    "pk.require({condition}, {message})",
    {"condition": ("truth", any_of(boolean, one_of("truth"))), "message": ('"text"', text)},
    shown="require",
    scalars=True,
    word=True,
)
for _role in ("consumers", "warpgroups", "warps"):
    row_with(
        _role,
        f"with pk.{_role}({{groups}}): pass",
        {"groups": ("3", size(1, 32))},
        shown=f"pk.{_role}",
        scalars=True,
        word=True,
    )
for _role in ("producer", "storer"):
    row_with(
        _role,
        f"with pk.{_role}(registers={{registers}}): pass",
        {"registers": ("None", one_of("None", "64"))},
        shown=f"pk.{_role}",
        scalars=True,
        word=True,
    )
row_with(
    "homes",
    "pk.homes({consumers}, fetchers={fetchers})",
    {"consumers": ("pk.warps(2)", one_of()), "fetchers": ("2", compile_time_int(1, 8))},
    shown="pk.homes",
    scalars=True,
    word=True,
)
row_with(
    "tiles",
    "A.tiles({rows}, {cols})",
    {
        "rows": ("64", any_of(size(), one_of("count"))),
        "cols": ("64", any_of(size(), one_of("count"))),
    },
    scalars=True,
    word=True,
)
row_with(
    "window",
    "A.window({axis}, {start}, {stop})",
    {"axis": ("0", compile_time_int(-2, 1)), "start": ("3", index()), "stop": ("3", index())},
    scalars=True,
    word=True,
)
row_with(
    "index",
    "A[{i}, {j}]",
    {"i": ("0", any_of(index(), one_of("long"))), "j": ("0", any_of(index(), one_of("long")))},
    shown="A[...]",
    blames={"i": "", "j": ""},
    scalars=True,
    word=True,
)
row_with(
    "index_beside_slice",
    "A[{i}, :]",
    {"i": ("0", any_of(index(2**31), one_of("long")))},
    shown="A[...]",
    blames={"i": ""},
    scalars=True,
    word=True,
)
