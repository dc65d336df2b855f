"""Outputs that differ between schedules, and what may explain it: the order of atomics, or the number of blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pykittens.emulate.finding import Finding, FindingStep, Kind, Level
from pykittens.emulate.memory import Array
from pykittens.ir.nodes import (
    Block,
    Call,
    For,
    If,
    Kernel,
    Sharing,
    While,
    blocks,
    calls,
    operands,
    tensors,
    walk,
    written,
)
from pykittens.ir.stages import Pipeline
from pykittens.ir.structure import bindings, heads, memory_of, reads
from pykittens.ir.values import Global, SharedTile, TileRef, Value

_IN_ORDER = (
    "order the stores, or let each block store its own share and add the shares in a fixed order"
)
_SUMS = "adds floats in the order of the stores"
_SETS = "sets a flag in the order of the signals"
_OF_A_SUM = (
    "store partial sums to separate tensors and add them in a fixed order, or let the blocks wait for one another with "
    "flags; if the last digits or flags may differ, ignore this"
)
_SHARES = "depends on the number of blocks, which the device decides"
_OF_BLOCKS = (
    "if the result is right for every number of blocks, ignore this; otherwise let the task decide what is stored and "
    "where, not the block"
)
_RETURNS = "returns a value that depends on the order of the atomics"
_OF_ATOMICS = (
    "if the result is right for every order of the atomics, ignore this; otherwise let the block or the task decide "
    "what is stored and where, not the value that an atomic returns"
)

Cause = Call | Sharing
Run = tuple[int, Mapping[str, Array]]  # a seed, and the tensors after the run


def differences(kernel: Kernel, names: Mapping[str, str], first: Run, other: Run) -> list[Finding]:
    """Outputs whose bits differ between two schedules; `names` has one name for each tensor, by all of its names."""
    found = []
    for name in written(kernel):
        a, b = first[1][name], other[1][name]
        if a.tobytes() == b.tobytes():
            continue
        count = int(((a != b) & ~((a != a) & (b != b))).sum())
        steps = [
            FindingStep("this line", f"writes `{name}`", c.loc)
            for c in calls(kernel.body)
            if name in tensors(c, c.op.effects.writes)
        ]
        found.append(
            Finding(
                Kind.SCHEDULE_DEPENDENT,
                f"`{name}` differs between the schedules of seeds {first[0]} and {other[0]} in {count} of {a.size} "
                "elements",
                tuple(steps),
                seed=other[0],
                **_explained(Order(kernel, names).causes(name)),
            )
        )
    return found


def _explained(found: list[Cause]) -> dict[str, Any]:
    """The level and the help of a difference, and the nodes that may explain it."""
    if not found:
        return {"help": _IN_ORDER}
    returning = any(isinstance(c, Call) and c.op.effects.acquires for c in found)
    shares = any(isinstance(c, Sharing) for c in found)
    return {
        "help": _OF_ATOMICS if returning else _OF_BLOCKS if shares else _OF_A_SUM,
        "level": Level.NOTE if returning or shares else Level.WARNING,
        "history": tuple(dict.fromkeys(FindingStep("this line", _how(c), c.loc) for c in found)),
    }


class Order:
    """The memory and the values of a kernel that may depend on the order of its atomics or on the number of blocks.

    They depend on what atomics return, on sums of floats and on flags in memory, or on the number of times that a loop
    runs or the branch that is taken because of these. Memory depends on what is written to it, where, and on whether.
    """

    def __init__(self, kernel: Kernel, names: Mapping[str, str]) -> None:
        self.names, self.found = names, defaultdict[object, set[Cause]](set)
        self.order = [n for n in walk(kernel.body) if isinstance(n, Cause)]
        size = -1
        while size != (size := sum(map(len, self.found.values()))):
            self._walk(kernel.body, set())

    def causes(self, tensor: str) -> list[Cause]:
        """What the contents of a tensor may depend on, in the order of the program."""
        found = self.found[self.names[tensor]]
        return [c for c in self.order if c in found]

    def _walk(self, block: Block, control: set[Cause]) -> None:
        for node in block.nodes:
            if isinstance(node, Call):
                self._call(node, control)
                continue
            if isinstance(node, Sharing):
                for number in node.index:
                    self.found[number].add(node)
            inner = control
            if isinstance(node, For | While | If):
                inner = control | self._of(
                    [node.condition] if isinstance(node, While) else reads(node)
                )
            for value in heads(node):
                self.found[value] |= inner
            for binding in bindings(node):
                for name in binding.names:
                    self.found[name] |= inner | self._of(binding.sources)
            for each in blocks(node):
                self._walk(each, inner)

    def _call(self, call: Call, control: set[Cause]) -> None:
        effects = call.op.effects
        own = {call} if _how(call) else set[Cause]()
        stored = [m for o in effects.writes if (m := self._memory(call.args[o])) is not None]
        read = [
            m
            for name, value in call.args.items()
            if name not in effects.writes and (m := self._memory(value)) is not None
        ]
        given = own | control | self._of(operands(call.args)) | self._of(read)
        for place in (*call.results, *stored):
            self.found[place] |= given

    def _of(self, places: Iterable[Any]) -> set[Cause]:
        """What any of these values or tensors depends on."""
        known = (p for p in places if isinstance(p, Value | str | Pipeline))
        return set().union(*(self.found[p] for p in known))

    def _memory(self, operand: Any) -> Pipeline | SharedTile | str | None:
        """The memory of an operand: the name of a tensor, the pipeline of a stage, or a whole shared tile; or None."""
        match operand:
            case TileRef() | Global():
                return self.names[operand.first.tensor.name]
            case SharedTile() if operand.stage is not None:
                pipeline: Pipeline = operand.stage.acquire.pipeline
                return pipeline
            case SharedTile():
                return memory_of(operand)
            case _:
                return None


def _how(call: Cause) -> str:
    """How the order of the executions of a node, or the device, decides a value; empty if they do not."""
    if isinstance(call, Sharing):
        return _SHARES
    effects = call.op.effects
    if effects.acquires:
        return _RETURNS
    stores = [call.args[o] for o in effects.writes]
    if effects.signals and call.args.get("op") == "store":
        return _SETS
    is_sum = call.args.get("op") == "add" and any(s.dtype.is_float for s in stores)
    return _SUMS if is_sum else ""
