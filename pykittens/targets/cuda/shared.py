"""Shared tiles and vectors in C++: their addresses, their views, and moves between them and registers."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.ir.nodes import Call, Role
from pykittens.ir.values import Scalar, SharedRow, SharedTile, SharedVector, Value
from pykittens.targets.address import TileAddress
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.debug_sites import check_part, check_row, check_view
from pykittens.targets.index import Index
from pykittens.targets.lines import unrolled
from pykittens.targets.simt.memory import (
    define_element,
    fill_bits,
    gather_elements,
    load_chunks,
    loading,
    scatter_elements,
    store_chunks,
    storing,
)
from pykittens.targets.source import memory_type
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import part_is_aligned
from pykittens.types.tiles import RV, Spread

SHARED = Lowerings()
STMATRIX = Lowerings()

MOVE = Index("i")  # the number of a move, in the loop over those of a tile


@dataclass(frozen=True)
class SharedLocation:
    """The start of a tile: the address of its first row, and its offset in the row if it is part of a panel."""

    row: Index
    byte: Index = Index(0)

    @property
    def address(self) -> Index:
        return self.row + self.byte


def shared_location(e: CudaEmitter, tile: SharedTile) -> SharedLocation:
    """The start of a tile or vector, or of a view of one."""
    source = tile.source
    if isinstance(source, Call) and "vector" in source.args:
        unit = source.args["length"] * tile.dtype.bytes
        owner = shared_location(e, source.args["vector"])
        return SharedLocation(owner.row + e.index(source.args["i"]) * unit)
    if not isinstance(source, Call) or "tile" not in source.args:
        return SharedLocation(Index(e.names(tile)))
    owner, layout = shared_location(e, source.args["tile"]), tile.type.layout
    swizzle, panel, width = layout.swizzle, layout.panel_bytes, tile.cols * tile.dtype.bytes
    row = owner.row + e.index(source.args["i"]) * (tile.rows * swizzle)
    j = e.index(source.args["j"])
    if width % swizzle == 0:
        return SharedLocation(row + j * (width // swizzle * panel), owner.byte)
    byte = j * width
    return SharedLocation(row + byte // swizzle * panel, owner.byte + byte % swizzle)


@SHARED.lower("view")
def lower_view(e: CudaEmitter, call: Call) -> None:
    """A view has no code: each use computes its address."""
    tile, view = call.args["tile"], call.results[0]
    assert isinstance(view, SharedTile)
    check_view(e, tile, call.args["i"], call.args["j"], view.rows, view.cols)


@SHARED.lower("vector_part")
def lower_vector_part(e: CudaEmitter, call: Call) -> None:
    """A part of a vector has no code either."""
    check_part(e, call.args["vector"], call.args["i"], call.args["length"])


@SHARED.lower("shared_row")
def lower_row(e: CudaEmitter, call: Call) -> None:
    """A row has no code either."""
    check_row(e, call.args["tile"], call.args["i"])


def is_global(role: Role, call: Call) -> str | None:
    """Why a load or store does not access shared memory; None if it does."""
    memory = call.args["src"] if "src" in call.args else call.args["dst"]
    return None if isinstance(memory, SharedTile) else "it is of a tensor"


@SHARED.lower("load", declines=is_global)
def lower_load_shared(e: CudaEmitter, call: Call) -> None:
    tile, (result,) = call.args["src"], call.results
    if isinstance(tile, SharedVector):
        _load_vector(e, tile, result, call)
        return
    e.declare(result)
    if isinstance(tile, SharedRow):
        _each_of_row(e, tile, result, loading(e, result, fill_bits(tile.dtype, 0)))
        return
    name, count = e.array(result), e.registers(result)
    if call.args["transposed"]:
        _load_transposed(e, tile, name, count)
    elif tile.dtype.bits == 16:
        address, regs = _matrix_address(e, tile), _four_registers(name)
        e.each(count // 8, f"load_matrix({address}, {regs});")
    else:
        e.each(count, f"load_pair({_pair_address(e, tile)}, {name}, i);", 2)


@SHARED.lower("gather", declines=is_global)
def lower_gather_shared(e: CudaEmitter, call: Call) -> None:
    gather_elements(e, call, _vector_address(e, call.args["src"]))


@SHARED.lower("scatter", declines=is_global)
def lower_scatter_shared(e: CudaEmitter, call: Call) -> None:
    scatter_elements(e, call, _vector_address(e, call.args["dst"]))


def _load_vector(e: CudaEmitter, vector: SharedVector, result: Value, call: Call) -> None:
    if isinstance(result, Scalar):
        e.at(call.loc)
        address = shared_location(e, vector).address
        define_element(e, result, f"fetched<{memory_type(vector.dtype)}>({address})")
    elif vector.whole is vector or not call.args["spread"].repeats:
        load_chunks(e, result, _vector_address(e, vector), fill_bits(vector.dtype, 0))
    else:
        _load_spread(e, vector, result, call.args["spread"])


def _load_spread(e: CudaEmitter, vector: SharedVector, result: Value, spread: Spread) -> None:
    """A part of a vector to a result with the same elements, so that no bounds are checked."""
    e.declare(result)
    name, count, size = e.array(result), e.registers(result), vector.dtype.bytes
    address = shared_location(e, vector).address
    with e.braces("{"):
        if spread is Spread.PER_ROW:
            position, type_ = f"row_position<{e.role.warps}>", memory_type(vector.dtype)
            e.line(f"const u32 at = {address + Index(f'{position}(0, warp, lane)') * size};")
            element = f"fetched<{type_}>({Index('at') + Index(f'{position}(i, 0, 0)') * size})"
            e.each(count, f"put({name}, i, {element});")
            return
        e.line(f"const u32 at = {address + Index('column_position(0, lane)') * size};")
        pair = Index("at") + Index("column_position(i, 0)") * size
        move = f"load_pair({pair}, {name}, i)"
        if size == 2:
            move = f"{name}[i / 2] = load_shared({pair})"
        e.each(count, f"{move};", 2)


def _each_of_row(e: CudaEmitter, row: SharedRow, value: Value, move: str) -> None:
    """Moves of a plain vector, each inside the 16 bytes that a swizzle keeps together."""
    assert isinstance(value.type, RV)
    size, dtype, warps = value.type.chunk(e.role.warps), row.dtype, e.role.warps
    step = min(size, 16 // dtype.bytes)
    source = row.source.args
    owner = shared_location(e, source["tile"])
    layout, i = row.type.layout, e.index(source["i"])
    with e.braces(f"{unrolled(e.registers(value), step=step)} {{"):
        e.line(f"const int at = vector_at<{size}, {warps * 32}>(i, thread);")
        byte = Index("at") * dtype.bytes + owner.byte
        address = owner.row + f"shared_at<{layout.swizzle}>({i}, {byte}, {layout.panel_bytes})"
        place = f"({memory_type(dtype)}*)(shared + ({address} - smem))"
        inside = f"at < {row.length} ? {step} : 0"
        e.line(move.format(template=f"{step}, true", row=place, col="0", cols=inside))


def _load_transposed(e: CudaEmitter, tile: SharedTile, name: str, count: int) -> None:
    if tile.dtype.bits == 16:
        at = _matrix_address(e, tile, transposed=True)
        e.each(count // 8, f"load_matrices_transposed((u32(&)[4]){name}[4 * i], {at});")
        return
    with e.braces(f"{unrolled(count)} {{"):
        e.line(f"{memory_type(tile.dtype)} moved;")
        e.line(f"fetch({_transposed_address(e, tile)}, moved);")
        e.line(f"put({name}, i, moved);")


@SHARED.lower("store", declines=is_global)
def lower_store_shared(e: CudaEmitter, call: Call) -> None:
    tile, value = call.args["dst"], call.args["value"]
    if isinstance(tile, SharedVector):
        store_chunks(e, value, _vector_address(e, tile))
        return
    if isinstance(tile, SharedRow):
        _each_of_row(e, tile, value, storing(e, value, None))
        return
    if call.args["transposed"]:
        element = _registers(_ELEMENTS, e, value)
        e.each(e.registers(value), f"store_shared({_transposed_address(e, tile)}, {element});")
        return
    write_pairs(e, tile, value, "store_shared({to}, {pair});")


def write_pairs(
    e: CudaEmitter, tile: SharedTile, value: Value, write: str, start: str = "{}"
) -> None:
    """Write a tile by pairs of neighbours of a row.

    write: the statement for a pair. start: where the address of the lane's first row of the tile is found from it.
    """
    swizzle, warps, at = tile.type.layout.swizzle, e.role.warps, shared_location(e, tile)
    row = Index("at_row") + (MOVE // (tile.cols // 2) * (warps * 16) + "i / 2 % 2 * 8") * swizzle
    byte = Index(f"tile_col<{tile.cols}>(i, lane)") * tile.dtype.bytes + at.byte
    address = f"row_at<{swizzle}>({row}, turn, {byte}, {tile.type.layout.panel_bytes})"
    # All rows of a lane have the same swizzle; the compiler would keep an address for each row across loops.
    with e.braces("{"):
        first = at.row + Index("warp * 16 + lane / 4") * swizzle
        e.line(f"const u32 at_row = {start.format(first)}, turn = turn_of<{swizzle}>(lane / 4);")
        pair = _registers(_PAIRS, e, value)
        e.each(e.registers(value), write.format(to=address, pair=pair), 2)


def _registers(table: dict[int | str, str], e: CudaEmitter, value: Value) -> str:
    """Registers of a value as operands of `store_shared`, by a table of expressions."""
    dtype = value.dtype
    return table[dtype.bits if dtype.bits < 32 else dtype.name].format(e.array(value))


# Two neighbours of a row, registers i and i + 1.
_PAIRS: dict[int | str, str] = {
    8: "(unsigned short)({0}[i / 4] >> i % 4 * 8)",
    16: "{0}[i / 2]",
    "f32": "__float_as_uint({0}[i]), __float_as_uint({0}[i + 1])",
    "int32": "(u32){0}[i], (u32){0}[i + 1]",
    "int64": "{0}[i], {0}[i + 1]",
}


# One element, register i.
_ELEMENTS: dict[int | str, str] = {
    8: "pick({0}, i, (const unsigned char*)0)",
    16: "pick({0}, i, (const unsigned short*)0)",
    "f32": "__float_as_uint({0}[i])",
    "int32": "(u32){0}[i]",
    "int64": "(u64){0}[i]",
}


def is_no_matrix_store(role: Role, call: Call) -> str | None:
    """Why a store is not one of 8x8 matrices of 16-bit elements, four at a time; None if it is."""
    tile = call.args["dst"]
    if isinstance(tile, SharedVector | SharedRow):
        return "a vector or a row is no matrix"
    if isinstance(tile, SharedTile) and tile.dtype.bits == 16:
        return None
    return "stores of whole matrices are of 16-bit elements to shared memory"


@STMATRIX.lower("store", declines=is_no_matrix_store)
def lower_store_matrices(e: CudaEmitter, call: Call) -> None:
    tile, value = call.args["dst"], call.args["value"]
    regs, transposed = _four_registers(e.array(value)), call.args["transposed"]
    function = "store_matrix_transposed" if transposed else "store_matrix"
    address = _matrix_address(e, tile, transposed)
    e.each(e.registers(value) // 8, f"{function}({address}, {regs});")


def _four_registers(name: str) -> str:
    """The registers of the i-th move of four matrices."""
    return ", ".join(f"{name}[{Index('4 * i') + k}]" for k in range(4))


def _pair_address(e: CudaEmitter, tile: SharedTile) -> Index:
    """The address of the neighbours that a lane holds in registers i and i + 1."""
    row = f"tile_row<{tile.cols}, {e.role.warps}>(i, warp, lane)"
    return _address(e, tile, row, Index(f"tile_col<{tile.cols}>(i, lane)") * tile.dtype.bytes)


def _transposed_address(e: CudaEmitter, tile: SharedTile) -> Index:
    """The address of the element that a lane holds in register i of the tile's transpose."""
    col = Index(f"tile_row<{tile.rows}, {e.role.warps}>(i, warp, lane)")
    return _address(e, tile, f"tile_col<{tile.rows}>(i, lane)", col * tile.dtype.bytes)


def _matrix_address(e: CudaEmitter, tile: SharedTile, transposed: bool = False) -> Index:
    """The address that a lane passes to the i-th move of four 8x8 matrices of 16 bits: 16 rows by 16 columns.

    The moves of a transpose follow the order of its registers, down its rows first.
    """
    if transposed:
        pieces = tile.rows // 16
        row = MOVE % pieces * 16 + "lane / 16 * 8" + "lane % 8"
        byte = (MOVE // pieces * e.role.warps + "warp") * 32 + "lane / 8 % 2 * 16"
        return _address(e, tile, row, byte)
    pieces = tile.cols // 16
    row = (MOVE // pieces * e.role.warps + "warp") * 16 + "lane % 16"
    return _address(e, tile, row, MOVE % pieces * 32 + "lane / 16 * 16")


def _address(e: CudaEmitter, tile: SharedTile, row: str | Index, byte: Index) -> Index:
    """The address of a byte of a row of a tile."""
    layout, at = tile.type.layout, shared_location(e, tile)
    byte += at.byte
    return at.row + f"shared_at<{layout.swizzle}>({row}, {byte}, {layout.panel_bytes})"


def is_aligned(vector: SharedVector, warps: int) -> bool:
    """Whether the chunks of a vector start at multiples of their size; a part starts at a multiple of its length."""
    return vector.whole is vector or part_is_aligned(vector.length, warps)


def _vector_address(e: CudaEmitter, vector: SharedVector) -> TileAddress:
    """A shared vector as a row of memory."""
    matrix = (
        f"({memory_type(vector.dtype)}*)(shared + ({shared_location(e, vector).address} - smem))"
    )
    aligned = is_aligned(vector, e.role.warps)
    return TileAddress(matrix, "0", Index(0), Index(0), "1", str(vector.length), aligned)
