"""Decides who does the work of a call: an asynchronous engine, or the lanes that run the role.

An engine may do copies (`Engine.COPY_IN`, `Engine.COPY_OUT`) and products (`Engine.PRODUCT`); lanes start the stores to
other blocks (`Engine.SEND`). The decisions in order:

1. A lowering names its engine, and the function that gives the reason why the lanes do a call instead: on Hopper
   `beyond_wgmma` and `beyond_copy_engine`. Without such a lowering, as on Ampere and Ada, the lanes do all such calls.
2. `Target.find` looks for a lowering in the target and then in its parents. The lowerings of Hopper (wgmma.py, bulk.py)
   decline for the same reasons, so that a call falls back to products of single warps (mma_sync.py, which declines
   dtypes that the tensor cores of a generation do not multiply) and to copies by lanes (copies.py), which move pieces
   of 16 bytes if `moves_pieces`, at other addresses narrow pieces or pieces shifted out of aligned granules if
   `moves_granules`, else single elements.
3. A copy of a tile that the edge of a window may cut is decided when the program runs (`is_split`): bulk.py writes
   both ways.
4. Warps without a role of the warpgroup of producers and storers run a role that only copies, too (`can_share`).
5. Other code asks `Target.carries` and `by_lanes`: for the lanes of a warp that run a role (`lanes`, for
   warp_assignment.py), the waits and fences of a role (`CudaEmitter.started`), and the arrivals that complete the
   barriers of a stage (`fillings` and `stage_copies` in stages.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pykittens.ir.evaluate import definition, is_multiple, is_natural
from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    ForTasks,
    Kernel,
    Node,
    Role,
    While,
    blocks,
    operands,
    walk,
    written,
)
from pykittens.ir.op import Effects, Engine
from pykittens.ir.operators import OPERATORS
from pykittens.ir.stages import GiveBack, Leave, Pipeline
from pykittens.ir.structure import memory_of
from pykittens.ir.values import Global, RegTile, RegVector, SharedTile, TileRef
from pykittens.ops.mma import a_is_transposed, b_is_transposed
from pykittens.targets.simt.memory import starts_aligned
from pykittens.targets.target import Target
from pykittens.types.tiles import ST, SV

# -- products --------------------------------------------------------------------------------------


def beyond_wgmma(role: Role, call: Call) -> str | None:
    """Why single warps, not a warpgroup, compute a product; None if a warpgroup does."""
    a = call.args["a"]
    if not role.is_warpgroup:
        return f"a group of {role.warps} warps is no warpgroup"
    if a.dtype.bits == 16:
        return None
    if not isinstance(a, SharedTile):
        return f"warpgroups have {a.dtype} operands in registers in another order"
    if a_is_transposed(call.op) or not b_is_transposed(call.op):
        return f"warpgroups read {a.dtype} operands with k along the rows of memory only"
    return None


# -- copies ----------------------------------------------------------------------------------------

COPY_ENGINES = (Engine.COPY_IN, Engine.COPY_OUT)
MAX_BOX_EXTENT = 256  # elements along an axis of a box
LINE = 128  # bytes: the alignment of a box in shared memory
# Dtypes that the copy engine combines in memory. In a maximum of 16-bit floats it would drop a NaN.
COMBINED_IN_BULK = {
    "add": ("f32", "f16", "bf16", "int32"),
    "max": ("int32",),
    "min": ("int32",),
}


def copy_operands(call: Call) -> tuple[SharedTile, TileRef | Global]:
    """The shared tile of a copy, and its source or destination in global memory."""
    stores = call.op.effects.engine is Engine.COPY_OUT
    tile, ref = call.args["src" if stores else "dst"], call.args["dst" if stores else "src"]
    assert isinstance(tile, SharedTile)
    assert isinstance(ref, TileRef | Global)
    return tile, ref


def box_cols(type_: ST) -> int | None:
    """Columns of the equal boxes of a tile or vector; None if equal boxes do not divide it."""
    if not isinstance(type_, SV):
        panel = type_.layout.panel_cols
        return panel if type_.cols % panel == 0 else None
    if type_.cols <= MAX_BOX_EXTENT:
        return type_.cols
    unit = LINE // type_.dtype.bytes
    lengths = range(unit, MAX_BOX_EXTENT + 1, unit)
    return max((n for n in lengths if type_.cols % n == 0), default=None)


def beyond_copy_engine(role: Role, call: Call) -> str | None:
    """Why the lanes copy: the engine moves only whole panels between aligned tensors and shared memory."""
    stores = call.op.effects.engine is Engine.COPY_OUT
    tile, ref = copy_operands(call)
    if ref.first.is_strided:
        return "the copy engine moves rows whose elements are neighbours in memory"
    reached = box_cols(tile.type) and ref.type.aligned and (ref.type.whole_rows or not stores)
    op = call.args.get("op")
    combines = op is None or tile.dtype.name in COMBINED_IN_BULK[op]
    cut_multicast = call.args.get("multicast") and edged_axes(ref)
    if reached and combines and not cut_multicast:
        return None
    return "the copy engine does not reach the tensor or the part of a panel"


def beyond_prefetch_engine(role: Role, call: Call) -> str | None:
    """Why the lanes prefetch: the engine takes the boxes of which it could copy a tile, without windows."""
    src, rows, cols = call.args["src"], call.args["rows"], call.args["cols"]
    ref, width = src.first, cols * src.dtype.bytes
    if rows is None or not 0 < rows <= MAX_BOX_EXTENT or ref.is_strided or ref.windows:
        return "the engine takes boxes of up to 256 rows, whose elements are neighbours in memory"
    if not width or width % (LINE if width > LINE else 16) or not ref.type.aligned:
        return "the engine takes whole panels of aligned tensors"
    return None


def edged_axes(ref: TileRef | Global) -> list[int]:
    """The axes of the plane of a tile along which edges of a window inside the tensor may cut it."""
    ref = ref.first
    return [axis for axis in ref.windows if axis in ref.plane and not _is_uncut(ref, axis)]


def _is_uncut(ref: TileRef, axis: int) -> bool:
    """Whether a tile is known to start inside a window that ends with the tensor."""
    window = ref.windows[axis]
    if not (is_natural(window.origin) and is_natural(ref.index[axis])):
        return False
    if axis == ref.plane[-1] and not is_multiple(window.origin, max(16 // ref.dtype.bytes, 1)):
        return False  # docs/facts.md: along the columns, the engine starts at multiples of 16 bytes
    starts = _is_made("maximum", window.low, {0, window.origin})
    return starts and _is_made("minimum", window.high, {ref.tensor.extents[axis]})


def _is_made(operator: str, value: Any, operands: set[Any]) -> bool:
    """Whether a value is a maximum, or a minimum, of some of these operands alone."""
    call = definition(value)
    if value in operands or call is None or call.op is not OPERATORS[operator]:
        return value in operands
    return all(_is_made(operator, a, operands) for a in call.args.values())


def is_split(call: Call) -> bool:
    """Whether the lanes do a copy that the engine could do, if the edge of a window cuts the tile."""
    copies = call.op.effects.engine in COPY_ENGINES
    return copies and bool(edged_axes(copy_operands(call)[1]))


def moves_pieces(call: Call) -> bool:
    """Whether lanes that do a copy move aligned pieces of 16 bytes, to shared memory asynchronously."""
    return moves_granules(call) and starts_aligned(copy_operands(call)[1])


def moves_granules(call: Call) -> bool:
    """Whether the rows of a tile consist of pieces of 16 bytes, which lanes can copy from and to any address."""
    tile, ref = copy_operands(call)
    whole = tile.cols * tile.dtype.bytes % 16 == 0
    return whole and call.args.get("op") is None and not ref.first.is_strided


def moves_narrowly(call: Call) -> bool:
    """Whether lanes copy a tile to a stage in pieces of 4 or 8 bytes if its rows start at such; a row alone has few."""
    tile, _ = copy_operands(call)
    into_stage = call.op.effects.engine is Engine.COPY_IN and tile.stage is not None
    return into_stage and tile.rows > 1 and moves_granules(call) and not moves_pieces(call)


def rows_between(tile: SharedTile, threads: int) -> int | None:
    """Rows between the pieces of a lane if all of them have one skew and one place of the swizzle (skewed.cuh)."""
    pieces, size = tile.cols * tile.dtype.bytes // 16, tile.dtype.bytes
    between = threads // pieces
    turned = between * size % 16 or between * tile.type.layout.swizzle % 1024
    return None if threads % pieces or turned else between


# -- roles -----------------------------------------------------------------------------------------


def calls(role: Role, engine: Engine | None = None) -> list[Call]:
    """The calls of a role, or only those whose work an engine may do."""
    found = (n for n in walk(role.body) if isinstance(n, Call))
    return [c for c in found if engine is None or c.op.effects.engine is engine]


def by_lanes(role: Role, call: Call, target: Target) -> bool:
    """Whether the lanes that run a role do the work of a call, at least in some cases."""
    return not target.carries(role, call) or is_split(call)


# What a fence before one of `ends_of_loads` is for.
LOADED = "what was loaded is there before the copy engine fills the memory"


class Shared(NamedTuple):
    """The rings and other shared memory that a fence of a role is for.

    stored: what its lanes write and an engine accesses. loaded: what its lanes read and the copy engine fills.
    """

    stored: set[object]
    loaded: set[object]


def shared_with_engines(kernel: Kernel, role: Role, target: Target) -> Shared:
    """The memory in which a fence parts the accesses of a role's lanes from those of engines."""
    of_engines, filled, stored, loaded = set[object](), set[object](), set[object](), set[object]()
    for other in kernel.roles:
        for call in calls(other):
            effects = call.op.effects
            tiles = {_memory(a): a for a in operands(call.args) if isinstance(a, SharedTile)}
            touched = effects.reads or effects.writes or effects.engine is not None
            if effects.engine is not None and not by_lanes(other, call, target):
                of_engines.update(tiles)
                filled.update(tiles if effects.engine is Engine.COPY_IN else ())
            elif effects.removable:
                continue
            elif not touched or is_split(call):  # the user's own text may do anything
                of_engines.update(tiles)
                filled.update(tiles)
            if other.body is role.body and (not touched or by_lanes(role, call, target)):
                stored.update(_accessed(call, effects.writes) if touched else tiles)
                loaded.update(_accessed(call, effects.reads) if touched else tiles)
    return Shared(stored & of_engines, loaded & filled)


def ends_of_loads(role: Role, loaded: set[object], target: Target) -> set[Node]:
    """The nodes before which loads of lanes from memory that the copy engine fills must be done.

    Lanes pass a barrier while loads are on their way, and the copies of an engine may overtake these: PTX ISA, "Async
    proxy". So it is before the warps meet or signal others, and before a stage that they loaded from is given back.
    """
    found = set[Node]()

    def visit(block: Block, recent: set[object]) -> set[object]:
        """What lanes may have loaded from without a fence after a block, if before it that is `recent`."""
        for node in block.nodes:
            if isinstance(node, For | ForTasks | While):
                for inner in blocks(node):
                    recent = recent | visit(inner, visit(inner, recent) | recent)
                continue
            if inners := list(blocks(node)):
                recent = set[object]().union(*(visit(inner, recent) for inner in inners))
                continue
            if _may_release(node, recent):
                found.add(node)
                recent = set()
            if isinstance(node, Call):
                recent = set() if "shared" in node.op.effects.fences else recent
                if by_lanes(role, node, target):
                    recent = recent | loaded & _accessed(node, node.op.effects.reads)
        return recent

    if loaded and target.engines:
        visit(role.body, set())
    return found


def _may_release(node: Node, recent: set[object]) -> bool:
    """Whether the copy engine may fill memory after a node that lanes have loaded from."""
    if isinstance(node, GiveBack) and _first(node.pipeline) in recent:
        return True
    signals = isinstance(node, GiveBack | Leave)
    if isinstance(node, Call):
        effects = node.op.effects
        signals = effects.meets or (bool(effects.signals) and effects.engine is None)
    return signals and any(not isinstance(memory, Pipeline) for memory in recent)


def _accessed(call: Call, names: Iterable[str]) -> set[object]:
    """The rings and other shared memory of operands."""
    operands = (call.args[name] for name in names)
    return {_memory(x) for x in operands if isinstance(x, SharedTile)}


def is_fenced(ring: Pipeline, fenced: set[object], by_reader: bool = False) -> bool:
    """Whether a fence comes before a role hands on a stage of a ring: for it, or for its memory outside of rings.

    by_reader: those who read the stage have a fence of their own.
    """
    outside = any(not isinstance(memory, Pipeline) for memory in fenced)
    return outside or (_first(ring) in fenced and not by_reader)


def _memory(tile: SharedTile) -> object:
    """The ring, or the memory of pk.shared, in which a tile lies; of rings that share memory, the first."""
    return memory_of(tile) if tile.stage is None else _first(tile.stage.acquire.pipeline)


def _first(ring: Pipeline) -> Pipeline:
    """The ring whose memory a ring takes over."""
    return ring if ring.reuse is None else _first(ring.reuse)


def can_share(kernel: Kernel, role: Role, target: Target) -> bool:
    """Whether several warps may run a producer or storer, each for a share of its copies by lanes.

    What else the role does must have the same results in each warp, and no effect: it computes scalars and reads what
    the kernel does not write. One thread starts the copies of the engine.
    """
    copies = [c for c in calls(role) if c.op.effects.engine in COPY_ENGINES]
    shared = [c for c in copies if by_lanes(role, c, target)]
    ready = all(copy_operands(c)[0].stage is not None for c in copies) and bool(shared)
    others = (c for c in calls(role) if c.op.effects.engine not in COPY_ENGINES)
    return (
        role.is_service
        and ready
        and all(moves_granules(c) for c in shared)
        and all(_is_repeatable(kernel, c) for c in others)
    )


def _is_repeatable(kernel: Kernel, call: Call) -> bool:
    """Whether a call only computes scalars and views, of memory that nothing in the kernel writes."""
    effects, values = call.op.effects, (*call.results, *operands(call.args))
    if any(isinstance(v, RegTile | RegVector) for v in values):
        return False
    sources = [call.args[name] for name in effects.reads]
    constant = all(
        isinstance(s, TileRef | Global) and s.first.tensor.name not in written(kernel)
        for s in sources
    )
    only_reads = bool(sources) and constant and effects == Effects(effects.reads)
    return effects.removable or only_reads or bool(effects.prefetches)


def _prefetched_by_lanes(role: Role, call: Call, target: Target) -> bool:
    return not target.engines or beyond_prefetch_engine(role, call) is not None


def lanes(role: Role, target: Target) -> int:
    """Lanes of a warp that run a role: one if the role only starts the copies of an engine."""
    found = calls(role)
    works = any(by_lanes(role, c, target) for c in found if c.op.effects.engine is not None)
    values = (v for c in found for v in (*c.results, *operands(c.args)))
    registers = any(isinstance(v, RegTile | RegVector) for v in values)
    fetches = any(c.op.effects.prefetches and _prefetched_by_lanes(role, c, target) for c in found)
    return 1 if role.is_service and not (works or registers or fetches) else 32
