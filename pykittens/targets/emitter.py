"""Writes a lowered kernel as CUDA C++, to be compiled and to be read.

Names are the user's, each operation stands under the user's line, each role and stage under its name. What an
operation becomes is the target's business; control flow, names and variables are the same for every target.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pykittens.errors import KernelError, Loc, ResourceError
from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    ForTasks,
    Grid,
    If,
    Kernel,
    Merged,
    Node,
    Require,
    Role,
    Tasks,
    While,
    blocks,
    inputs,
    leaving,
)
from pykittens.ir.values import Global, RegTile, RegVector, Scalar, Value
from pykittens.targets.source import (
    C_TYPES,
    RESERVED,
    CNames,
    MapSlot,
    Site,
    Slot,
    ascii_name,
    number,
    rounded_scalar,
    scalar_type,
)
from pykittens.targets.storage import Storage
from pykittens.targets.target import Target
from pykittens.targets.tasks import coordinates, task_index
from pykittens.types.dtypes import DType
from pykittens.types.layouts import (
    col_vector_registers,
    plain_registers,
    row_vector_registers,
    tile_registers,
)
from pykittens.types.tiles import RT, RV, Spread


class Emitter:
    """Holds the text so far and what names mean while one kernel is written."""

    def __init__(self, kernel: Kernel, target: Target, header: str) -> None:
        self.kernel, self.target = kernel, target
        self.names = CNames()
        self.names.taken.update(RESERVED)
        # Device functions, too: a variable of the same name would hide one.
        self.names.taken.update(re.findall(r"DEVICE [\w ]*?(\w+)\(", header))
        self.lines: list[str] = []
        self.depth = 1
        self.maps: dict[MapSlot, str] = {}
        self.slots: dict[Slot, str] = {}
        self.expressions: dict[Value, str] = {v: str(n) for v, n in kernel.statics}
        self.arguments = _scalar_arguments(kernel)
        self.needed, self.uses = _needed(kernel)
        self.instructions: dict[str, str] = {}  # generated device functions by name
        self.line_now = 0
        self.role: Role
        self.storage: Storage
        self.group_barrier = "1"  # the named barrier of the group that runs the role
        self.group_number = "0"  # its number among the groups of the block
        self.scratch_bytes = 0  # of shared memory a group has to join its warps
        self.scratch_room = 0  # bytes a group can have of it
        self.debug = False  # whether waits, accesses and assertions are checked
        self.sites: list[Site] = []  # where it may stop because of that
        self.loc: Loc | None = None  # the user's line that is being written

    # -- text ----------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def braces(self, head: str, tail: str = "}") -> Iterator[None]:
        """A block of C++ below a head that ends in `{`."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.line(tail)

    def at(self, loc: Loc | None) -> None:
        """Say which line of the user's the text below belongs to."""
        if loc is not None and loc.line != self.line_now:
            self.line_now = loc.line
            self.lines.append(f'#line {loc.line} "{os.path.basename(loc.file)}"')
            if source := loc.text.strip():
                self.line(f"// {source.rstrip(chr(92))}")

    def scratch(self, size: int, call: Call) -> str:
        """Byte offset of `size` bytes of shared memory that belong to the group while a call runs."""
        if size > self.scratch_room:
            raise ResourceError(
                f"{call.op.name}: {size} bytes of shared memory join the lanes of a group, "
                f"and {self.scratch_room} are left",
                loc=call.loc,
                help="take fewer stages or smaller tiles",
            )
        self.scratch_bytes = max(self.scratch_bytes, -(-size // 128) * 128)
        return f"SCRATCH + {self.group_number} * SCRATCH_BYTES"

    # -- names and operands --------------------------------------------------------------------

    def unique(self, stem: str) -> str:
        """A name nobody else has."""
        return self.unique_with(stem, ("",))

    def unique_with(self, stem: str, suffixes: Sequence[str]) -> str:
        """A name that nobody else has with any of these suffixes."""
        stem = ascii_name(stem)
        name, number = stem, 1
        while any(name + suffix in self.names.taken for suffix in suffixes):
            name, number = f"{stem}{number}", number + 1
        self.names.taken.update(name + suffix for suffix in suffixes)
        return name

    def parameter(self, slot: Slot, stem: str) -> str:
        """The name of a parameter, which the kernel has from now on."""
        if slot not in self.slots:
            self.slots[slot] = self.unique(stem)
        return self.slots[slot]

    def pointer(self, tensor: Global) -> str:
        """The address of a tensor's first element."""
        return self.parameter(Slot("pointer", tensor.name, dtype=tensor.dtype), tensor.name)

    def stride(self, tensor: Global, axis: int) -> str:
        """Elements from one index of an axis to the next."""
        return self.parameter(Slot("stride", tensor.name, axis), f"{tensor.name}_s{axis}")

    def extent(self, tensor: Global, axis: int) -> str:
        """The extent of an axis: a constant where the kernel is specialised on it."""
        return self.scalar(tensor.extents[axis])

    def scalar(self, value: Any) -> str:
        """A scalar operand as a C++ expression."""
        if not isinstance(value, Value):
            return number(value)
        assert isinstance(value, Scalar), value
        if value in self.expressions:
            return self.expressions[value]
        if value in self.arguments:
            return self.parameter(self.arguments[value], value.name)
        return self.names(self.storage.find(value))

    def array(self, value: Value) -> str:
        """The variable of a register tile or vector."""
        return self.names(self.storage.find(value))

    def registers(self, value: Value) -> int:
        """Elements of a value held by one thread."""
        warps = self.role.warps
        match value.type:
            case RT():
                return tile_registers(value.type.rows, value.type.cols, warps)
            case RV(spread=Spread.PER_ROW):
                return row_vector_registers(value.type.length, warps)
            case RV(spread=Spread.PER_COLUMN):
                return col_vector_registers(value.type.length)
            case RV():
                return plain_registers(value.type.length, warps)
            case _:
                return 1

    def element(self, operand: Any, index: str, shape: Value, dtype: DType | None = None) -> str:
        """Element `index` of an operand, as the type it is computed in, beside a value of this shape.

        A Python number takes `dtype`, that of `shape` if not said.
        """
        if not isinstance(operand, RegTile | RegVector):
            if isinstance(operand, Value):
                return self.scalar(operand)
            return number(operand, dtype or shape.dtype)
        if isinstance(shape.type, RT) and isinstance(operand.type, RV):
            place = "row_of" if operand.type.spread is Spread.PER_ROW else "col_of"
            index = f"{place}<{shape.type.cols}>({index})"
        if (packing := operand.dtype.packing) > 1:
            return f"from_{operand.dtype}({self.array(operand)}[({index}) / {packing}], {index})"
        return f"{self.array(operand)}[{index}]"

    def is_packed(self, value: Value) -> bool:
        """Whether several elements share a register."""
        return value.dtype.packing > 1 and not isinstance(value, Scalar)

    def declare(self, value: Value) -> None:
        """Declare the variables of a value's block that have not been."""
        leader = self.storage.find(value)
        if leader in self._declared or leader not in self.storage.declared_in:
            return
        self._declared.add(leader)
        self.line(self.declaration(leader, self.names(leader)) + ";")

    def is_declared(self, value: Value) -> bool:
        """Whether the variables of a value have been declared, perhaps in a block that is closed."""
        return self.storage.find(value) in self._declared

    def declaration(self, value: Value, name: str) -> str:
        """The type and name of a variable that holds a value."""
        if isinstance(value, Scalar):
            return f"{scalar_type(value.dtype)} {name}"
        return f"{C_TYPES[value.dtype.name]} {name}[{self.array_length(value)}]"

    def array_length(self, value: Value) -> int:
        """Elements of the array of a register tile or vector: two of 16 bits, four of 8 bits share one."""
        return -(-self.registers(value) // value.dtype.packing)

    def copy_registers(self, source: str, to: str, like: Value) -> None:
        """Copy one array to another of the same type."""
        self.line(
            f"UNROLL for (int i = 0; i < {self.array_length(like)}; ++i) {to}[i] = {source}[i];"
        )

    def copy(self, source: Any, to: Value) -> None:
        """Copy a value to the variable of another, unless it is the same."""
        if self.storage.same(source, to):
            return
        if isinstance(to, Scalar):
            self.line(f"{self.array(to)} = {self.scalar(source)};")
            return
        self.copy_registers(self.array(source), self.array(to), to)

    # -- nodes ---------------------------------------------------------------------------------

    def begin_role(self, role: Role, outliving: Iterable[Value] = ()) -> None:
        """Start to write the body of a role."""
        self.role, self.storage = role, Storage(role, outliving)
        self._declared: set[Value] = set()

    def block(self, block: Block) -> None:
        declared_here = [v for v, home in self.storage.declared_in.items() if home is block]
        multiple = [v for v in declared_here if len(self.storage.members[v]) > 1]
        first = {
            id(n): [v for v in multiple if self._first_maker(v, block) is n] for n in block.nodes
        }
        for node in block.nodes:
            for value in first[id(node)]:
                if value in self.needed:
                    self.at(getattr(node, "loc", None))
                    self.declare(value)
            self.node(node)

    def _first_maker(self, value: Value, block: Block) -> Node | None:
        """The node of a block that makes, itself or inside, the first member of a shared variable."""
        members = set(self.storage.members[value])
        return next((n for n in block.nodes if members & _made_in(n)), None)

    def node(self, node: Node) -> None:
        self.loc = getattr(node, "loc", None)
        match node:
            case Call():
                self.call(node)
            case For() | ForTasks():
                self.loop(node)
            case While():
                self.while_loop(node)
            case If():
                self.branch(node)
            case Grid():
                self.at(node.loc)
                names = [self.names(i) for i in node.index]
                for line in coordinates(
                    names, [self.scalar(d) for d in node.dims], "(int)blockIdx.x"
                ):
                    self.line(line)
            case Require() | Role():
                pass
            case _:
                self.special(node)

    def special(self, node: Node) -> None:
        """A node of pipelines and waits: the target's to write."""
        self.at(getattr(node, "loc", None))
        self.target.find_node(node)(self, node)

    def call(self, node: Call) -> None:
        if node.op.effects.pure and not any(r in self.needed for r in node.results):
            return
        if all(r in self.expressions for r in node.results) and node.results:
            return
        try:
            lowering = self.target.find(node.op, self.role, node)
            if not isinstance(node.results[0] if node.results else None, Scalar):
                self.at(node.loc)
            lowering(self, node)
        except KernelError as fault:
            fault.loc = fault.loc if fault.loc and fault.loc.code else node.loc
            raise

    def define_scalar(self, result: Value, expression: str, loc: Loc | None) -> None:
        """Give a scalar its expression, or a constant of its own.

        A constant where it is named, used more than once, or made from a variable that is written again.
        """
        expression = rounded_scalar(expression, result.dtype)
        if self.storage.changes(result):
            self.at(loc)
            self.declare(result)
            self.line(f"{self.array(result)} = {expression};")
        elif (
            self.uses[result] > 1
            or result.name
            or any(map(self.storage.changes, inputs_of(result)))
        ):
            self.at(loc)
            self.line(f"const {self.declaration(result, self.array(result))} = {expression};")
        else:
            self.expressions[result] = f"({expression})"

    def loop(self, node: For | ForTasks) -> None:
        self.at(node.loc)
        for c in node.carried:
            self.declare(c.param)
        self.move([(c.init, c.param) for c in node.carried])
        if isinstance(node, For):
            i, start, stop = self.names(node.index), self.scalar(node.start), self.scalar(node.stop)
            test, step = ("<", "+=") if node.step > 0 else (">", "-=")
            head = f"NO_UNROLL for (int {i} = {start}; {i} {test} {stop}; {i} {step} {abs(node.step)}) {{"
            with self.braces(head):
                self.block(node.body)
                self.next_pass(node)
            return
        cluster = self.kernel.cluster
        extents = self.task_extents(node.tasks)
        total = " * ".join(extents)
        first, step = (
            ("blockIdx.x", "gridDim.x")
            if cluster == 1
            else (f"blockIdx.x / {cluster}", f"gridDim.x / {cluster}")
        )
        with self.braces(f"NO_UNROLL for (int task = {first}; task < {total}; task += {step}) {{"):
            if any(i in self.needed for i in node.index):
                self.task_index(node, extents)
            self.block(node.body)
            self.next_pass(node)

    def task_extents(self, tasks: Tasks) -> list[str]:
        """Extents of what is shared out among blocks, or among clusters."""
        extents = [self.scalar(d) for d in tasks.dims]
        if tasks.cluster_axis is not None:
            extents[tasks.cluster_axis] = (
                f"ceil_div({extents[tasks.cluster_axis]}, {self.kernel.cluster})"
            )
        return extents

    def task_index(self, node: ForTasks, extents: list[str]) -> None:
        """The coordinates of this pass's task; the blocks of a cluster take neighbours along one axis."""
        names = [self.names(i) for i in node.index]
        axis = node.tasks.cluster_axis
        shared = list(names)
        if axis is not None:
            shared[axis] = self.unique(f"{names[axis]}_group")
        for line in task_index(node.tasks.order, shared, extents):
            self.line(line)
        if axis is not None:
            self.line(
                f"const int {names[axis]} = {shared[axis]} * {self.kernel.cluster} + (int)rank;"
            )

    def next_pass(self, node: For | ForTasks | While) -> None:
        """At the end of a pass: what is carried moves to where the next pass reads it."""
        self.move([(c.next, c.param) for c in node.carried])

    def move(self, moves: Sequence[tuple[Any, Value]]) -> None:
        """Copy values to variables at once: those that take each other's place go through temporaries."""
        moves = [(source, to) for source, to in moves if not self.storage.same(source, to)]
        targets = {self.storage.find(to) for _, to in moves}
        if not any(isinstance(s, Value) and self.storage.find(s) in targets for s, _ in moves):
            for source, to in moves:
                self.copy(source, to)
            return
        with self.braces("{"):
            held = [self.unique("next") for _ in moves]
            for (source, to), name in zip(moves, held, strict=True):
                if isinstance(to, Scalar):
                    self.line(f"const {self.declaration(to, name)} = {self.scalar(source)};")
                else:
                    self.line(self.declaration(to, name) + ";")
                    self.copy_registers(self.array(source), name, to)
            for (_, to), name in zip(moves, held, strict=True):
                if isinstance(to, Scalar):
                    self.line(f"{self.array(to)} = {name};")
                else:
                    self.copy_registers(name, self.array(to), to)

    def while_loop(self, node: While) -> None:
        self.at(node.loc)
        for c in node.carried:
            self.declare(c.param)
        self.move([(c.init, c.param) for c in node.carried])
        with self.braces("while (true) {"):
            self.block(node.test)
            self.line(f"if (!({self.scalar(node.condition)})) break;")
            self.block(node.body)
            self.next_pass(node)

    def branch(self, node: If) -> None:
        self.at(node.loc)
        for m in node.merged:
            self.declare(m.result)
        has_else = bool(node.otherwise.nodes or node.merged)
        with self.braces(f"if ({self.scalar(node.condition)}) {{", "} else {" if has_else else "}"):
            self.block(node.then)
            self._merge(node.merged, "then")
        if has_else:
            self.depth += 1
            self.block(node.otherwise)
            self._merge(node.merged, "otherwise")
            self.depth -= 1
            self.line("}")

    def _merge(self, merged: list[Merged], side: str) -> None:
        self.move([(getattr(m, side), m.result) for m in merged])


def inputs_of(scalar: Value) -> list[Any]:
    """What a scalar is computed from."""
    return list(scalar.source.args.values()) if isinstance(scalar.source, Call) else []


def _scalar_arguments(kernel: Kernel) -> dict[Value, Slot]:
    """The parameter that each extent and each scalar argument of a kernel comes in."""
    found: dict[Value, Slot] = {}
    for param in kernel.params:
        if isinstance(param, Global):
            found |= {e: Slot("extent", param.name, axis) for axis, e in enumerate(param.extents)}
        else:
            found[param] = Slot("scalar", param.name, dtype=param.dtype)
    return found


def _made_in(node: Node) -> set[Value]:
    found: set[Value] = set()
    match node:
        case Call():
            found.update(node.results)
        case For() | ForTasks() | While():
            found.update(v for c in node.carried for v in (c.param, c.result))
        case If():
            found.update(m.result for m in node.merged)
        case _:
            pass
    for inner in blocks(node):
        for n in inner.nodes:
            found |= _made_in(n)
    return found


def _needed(kernel: Kernel) -> tuple[set[Value], Counter[Value]]:
    """The values that the device program needs, and how often each is used there."""
    needed: set[Value] = set()
    uses: Counter[Value] = Counter()

    def visit(block: Block) -> None:
        for node in reversed(block.nodes):
            if isinstance(node, Require):
                continue
            if (
                isinstance(node, Call)
                and node.op.effects.pure
                and not any(r in needed for r in node.results)
            ):
                continue
            used = [*leaving(node), *inputs(node)]
            needed.update(used)
            uses.update(used)
            for inner in reversed(blocks(node)):
                visit(inner)

    visit(kernel.body)
    return needed, uses
