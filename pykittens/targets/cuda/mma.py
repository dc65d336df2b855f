"""Matrix products of a warpgroup: wgmma with descriptors of swizzled shared memory.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import SharedTile, Value
from pykittens.targets.cuda.emitter import HopperEmitter
from pykittens.targets.cuda.shared import shared_place
from pykittens.targets.cuda.sm_90 import SM_90
from pykittens.types.layouts import SharedLayout

M, K = 64, 16  # rows and depth of one instruction
MODES = {128: 1, 64: 2, 32: 3}


@SM_90.lower("product")
def lower_product(e: HopperEmitter, call: Call) -> None:
    a, b, acc = call.args["a"], call.args["b"], call.args["acc"]
    (result,) = call.results
    transposed = call.op.name.endswith("Bt")
    depth, cols = a.cols, result.type.cols  # type: ignore[union-attr]
    e.declare(result)
    if acc is not None:
        e.copy(acc, result)
    with e.braces("{"):
        if not call.onto_flight and acc is not None:
            e.line(f"pin({e.array(result)});")
        if not isinstance(a, SharedTile):
            e.line(f"pin({e.array(a)});")
        e.line("products_fence();")
        e.line(f"const u64 matrix_b = {_descriptor(e, b, by_rows=transposed)};")
        warps = e.role.warps
        blocks = result.type.rows // (16 * warps)  # type: ignore[union-attr]
        for block in range(blocks if isinstance(a, SharedTile) else 0):
            # Each warpgroup of the group takes 64 rows of each block.
            rows = f" + {block * warps // 4 * M * a.type.layout.swizzle}" if block else ""
            rows += f" + warp / 4 * {M * a.type.layout.swizzle}" if warps > 4 else ""
            e.line(f"const u64 matrix_a{block} = {_descriptor(e, a, by_rows=True, rows=rows)};")
        for block in range(blocks):
            for step in range(depth // K):
                add = int(acc is not None or step > 0)
                b_at = _step(b.type.layout, step, by_rows=transposed)
                _instruction(
                    e, call, a, result, block, step, add, f"matrix_b + {b_at}", cols, transposed
                )
        e.line("products_commit();")


def _instruction(
    e: HopperEmitter,
    call: Call,
    a: Value,
    result: Value,
    block: int,
    step: int,
    add: int,
    b: str,
    cols: int,
    transposed: bool,
) -> None:
    name = wrapper(e, call.op.name, a.dtype.name, cols, isinstance(a, SharedTile), not transposed)
    at = block * cols // 2
    if isinstance(a, SharedTile):
        operand = f"matrix_a{block} + {_step(a.type.layout, step, by_rows=True)}"
    else:
        first = (block * a.type.cols // 2 + step * K // 2) // 2  # type: ignore[union-attr]
        operand = ", ".join(f"{e.array(a)}[{first + i}]" for i in range(4))
    e.line(f"{name}<{add}, {at}>({e.array(result)}, {operand}, {b});")


def _descriptor(e: HopperEmitter, tile: SharedTile, by_rows: bool, rows: str = "") -> str:
    """The descriptor of a tile whose contiguous axis is the depth (by_rows) or the columns of the product."""
    layout = tile.type.layout
    leading = 16 if by_rows else layout.panel_bytes
    mode = MODES[layout.swizzle]
    return f"matrix({shared_place(e, tile).address}{rows}, {leading}, {layout.row_group_bytes}, {mode})"


def _step(layout: SharedLayout, step: int, by_rows: bool) -> int:
    """How far the descriptor moves, in units of 16 bytes, for the step-th instruction along the depth."""
    if by_rows:
        byte = step * K * layout.itemsize
        return (byte // layout.swizzle * layout.panel_bytes + byte % layout.swizzle) // 16
    return step * K * layout.swizzle // 16


def wrapper(
    e: HopperEmitter, op: str, dtype: str, cols: int, a_shared: bool, b_by_cols: bool
) -> str:
    """The name of the device function for one instruction; it is generated the first time."""
    name = f"{op}_{dtype}_{'shared' if a_shared else 'registers'}_n{cols}"
    if name not in e.instructions:
        e.instructions[name] = _wrapper_text(name, dtype, cols, a_shared, b_by_cols)
    return name


def _wrapper_text(name: str, dtype: str, cols: int, a_shared: bool, b_by_cols: bool) -> str:
    count = cols // 2
    d = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[AT + {i}])' for i in range(count))
    if a_shared:
        parameters, inputs = "u64 a, u64 b", '"l"(a), "l"(b), "n"(ADD)'
        a, b, add, transpose = f"%{count}", f"%{count + 1}", f"%{count + 2}", f"0, {int(b_by_cols)}"
    else:
        parameters = "u32 a0, u32 a1, u32 a2, u32 a3, u64 b"
        inputs = '"r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(ADD)'
        a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        b, add, transpose = f"%{count + 4}", f"%{count + 5}", f"{int(b_by_cols)}"
    return (
        f"template <int ADD, int AT, int N> DEVICE void {name}(float (&d)[N], {parameters}) {{\n"
        f'    asm volatile("{{ .reg .pred add; setp.ne.b32 add, {add}, 0; "\n'
        f'        "wgmma.mma_async.sync.aligned.m64n{cols}k16.f32.{dtype}.{dtype} "\n'
        f'        "{{{d}}}, {a}, {b}, add, 1, 1, {transpose}; }}"\n'
        f"        : {outputs}\n"
        f'        : {inputs} : "memory");\n'
        f"}}\n"
    )
