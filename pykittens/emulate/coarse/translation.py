"""A role of a kind of instruction as a generator function of Python, which computes with whole NumPy arrays.

Nodes become statements, and operations calls of their NumPy meanings. A group stops at a `yield` of what it waits for.
The groups of a role are one generator if they can run together (`groups.py`), otherwise one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pykittens.emulate.barriers import StageRing
from pykittens.emulate.coarse.groups import axes_of, column, differing, lifted, one_by_one, stacked
from pykittens.emulate.group import typed
from pykittens.emulate.memory import GlobalTile
from pykittens.emulate.waiting import Passes, Wait, pause, wait_of_call
from pykittens.errors import Loc
from pykittens.ir.evaluate import IN_PYTHON
from pykittens.ir.nodes import Block, Call, For, If, Node, Role, While, calls, walk
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Engine
from pykittens.ir.passes.prune import is_live, live_values
from pykittens.ir.stages import Acquire, Leave, Pipeline, Side
from pykittens.ir.structure import bindings, uses
from pykittens.ir.values import Global, Scalar, TileRef, Value
from pykittens.types.tiles import RT, RV, SCALAR

Array = np.ndarray[Any, np.dtype[Any]]
FILE = "<role of an instruction>"  # that of all generators, in tracebacks


@dataclass
class Translation:
    """A role of a kind, and the text of its function.

    outside: what stands before the roles. given: the names of values that the function takes. known: values that the
    host knows. tensors: arrays by name. shared: the memory outside of rings.
    """

    role: Role
    outside: list[Node]
    given: Mapping[Value, str]
    known: Mapping[Value, Any]
    tensors: Mapping[str, Array]
    shared: set[Value]
    lines: list[str] = field(default_factory=list)
    nodes: list[Node | None] = field(default_factory=list)  # the node of each line
    constants: dict[str, Any] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)
    indent: str = ""
    _node: Node | None = None

    @cached_property
    def body(self) -> Block:
        return Block([*self.outside, *self.role.body.nodes])

    @cached_property
    def live(self) -> set[Value]:
        return live_values(self.body)

    @cached_property
    def rings(self) -> list[tuple[Pipeline, Side]]:
        """The rings of which the role takes stages, and from which side."""
        found = ((n.pipeline, n.side) for n in walk(self.body) if isinstance(n, Acquire))
        return list(dict.fromkeys(found))

    @cached_property
    def differing(self) -> set[Value]:
        """The values that differ between the groups of the generator."""
        return differing(self.role, self.body)

    @property
    def generators(self) -> int:
        """How many run the role: one, or one for each group."""
        return 1 if self.differing else self.role.groups

    # -- statements ------------------------------------------------------------------------------

    def function(self) -> Callable[..., Iterator[Wait]]:
        """The generator function: of what is given, the number of the group or of all, the rings, the shared memory."""
        self.constants |= {f.__name__: f for f in (stacked, lifted, column, wait_for_stage)}
        self.constants |= {f.__name__: f for f in (GlobalTile, typed, wait_of_call, pause, Passes)}
        self.constants["groups"] = range(self.role.groups)
        self.names |= self.given
        if self.role.index is not None:
            self.names[self.role.index] = "group"
        with self._inside(
            f"def role({', '.join([*self.given.values(), 'group', 'rings', 'shared'])}):"
        ):
            self._write("yield from ()")
            for ring, side in self.rings:
                self._write(f"{self._name(ring)} = rings[{self._constant(ring)}]")
                self._write(f"{self._taken(ring, side)} = {self._name(ring)}.taken")
            for value in {v for n in walk(self.body) for v in uses(n)} & self.shared:
                self._write(f"{self._name(value)} = shared[{self._constant(value)}]")
            self._block(self.body)
        exec(compile("\n".join(self.lines), FILE, "exec"), self.constants)
        made: Callable[..., Iterator[Wait]] = self.constants["role"]
        return made

    def loc(self, line: int) -> Loc | None:
        """Where the user wrote what a line does."""
        return getattr(self.nodes[line - 1], "loc", None)

    def _write(self, line: str) -> None:
        self.lines.append(self.indent + line)
        self.nodes.append(self._node)

    @contextmanager
    def _inside(self, line: str) -> Iterator[None]:
        """Lines inside of a statement."""
        self._write(line)
        before, self.indent = self.indent, self.indent + " "
        yield
        self.indent = before

    def _block(self, block: Block) -> None:
        self._write("pass")
        for node in block.nodes:
            if not is_live(node, self.live):
                continue
            self._node = node
            match node:
                case Call():
                    self._call(node)
                case Acquire():
                    self._acquire(node)
                case Leave():
                    of, side = node.acquire, "full" if node.acquire.side == "fill" else "empty"
                    self._write(f"{self._name(of.pipeline)}.{side}[{self._name(of)}].arrive()")
                case For():
                    self._carry((c.param, c.init) for c in self._bound(node))
                    bounds = f"{self._text(node.start)}, {self._text(node.stop)}, {node.step}"
                    with self._inside(f"for {self._name(node.index)} in range({bounds}):"):
                        self._block(node.body)
                        self._carry((c.param, c.next) for c in self._bound(node))
                    self._carry((c.result, c.param) for c in self._bound(node))
                case While():
                    self._while(node)
                case If():
                    with self._inside(f"if {self._text(node.condition)}:"):
                        self._block(node.then)
                        self._carry((m.result, m.then) for m in self._bound(node))
                    with self._inside("else:"):
                        self._block(node.otherwise)
                        self._carry((m.result, m.otherwise) for m in self._bound(node))
                case _:
                    raise AssertionError(f"{type(node).__name__} in a role of an instruction")

    def _while(self, node: While) -> None:
        """A loop that lets others go on if a pass finds what the last one found, for it may wait for them."""
        self._carry((c.param, c.init) for c in self._bound(node))
        passes = f"passes{len(self.lines)}"
        self._write(f"{passes} = Passes({self._constant(node.loc)})")
        with self._inside("while True:"):
            self._block(node.test)
            self._write(f"if not {self._text(node.condition)}: break")
            if any(c.op.effects.reads for c in calls(node.test)):
                tested = [r for n in node.test.nodes if isinstance(n, Call) for r in n.results]
                found = [*tested, *(c.param for c in self._bound(node))]
                texts = ", ".join(self._text(v) for v in found if v in self.names)
                self._write(f"if {passes}.are_alike([{texts}]): yield pause(None)")
            self._block(node.body)
            self._carry((c.param, c.next) for c in self._bound(node))
        self._carry((c.result, c.param) for c in self._bound(node))

    def _bound(self, node: Node) -> list[Any]:
        """What a loop carries or a branch merges, if something reads it."""
        return [b for b in bindings(node) if not self.live.isdisjoint(b.names)]

    def _carry(self, pairs: Iterator[tuple[Value, Any]]) -> None:
        """Bind values to others, at once."""
        some, texts = list(pairs), list[str]()
        for value, source in some:
            text = self._text(source if isinstance(source, Value) else typed(value, source))
            if value in self.differing and not self._differs(source):
                text = f"lifted({text}, {self.role.groups})"
            texts.append(text)
        if some:
            self._write(f"{', '.join(self._name(v) for v, _ in some)} = {', '.join(texts)}")

    def _acquire(self, node: Acquire) -> None:
        """Wait for a stage and take it; its number in the ring has the name of the node."""
        ring, stages = node.pipeline, node.pipeline.stages
        name, at, taken = self._name(ring), self._name(node), self._taken(ring, node.side)
        self._write(f"{at} = {taken} % {stages}")
        lacks = "empty[{}].phases <" if node.side == "fill" else "full[{}].phases <="
        self._write(
            f"if {name}.{lacks.format(at)} {taken} // {stages}: "
            f"yield wait_for_stage({self._constant(node)}, {name}, {taken})"
        )
        if any("@" in key for key in ring.tiles):
            check = "fill_as" if node.side == "fill" else "check_view"
            self._write(f"{name}.{check}({taken}, {tuple(node.tiles)!r})")
        for key, tile in node.tiles.items():
            self._write(f"{self._name(tile)} = {name}.stages[{at}][{key!r}]")
        self._write(f"{taken} += 1")

    # -- operations ------------------------------------------------------------------------------

    def _call(self, node: Call) -> None:
        apart = one_by_one(node, self.differing)
        texts = [self._text(x, "[g]" if apart else "") for x in node.args.values()]
        if node.op.effects.waits:
            with self._each(apart):
                given = _named(node, texts)
                self._write(f"wait = wait_of_call({self._constant(node)}, {given})")
                self._write("if not wait.ready(): yield wait")
        if node.results:
            self._bind(node, self._evaluated(node, texts), apart)
            return
        with self._each(apart):
            self._write(self._evaluated(node, texts))
            if node.op.effects.engine is Engine.COPY_IN and node.args["signal"] is not None:
                signal = dict(zip(node.args, texts, strict=True))["signal"]
                self._write(f"{signal}.land({node.args['dst'].type.bytes})")

    def _bind(self, node: Call, call: str, apart: bool) -> None:
        """Bind the results of a call; apart: the groups do it one by one."""
        if len(node.results) == 1:
            (result,) = node.results
            text = self._typed(result, call, node)
            if apart and node.op.by_element and isinstance(result.type, RT | RV):
                text = self._evaluated(node, self._of_all(node, axes_of(result.type)))
            elif apart:
                text = self._listed(result, f"{text} for g in groups")
            self._write(f"{self._name(result)} = {text}")
            return
        self._write(f"found = [{call} for g in groups]" if apart else f"found = {call}")
        for i, result in enumerate(node.results):
            text = self._typed(result, f"one[{i}]" if apart else f"found[{i}]", node)
            text = self._listed(result, f"{text} for one in found") if apart else text
            self._write(f"{self._name(result)} = {text}")

    @contextmanager
    def _each(self, apart: bool) -> Iterator[None]:
        """Lines that the groups run one by one, if they do."""
        if apart:
            with self._inside("for g in groups:"):
                yield
        else:
            yield

    def _evaluated(self, node: Call, texts: list[str]) -> str:
        """An operation on operands with these texts."""
        op = node.op
        if _counts(node):
            assert op.scalar is not None
            return f"({op.scalar.c.format(*texts)})"
        if op.meaning is not None:
            given = ", ".join(f"{name}={text}" for name, text in zip(node.args, texts, strict=True))
            return f"{self._constant(op.meaning)}({given})"
        assert op.family is not None
        return f"{self._constant(op.family.numpy)}({self._constant(op)}, {_named(node, texts)})"

    def _of_all(self, node: Call, axes: int) -> list[str]:
        """The arguments of a call for all groups, whose arrays have as many axes, without that of the groups."""
        texts = []
        for x in node.args.values():
            text = self._text(x)
            if isinstance(x, Scalar):
                if x in self.differing:
                    text = f"column({text}, {self._constant(x.dtype.numpy)}, {axes})"
            elif node.op.meaning is not None and isinstance(x, Value) and x not in self.differing:
                # NumPy broadcasts operands, but a meaning may compare their sizes.
                text = f"lifted({text}, {self.role.groups})"
            texts.append(text)
        return texts

    def _typed(self, result: Value, text: str, node: Call) -> str:
        """A result in its type: a scalar is a number of its dtype."""
        if not isinstance(result.type, SCALAR):
            return text
        match result.dtype.kind:
            case "float":
                return f"{self._constant(result.dtype.numpy.type)}({text})"
            case "bool":
                return f"bool({text})"
            case "int":
                checked = f"typed({self._constant(result)}, {{}}, {self._constant(node)})"
                if not _counts(node):
                    return checked.format(text)
                least, largest = result.dtype.least, result.dtype.largest
                return f"(x if {least} <= (x := {text}) <= {largest} else {checked.format('x')})"

    def _listed(self, result: Value, parts: str) -> str:
        return f"stacked([{parts}])" if isinstance(result.type, RT | RV) else f"[{parts}]"

    # -- names and values ------------------------------------------------------------------------

    def _differs(self, thing: Any) -> bool:
        return isinstance(thing, Value) and thing in self.differing

    def _name(self, thing: Any) -> str:
        """The variable of a value, a ring or an acquired stage."""
        return self.names.setdefault(thing, f"v{len(self.names)}")

    def _taken(self, ring: Pipeline, side: Side) -> str:
        """The variable that counts the stages that are taken."""
        return f"{self._name(ring)}_{side}"

    def _constant(self, thing: Any) -> str:
        """The text of what is known before the run: a literal, or a name."""
        if thing is None or isinstance(thing, bool | int | str):
            return repr(thing)
        name = f"c{len(self.constants)}"
        self.constants[name] = thing
        return name

    def _text(self, thing: Any, at: str = "") -> str:
        """An operand; at: the index of a group for what differs between groups."""
        match thing:
            case TileRef() | Global():
                ref = thing.first
                place = "".join(f"{self._text(i, at)}, " for i in ref.index)
                windows = "".join(
                    f"{axis}: ({', '.join(self._text(x, at) for x in (*w.bounds, w.stop))}), "
                    for axis, w in ref.windows.items()
                )
                name = ref.tensor.name
                array = self._constant(self.tensors[name])
                return f"GlobalTile({name!r}, {array}, ({place}), {ref.plane!r}, {{{windows}}})"
            case Value():
                if thing in self.known:
                    return self._constant(self.known[thing])
                assert thing in self.names, f"{thing!r} is used before it is made"
                return self.names[thing] + (at if thing in self.differing else "")
            case tuple():
                return f"({''.join(f'{self._text(x, at)}, ' for x in thing)})"
            case Pipeline():
                return "False"  # a question whether it is full: nothing here takes time
            case _:
                return self._constant(thing)


def _counts(call: Call) -> bool:
    """Whether an operation computes with integers as Python does."""
    if call.op.meaning is not None or call.op.scalar is None or call.op.scalar.c not in IN_PYTHON:
        return False
    return all(is_int(x) or (isinstance(x, Scalar) and x.dtype.is_int) for x in call.args.values())


def _named(call: Call, texts: list[str]) -> str:
    """The text of the arguments of a call by their names."""
    pairs = zip(call.args, texts, strict=True)
    return f"{{{', '.join(f'{name!r}: {text}' for name, text in pairs)}}}"


def wait_for_stage(node: Acquire, ring: StageRing, number: int) -> Wait:
    """The wait for the stage of the `number`-th fill or drain."""
    barrier, phase = ring.barrier(node.side, number), ring.phase(node.side, number)
    return Wait(
        lambda: barrier.phases > phase,
        lambda: (
            f"{ring.pipeline.name}.{node.side}() at {node.loc}: {ring.missing(node.side, number)}"
        ),
        node.loc,
    )
