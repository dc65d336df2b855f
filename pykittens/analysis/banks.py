"""Bank conflicts: the cycles of shared memory that a line of a kernel takes, beside the cycles without conflicts.

Shared memory has 32 banks of 4 bytes. In a cycle each bank gives one word to all lanes that ask for that word; lanes
that ask for other words of the bank wait. A request of more than 4 bytes per lane is served in phases, of 16 lanes for
8 bytes and of 8 lanes for 16 bytes; so is a load or store of matrices, with one phase per matrix. Sources: CUDA C++
Programming Guide, "Shared Memory" of compute capability 5.x, which later ones keep; PTX ISA, "ldmatrix": eight
addresses of rows of 16 bytes per matrix. The vendor does not guarantee the phases; profilers count wavefronts so.

Modelled address by address: loads, stores, copies and exchanges of lanes, operands of products of single warps.
Assumed: a product of a warpgroup reads its operands as matrices of 8 rows of 16 bytes, `b` once per 64 rows and `a`
once; the copy engine moves 128 bytes per cycle, as lines within which it swizzles. Barriers are not counted. A tile
starts at a multiple of 1024 bytes, a view at a multiple of 8 rows and of its width, a part of a vector at a multiple of
its length: the cost is the same for every view and stage. Elements that an index names are taken as neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pykittens.analysis.accesses import (
    Address,
    by_elements,
    by_granules,
    chunk_moves,
    copy_threads,
    element_moves,
    exchanges,
    fragments,
    held,
    lines,
    matrices,
)
from pykittens.analysis.requests import (
    NOWHERE,
    Cost,
    Move,
    Numbers,
    Requests,
    calls_by_role,
    costs,
    in_order,
)
from pykittens.analysis.sectors import Tensor, located
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, Role, moved
from pykittens.ir.op import Engine, Op
from pykittens.ir.values import Scalar, SharedRow, SharedTile, SharedVector, TileRef
from pykittens.ops.gather import names_elements
from pykittens.ops.mma import a_is_transposed, b_is_transposed
from pykittens.targets.cuda.engines import (
    COPY_ENGINES,
    beyond_copy_engine,
    beyond_wgmma,
    copy_operands,
    moves_granules,
)
from pykittens.targets.cuda.shared import is_aligned
from pykittens.targets.cuda.wgmma import M
from pykittens.targets.simt.scratch import declared, through_scratch
from pykittens.types.layouts import LANES

BANKS, WORD = 32, 4
LINE = BANKS * WORD  # bytes that shared memory moves in a cycle


def phases(requests: Requests) -> Numbers:
    """The addresses of the lanes that are served together, phases x lanes."""
    found = requests.addresses.reshape(-1, min(LANES, LINE // requests.size))
    served: Numbers = found[(found != NOWHERE).any(axis=1)]
    return served


def cycles(requests: Requests) -> int:
    """Cycles that requests take: for each phase, the largest number of words asked of one bank."""
    addresses = phases(requests)
    if not len(addresses):
        return 0
    words = addresses[:, :, None] // WORD + np.arange(max(requests.size // WORD, 1))
    words = np.where(addresses[:, :, None] == NOWHERE, NOWHERE, words).reshape(len(addresses), -1)
    words, first = in_order(words)  # a word that several lanes ask for counts once
    phase = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    asked = np.bincount((phase * BANKS + words % BANKS)[first], minlength=len(words) * BANKS)
    return int(asked.reshape(-1, BANKS).max(axis=1).sum())


def fewest(requests: Requests) -> int:
    """Cycles that requests would take without conflicts: one per phase, because a phase moves at most 128 bytes."""
    return len(phases(requests))


def shared_costs(kernel: Kernel) -> list[Cost]:
    """The cycles of shared memory that each line of a lowered kernel takes on sm_90a, and the fewest possible."""
    return costs(kernel, shared_moves, cycles, fewest)


class Uncounted(NamedTuple):
    """A line whose use of shared memory has no model, its operation and the reason."""

    loc: Loc | None
    what: str
    reason: str


def uncounted(kernel: Kernel) -> list[Uncounted]:
    """The lines of a lowered kernel whose use of shared memory is not counted, in the order of the program."""
    found = (
        Uncounted(call.loc, call.op.shown, reason)
        for _, call in calls_by_role(kernel)
        if (reason := _why_uncounted(call.op)) is not None
    )
    return list(dict.fromkeys(found))


def _why_uncounted(op: Op[Any]) -> str | None:
    if op.shown == "inline_cuda":
        return "CUDA C++ of the kernel"
    is_of_package = op.function.__module__.split(".")[0] == "pykittens"
    if is_of_package or op.family is not None or declared(op) is not None:
        return None
    return "an operation from outside the package, which declares no moves"


def _in_tensor(
    ref: TileRef, tensors: Mapping[str, Tensor] | None, rows: int, cols: int, size: int
) -> Address:
    """Where elements of a tile lie in its tensor; one element past a granule if the tensors are not known."""
    if tensors is None:
        return lambda row, col: size + 0 * row
    return located(ref, tensors[ref.tensor.name], rows, cols)


def shared_moves(
    role: Role, call: Call, tensors: Mapping[str, Tensor] | None = None
) -> Iterator[Move]:
    """The moves of one operation of a group of a role to and from shared memory."""
    effects, what = call.op.effects, call.op.shown
    if effects.engine is Engine.PRODUCT:
        yield from _of_product(role, call)
    elif effects.engine in COPY_ENGINES:
        tile, ref = copy_operands(call)
        if beyond_copy_engine(role, call) is None:
            yield Move(what, tile, [lines(tile.type.bytes)], assumed=True)
        else:
            sizes, offset = (tile.rows, tile.cols, tile.dtype.bytes), tile.type.layout.offset
            stores = effects.engine is Engine.COPY_OUT
            if moves_granules(call):
                at = _in_tensor(ref.first, tensors, *sizes)
                requests = list(by_granules(*sizes, offset, stores, copy_threads(role), at))
            else:
                requests = [by_elements(*sizes, offset)]
            yield Move(what, tile, requests)
    else:
        for name in (*effects.reads, *effects.writes):
            if name not in effects.flags and isinstance(tile := call.args[name], SharedTile):
                stores = name in effects.writes
                requests = list(_of_value(role, call, tile, stores))
                yield Move(what, tile, requests, names_elements(call))
        if (scratch := through_scratch(call, role.warps)) is not None:
            requests = list(exchanges(scratch, call.results[0], role.warps))
            yield Move(what, "scratch", requests)


def _of_value(role: Role, call: Call, tile: SharedTile, stores: bool) -> Iterator[Requests]:
    """A load or store between a shared tile or vector and registers."""
    value, dtype, offset = moved(call), tile.dtype, tile.type.layout.offset
    sends = call.op.effects.engine is Engine.SEND
    if names_elements(call):
        yield from element_moves(held(value.type, role.warps), dtype.bytes, stores)
    elif isinstance(value, Scalar):
        yield Requests.of(np.zeros((role.warps, LANES)), dtype.bytes)
    elif dtype.bits == 16 and not isinstance(tile, SharedVector | SharedRow) and not sends:
        yield matrices(tile.type)
    else:
        aligned = not isinstance(tile, SharedVector) or is_aligned(tile, role.warps)
        at = held(value.type, role.warps, bool(call.args.get("transposed")))
        yield from chunk_moves(at, dtype, offset, aligned, stores)


def _of_product(role: Role, call: Call) -> Iterator[Move]:
    """The reads of the shared operands of a product."""
    a, b, (result,) = call.args["a"], call.args["b"], call.results
    by_warpgroups, in_registers = beyond_wgmma(role, call) is None, not isinstance(a, SharedTile)
    if not in_registers:
        left = fragments(a.type, True, a_is_transposed(call.op))
        yield Move(f"{call.op.shown} a", a, [left], by_warpgroups)
    right = fragments(b.type, False, not b_is_transposed(call.op), reordered=in_registers)
    times = result.type.rows // M if by_warpgroups else role.warps  # type: ignore[union-attr]
    yield Move(f"{call.op.shown} b", b, [right.times(times)], by_warpgroups)
