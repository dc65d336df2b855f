"""Values in the emitted program: parameters, variables and registers, and shared memory to exchange them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pykittens.errors import Loc, ResourceError
from pykittens.ir.nodes import Block, Call, Kernel, Require, Role, blocks
from pykittens.ir.structure import uses as uses_of
from pykittens.ir.values import Global, RegTile, RegVector, Scalar, Value
from pykittens.targets.index import Index
from pykittens.targets.lines import Lines
from pykittens.targets.names import CNames
from pykittens.targets.source import C_TYPES, MapSlot, Slot, number, rounded_scalar, scalar_type
from pykittens.targets.storage import Storage
from pykittens.types.dtypes import DType
from pykittens.types.layouts import (
    col_vector_registers,
    plain_registers,
    row_vector_registers,
    tile_registers,
)
from pykittens.types.tiles import RT, RV, Spread


class Values(Lines):
    """Knows what each value of a kernel is called, and in which variable it is held while a role is written."""

    def __init__(self, kernel: Kernel, functions: str) -> None:
        super().__init__()
        self.kernel = kernel
        self.names = CNames(functions)
        self.maps: dict[MapSlot, str] = {}
        self.slots: dict[Slot, str] = {}
        self.expressions: dict[Value, str] = {v: str(n) for v, n in kernel.statics}
        self.arguments = _scalar_arguments(kernel)
        self.uses = _uses(kernel)
        self.role: Role
        self.storage: Storage
        self.group_barrier = "1"  # the named barrier of the group that runs the role
        self.group_number = Index(0)  # its number among the groups of the block
        self.scratch_bytes = 0  # of shared memory a group has to join its warps
        self.scratch_room = 0  # bytes a group can have of it

    def begin_role(self, role: Role, outliving: Iterable[Value] = ()) -> None:
        """Start to write the body of a role."""
        self.role, self.storage = role, Storage(role, outliving)
        self._declared: set[Value] = set()

    # -- operands ------------------------------------------------------------------------------

    def parameter(self, slot: Slot, stem: str) -> str:
        """The name of a parameter, which the kernel has from now on."""
        if slot not in self.slots:
            self.slots[slot] = self.names.unique(stem)
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

    def index(self, value: Any) -> Index:
        """A scalar operand as an expression to compute with."""
        return Index(self.scalar(value))

    # -- variables -----------------------------------------------------------------------------

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
            register = f"{self.array(operand)}[{Index(index) // packing}]"
            return f"from_{operand.dtype}({register}, {index})"
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
        """Copy a scalar, or one array to another of the same type."""
        if isinstance(like, Scalar):
            self.line(f"{to} = {source};")
            return
        self.line(
            f"UNROLL for (int i = 0; i < {self.array_length(like)}; ++i) {to}[i] = {source}[i];"
        )

    def copy(self, source: Any, to: Value) -> None:
        """Copy a value to the variable of another, unless it is the same."""
        if not self.storage.same(source, to):
            held = self.scalar(source) if isinstance(to, Scalar) else self.array(source)
            self.copy_registers(held, self.array(to), to)

    def move(self, moves: Sequence[tuple[Any, Value]]) -> None:
        """Copy values to variables at once: those that take each other's place go through temporaries."""
        moves = [(source, to) for source, to in moves if not self.storage.same(source, to)]
        targets = {self.storage.find(to) for _, to in moves}
        if not any(isinstance(s, Value) and self.storage.find(s) in targets for s, _ in moves):
            for source, to in moves:
                self.copy(source, to)
            return
        with self.braces("{"):
            held = [self.names.unique("next") for _ in moves]
            for (source, to), name in zip(moves, held, strict=True):
                if isinstance(to, Scalar):
                    self.line(f"const {self.declaration(to, name)} = {self.scalar(source)};")
                else:
                    self.line(self.declaration(to, name) + ";")
                    self.copy_registers(self.array(source), name, to)
            for (_, to), name in zip(moves, held, strict=True):
                self.copy_registers(name, self.array(to), to)

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
            self.expressions[result] = Index(expression).operand

    # -- shared memory -------------------------------------------------------------------------

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
        return str(Index("SCRATCH") + self.group_number * "SCRATCH_BYTES")


def inputs_of(scalar: Value) -> list[Any]:
    """What a scalar is computed from."""
    return list(scalar.source.args.values()) if isinstance(scalar.source, Call) else []


def is_unused(call: Call, uses: Counter[Value]) -> bool:
    """Whether all that a call does is to make values that the device program does not need."""
    return call.op.effects.pure and not any(r in uses for r in call.results)


def _scalar_arguments(kernel: Kernel) -> dict[Value, Slot]:
    """The parameter that each extent and each scalar argument of a kernel comes in."""
    found: dict[Value, Slot] = {}
    for param in kernel.params:
        if isinstance(param, Global):
            found |= {e: Slot("extent", param.name, axis) for axis, e in enumerate(param.extents)}
        else:
            found[param] = Slot("scalar", param.name, dtype=param.dtype)
    return found


def _uses(kernel: Kernel) -> Counter[Value]:
    """How often the device program uses each value that it needs."""
    uses: Counter[Value] = Counter()

    def visit(block: Block) -> None:
        for node in reversed(block.nodes):
            if isinstance(node, Call) and is_unused(node, uses):
                continue
            if not isinstance(node, Require):
                uses.update(uses_of(node))
            for inner in reversed(blocks(node)):
                visit(inner)

    visit(kernel.body)
    return uses
