"""Waits, arrivals, fences and releases that the compiler placed, with the user's lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pykittens.errors import Loc
from pykittens.ir.nodes import (
    Acquire,
    Call,
    GiveBack,
    Kernel,
    Leave,
    Node,
    Role,
    WaitProducts,
    WaitStores,
    walk,
)
from pykittens.ir.values import SharedTile, Value

What = Literal["wait", "arrival", "fence", "release"]


@dataclass(frozen=True)
class Placed:
    """One thing that stands in the program of a role and not in the user's text.

    The end of a fill may stand for two: a fence and an arrival.
    """

    node: Node
    what: What
    role: Role
    loc: Loc | None
    description: str


def placed(kernel: Kernel) -> list[Placed]:
    """Everything that was placed in a lowered kernel, role by role, in program order."""
    return [
        # What stands at the end of a role belongs to no line in it.
        Placed(node, what, role, getattr(node, "loc", None) or role.loc, description)
        for role in kernel.roles
        for node in walk(role.body)
        for what, description in _of_node(node, role)
    ]


def _of_node(node: Node, role: Role) -> Iterator[tuple[What, str]]:
    match node:
        case Acquire(side="fill"):
            yield "wait", f"until a stage of `{node.pipeline.name}` is free"
        case Acquire():
            yield "wait", f"until a stage of `{node.pipeline.name}` is full"
        case Leave():
            name = node.acquire.pipeline.name
            if stores_to(role, node.acquire):
                yield "fence", f"what was stored to the stage of `{name}` is seen by the engines"
            yield "arrival", f"the stage of `{name}` is filled"
        case GiveBack():
            yield "release", _release(node)
        case WaitProducts():
            yield "wait", _wait_for_products(node)
        case WaitStores():
            done = "have read their tiles" if node.read else "have been written"
            yield "wait", f"until all stores of the role {done}"
        case _:
            pass


def stores_to(role: Role, acquire: Acquire) -> bool:
    """Whether lanes of a role store to a stage that it fills."""
    return any(
        isinstance(n, Call)
        and n.op.effects.engine is None
        and any(
            isinstance(tile := n.args[name], SharedTile)
            and tile.stage is not None
            and tile.stage.acquire is acquire
            for name in n.op.effects.writes
        )
        for n in walk(role.body)
    )


def _release(node: GiveBack) -> str:
    stages = "a stage" if node.count == 1 else f"{node.count} stages"
    count = stages if node.exact else f"up to {stages}"
    keep = f", {node.keep} still held" if node.keep else ""
    return f"{count} of `{node.pipeline.name}` given back{keep}"


def _wait_for_products(node: WaitProducts) -> str:
    """What a wait completes and what stays in flight."""
    done, flying = _listed(node.completes), _listed(node.leaves)
    text = f"until {' and '.join(done)} {'is' if len(done) == 1 else 'are'} complete"
    if node.frees:
        text += f" and {' and '.join(_listed(node.frees))} may be overwritten"
    if set(done) & set(flying):
        text += ", of all products but the newest"
    elif flying:
        text += f"; {' and '.join(flying)} {'stays' if len(flying) == 1 else 'stay'} in flight"
    return text + (f", {node.pending} pending" if node.pending else "")


def _listed(values: Sequence[Value]) -> list[str]:
    """The names of values as the user wrote them, each once."""
    return list(dict.fromkeys(f"`{v.name}`" if v.name else str(v.type) for v in values))
