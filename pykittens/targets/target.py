"""A target: the lowerings for a generation of GPUs, the limits of the hardware, and the unsupported operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykittens.errors import BackendError, UnsupportedError
from pykittens.ir.nodes import Call, Node, Role
from pykittens.ir.op import Engine, Op

# The first argument is the vendor's emitter, the second a call or another node.
Write = Callable[[Any, Any], None]
# The reason why a lowering or an engine does not take a call of a role; None if it takes the call.
Declines = Callable[[Role, Call], str | None]


class Lowering(NamedTuple):
    """The function that writes a call or a node, the function that declines calls, and the engine that does the work.

    engine: None if the lanes of the role do the work.
    """

    write: Write
    declines: Declines | None = None
    engine: Engine | None = None


class Lowerings(dict[str | type, Lowering]):
    """A table of lowerings, by the name of an operation or of a family, or by the type of a node.

    Each file of lowerings fills one table; a target joins the tables of its files: `Lowerings(MAP | REDUCE)`.
    """

    def lower(
        self, *keys: str | type, declines: Declines | None = None, engine: Engine | None = None
    ) -> Callable[[Write], Write]:
        """Decorator: the lowering of operations, families or nodes, except for the calls that it declines."""

        def register(write: Write) -> Write:
            self.update(dict.fromkeys(keys, Lowering(write, declines, engine)))
            return write

        return register


@dataclass(eq=False)
class Target:
    """How operations become CUDA C++ for one generation of GPUs.

    A lowering is looked up by operation, then by family, then in the parent; a lowering may decline a call. arch: the
    architecture that programs are compiled for. shared_bytes: the most shared memory per block. registers: registers
    per multiprocessor. overlaps: whether a program may start before the previous launch has ended, and waits for that
    end itself. headers: files of device functions, in order. max_cluster: the most blocks per cluster. warpgroups:
    whether four warps multiply together and trade registers. cards: other architectures that run this target's
    programs, and their shared memory per block. unsupported: operations that neither the target nor its parent can do,
    with the reason.
    """

    name: str
    arch: str = ""
    parent: Target | None = None
    shared_bytes: int = 0
    registers: int = 65536
    overlaps: bool = False
    headers: tuple[str, ...] = ()
    max_cluster: int = 1
    warpgroups: bool = False
    cards: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    lowerings: Lowerings = field(default_factory=Lowerings)

    def lower(self, *names: str, declines: Declines | None = None) -> Callable[[Write], Write]:
        """Decorator: adds a lowering of operations to the target, for programs outside the package."""
        return self.lowerings.lower(*names, declines=declines)

    @property
    def engines(self) -> dict[Engine, Declines | None]:
        """The engines of the lowerings, each with the function that gives the reason why it does not do a call."""
        found = [x for t in self.lineage() for x in t.lowerings.values()]
        return {x.engine: x.declines for x in reversed(found) if x.engine is not None}

    def lineage(self) -> Iterator[Target]:
        """The target and its ancestors, nearest first."""
        target: Target | None = self
        while target is not None:
            yield target
            target = target.parent

    def find(self, op: Op[Any], role: Role | None = None, call: Call | None = None) -> Write:
        """The lowering of an operation, or of a call of it in a role; a BackendError if the target has none."""
        reasons: list[str] = []
        for target in self.lineage():
            if op.name in target.unsupported:
                reasons.append(target.unsupported[op.name])
                break
            for key in (op.name, op.family.name if op.family else ""):
                if key not in target.lowerings:
                    continue
                write, declines, _ = target.lowerings[key]
                if declines is None or role is None or call is None:
                    return write
                if (reason := declines(role, call)) is None:
                    return write
                reasons.append(reason)
        if not reasons:
            raise BackendError(f"{op.name}: {self.name} has no lowering for it")
        raise UnsupportedError(f"{op.name}: {self.name} cannot do it: {'; '.join(reasons)}")

    def find_node(self, node: Node) -> Write:
        """The lowering of a node of pipelines or waits."""
        for target in self.lineage():
            if type(node) in target.lowerings:
                return target.lowerings[type(node)].write
        raise BackendError(f"{self.name} has no code for {type(node).__name__}")

    def carries(self, role: Role, call: Call) -> bool:
        """Whether an engine, rather than the lanes of the role, does the work of a call, at least in part."""
        engine = call.op.effects.engine
        if engine is None or engine not in (engines := self.engines):
            return False
        declines = engines[engine]
        return declines is None or declines(role, call) is None
