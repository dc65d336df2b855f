"""A kernel as text, for readers and for golden files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    ForTasks,
    Grid,
    If,
    Kernel,
    Loop,
    Node,
    Require,
    Role,
    Sharing,
    WaitProducts,
    WaitStores,
    While,
)
from pykittens.ir.stages import Acquire, GiveBack, Leave
from pykittens.ir.values import Global, TileRef, Value


class Names:
    """A name for each value: the user's if there is one, with a number if it is taken."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.numbers: dict[str, int] = {}  # by stem: all lower numbers are taken

    def __call__(self, value: Value) -> str:
        if value not in self.names:
            name = self.stem(value.name)
            if not name or name in self.taken:
                stem = name or "t"
                numbers = count(self.numbers.get(stem, 1))
                number = next(n for n in numbers if f"{stem}{n}" not in self.taken)
                self.numbers[stem], name = number + 1, f"{stem}{number}"
            self.names[value] = name
            self.taken.add(name)
        return self.names[value]

    def stem(self, name: str) -> str:
        """The name from which that of a value is made."""
        return name


def text(kernel: Kernel) -> str:
    """The text of a kernel, one line per node."""
    names = Names()
    lines = [f"kernel {kernel.name}({', '.join(f'{names(p)}: {p.type}' for p in kernel.params)})"]
    for p in kernel.pipelines:
        flight = f", at most {p.flight} on their way" if p.flight is not None else ""
        lines.append(f"  pipeline {p.name}: {p.stages} x ({p.contents}){flight}")
    for s in kernel.shared:
        lines.append(
            f"  shared {names(s.value)}: {f'{s.count} x ' if s.count else ''}{s.value.type}"
        )
    lines += [f"  static {_operand(v, names)} = {n}" for v, n in kernel.statics]
    lines += _block(kernel.body, names, "  ")
    return "\n".join(lines) + "\n"


def _block(block: Block, names: Names, indent: str) -> Iterator[str]:
    for node in block.nodes:
        for line in _node(node, names):
            yield indent + line


def _node(node: Node, names: Names) -> Iterator[str]:
    match node:
        case Call():
            args = ", ".join(f"{n}={_operand(a, names)}" for n, a in _given(node))
            results = ", ".join(f"{names(r)}: {r.type} = " for r in node.results)
            yield f"{results}{node.op.name}({args})"
        case Require():
            yield f"require {_operand(node.condition, names)}"
        case Grid():
            dims = ", ".join(_operand(d, names) for d in node.dims)
            yield f"{', '.join(names(i) for i in node.index)} = grid({dims})"
        case Sharing():
            yield f"{', '.join(names(i) for i in node.index)} = sharing()"
        case Role():
            index = f" as {names(node.index)}" if node.index is not None else ""
            copying = "" if node.copy_warps is None else f"; {node.copy_warps} warps copy"
            yield f"{node.kind} x {node.groups}{index}{copying}:"
            yield from _block(node.body, names, "  ")
        case For():
            bounds = ", ".join(_operand(b, names) for b in (node.start, node.stop, node.step))
            yield from _loop(node, f"for {names(node.index)} in range({bounds})", names)
        case ForTasks():
            dims = ", ".join(_operand(d, names) for d in node.tasks.dims)
            index = ", ".join(names(i) for i in node.index)
            order, most = node.tasks.order, node.tasks.most
            size = "" if order.size is None else f"({_operand(order.size, names)})"
            limit = "" if most is None else f"; at most {_operand(most, names)} blocks"
            if node.tasks.tickets is not None:
                limit += f"; by tickets of {node.tasks.tickets.name}"
            head = f"for {index} in tasks({dims}; {order.kind}{size}{limit})"
            yield from _loop(node, head, names)
        case While():
            yield from _loop(node, "while", names)
        case If():
            yield f"if {_operand(node.condition, names)}:"
            yield from _block(node.then, names, "  ")
            if node.otherwise.nodes:
                yield "else:"
                yield from _block(node.otherwise, names, "  ")
            for m in node.merged:
                choices = f"{_operand(m.then, names)} or {_operand(m.otherwise, names)}"
                yield f"{names(m.result)}: {m.result.type} = {choices}"
        case Acquire():
            tiles = ", ".join(names(t) for t in node.tiles.values())
            yield f"{tiles} = {node.pipeline.name}.{node.side}()"
        case Leave():
            yield f"{node.acquire.pipeline.name}: the stage is filled"
        case GiveBack():
            count = f"{node.count}" if node.exact else f"up to {node.count}"
            yield f"{node.pipeline.name}: give back {count}, keep {node.keep}"
        case WaitProducts():
            yield f"wait for products, {node.pending} pending: {', '.join(names(v) for v in node.completes)}"
        case WaitStores():
            yield f"wait until stores have {'read' if node.read else 'written'}"


def _loop(node: Loop, head: str, names: Names) -> Iterator[str]:
    carried = ", ".join(f"{names(c.param)} = {_operand(c.init, names)}" for c in node.carried)
    yield f"{head} carrying {carried}:" if carried else f"{head}:"
    if isinstance(node, While):
        yield from _block(node.test, names, "  test: ")
        yield f"  test: {_operand(node.condition, names)}"
    yield from _block(node.body, names, "  ")
    for c in node.carried:
        yield f"  next {names(c.param)} = {_operand(c.next, names)}, after the loop {names(c.result)}"


def _given(call: Call) -> Iterator[tuple[str, Any]]:
    """The arguments of a call by name, without options left at their defaults."""
    for name, arg in call.args.items():
        default = call.op.__signature__.parameters[name].default
        if isinstance(arg, Value | TileRef) or arg is not default:
            yield name, arg


def _operand(thing: Any, names: Names) -> str:
    match thing:
        case TileRef():
            index = ", ".join(_operand(i, names) for i in thing.index)
            windows = "".join(
                f"; axis {axis} {' '.join(_operand(b, names) for b in window.bounds)}"
                for axis, window in thing.windows.items()
            )
            axes = range(len(thing.index))
            plane = (
                ""
                if thing.plane == tuple(axes[-2:])
                else f"; plane {' '.join(map(str, thing.plane))}"
            )
            return f"{names(thing.tensor)}[{index}{plane}{windows}]"
        case Global():
            return names(thing) if thing is thing.owner else _operand(thing.first, names)
        case Value():
            return names(thing)
        case tuple() if any(isinstance(x, Value) for x in thing):
            return f"({', '.join(_operand(x, names) for x in thing)})"
        case _:
            return str(thing)
