"""Rows of the operations on shapes and memory, of products, and of synchronisation by hand."""

from __future__ import annotations

import pykittens as pk
from tests.mistakes.operands import (
    all_of,
    any_of,
    boolean,
    combining,
    compile_time_int,
    dtype_word,
    fits,
    in_registers,
    index,
    nothing,
    number,
    one_of,
    placed,
    python_number,
    register_tile,
    register_vector,
    shared,
    size,
    spread_word,
    tensor,
    text,
)
from tests.mistakes.rows import ANY, row, row_of_rows, row_with

# -- shape -----------------------------------------------------------------------------------------

row_with(
    "part",
    "{x}[{start}:{stop}]",
    {
        "x": ("tall", one_of("tall")),
        "start": ("64", any_of(one_of("0", "64", "None"))),
        "stop": ("128", one_of("None")),
    },
    of={"x": all_of(in_registers(*ANY), lambda t: t.kind != "scalar")},
    blames=dict.fromkeys(("x", "start", "stop"), "index"),
    rows=True,
)
row(
    "concat",
    "pk.concat({a}, {b}, {axis})",
    a=("tile", all_of(register_tile(cols=64), lambda t: t.dtype == pk.f32)),
    b=("tile", all_of(register_tile(cols=64), lambda t: t.dtype == pk.f32)),
    axis=("0", one_of("0")),
)
row_with(
    "swap_pairs",
    "pk.swap_pairs({x})",
    {
        "x": (
            "tile",
            any_of(
                register_tile(),
                all_of(register_vector("plain", "per column"), lambda t: t.name != "odd"),
            ),
        )
    },
)
row(
    "shifted",
    "pk.shifted({vector}, {other}, {by})",
    vector=("vector", one_of("vector")),
    other=("vector", one_of("vector")),
    by=("3", compile_time_int(-64, 64)),
)
row("transpose", "pk.transpose({tile})", tile=("tile", register_tile()))
row("in_lane_order", "pk.in_lane_order({tile})", tile=("tile", register_tile()))
row(
    "from_lane_order",
    "pk.from_lane_order({vector}, {rows}, {cols})",
    vector=("pk.in_lane_order(tile)", one_of()),
    rows=("64", one_of("64")),
    cols=("64", one_of("64")),
)
row_of_rows(
    "spread",
    "pk.spread({vector}, {to})",
    vector=("vector", all_of(register_vector(), lambda t: t.name != "odd")), to=("pk.per_row", spread_word),
)  # fmt: skip
row(
    "column",
    "pk.column({tile}, {j})",
    tile=("tile", register_tile()), j=("3", any_of(index(64), one_of("int_rows"))),
)  # fmt: skip
row("row", "pk.row({tile}, {i})", tile=("tile", register_tile()), i=("3", index(64)))
row(
    "mask",
    "pk.mask({tile}, {row}, {col}, {cols}, {causal}, {offset}, {first})",
    tile=("tile", register_tile("float")), causal=("True", boolean),
    **dict.fromkeys(("row", "col", "offset"), ("3", index())),
    **dict.fromkeys(("cols", "first"), ("3", any_of(index(), one_of("int_rows"), nothing))),
)  # fmt: skip

# -- memory ----------------------------------------------------------------------------------------

row_of_rows(
    "load",
    "pk.load({src}, rows={rows}, cols={cols}, fill={fill}, spread={spread}, transposed={transposed})",
    src=("A[0, 0]", tensor(2)), rows=("64", any_of(size(64), nothing)), cols=("64", size(16)),
    fill=("0", all_of(number, fits(pk.f32))), spread=("pk.plain", one_of()), transposed=("False", boolean),
)  # fmt: skip
row(
    "prefetch",
    "pk.prefetch({src}, rows={rows}, cols={cols})",
    src=("A[0, 0]", tensor(2)), rows=("64", any_of(size(), nothing)), cols=("64", any_of(size(), one_of("0"))),
)  # fmt: skip
row_with(
    "store",
    "pk.store({dst}, {value}, op={op}, transposed={transposed})",
    dict(dst=("A[0, 0]", any_of(tensor(2, pk.f32), one_of("shared_tile", "filled", "drained"))), op=("None", combining),
    transposed=("False", boolean),
    value=("tile", any_of(all_of(in_registers("float"), lambda t: t.dtype == pk.f32), all_of(number, fits(pk.f32))))),
    blames={"dst": "value"},
)  # fmt: skip
row_with(
    "view",
    "shared_tile.tiles({rows}, {cols})[{i}, {j}]",
    {
        "rows": ("16", one_of("16", "64")),
        "cols": ("16", one_of("16", "64")),
        "i": ("0", index(4)),
        "j": ("0", index(4)),
    },
    shown="tiles",
    scalars=True,
)
row_with("shared_row", "shared_tile.row({i})", {"i": ("3", index(64))}, shown="row", scalars=True)
row_with(
    "vector_part",
    "shared_vector.parts({length})[{i}]",
    {"length": ("16", one_of("16", "64")), "i": ("0", index(4))},
    shown="parts",
    scalars=True,
)
row_with(
    "load_async",
    "pk.load_async({dst}, {src}, signal={signal}, multicast={multicast}, evict_first={evict_first})",
    dict(dst=("shared_tile", all_of(shared(pk.f32, ""))), src=("A[0, 0]", tensor(2, pk.f32)),
    signal=("full", one_of("full")), multicast=("False", one_of()), evict_first=("True", boolean)),
    blames={"dst": "signal"},
)  # fmt: skip
row_with(
    "send",
    "pk.send({dst}, {value}, block={block}, signal={signal})",
    dict(dst=("shared_tile", one_of("shared_tile")), value=("tile", one_of("tile")), block=("0", index(2)),
    signal=("full", one_of("full"))),
    blames={"dst": "value"},
)  # fmt: skip
row_with(
    "is_full",
    "ring.is_full({after})",
    {"after": ("8", compile_time_int(0, 2**20))},
    warps=1,
    rows=True,
)
row(
    "store_async",
    "pk.store_async({dst}, {src}, op={op})",
    dst=("A[0, 0]", tensor(2, pk.f32)), src=("drained", shared(pk.f32, "", "drain")), op=("None", combining),
)  # fmt: skip
row(
    "gather",
    "pk.gather({src}, {index}, cols={cols}, fill={fill})",
    src=("A", all_of(tensor(2), lambda t: t.lies != "row")), index=("int_rows", one_of("int_rows")),
    cols=("64", size(16)), fill=("0", all_of(number, fits(pk.f32))),
)  # fmt: skip
row_with(
    "scatter",
    "pk.scatter({dst}, {index}, {value}, op={op})",
    dict(dst=("A", all_of(tensor(2, pk.f32), lambda t: t.lies != "row")), index=("int_rows", one_of("int_rows")),
    value=("tile", one_of("tile", "wide")), op=("None", combining)),
    blames={"dst": "value"},
)  # fmt: skip
row_with(
    "gather_elements",
    "pk.gather({src}, {index}, fill={fill})",
    dict(src=("flags", one_of("flags", "A[0, 0]", "A[1, 0]", "shared_vector")),
    index=("int_vector", one_of("int_vector", "int_rows", "int_tile", "long_tile")),
    fill=("0", all_of(number, fits(pk.int32)))),
    shown="gather",
    blames={"src": "cols"},
)  # fmt: skip
row_with(
    "scatter_elements",
    "pk.scatter({dst}, {index}, {value}, op={op})",
    dict(dst=("A[0, 0]", one_of("A[0, 0]", "A[1, 0]", "shared_vector")),
    index=("int_vector", one_of("int_vector")),
    value=("vector", any_of(one_of("vector", "scalar"), all_of(number, fits(pk.f32)))), op=("None", combining)),
    shown="scatter",
    blames={"dst": "value", "index": "value", "value": "index"},
)  # fmt: skip

# -- products --------------------------------------------------------------------------------------

_PRODUCTS = {
    "mma_AB": (("shared_tall", "bf16_tile"), "shared_wide"),
    "mma_ABt": (("shared_tall", "bf16_tile"), "shared_tall"),
    "mma_AtB": (("shared_wide",), "shared_wide"),
    "mma_AtBt": (("shared_wide",), "shared_tall"),
}
for _name, (_a, _b) in _PRODUCTS.items():
    row_of_rows(
        _name,
        f"pk.{_name}({{a}}, {{b}}, {{acc}}, managed={{managed}})",
        a=("shared_bf16", one_of("shared_bf16", *_a)), b=("shared_bf16", one_of("shared_bf16", _b)),
        acc=("None", one_of("tile", "None")), managed=("True", boolean),
    )  # fmt: skip

# -- by hand ---------------------------------------------------------------------------------------

row_with(
    "item", "semaphores[{index}]", {"index": ("1", all_of(index(2)))}, shown="[...]", scalars=True
)
row_with(
    "arrive",
    "{semaphore}.arrive(block={block})",
    {
        "semaphore": ("full", one_of("full")),
        "block": ("0", any_of(index(2), nothing)),
    },
    of={"semaphore": one_of("full")},
)
row(
    "expect",
    "full.expect({bytes})",
    bytes=("64", any_of(shared(), compile_time_int(0, 2**20), one_of("count"))),
)
row_with(
    "wait_phase",
    "full.wait({phase})",
    {"phase": ("0", any_of(index(), one_of("truth", "True")))},
    shown="wait",
)
row("sync", "pk.sync()")
row("fence_async", "pk.fence_async()")
row(
    "store_wait",
    "pk.store_wait({pending}, read={read})",
    pending=("0", compile_time_int(0, 7)),
    read=("True", boolean),
)
row("mma_wait", "pk.mma_wait({pending})", pending=("0", compile_time_int(0, 7)))
_FLAG = ("flags[0]", tensor(1, pk.int32))
row(
    "signal",
    "pk.signal({flag}, {value}, op={op})",
    flag=_FLAG,
    value=("1", index()),
    op=('"add"', one_of('"add"')),
)
row("wait", "pk.wait({flag}, {value})", flag=_FLAG, value=("1", index()))
_TAGGED = ("A[0, 0]", tensor(1, pk.f32))
row(
    "store_tagged",
    "pk.store_tagged({dst}, {value}, {tag}, whole={whole})",
    dst=_TAGGED,
    value=("vector", register_vector(dtype=pk.f32)),
    tag=("1", index()),
    whole=("True", boolean),
)
row(
    "load_tagged",
    "pk.load_tagged({src}, {tag}, cols={cols}, spread={spread}, whole={whole})",
    src=_TAGGED,
    tag=("1", index()),
    cols=("64", any_of(size(), one_of("0"))),
    spread=("pk.plain", spread_word),
    whole=("True", boolean),
)
for _name in ("add", "max", "min", "and", "or", "xor", "exchange"):
    _call = f"pk.atomic_{_name}({{element}}, {{value}})"
    row(f"atomic_{_name}", _call, element=_FLAG, value=("1", index()))
row(
    "atomic_cas",
    "pk.atomic_cas({element}, {expected}, {value})",
    element=_FLAG,
    expected=("1", index()),
    value=("1", index()),
)
row("atomic_load", "pk.atomic_load({element})", element=_FLAG)
row(
    "print",
    'pk.print("{{}}", {value})',
    value=("count", any_of(in_registers(*ANY), python_number("float"))),
)
row(
    "assert",
    "pk.assert_({condition}, {message})",
    condition=("truth", in_registers("bool")),
    message=('"text"', text),
)
row_with(
    "inline_cuda",
    'pk.inline_cuda("-{{0}}", {operand}, like={like}, dtype={dtype}, numpy={numpy})',
    dict(operand=("tile", any_of(
        all_of(in_registers(*ANY), lambda t: t.kind == "scalar" or placed(t)), python_number("float")
    )),
    like=("tile", all_of(in_registers(*ANY), lambda t: t.shape == (64, 64))),
    dtype=("pk.f32", any_of(dtype_word(), nothing)), numpy=("None", one_of("None", "len"))),
    blames=dict.fromkeys(("operand", "like"), "operands"),
)  # fmt: skip
row_with(
    "inline_cuda_statement",
    'pk.inline_cuda("f({{0}});", {operand}, numpy={numpy})',
    dict(operand=("count", any_of(lambda t: t.kind == "scalar", python_number("float"))),
    numpy=("None", one_of("None", "len"))),
    shown="inline_cuda",
    blames={"operand": "operands"},
)  # fmt: skip
_TURNS = ("with pk.in_turn(): pass", "with pk.warps(2), pk.in_turn(1): pass")
for _name in ("take_turn", "pass_turn"):
    row_with(
        _name,
        "with pk.warps(2), pk.in_turn(): pass",
        {},
        shown="pk.in_turn",
        wrong=_TURNS,
        scalars=True,
    )
