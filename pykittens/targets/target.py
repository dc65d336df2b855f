"""A target: a table of lowerings, the limits of the hardware, and what it cannot do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pykittens.errors import BackendError, UnsupportedError
from pykittens.ir.nodes import Call, Node, Role
from pykittens.ir.op import Engine, Op

# The first argument is the emitter: each vendor has its own.
Lowering = Callable[[Any, Call], None]
NodeLowering = Callable[[Any, Any], None]
# Why a lowering leaves a call, in a role, to the parent's; None where it takes it.
Declines = Callable[[Role, Call], str | None]


@dataclass(eq=False)
class Target:
    """How operations become CUDA C++ for one generation of GPUs.

    A lowering is looked up by operation, then by family, then in the parent; one may decline a call. arch: what is
    compiled for. shared_bytes: most shared memory a block can have. registers: registers of a multiprocessor. overlaps:
    whether a program may start before the launch before it has ended, and waits for that itself. headers: files of
    device functions, in order. max_cluster: most blocks of a cluster. warpgroups: whether four warps multiply together
    and trade registers. engines: for each engine, whether it carries a call of a role on after the instruction, reading
    and writing shared memory by itself; without an entry the lanes do the work. cards: other architectures that run
    this target's programs, and their shared memory a block.
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
    engines: dict[Engine, Callable[[Role, Call], bool]] = field(default_factory=dict)
    cards: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    lowerings: dict[str, Lowering] = field(default_factory=dict)
    declines: dict[str, Declines] = field(default_factory=dict)
    nodes: dict[type, NodeLowering] = field(default_factory=dict)  # pipelines and waits

    def lower(
        self, *names: str, declines: Declines | None = None
    ) -> Callable[[Lowering], Lowering]:
        """Decorator: the lowering of operations or families of these names, of the calls it does not decline."""

        def register(lowering: Lowering) -> Lowering:
            for name in names:
                self.lowerings[name] = lowering
                if declines is not None:
                    self.declines[name] = declines
            return lowering

        return register

    def write(self, *kinds: type) -> Callable[[NodeLowering], NodeLowering]:
        """Decorator: how nodes of pipelines and waits of these kinds are written."""

        def register(lowering: NodeLowering) -> NodeLowering:
            self.nodes |= dict.fromkeys(kinds, lowering)
            return lowering

        return register

    def find(
        self, op: Op[..., Any], role: Role | None = None, call: Call | None = None
    ) -> Lowering:
        """The lowering of an operation, or of a call of it in a role; a BackendError where the target has none."""
        reasons: list[str] = []
        target: Target | None = self
        while target is not None:
            if op.name in target.unsupported:
                reasons.append(target.unsupported[op.name])
                break
            for key in (op.name, op.family.name if op.family else ""):
                if key not in target.lowerings:
                    continue
                declines = target.declines.get(key)
                if declines is None or role is None or call is None:
                    return target.lowerings[key]
                if (reason := declines(role, call)) is None:
                    return target.lowerings[key]
                reasons.append(reason)
            target = target.parent
        if not reasons:
            raise BackendError(f"{op.name}: {self.name} has no lowering for it")
        raise UnsupportedError(f"{op.name}: {self.name} cannot do it: {'; '.join(reasons)}")

    def write_node(self, emitter: Any, node: Node) -> None:
        """Write a node of pipelines or waits the way this target or its parent does."""
        target: Target | None = self
        while target is not None:
            if type(node) in target.nodes:
                target.nodes[type(node)](emitter, node)
                return
            target = target.parent
        raise BackendError(f"{self.name} has no code for {type(node).__name__}")

    def runs_on(self, role: Role, call: Call) -> bool:
        """Whether an engine of its own carries a call on, rather than the lanes of the role."""
        engine = call.op.effects.engine
        carries = self.engines.get(engine) if engine is not None else None
        return carries is not None and carries(role, call)


TARGETS: dict[str, Target] = {}

_ARCHITECTURE = re.compile(r"sm_(\d+)([af]?)")


def target_for(arch: str, chosen: str = "") -> Target:
    """The target of an architecture such as `sm_90a`: its own, else the newest whose programs it runs.

    `chosen` names another target whose lowerings are taken, with that target's limits.
    """
    if chosen:
        return _chosen(arch, chosen)
    if arch in TARGETS:
        return TARGETS[arch]
    able = [t for name, t in TARGETS.items() if _runs(arch, name)]
    if not able:
        raise BackendError(
            f"no target for the architecture {arch!r}",
            help=f"there are targets for {', '.join(TARGETS)} and what is newer; "
            "the emulator runs everywhere",
        )
    newest = max(able, key=lambda t: _number(t.name))
    card = f"sm_{_number(arch)}"
    return replace(
        newest, name=arch, arch=arch, shared_bytes=newest.cards.get(card, newest.shared_bytes)
    )


def _chosen(arch: str, name: str) -> Target:
    if name not in TARGETS:
        raise BackendError(f"no target {name!r}", help=f"there are {', '.join(TARGETS)}")
    if not _runs(arch, name):
        raise BackendError(f"{arch} cannot run programs for {name}")
    least = min(TARGETS[name].shared_bytes, target_for(arch).shared_bytes)
    return replace(TARGETS[name], arch=arch, shared_bytes=least)


def _number(arch: str) -> int:
    match = _ARCHITECTURE.fullmatch(arch)
    return int(match[1]) if match else 0


def _runs(arch: str, name: str) -> bool:
    """Whether an architecture runs a target's programs: those for one chip only run there, the others on newer."""
    if arch == name:
        return True
    match = _ARCHITECTURE.fullmatch(name)
    return match is not None and not match[2] and _number(arch) >= int(match[1])
