"""Matrix products of single warps: mma.sync on fragments in registers, loaded from swizzled shared memory.

Each warp multiplies its blocks of 16 rows by all of B. Sources: PTX ISA, "Warp Level Matrix Multiply-Accumulate
Instructions" and "ldmatrix"; types/fragments.py states the layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykittens.ir.nodes import Call, Role
from pykittens.ir.op import Engine
from pykittens.ir.values import SharedTile, Value
from pykittens.ops.mma import a_is_transposed, b_is_transposed
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.shared import shared_location
from pykittens.targets.index import Index
from pykittens.targets.lines import unrolled
from pykittens.targets.target import Lowerings
from pykittens.types.dtypes import DType
from pykittens.types.fragments import DEPTH_BYTES, depth_of
from pykittens.types.tiles import RT

MMA_SYNC = Lowerings()
MMA_SYNC_FP8 = Lowerings()

Kinds = dict[str, tuple[str, ...]]  # accumulators by the dtype of both operands

AMPERE: Kinds = {
    "bf16": ("f32",),
    "f16": ("f32", "f16"),
    "f32": ("f32",),
    "int8": ("int32",),
    "uint8": ("int32",),
}
ADA: Kinds = dict.fromkeys(("e4m3", "e5m2"), ("f32", "f16"))
# PTX type, C++ type, constraint, and registers of 16 x 8 elements.
ACCUMULATORS = {
    "f32": ("f32", "float", "f", 4),
    "int32": ("s32", "int", "r", 4),
    "f16": ("f16", "u32", "r", 2),
}


def ptx_type(dtype: str) -> str:
    """The PTX name of a dtype of operands."""
    return {"f32": "tf32", "int8": "s8", "uint8": "u8"}.get(dtype, dtype)


def beyond(kinds: Kinds) -> Callable[[Role, Call], str | None]:
    """The function that gives the reason why tensor cores with these kinds of product cannot do a call."""

    def declines(role: Role, call: Call) -> str | None:
        a, b, (result,) = call.args["a"], call.args["b"], call.results
        known = all(result.dtype.name in kinds.get(x.dtype.name, ()) for x in (a, b))
        if not known or (a.dtype != b.dtype and a.dtype.bits != 8):
            return f"its tensor cores do not multiply {a.dtype} by {b.dtype} to {result.dtype}"
        if _depth(call) % depth_of(a.dtype.bytes):
            return f"they take {depth_of(a.dtype.bytes)} of {a.dtype} at a time, not {_depth(call)}"
        if a_is_transposed(call.op) and not isinstance(a, SharedTile):
            return "a transposed operand is read from shared memory"
        return None

    return declines


def _depth(call: Call) -> int:
    a = call.args["a"]
    return int(a.rows if a_is_transposed(call.op) else a.cols)


@MMA_SYNC_FP8.lower("product", declines=beyond(ADA))
@MMA_SYNC.lower("product", declines=beyond(AMPERE))
def lower_product(e: CudaEmitter, call: Call) -> None:
    acc, (result,) = call.args["acc"], call.results
    name, steps = e.array(result), _depth(call) // depth_of(call.args["a"].dtype.bytes)
    assert isinstance(result.type, RT)
    blocks, chunks = result.type.rows // (16 * e.role.warps), result.type.cols // 16
    e.declare(result)
    if acc is not None:
        e.copy(acc, result)
    if call.onto_flight and e.started(Engine.PRODUCT):
        e.line("products_wait<0>();")
        e.line(f"pin({name});")
    left, right = _left(e, call), _right(e, call)
    each_block = f"{unrolled(blocks, 'm_step')} {{"
    with e.braces("{"):
        if acc is None:
            e.each(e.array_length(result), f"{name}[i] = 0;")
        e.line(f"u32 a_part[{blocks}][4], b_part[4];")
        e.write([*left.before, *right.before])
        # An unrolled loop would load the elements of all steps ahead, into more registers than there are. The registers
        # of an operand are indexed by the step, which must then be a constant.
        by_elements = left.by_elements or right.by_elements
        rolled = by_elements and isinstance(call.args["a"], SharedTile)
        unroll = "NO_UNROLL" if rolled else "UNROLL"
        with e.braces(f"{unroll} for (int k_step = 0; k_step < {steps}; ++k_step) {{"):
            if by_elements and not rolled:
                e.line("__syncwarp();")
            with e.braces(each_block):
                e.write(left.load)
            with e.braces(f"{unrolled(chunks, 'n_step')} {{"):
                e.write(right.load)
                with e.braces(each_block):
                    e.write(_multiply(e, call))


def _multiply(e: CudaEmitter, call: Call) -> list[str]:
    """The products of a block of 16 rows with 16 columns, by 8."""
    a, b, (result,) = call.args["a"], call.args["b"], call.results
    assert isinstance(result.type, RT)
    name, packing = e.array(result), result.dtype.packing
    product = instruction(e, a.dtype, b.dtype, result.dtype)
    at = f"m_step * {result.type.cols // 2 // packing} + n_step * {8 // packing}"
    return [
        f"{product}({name}, {at}, a_part[m_step], b_part[0], b_part[1]);",
        f"{product}({name}, {at} + {4 // packing}, a_part[m_step], b_part[2], b_part[3]);",
    ]


@dataclass(frozen=True)
class Loading:
    """Lines that load the fragments of an operand to registers: before all steps, and in each step."""

    before: list[str]
    load: list[str]
    by_elements: bool = False


def _left(e: CudaEmitter, call: Call) -> Loading:
    """The fragments of `a`: 16 rows a block, the depth of one instruction."""
    a, across = call.args["a"], a_is_transposed(call.op)
    if not isinstance(a, SharedTile):
        return _from_registers(e, a)
    block = Index("m_step") * e.role.warps + "warp"
    if not across or a.dtype.bits == 16:
        # The second matrix holds the next rows of A: rows of the tile, or columns if it is transposed.
        return _matrices(e, a, "a", "a_part[m_step]", across, block, along=across)
    if a.dtype.bits == 8:
        depth = Rows("lane % 4 * 4", "i % 4", 1, 4, "k_step * 32 + i / 8 * 16")
        return _elements(
            e, a, "a", "a_part[m_step]", depth, block * 16 + "lane / 4" + "i / 4 % 2 * 8"
        )
    depth = Rows("lane % 4", "i / 2", 4, 2, "k_step * 8")
    return _elements(e, a, "a", "a_part[m_step]", depth, block * 16 + "lane / 4" + "i % 2 * 8")


def _right(e: CudaEmitter, call: Call) -> Loading:
    """The fragments of `b`: two of 8 columns, the depth of one instruction."""
    b, across = call.args["b"], not b_is_transposed(call.op)
    reordered = not isinstance(call.args["a"], SharedTile) and b.dtype.bits != 16
    if not reordered and (not across or b.dtype.bits == 16):
        # The second matrix holds the second half of the depth.
        return _matrices(e, b, "b", "b_part", across, Index("n_step"), along=not across)
    depth = (REORDERED if reordered else PLAIN)[b.dtype.bits]
    col = Rows("lane / 4", "0", 0, 1, f"n_step * 16 + i / {8 // b.dtype.bytes} * 8")
    if across:
        return _elements(e, b, "b", "b_part", depth, col.whole)
    return _elements(e, b, "b", "b_part", col, depth.whole)


@dataclass(frozen=True)
class Rows:
    """The row of element i of a lane: `lane` + `small` * `unit` + `step`.

    small is below `count` and changes the swizzle of the row; step is a multiple of 8 and does not.
    """

    lane: str
    small: str
    unit: int
    count: int
    step: str

    @property
    def whole(self) -> Index:
        return Index(self.step) + self.lane + Index(self.small) * self.unit


PLAIN = {
    8: Rows("lane % 4 * 4", "i % 4", 1, 4, "k_step * 32 + i / 4 % 2 * 16"),
    32: Rows("lane % 4", "i % 2", 4, 2, "k_step * 8"),
}
# The depth in the order of a register tile's columns: `fragments.tile_depth`.
REORDERED = {
    8: Rows("lane % 4 * 2", "i % 2", 1, 2, "k_step * 32 + i / 4 % 2 * 16 + i % 4 / 2 * 8"),
    32: Rows("lane % 4 * 2", "i % 2", 1, 2, "k_step * 8"),
}


def _from_registers(e: CudaEmitter, a: Value) -> Loading:
    """Fragments from the registers of a tile, with its columns in the order of `fragments.tile_depth`."""
    name, cols = e.array(a), a.type.cols  # type: ignore[union-attr]
    at = f"m_step * {cols // 2 // a.dtype.packing} + k_step * 4"
    match a.dtype.bits:
        case 16:
            value = f"{name}[{at} + i]"
        case 32:
            value = f"tf32(__float_as_uint({name}[{at} + i % 2 * 2 + i / 2]))"
        case _:
            # A register has two columns of two rows: two registers have four columns of a row.
            first = f"{at} + i / 2 * 2"
            value = f"__byte_perm({name}[{first}], {name}[{first} + 1], i % 2 ? 0x7632 : 0x5410)"
    return Loading([], [f"{unrolled(4)} a_part[m_step][i] = {value};"])


def _matrices(
    e: CudaEmitter, tile: SharedTile, name: str, to: str, across: bool, block: Index, along: bool
) -> Loading:
    """Loads of four matrices. block: the index of 16 rows or columns of the tile; along: `fragments.matrix_row`."""
    swizzle, panel = tile.type.layout.swizzle, tile.type.layout.panel_bytes
    at = shared_location(e, tile)
    row, piece = "lane % 16", "lane / 16 * 16"
    if along:
        row, piece = "lane % 8 + lane / 16 * 8", "lane / 8 % 2 * 16"
    step = Index("k_step")
    outer, inner = (step, block) if across else (block, step)
    start, offset = Index(f"{name}_row") + outer * (16 * swizzle), inner * DEPTH_BYTES + piece
    transposed = "_transposed" if across else ""
    load = [
        f"load_matrices{transposed}({to}, row_at<{swizzle}>({start}, {name}_turn, {offset + at.byte}, {panel}));"
    ]
    if tile.dtype.bits == 32:
        load.append(f"{unrolled(4)} {to}[i] = tf32({to}[i]);")
    before = [
        f"const u32 {name}_row = {at.row + Index(row) * swizzle}, {name}_turn = turn_of<{swizzle}>({row});"
    ]
    return Loading(before, load)


def _elements(
    e: CudaEmitter, tile: SharedTile, name: str, to: str, rows: Rows, col: Index
) -> Loading:
    """Loads of single elements, for fragments that no load of matrices gives."""
    layout, at = tile.type.layout, shared_location(e, tile)
    swizzle, panel = layout.swizzle, layout.panel_bytes
    byte = col * tile.dtype.bytes + at.byte
    start = Index(f"{name}_row") + (Index(rows.step) + Index(rows.small) * rows.unit) * swizzle
    address = f"row_at<{swizzle}>({start}, {name}_turn[{rows.small}], {byte}, {panel})"
    swizzles = ", ".join(
        f"turn_of<{swizzle}>({Index(rows.lane) + k * rows.unit})" for k in range(rows.count)
    )
    before = [
        f"const u32 {name}_row = {at.row + Index(rows.lane) * swizzle};",
        f"const u32 {name}_turn[{rows.count}] = {{{swizzles}}};",
    ]
    if tile.dtype.bits == 32:
        value = f"tf32(load_shared({address}))"
        return Loading(before, [f"{unrolled(4)} {to}[i] = {value};"], True)
    value = f"(i % 4 ? {to}[i / 4] : 0) | load_shared_8({address}) << i % 4 * 8"
    return Loading(before, [f"{unrolled(16)} {to}[i / 4] = {value};"], True)


def instruction(e: CudaEmitter, a: DType, b: DType, into: DType) -> str:
    """The name of the device function for one instruction, which is generated at the first use."""
    operands = a.name if a == b else f"{a}_{b}"
    name = f"mma_sync_{operands}_{into}"
    e.instructions.setdefault(name, _instruction_text(name, a, b, into))
    return name


def _instruction_text(name: str, a: DType, b: DType, into: DType) -> str:
    ptx, kind, constraint, count = ACCUMULATORS[into.name]
    d = ", ".join(f"%{i}" for i in range(count))
    inputs = [f"%{count + i}" for i in range(6)]
    outputs = ", ".join(f'"+{constraint}"(d[{Index("at") + i}])' for i in range(count))
    shape = f"m16n8k{depth_of(a.bytes)}"
    types = f"{ptx}.{ptx_type(a.name)}.{ptx_type(b.name)}.{ptx}"
    return (
        f"template <int N> DEVICE void {name}({kind} (&d)[N], int at, const u32 (&a)[4], u32 b0, u32 b1) {{\n"
        f'    asm("mma.sync.aligned.{shape}.row.col.{types} "\n'
        f'        "{{{d}}}, {{{", ".join(inputs[:4])}}}, {{{", ".join(inputs[4:])}}}, {{{d}}};"\n'
        f"        : {outputs}\n"
        f'        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));\n'
        f"}}\n"
    )
