"""Outputs that a launch has not written whole: which of them are faults, and which elements are missing."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.ir.nodes import (
    Block,
    Call,
    ForTasks,
    Grid,
    If,
    Kernel,
    Sharing,
    While,
    blocks,
    coordinates,
    tensors,
    walk,
)
from pykittens.ir.structure import inputs_of, uses
from pykittens.ir.values import Global, Scalar, TileRef, Value

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def incomplete(
    kernel: Kernel,
    names: Mapping[str, str],
    name: str,
    mask: Mask,
    is_undefined: bool,
    largest: tuple[int, ...],
) -> Finding | None:
    """The finding for a tensor whose mask of written elements has gaps; None if the gaps are no fault.

    Gaps are no fault if the tensor had contents and data decide which elements are written, or if the kernel reads the
    tensor, too, unless the gap is the rest of an axis after its whole tiles.
    names: one name for each tensor, by all of its names. is_undefined: the tensor holds nothing before the launch.
    largest: the most elements of each axis that were written at once.
    """
    writes = [
        (call, conditions)
        for call, conditions in _writes(kernel.body)
        if any(names[t] == name for t in tensors(call, call.op.effects.writes))
    ]
    if all(call.op.effects.signals for call, _ in writes):
        return None  # flags, some of which may belong to no block
    numbers = {p for p in kernel.params if isinstance(p, Scalar)}
    by_data = any(
        _goes_by_data(call, numbers) or _depend_on_data(conditions, numbers, set())
        for call, conditions in writes
    )
    is_input = any(
        names[t] == name
        for node in walk(kernel.body)
        if isinstance(node, Call)
        for t in tensors(node, inputs_of(node))
    )
    if not is_undefined:
        if by_data and (is_input or mask.any()):
            return None  # a cache or a table of sums: it keeps its contents, and data say which elements change
        if is_input and mask.any() and not _is_cut(mask, largest):
            return None  # a part of a tensor changes in place
    if not mask.any():
        message = f"`{name}` is an output, and no element of it is written"
        is_meant = is_input
    else:
        message = f"{_share(mask)} of `{name}` is never written: {_where(~mask)}"
        is_kept = not is_undefined and any(conditions for _, conditions in writes)
        is_meant = is_input or by_data or is_kept
    return Finding(
        Kind.UNWRITTEN_MEMORY,
        message,
        tuple(FindingStep("this line", f"writes `{name}`", call.loc) for call, _ in writes[:2]),
        "",
        "let the grid cover the last tiles, pk.cdiv(extent, tile); if the rest is meant to keep its values, check with "
        f'kept="{name}", or --kept {name}',
        Level.WARNING if is_meant else Level.ERROR,
        Scope.EVERY_SCHEDULE,
    )


def _writes(
    block: Block, conditions: tuple[Value, ...] = ()
) -> Iterator[tuple[Call, tuple[Value, ...]]]:
    """The operations that write tensors, and the conditions of the run-time `if` and `while` that they are inside."""
    for node in block.nodes:
        if isinstance(node, Call) and any(tensors(node, node.op.effects.writes)):
            yield node, conditions
        own = (node.condition,) if isinstance(node, If | While) else ()
        for inner in blocks(node):
            yield from _writes(inner, (*conditions, *own))


def _is_cut(mask: Mask, largest: tuple[int, ...]) -> bool:
    """Whether the end of an axis is not written, and it is shorter than what is written at once."""
    for axis, most in enumerate(largest):
        others = tuple(a for a in range(mask.ndim) if a != axis)
        rest = mask.shape[axis] - 1 - int(np.flatnonzero(mask.any(axis=others))[-1])
        if 0 < rest < most:
            return True
    return False


def _goes_by_data(call: Call, arguments: Container[Value]) -> bool:
    """Whether the address that is written depends on data: on loaded numbers, or on numbers passed to the kernel."""
    effects = call.op.effects
    refs = [call.args[o] for o in effects.writes]
    address = [c for r in refs if isinstance(r, TileRef | Global) for c in coordinates(r)]
    return effects.index is not None or _depend_on_data(address, arguments, set())


def _depend_on_data(values: Iterable[Any], arguments: Container[Value], seen: set[Value]) -> bool:
    """Whether one of these values depends on an element of a tensor, on the device or on one of these arguments."""
    for value in values:
        if not isinstance(value, Value) or value in seen:
            continue
        seen.add(value)
        node = value.source
        if value in arguments or isinstance(node, Sharing):
            return True
        if isinstance(node, Call) and node.op.effects.reads:
            return True
        # The number of tasks is no address, though it may depend on an argument.
        is_index = isinstance(node, Grid) or (
            isinstance(node, ForTasks) and any(value is i for i in node.index)
        )
        if node is None or is_index:
            continue
        if _depend_on_data(uses(node), arguments, seen):
            return True
    return False


def _share(mask: Mask) -> str:
    """The share of a tensor that is not written."""
    share = 100 * (1 - float(mask.mean()))
    if share > 99:
        return "more than 99%"
    return f"{share:.0f}%" if share >= 1 else "less than 1%"


def _where(missing: Mask) -> str:
    """The smallest box that holds all unwritten elements."""
    names = [*(f"axis {i}" for i in range(missing.ndim - 2)), "rows", "columns"][-missing.ndim :]
    found = []
    for axis, name in enumerate(names):
        along = np.flatnonzero(missing.any(axis=tuple(a for a in range(missing.ndim) if a != axis)))
        first, last = int(along[0]), int(along[-1])
        if (first, last) != (0, missing.shape[axis] - 1):
            found.append(f"{name} {first} to {last}")
    return ", ".join(found) or "spread over all of it"
