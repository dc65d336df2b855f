"""Checks in debug programs, each with a number that the report of a stop names.

In other programs these functions write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pykittens.ir.values import Global, Scalar, TileRef
from pykittens.targets.emitter import Emitter
from pykittens.targets.index import Index
from pykittens.targets.source import Site, SiteKind

if TYPE_CHECKING:
    from pykittens.targets.address import TileAddress


def literal(text: str) -> str:
    """A text with its braces escaped, for a text with holes."""
    return text.replace("{", "{{").replace("}", "}}")


def wait_arguments(e: Emitter, text: str, *numbers: Any) -> str:
    """The last arguments of a wait, which report `text` with these numbers, or C++ expressions, in its holes."""
    if not e.debug:
        return ""
    reported = [n if isinstance(n, str) else e.scalar(n) for n in numbers]
    return f", debug, debug.at({_site(e, 'wait', text, reported)})"


def _site(
    e: Emitter,
    kind: SiteKind,
    text: str,
    numbers: Sequence[str],
    tensor: str = "",
    help: str | None = None,
) -> str:
    """Add a site; returns its number and the numbers that it reports, the last of an instruction its place."""
    told = list(numbers)
    if e.instruction is not None:
        name, turn = e.instruction
        text += f", in {literal(name)}, number {{{len(told)}}} of the queue"
        told.append(turn)
    e.sites.append(Site(kind, text, e.loc, len(numbers), tensor, help))
    return ", ".join([str(len(e.sites) - 1), *told])


def stop_unless(
    e: Emitter,
    condition: str,
    kind: SiteKind,
    text: str,
    *numbers: str,
    tensor: str = "",
    help: str | None = None,
) -> None:
    """Stop the kernel unless the condition holds, and report `text` with the numbers in its holes."""
    if e.debug:
        stop = f"debug.stop({_site(e, kind, text, numbers, tensor, help)});"
        e.line(f"if (!({condition})) {stop}")


# -- accesses --------------------------------------------------------------------------------------

_INSIDE = "only the axes of a tile's rows and columns have edges; an index of another axis must lie inside it"


def check_access(e: Emitter, ref: TileRef | Global, rows: int, cols: int) -> None:
    """Check that indices of fixed axes lie inside them and that the coordinates of a tile of rows x cols are int32."""
    if not e.debug:
        return
    ref = ref.first
    sides = ref.sides(rows, cols)
    for axis in ref.fixed:
        _check_fixed(e, ref, axis)
    for axis in ref.plane:
        _check_coordinate(e, ref, axis, sides[axis])


def _check_fixed(e: Emitter, ref: TileRef, axis: int) -> None:
    index, name = e.scalar(ref.index[axis]), literal(ref.tensor.name)
    window = ref.windows.get(axis)
    if window is None:
        inside = f"{index} >= 0 && {index} < {e.extent(ref.tensor, axis)}"
        text, numbers = f"`{name}`, whose shape is {{shape}}", [index]
    else:
        origin, low, high = (e.scalar(x) for x in window.bounds)
        inside = f"{origin} + {index} >= {low} && {origin} + {index} < {high}"
        text, numbers = f"the window from {{1}} to {{2}} of `{name}`", [index, origin, high]
    text = f"index {{0}} of axis {axis} is outside {text}"
    stop_unless(e, inside, "access", text, *numbers, tensor=ref.tensor.name, help=_INSIDE)


def _check_coordinate(e: Emitter, ref: TileRef, axis: int, unit: int) -> None:
    index, window = ref.index[axis], ref.windows.get(axis)
    if window is None and (unit == 1 or not isinstance(index, Scalar)):
        return
    first = Index(f"(i64){e.scalar(index)}") * unit
    if window is not None:
        first += e.scalar(window.origin)
    text = f"the coordinate {{0}} in `{literal(ref.tensor.name)}` overflows an int32"
    stop_unless(e, f"is_int32({first}, {unit})", "access", text, str(first))


def element_text(ref: TileRef | Global) -> str:
    """An element of a tensor, with a hole for each index."""
    holes = ", ".join(f"{{{i}}}" for i in range(len(ref.first.index)))
    return f"{literal(ref.first.tensor.name)}[{holes}]"


def check_element(e: Emitter, ref: TileRef | Global, at: TileAddress) -> None:
    """Check that the element of a reference lies inside its tensor."""
    if not e.debug:
        return
    name, index = ref.first.tensor.name, [e.scalar(i) for i in ref.first.index]
    inside = f"{at.row} >= 0 && {at.row} < {at.rows} && {at.col} >= 0 && {at.col} < {at.cols}"
    text = f"{element_text(ref)} is outside `{literal(name)}`, whose shape is {{shape}}"
    stop_unless(e, inside, "access", text, *index, tensor=name)


def check_view(e: Emitter, tile: Any, i: Any, j: Any, rows: int, cols: int) -> None:
    """Check that a view of rows x cols lies inside its shared tile."""
    text = (
        f"part ({{0}}, {{1}}) of {rows}x{cols} is outside a shared tile of {tile.rows}x{tile.cols}"
    )
    _check_part(e, text, (i, tile.rows // rows), (j, tile.cols // cols))


def check_row(e: Emitter, tile: Any, i: Any) -> None:
    """Check that a row lies inside its shared tile."""
    _check_part(e, f"row {{0}} is outside a shared tile of {tile.rows}x{tile.cols}", (i, tile.rows))


def check_part(e: Emitter, vector: Any, i: Any, length: int) -> None:
    """Check that a part of `length` elements lies inside its shared vector."""
    text = f"part {{0}} of {length} is outside a shared vector of {vector.length}"
    _check_part(e, text, (i, vector.length // length))


def _check_part(e: Emitter, text: str, *parts: tuple[Any, int]) -> None:
    """Check that each index is below its number of parts; the number of a group is, if the role has no more groups."""
    tests = [
        f"{e.scalar(x)} >= 0 && {e.scalar(x)} < {n}"
        for x, n in parts
        if e.debug and isinstance(x, Scalar) and not (x is e.role.index and e.role.groups <= n)
    ]
    if tests:
        stop_unless(e, " && ".join(tests), "access", text, *(e.scalar(x) for x, _ in parts))


def check_block(e: Emitter, block: Any) -> None:
    """Check that the number of a block is below that of the blocks of a cluster."""
    if e.debug and isinstance(block, Scalar):
        at, count = e.scalar(block), e.kernel.cluster
        text = f"block {{0}} is outside the {count} of a cluster"
        stop_unless(e, f"{at} >= 0 && {at} < {count}", "access", text, at)


def check_item(e: Emitter, name: str, index: Any, count: int) -> None:
    """Check that an index into shared tiles or semaphores is below their number."""
    if e.debug and isinstance(index, Scalar):
        at = e.scalar(index)
        text = f"index {{0}} is outside the {count} of `{literal(name)}`"
        stop_unless(e, f"{at} >= 0 && {at} < {count}", "access", text, at)
