"""Matrix products of a warpgroup: wgmma with descriptors of swizzled shared memory.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from pykittens.ir.nodes import Block, Call, WaitProducts, blocks, walk
from pykittens.ir.op import Engine
from pykittens.ir.values import SharedTile, Value
from pykittens.ops.mma import a_is_transposed, b_is_transposed, depth_step
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.engines import beyond_wgmma, calls
from pykittens.targets.cuda.mma_sync import ACCUMULATORS, ptx_type
from pykittens.targets.cuda.shared import shared_location
from pykittens.targets.index import Index
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import SharedLayout
from pykittens.types.tiles import RT

WGMMA = Lowerings()

M = 64  # rows of one instruction
MODES = {128: 1, 64: 2, 32: 3}


@WGMMA.lower("product", declines=beyond_wgmma, engine=Engine.PRODUCT)
def lower_product(e: CudaEmitter, call: Call) -> None:
    a, b, acc = call.args["a"], call.args["b"], call.args["acc"]
    (result,) = call.results
    instruction = Instruction(call)
    warps, type_ = e.role.warps, result.type
    assert isinstance(type_, RT)
    blocks = type_.rows // (16 * warps)
    depth = a.rows if instruction.a_by_cols else a.cols
    e.declare(result)
    if acc is not None:
        e.copy(acc, result)
    with e.braces("{"):
        if acc is not None and not (call.onto_flight and all_wgmma(e)):
            e.line(f"pin({e.array(result)});")
        if not isinstance(a, SharedTile):
            e.line(f"pin({e.array(a)});")
        e.line("products_fence();")
        b_at = _descriptor(b, shared_location(e, b).address, not instruction.b_by_cols)
        e.line(f"const u64 matrix_b = {b_at};")
        for block in range(blocks if isinstance(a, SharedTile) else 0):
            # Each warpgroup of the group takes 64 rows of each block.
            unit = _rows_offset(a.type.layout, instruction.a_by_cols)
            first = shared_location(e, a).address + block * warps // 4 * unit
            if warps > 4:
                first += Index("warp / 4") * unit
            at = _descriptor(a, first, not instruction.a_by_cols)
            e.line(f"const u64 matrix_a{block} = {at};")
        for block in range(blocks):
            for step in range(depth // instruction.depth):
                add = int(acc is not None or step > 0)
                _write(e, instruction, call, block, step, add)
        e.line("products_commit();")


def all_wgmma(e: CudaEmitter) -> bool:
    """Whether warpgroups compute all products of the role, so that waits can count them."""
    return all(e.target.carries(e.role, c) for c in calls(e.role, Engine.PRODUCT))


@WGMMA.lower(WaitProducts)
def wait_products(e: CudaEmitter, node: WaitProducts) -> None:
    in_flight, complete = (
        dict.fromkeys(e.storage.find(v) for v in values if v in e.storage.made)
        for values in (node.leaves, (*node.completes, *node.frees))
    )
    _wait(e, _countable(e, node.pending), [v for v in complete if v not in in_flight])


@WGMMA.lower("mma_wait")
def lower_mma_wait(e: CudaEmitter, call: Call) -> None:
    pending = _countable(e, call.args["pending"])
    _wait(e, pending, _complete(e, call, pending))


def _countable(e: CudaEmitter, pending: int) -> int:
    """Products that may stay in flight: none if a wait cannot count them."""
    return pending if all_wgmma(e) else 0


def _wait(e: CudaEmitter, pending: int, complete: list[Value]) -> None:
    if e.started(Engine.PRODUCT):
        e.line(f"products_wait<{pending}>();")
        for value in complete:
            e.line(f"pin({e.array(value)});")


def _complete(e: CudaEmitter, call: Call, pending: int) -> list[Value]:
    """The results of the user's products that are complete after a wait, as far as the order of the text shows."""
    products = [c for c in calls(e.role, Engine.PRODUCT) if not c.managed]
    nodes = list(walk(e.role.body))
    before = [c for c in nodes[: nodes.index(call)] if c in products]
    leader = {c: e.storage.find(c.results[0]) for c in products}
    flying, here = {leader[c] for c in before[len(before) - pending :]}, _path(e.role.body, call)
    return [
        value
        for value in dict.fromkeys(leader.values())
        if value not in flying
        and e.is_declared(value)
        and any(block is e.storage.declared_in[value] for block in here)
    ]


def _path(block: Block, call: Call) -> list[Block]:
    """The blocks that enclose a call, outermost first; empty if the call is not in the block."""
    for node in block.nodes:
        if node is call:
            return [block]
        for inner in blocks(node):
            if path := _path(inner, call):
                return [block, *path]
    return []


class Instruction:
    """One wgmma of a product: its dtypes, its shape and the layouts of its operands.

    name: the name of its device function. registers: those of the accumulator, of which two f16 share one.
    """

    def __init__(self, call: Call) -> None:
        a, b, (result,) = call.args["a"], call.args["b"], call.results
        assert isinstance(result.type, RT)
        self.a, self.b, self.acc = a.dtype.name, b.dtype.name, result.dtype.name
        self.cols, self.depth = result.type.cols, depth_step(a.dtype)
        self.registers = self.cols // (4 if self.acc == "f16" else 2)
        self.a_shared = isinstance(a, SharedTile)
        self.a_by_cols, self.b_by_cols = a_is_transposed(call.op), not b_is_transposed(call.op)
        types = [*dict.fromkeys((self.a, self.b)), *(["f16"] if self.acc == "f16" else [])]
        source = "shared" if self.a_shared else "registers"
        self.name = f"{call.op.name}_{'_'.join(types)}_{source}_n{self.cols}"

    def text(self) -> str:
        """The device function."""
        acc, kind, constraint, _ = ACCUMULATORS[self.acc]
        count = self.registers
        d = ", ".join(f"%{i}" for i in range(count))
        outputs = ", ".join(f'"+{constraint}"(d[{Index("AT") + i}])' for i in range(count))
        if self.a_shared:
            parameters, inputs = "u64 a, u64 b", '"l"(a), "l"(b), "n"(ADD)'
            a, after = f"%{count}", count + 1
        else:
            parameters = "u32 a0, u32 a1, u32 a2, u32 a3, u64 b"
            inputs = '"r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(ADD)'
            a, after = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}", count + 4
        types = f"{acc}.{ptx_type(self.a)}.{ptx_type(self.b)}"
        return (
            f"template <int ADD, int AT, int N> DEVICE void {self.name}({kind} (&d)[N], {parameters}) {{\n"
            f'    asm volatile("{{ .reg .pred add; setp.ne.b32 add, %{after + 1}, 0; "\n'
            f'        "wgmma.mma_async.sync.aligned.m64n{self.cols}k{self.depth}.{types} "\n'
            f'        "{{{d}}}, {a}, %{after}, add{self._flags()}; }}"\n'
            f"        : {outputs}\n"
            f'        : {inputs} : "memory");\n'
            f"}}\n"
        )

    def _flags(self) -> str:
        """The operands for negation, if the dtypes are floats, and for transposition, if they have 16 bits."""
        flags = "" if self.acc == "int32" else ", 1, 1"
        if self.a in ("bf16", "f16"):
            flags += f", {int(self.a_by_cols)}" if self.a_shared else ""
            flags += f", {int(self.b_by_cols)}"
        return flags


def _write(
    e: CudaEmitter, instruction: Instruction, call: Call, block: int, step: int, add: int
) -> None:
    """One instruction: 64 rows of a warpgroup and one step of the depth."""
    a, b, (result,) = call.args["a"], call.args["b"], call.results
    e.instructions.setdefault(instruction.name, instruction.text())
    if isinstance(a, SharedTile):
        along = _step(a.type.layout, step, instruction, instruction.a_by_cols)
        operand = str(Index(f"matrix_a{block}") + along)
    else:
        first = (block * a.type.cols // 2 + step * instruction.depth // 2) // 2
        operand = ", ".join(f"{e.array(a)}[{first + i}]" for i in range(4))
    b_at = Index("matrix_b") + _step(b.type.layout, step, instruction, instruction.b_by_cols)
    name, at = instruction.name, block * instruction.registers
    e.line(f"{name}<{add}, {at}>({e.array(result)}, {operand}, {b_at});")


def _descriptor(tile: SharedTile, address: Index, by_rows: bool) -> str:
    """The descriptor of a tile whose contiguous axis is the depth of the product, if by_rows, or the other axis."""
    layout = tile.type.layout
    leading = 16 if by_rows else layout.panel_bytes
    mode = MODES[layout.swizzle]
    return f"matrix({address}, {leading}, {layout.row_group_bytes}, {mode})"


def _rows_offset(layout: SharedLayout, by_cols: bool) -> int:
    """Bytes between blocks of 64 rows of the product in an operand `a`."""
    if by_cols:
        return M * layout.itemsize // layout.swizzle * layout.panel_bytes
    return M * layout.swizzle


def _step(layout: SharedLayout, step: int, instruction: Instruction, by_cols: bool) -> int:
    """The offset of the descriptor, in units of 16 bytes, for the step-th instruction along the depth."""
    if by_cols:
        return step * instruction.depth * layout.swizzle // 16
    byte = step * instruction.depth * layout.itemsize
    return (byte // layout.swizzle * layout.panel_bytes + byte % layout.swizzle) // 16
