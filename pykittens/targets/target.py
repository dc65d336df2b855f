"""A target: a table of lowerings, the limits of the hardware, and what it cannot do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykittens.errors import BackendError
from pykittens.ir.nodes import Call, Node
from pykittens.ir.op import Op

# The first argument is the emitter: each vendor has its own.
Lowering = Callable[[Any, Call], None]


@dataclass(eq=False)
class Target:
    """How operations become CUDA C++ for one generation of GPUs.

    A lowering is looked up by operation, then by family, then in the parent. shared_bytes: most shared memory a
    block can have. registers: registers of a multiprocessor. headers: files of device functions, in order.
    """

    name: str
    arch: str = ""
    parent: Target | None = None
    shared_bytes: int = 0
    registers: int = 65536
    headers: tuple[str, ...] = ()
    unsupported: dict[str, str] = field(default_factory=dict)
    lowerings: dict[str, Lowering] = field(default_factory=dict)
    nodes: Callable[[Any, Node], None] | None = None  # pipelines and waits

    def lower(self, *names: str) -> Callable[[Lowering], Lowering]:
        """Decorator: the lowering of operations or families of these names."""

        def register(lowering: Lowering) -> Lowering:
            for name in names:
                self.lowerings[name] = lowering
            return lowering

        return register

    def find(self, op: Op[..., Any]) -> Lowering:
        """The lowering of an operation; a BackendError where the target has none."""
        target: Target | None = self
        while target is not None:
            if op.name in target.unsupported:
                raise BackendError(
                    f"{op.name}: {self.name} cannot do it: {target.unsupported[op.name]}"
                )
            for key in (op.name, op.family.name if op.family else ""):
                if key in target.lowerings:
                    return target.lowerings[key]
            target = target.parent
        raise BackendError(f"{op.name}: {self.name} has no lowering for it")

    def write_node(self, emitter: Any, node: Node) -> None:
        """Write a node of pipelines or waits the way this target or its parent does."""
        target: Target | None = self
        while target is not None and target.nodes is None:
            target = target.parent
        if target is None or target.nodes is None:
            raise BackendError(f"{self.name} has no pipelines")
        target.nodes(emitter, node)


TARGETS: dict[str, Target] = {}


def target_for(arch: str) -> Target:
    """The target of an architecture such as `sm_90a`."""
    if arch not in TARGETS:
        known = ", ".join(TARGETS)
        raise BackendError(
            f"no target for the architecture {arch!r}",
            help=f"there are targets for {known}; the emulator runs everywhere",
        )
    return TARGETS[arch]
