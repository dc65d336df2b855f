"""Writes a lowered kernel as CUDA C++, to be compiled and to be read.

The text uses the user's names, and each operation follows a comment with the user's line. The target's lowerings write
the operations; control flow, names and variables are the same for every target:

Lines             lines.py: indented text below the user's lines
 └ Values         values.py: parameters, variables and registers; `names` (names.py) are the names of the program
    └ Emitter     calls, each by its lowering, and control flow
"""

from __future__ import annotations

from pykittens.errors import KernelError, Loc
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
    Tasks,
    While,
    within,
)
from pykittens.ir.structure import heads, results
from pykittens.ir.values import Scalar
from pykittens.targets.source import Site
from pykittens.targets.target import Target
from pykittens.targets.tasks import coordinates, task_index, task_loop
from pykittens.targets.values import Values, is_unused


class Emitter(Values):
    """Writes the nodes of one kernel for a target, `functions` being its device functions."""

    def __init__(self, kernel: Kernel, target: Target, functions: str, debug: bool = False) -> None:
        super().__init__(kernel, functions)
        self.target = target
        self.instructions: dict[str, str] = {}  # generated device functions by name
        self.debug = debug  # whether waits, accesses and assertions are checked
        # The kind of the instruction of a program that is being written, and the variable with its place in the queue.
        self.instruction: tuple[str, str] | None = None
        self.sites: list[Site] = []  # of these checks
        self.loc: Loc | None = None  # the user's line that is being written

    def block(self, block: Block) -> None:
        """Write the nodes of a block; a variable that values share is declared before the first of them is defined."""
        waiting = {
            value: set(members)
            for value, members in self.storage.members.items()
            if self.storage.declared_in.get(value) is block and len(members) > 1
        }
        for node in block.nodes:
            defined = {v for n in within(node) for v in (*heads(n), *results(n))}
            for value in [v for v, members in waiting.items() if defined & members]:
                del waiting[value]
                if value in self.uses:
                    self.at(node.loc)
                    self.declare(value)
            self.node(node)

    def node(self, node: Node) -> None:
        self.loc = node.loc
        match node:
            case Call():
                self.call(node)
            case For() | ForTasks() | While():
                self.loop(node)
            case If():
                self.branch(node)
            case Grid():
                self.at(node.loc)
                names = [self.names(i) for i in node.index]
                extents = [self.scalar(d) for d in node.dims]
                self.write(coordinates(names, extents, "(int)blockIdx.x"))
            case Sharing():
                self.at(node.loc)
                for i, text in zip(node.index, ("blockIdx", "gridDim"), strict=True):
                    if i in self.uses:
                        self.line(f"const int {self.names(i)} = (int){text}.x;")
            case Require() | Role():
                pass
            case _:  # a node of pipelines or waits, which the target writes
                self.at(self.loc)
                self.target.find_node(node)(self, node)

    def call(self, node: Call) -> None:
        if is_unused(node, self.uses):
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

    # -- control flow --------------------------------------------------------------------------

    def loop(self, node: Loop) -> None:
        self.at(node.loc)
        for c in node.carried:
            self.declare(c.param)
        self.move([(c.init, c.param) for c in node.carried])
        with self.braces(f"{self.loop_head(node)} {{"):
            if isinstance(node, ForTasks) and any(i in self.uses for i in node.index):
                self.task_index(node)
            if isinstance(node, While):
                self.block(node.test)
                self.line(f"if (!({self.scalar(node.condition)})) break;")
            self.block(node.body)
            # Carried values move to the variables that the next pass reads.
            self.move([(c.next, c.param) for c in node.carried])

    def loop_head(self, node: Loop) -> str:
        match node:
            case For():
                i, start = self.names(node.index), self.scalar(node.start)
                test, step = ("<", "+=") if node.step > 0 else (">", "-=")
                bounds = f"int {i} = {start}; {i} {test} {self.scalar(node.stop)}"
                return f"NO_UNROLL for ({bounds}; {i} {step} {abs(node.step)})"
            case ForTasks():
                total = " * ".join(self.task_extents(node.tasks))
                return f"NO_UNROLL {task_loop(node.tasks.order, total, self.kernel.cluster)}"
            case While():
                return "while (true)"

    def task_extents(self, tasks: Tasks) -> list[str]:
        """Extents of the tasks that blocks, or clusters, share."""
        extents = [self.scalar(d) for d in tasks.dims]
        if tasks.cluster_axis is not None:
            extents[tasks.cluster_axis] = (
                f"ceil_div({extents[tasks.cluster_axis]}, {self.kernel.cluster})"
            )
        return extents

    def task_index(self, node: ForTasks) -> None:
        """The coordinates of the current task; the blocks of a cluster take neighbours along one axis."""
        names = [self.names(i) for i in node.index]
        axis = node.tasks.cluster_axis
        shared = list(names)
        if axis is not None:
            shared[axis] = self.names.unique(f"{names[axis]}_group")
        order, extents = node.tasks.order, self.task_extents(node.tasks)
        size = "" if order.size is None else self.scalar(order.size)
        self.write(task_index(order, size, shared, extents))
        if axis is not None:
            first = f"{shared[axis]} * {self.kernel.cluster}"
            self.line(f"const int {names[axis]} = {first} + (int)rank;")

    def condition(self, node: If) -> str:
        """The condition of a branch, as a C++ expression."""
        return self.scalar(node.condition)

    def branch(self, node: If) -> None:
        self.at(node.loc)
        for m in node.merged:
            self.declare(m.result)
        has_else = bool(node.otherwise.nodes or node.merged)
        with self.braces(f"if ({self.condition(node)}) {{", None if has_else else "}"):
            self.block(node.then)
            self.move([(m.then, m.result) for m in node.merged])
        if has_else:
            with self.braces("} else {"):
                self.block(node.otherwise)
                self.move([(m.otherwise, m.result) for m in node.merged])
