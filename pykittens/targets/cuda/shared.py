"""Shared tiles and vectors in C++: their addresses, their views, and what goes between them and registers."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.ir.nodes import Call, Role
from pykittens.ir.values import Scalar, SharedTile, SharedVector, Value
from pykittens.targets.address import TileAddress
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.debug_sites import check_part, check_view
from pykittens.targets.index import Index
from pykittens.targets.simt.memory import (
    define_element,
    fill_bits,
    load_chunks,
    store_chunks,
)
from pykittens.targets.source import memory_type
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import part_is_aligned
from pykittens.types.tiles import Spread

SHARED = Lowerings()
STMATRIX = Lowerings()

MOVE = Index("i")  # the number of a move, in the loop over those of a tile


@dataclass(frozen=True)
class SharedLocation:
    """Where a tile starts: the address of its first row, and bytes into the row where it is part of a panel."""

    row: Index
    byte: Index = Index(0)

    @property
    def address(self) -> Index:
        return self.row + self.byte


def shared_location(e: CudaEmitter, tile: SharedTile) -> SharedLocation:
    """The place of a tile or vector that has a name, or of a view of one."""
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
    """A view has no code of its own: what uses it computes its address."""
    tile, view = call.args["tile"], call.results[0]
    assert isinstance(view, SharedTile)
    check_view(e, tile, call.args["i"], call.args["j"], view.rows, view.cols)


@SHARED.lower("vector_part")
def lower_vector_part(e: CudaEmitter, call: Call) -> None:
    """A view, too."""
    check_part(e, call.args["vector"], call.args["i"], call.args["length"])


def is_global(role: Role, call: Call) -> str | None:
    """Why a load or store is not of shared memory."""
    memory = call.args["src"] if "src" in call.args else call.args["dst"]
    return None if isinstance(memory, SharedTile) else "it is of a tensor"


@SHARED.lower("load", declines=is_global)
def lower_load(e: CudaEmitter, call: Call) -> None:
    tile, (result,) = call.args["src"], call.results
    if isinstance(tile, SharedVector):
        _load_vector(e, tile, result, call)
        return
    e.declare(result)
    name, count = e.array(result), e.registers(result)
    if call.args["transposed"]:
        _load_transposed(e, tile, name, count)
    elif tile.dtype.bits == 16:
        address, regs = _matrix_address(e, tile), _four_registers(name)
        e.line(f"UNROLL for (int i = 0; i < {count // 8}; ++i) load_matrix({address}, {regs});")
    else:
        e.line(
            f"UNROLL for (int i = 0; i < {count}; i += 2) load_pair({_pair_address(e, tile)}, {name}, i);"
        )


def _load_vector(e: CudaEmitter, vector: SharedVector, result: Value, call: Call) -> None:
    if isinstance(result, Scalar):
        e.at(call.loc)
        word = memory_type(vector.dtype)
        define_element(e, result, f"fetched<{word}>({shared_location(e, vector).address})")
    elif vector.whole is vector or call.args["spread"] is Spread.PLAIN:
        load_chunks(e, result, _vector_address(e, vector), fill_bits(vector.dtype, 0))
    else:
        _load_spread(e, vector, result, call.args["spread"])


def _load_spread(e: CudaEmitter, vector: SharedVector, result: Value, spread: Spread) -> None:
    """A part to a vector whose lanes hold all of its elements and no other: nothing is checked."""
    e.declare(result)
    name, count, size = e.array(result), e.registers(result), vector.dtype.bytes
    address = shared_location(e, vector).address
    with e.braces("{"):
        if spread is Spread.PER_ROW:
            place, word = f"row_position<{e.role.warps}>", memory_type(vector.dtype)
            e.line(f"const u32 at = {address + Index(f'{place}(0, warp, lane)') * size};")
            one = f"fetched<{word}>({Index('at') + Index(f'{place}(i, 0, 0)') * size})"
            e.line(f"UNROLL for (int i = 0; i < {count}; ++i) put({name}, i, {one});")
            return
        e.line(f"const u32 at = {address + Index('column_position(0, lane)') * size};")
        pair = Index("at") + Index("column_position(i, 0)") * size
        move = f"load_pair({pair}, {name}, i)"
        if size == 2:
            move = f"{name}[i / 2] = load_shared({pair})"
        e.line(f"UNROLL for (int i = 0; i < {count}; i += 2) {move};")


def _load_transposed(e: CudaEmitter, tile: SharedTile, name: str, count: int) -> None:
    if tile.dtype.bits == 16:
        at = _matrix_address(e, tile, transposed=True)
        e.line(
            f"UNROLL for (int i = 0; i < {count // 8}; ++i) load_matrices_transposed((u32(&)[4]){name}[4 * i], {at});"
        )
        return
    with e.braces(f"UNROLL for (int i = 0; i < {count}; ++i) {{"):
        e.line(f"{memory_type(tile.dtype)} moved;")
        e.line(f"fetch({_transposed_address(e, tile)}, moved);")
        e.line(f"put({name}, i, moved);")


@SHARED.lower("store", declines=is_global)
def lower_store(e: CudaEmitter, call: Call) -> None:
    tile, value = call.args["dst"], call.args["value"]
    if isinstance(tile, SharedVector):
        store_chunks(e, value, _vector_address(e, tile))
        return
    if call.args["transposed"]:
        one = _ELEMENTS[tile.dtype.bits if tile.dtype.bits < 32 else tile.dtype.name]
        e.line(
            f"UNROLL for (int i = 0; i < {e.registers(value)}; ++i) "
            f"store_shared({_transposed_address(e, tile)}, {one.format(e.array(value))});"
        )
        return
    pair = _PAIRS[tile.dtype.bits if tile.dtype.bits < 32 else tile.dtype.name].format(
        e.array(value)
    )
    swizzle, warps, at = tile.type.layout.swizzle, e.role.warps, shared_location(e, tile)
    row = Index("at_row") + (MOVE // (tile.cols // 2) * (warps * 16) + "i / 2 % 2 * 8") * swizzle
    byte = Index(f"tile_col<{tile.cols}>(i, lane)") * tile.dtype.bytes + at.byte
    address = f"row_at<{swizzle}>({row}, turn, {byte}, {tile.type.layout.panel_bytes})"
    # All rows of a lane are turned alike; an address of its own for each would be kept over loops.
    with e.braces("{"):
        first = at.row + Index("warp * 16 + lane / 4") * swizzle
        e.line(f"const u32 at_row = {first}, turn = turn_of<{swizzle}>(lane / 4);")
        e.line(
            f"UNROLL for (int i = 0; i < {e.registers(value)}; i += 2) store_shared({address}, {pair});"
        )


# Two neighbours of a row, registers i and i + 1, as they go to shared memory.
_PAIRS: dict[int | str, str] = {
    8: "(unsigned short)({0}[i / 4] >> i % 4 * 8)",
    16: "{0}[i / 2]",
    "f32": "__float_as_uint({0}[i]), __float_as_uint({0}[i + 1])",
    "int32": "(u32){0}[i], (u32){0}[i + 1]",
    "int64": "{0}[i], {0}[i + 1]",
}


# One element, register i, as it goes to shared memory.
_ELEMENTS: dict[int | str, str] = {
    8: "pick({0}, i, (const unsigned char*)0)",
    16: "pick({0}, i, (const unsigned short*)0)",
    "f32": "__float_as_uint({0}[i])",
    "int32": "(u32){0}[i]",
    "int64": "(u64){0}[i]",
}


def is_no_matrix_store(role: Role, call: Call) -> str | None:
    """Why four 8x8 matrices of 16-bit elements cannot go to shared memory at once."""
    tile = call.args["dst"]
    if isinstance(tile, SharedVector):
        return "a vector is no matrix"
    if isinstance(tile, SharedTile) and tile.dtype.bits == 16:
        return None
    return "stores of whole matrices are of 16-bit elements to shared memory"


@STMATRIX.lower("store", declines=is_no_matrix_store)
def lower_store_matrices(e: CudaEmitter, call: Call) -> None:
    tile, value = call.args["dst"], call.args["value"]
    regs, transposed = _four_registers(e.array(value)), call.args["transposed"]
    function = "store_matrix_transposed" if transposed else "store_matrix"
    e.line(
        f"UNROLL for (int i = 0; i < {e.registers(value) // 8}; ++i) "
        f"{function}({_matrix_address(e, tile, transposed)}, {regs});"
    )


def _four_registers(name: str) -> str:
    """The registers of the i-th move of four matrices."""
    return ", ".join(f"{name}[{Index('4 * i') + k}]" for k in range(4))


def _pair_address(e: CudaEmitter, tile: SharedTile) -> Index:
    """Where the neighbours lie that a lane holds in registers i and i + 1."""
    row = f"tile_row<{tile.cols}, {e.role.warps}>(i, warp, lane)"
    return _address(e, tile, row, Index(f"tile_col<{tile.cols}>(i, lane)") * tile.dtype.bytes)


def _transposed_address(e: CudaEmitter, tile: SharedTile) -> Index:
    """Where the element lies that a lane holds in register i of the tile's transpose."""
    col = Index(f"tile_row<{tile.rows}, {e.role.warps}>(i, warp, lane)")
    return _address(e, tile, f"tile_col<{tile.rows}>(i, lane)", col * tile.dtype.bytes)


def _matrix_address(e: CudaEmitter, tile: SharedTile, transposed: bool = False) -> Index:
    """The address that a lane gives to the i-th move of four 8x8 matrices of 16 bits: 16 rows by 16 columns.

    Those of a transpose come in the order of its registers, down its rows first.
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
    """Whether the chunks of a vector start at multiples of their size; a part starts at one of its length."""
    return vector.whole is vector or part_is_aligned(vector.length, warps)


def _vector_address(e: CudaEmitter, vector: SharedVector) -> TileAddress:
    """A shared vector as a row of memory."""
    word = memory_type(vector.dtype)
    matrix = f"({word}*)(shared + ({shared_location(e, vector).address} - smem))"
    aligned = is_aligned(vector, e.role.warps)
    return TileAddress(matrix, "0", Index(0), Index(0), "1", str(vector.length), aligned)
