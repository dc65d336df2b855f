"""The recorder: collects the nodes of a kernel while its function runs once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pykittens.errors import LanguageError
from pykittens.ir.nodes import Block, Kernel, Node, Role, coordinates
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import Global, TileRef, Value


class Builder:
    """Holds the open blocks of one kernel while it is recorded."""

    def __init__(self, kernel: Kernel, host: Mapping[Value, Any]) -> None:
        self.kernel = kernel
        self.host = host  # the arguments of the call being recorded, for static()
        self.stack: list[Block] = [kernel.body]
        self.role: Role | None = None
        self.merging: Any = None  # the Merging that records a function into the roles of the kernel
        self.homes: Any = (
            None  # the Homes of the function that is recorded, if its values have homes
        )
        self.has_homes = False  # whether the kernel has called pk.homes
        # What the kernel has declared outside of its roles, such as a grid.
        self.declared: list[Any] = []
        # Lists that stand for one of others when the kernel runs, with their items at first, and checks of them that
        # are made when the function has ended.
        self.stands_for: list[tuple[Any, Any, list[Any]]] = []
        self.checks: list[Callable[[], None]] = []
        # Containers by their identity, with the names to which the function first assigns them.
        self.containers: dict[int, tuple[str, Any]] = {}

    @property
    def warps(self) -> int:
        """Warps of the group that runs the open block."""
        return self.role.warps if self.role is not None else self.kernel.warps

    def append(self, node: Node, results: list[Any] | None = None) -> None:
        self.stack[-1].nodes.append(node)
        for value in results or []:
            self.define(value, node, self.stack[-1])

    @staticmethod
    def define(value: Value, node: Node, block: Block) -> None:
        value.block, value.source = block, node

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        self.stack.append(block)
        try:
            yield
        finally:
            self.stack.pop()

    def check_use(self, thing: Any, what: str) -> None:
        """Raise unless a value may be used here: its block is open, and its stage is still held."""
        match thing:
            case Undefined():
                thing.fail()
            case TileRef() | Global():
                for coordinate in coordinates(thing):
                    self.check_use(coordinate, what)
            case Value():
                if thing.block is not None and not any(b is thing.block for b in self.stack):
                    self._out_of_scope(thing, what)
                stage = getattr(thing, "stage", None)
                if stage is not None and stage.left is not None:
                    raise LanguageError(
                        f"{what}: `{thing.name or 'the tile'}` belongs to a stage that was left at {stage.left}",
                        operands=thing.operand,
                        help="a stage is held inside its `with` only",
                    )

    def _out_of_scope(self, value: Value, what: str) -> None:
        raise LanguageError(
            f"{what}: `{value.name or 'this value'}` is used outside {value.block.owner} that made it",
            operands=value.origin,
            help="bind the name before the loop to carry it out, or pass tiles between roles through a pipeline",
        )


_local = threading.local()


def recording() -> Builder | None:
    """The recorder of this thread, None outside a kernel."""
    return getattr(_local, "builder", None)


def current(what: str) -> Builder:
    """The recorder of this thread; a LanguageError naming `what` outside a kernel."""
    builder = recording()
    if builder is None:
        raise LanguageError(
            f"{what}: only inside a kernel", help="mark the function with @pk.kernel and call that"
        )
    return builder


@contextmanager
def record(builder: Builder) -> Iterator[None]:
    """Make a recorder the one of this thread."""
    before = recording()
    _local.builder = builder
    try:
        yield
    finally:
        _local.builder = before
