"""Values in the emitted program: parameters, variables, registers and scratch memory."""

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
from pykittens.targets.source import (
    MapSlot,
    Slot,
    number,
    register_type,
    rounded_scalar,
    scalar_type,
)
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
    """Gives each value of a kernel its name and, while a role is written, its variable."""

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
        self.group_number = Index(0)  # the number of that group in the block
        self.scratch_bytes = 0  # scratch memory that each group needs so far
        self.scratch_room = 0  # scratch memory that each group can have

    def begin_role(self, role: Role, outliving: Iterable[Value] = ()) -> None:
        """Start to write the body of a role."""
        self.role, self.storage = role, Storage(role, outliving)
        self._declared: set[Value] = set()

    # -- operands ------------------------------------------------------------------------------

    def parameter(self, slot: Slot, stem: str) -> str:
        """The name of a parameter, which is added to the kernel's if it is new."""
        if slot not in self.slots:
            self.slots[slot] = self.names.unique(stem)
        return self.slots[slot]

    def pointer(self, tensor: Global) -> str:
        """The address of a tensor's first element."""
        return self.parameter(Slot("pointer", tensor.name, dtype=tensor.dtype), tensor.name)

    def stride(self, tensor: Global, axis: int) -> str:
        """The stride of an axis, in elements."""
        return self.parameter(Slot("stride", tensor.name, axis), f"{tensor.name}_s{axis}")

    def extent(self, tensor: Global, axis: int) -> str:
        """The extent of an axis: a constant if the kernel is specialised on it."""
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
        """Element `index` of an operand, in the type it is computed in, for a result like `shape`.

        A Python number takes `dtype`, by default the dtype of `shape`.
        """
        if not isinstance(operand, RegTile | RegVector):
            if isinstance(operand, Value):
                return self.scalar(operand)
            return number(operand, dtype or shape.dtype)
        if isinstance(shape.type, RT) and isinstance(operand.type, RV):
            index = register_beside(operand, shape, index)
        if (packing := operand.dtype.packing) > 1:
            register = f"{self.array(operand)}[{Index(index) // packing}]"
            return f"from_{operand.dtype}({register}, {index})"
        return f"{self.array(operand)}[{index}]"

    def is_packed(self, value: Value) -> bool:
        """Whether several elements share a register."""
        return value.dtype.packing > 1 and not isinstance(value, Scalar)

    def declare(self, value: Value) -> None:
        """Declare the variable of a value, unless it is declared."""
        leader = self.storage.find(value)
        if leader in self._declared or leader not in self.storage.declared_in:
            return
        self._declared.add(leader)
        self.line(self.declaration(leader, self.names(leader)) + ";")

    def is_declared(self, value: Value) -> bool:
        """Whether the variable of a value has been declared, perhaps in a block that is closed."""
        return self.storage.find(value) in self._declared

    def declaration(self, value: Value, name: str) -> str:
        """The declaration of a variable for a value."""
        if isinstance(value, Scalar):
            return f"{scalar_type(value.dtype)} {name}"
        return f"{register_type(value.dtype)} {name}[{self.array_length(value)}]"

    def array_length(self, value: Value) -> int:
        """Registers of a tile or vector: two elements of 16 bits or four of 8 bits share one."""
        return -(-self.registers(value) // value.dtype.packing)

    def copy_registers(self, source: str, to: str, like: Value) -> None:
        """Copy a scalar, or one array to another of the same type."""
        if isinstance(like, Scalar):
            self.line(f"{to} = {source};")
            return
        self.each(self.array_length(like), f"{to}[i] = {source}[i];")

    def copy(self, source: Any, to: Value) -> None:
        """Copy a value to the variable of another, unless they share one."""
        if not self.storage.same(source, to):
            held = self.scalar(source) if isinstance(to, Scalar) else self.array(source)
            self.copy_registers(held, self.array(to), to)

    def move(self, moves: Sequence[tuple[Any, Value]]) -> None:
        """Copy values to variables at once, through temporaries if a variable is both read and written."""
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

    def assign(self, result: Scalar, expression: str) -> None:
        """Write a scalar: its variable if that is written more than once, else a constant."""
        if self.storage.changes(result):
            self.declare(result)
            self.line(f"{self.array(result)} = {expression};")
        else:
            self.line(f"const {self.declaration(result, self.array(result))} = {expression};")

    def define_scalar(self, result: Scalar, expression: str, loc: Loc | None) -> None:
        """Write a scalar, or keep its expression for its only use if that has the same value there."""
        expression = rounded_scalar(expression, result.dtype)
        related = (result, *inputs_of(result))
        named = result.name or not _is_movable(result)
        if self.uses[result] > 1 or named or any(map(self.storage.changes, related)):
            self.at(loc)
            self.assign(result, expression)
        else:
            self.expressions[result] = Index(expression).operand

    # -- shared memory -------------------------------------------------------------------------

    def scratch(self, size: int, call: Call) -> str:
        """Byte offset of `size` bytes of scratch memory, which belong to the group while a call runs."""
        if size > self.scratch_room:
            raise ResourceError(
                f"{call.op.name}: an exchange between the lanes of a group needs {size} bytes of shared memory, "
                f"and {self.scratch_room} are left",
                loc=call.loc,
                help="take fewer stages or smaller tiles",
            )
        self.scratch_bytes = max(self.scratch_bytes, -(-size // 128) * 128)
        return str(Index("SCRATCH") + self.group_number * "SCRATCH_BYTES")


def inputs_of(scalar: Value) -> list[Any]:
    """The operands that a scalar is computed from."""
    return list(scalar.source.args.values()) if isinstance(scalar.source, Call) else []


def _is_movable(scalar: Scalar) -> bool:
    """Whether the expression of a scalar may stand where the scalar is used."""
    return not (isinstance(scalar.source, Call) and scalar.source.op.effects.stays)


def register_beside(vector: RegVector, tile: Value, index: str) -> str:
    """The register of a vector for the row or column of register `index` of a tile."""
    assert isinstance(tile.type, RT)
    function = "row_of" if vector.type.spread is Spread.PER_ROW else "col_of"
    return f"{function}<{tile.type.cols}>({index})"


def is_unused(call: Call, uses: Counter[Value]) -> bool:
    """Whether a call only computes values that the device program does not use."""
    return call.op.effects.removable and not any(r in uses for r in call.results)


def _scalar_arguments(kernel: Kernel) -> dict[Value, Slot]:
    """The parameter that passes each extent and each scalar argument of a kernel."""
    found: dict[Value, Slot] = {}
    for param in kernel.params:
        if isinstance(param, Global):
            found |= {e: Slot("extent", param.name, axis) for axis, e in enumerate(param.extents)}
        else:
            found[param] = Slot("scalar", param.name, dtype=param.dtype)
    return found


def _uses(kernel: Kernel) -> Counter[Value]:
    """How often the device program uses each value."""
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
