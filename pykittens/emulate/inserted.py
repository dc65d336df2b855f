"""Waits, arrivals, fences and releases that the compiler inserted, with the user's lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, Node, Role, WaitProducts, WaitStores, walk
from pykittens.ir.stages import Acquire, GiveBack, Leave
from pykittens.ir.values import SharedTile, Value

What = Literal["wait", "arrival", "fence", "release"]


@dataclass(frozen=True)
class Inserted:
    """One synchronisation in the program of a role that is not in the user's text.

    The end of a fill may insert two, a fence and an arrival; so may the release of a stage that lanes write.
    """

    node: Node
    what: What
    role: Role
    loc: Loc | None
    description: str


def inserted(kernel: Kernel) -> list[Inserted]:
    """Everything that the compiler inserted in a lowered kernel, role by role, in program order."""
    return [
        # Nodes at the end of a role belong to no line in it.
        Inserted(node, what, role, getattr(node, "loc", None) or role.loc, description)
        for role in kernel.roles
        for node in walk(role.body)
        for what, description in _of_node(node, role)
    ]


def _of_node(node: Node, role: Role) -> Iterator[tuple[What, str]]:
    match node:
        case Acquire():
            state = "free" if node.side == "fill" else "full"
            yield "wait", f"until a stage of `{node.pipeline.name}` is {state}"
        case Leave():
            name = node.acquire.pipeline.name
            if stores_to(role, node.acquire):
                yield "fence", f"the engines see what was stored to the stage of `{name}`"
            yield "arrival", f"the stage of `{name}` is filled"
        case GiveBack():
            if node.fences:
                yield (
                    "fence",
                    f"the engines see what was stored to the stages of `{node.pipeline.name}`",
                )
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
    calls = (n for n in walk(role.body) if isinstance(n, Call) and n.op.effects.engine is None)
    targets = (n.args[name] for n in calls for name in n.op.effects.writes)
    return any(
        isinstance(t, SharedTile) and t.stage is not None and t.stage.acquire is acquire
        for t in targets
    )


def _release(node: GiveBack) -> str:
    stages = "a stage" if node.count == 1 else f"{node.count} stages"
    count = stages if node.exact else f"up to {stages}"
    keep = f", {node.keep} still held" if node.keep else ""
    return f"{count} of `{node.pipeline.name}` released{keep}"


def _wait_for_products(node: WaitProducts) -> str:
    """The products that a wait completes and those that stay in flight."""
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
