"""The coarse machine: runs each instruction of a program once and as a whole, on the CPU, in an order of its schedule.

It finds out in seconds what a program at full size computes. There are no lanes, no banks and no races in it: these are
for the emulator, on a small program of the same kinds. All roles of an instruction run together, and hand over stages
of rings. Every counter for which an instruction waits must have its value when the instruction starts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.emulate.barriers import StageRing
from pykittens.emulate.coarse.translation import FILE, Translation
from pykittens.emulate.shared import shared_values
from pykittens.emulate.waiting import Wait, pause
from pykittens.errors import ArgumentError, BarrierError, DeadlockError, KernelError
from pykittens.ir.nodes import written
from pykittens.ir.stages import Pipeline, Side
from pykittens.ir.values import Value
from pykittens.mega.flows import accessed
from pykittens.mega.interpreter import Interpreter
from pykittens.mega.proof import ScheduleError, order, who
from pykittens.mega.schedule import Schedule, recorded
from pykittens.runtime.arguments import check_requirements, known_values

TAG = 1  # of the first launch with new arguments


class Ring(StageRing):
    """A ring while instructions of a kind use it; taken: the stages that all before have filled and drained."""

    taken = 0

    def end(self, step: object) -> None:
        """An instruction is over: raise unless it has drained what it has filled."""
        filled, drained = (sum(b.phases for b in some) for some in (self.full, self.empty))
        if filled != drained or any(b.arrived for b in (*self.full, *self.empty)):
            raise BarrierError(
                f"{step} has filled `{self.pipeline.name}` {filled - self.taken} times and drained it "
                f"{drained - self.taken} times",
                operands={"made at": self.pipeline.loc},
                loc=self.pipeline.loc,
                help="an instruction drains what it fills, in all groups of its roles",
            )
        self.taken = filled


class RunningKind:
    """A kind of instruction, and its rings, which are empty between instructions.

    parts: by the number of each of its roles, the role in Python, and the function of its generators.
    """

    def __init__(
        self, name: str, made: Interpreter, known: dict[Value, Any], arrays: dict[str, Any]
    ) -> None:
        kind = next(kind for kind in made.kinds if kind.name == name)
        fields = {made.fields[name][f]: f"field{i}" for i, f in enumerate(kind.fields)}
        given = fields | {made.tag_of[name]: "tag"}
        nodes, code = made.merging.outside[name].nodes, made.code.name
        outside = [node for node in nodes if code not in accessed([node], reads=True)]
        shared: set[Value] = {s.value for s in made.kernel.shared}
        self.parts: dict[int, tuple[Translation, Callable[..., Iterator[Wait]]]] = {}
        takers = Counter[tuple[Pipeline, Side]]()
        for number, place in enumerate(made.merging.roles):
            if (role := made.merging.found.get((name, place))) is not None:
                part = Translation(role, outside, given, known, arrays, shared)
                self.parts[number] = part, part.function()
                takers.update(dict.fromkeys(part.rings, part.generators))
        self.rings: dict[Pipeline, Ring] = {}
        for p in dict.fromkeys(ring for ring, _ in takers):
            memory = np.zeros(p.stages * p.stage_bytes, np.uint8)
            self.rings[p] = Ring(p, takers[p, "fill"], takers[p, "drain"], memory)

    def generators(
        self, fields: tuple[int, ...], shared: dict[Value, Any]
    ) -> Iterator[tuple[int, Iterator[Wait]]]:
        """Those of an instruction, each with the number of its role."""
        for number, (part, function) in self.parts.items():
            for index in range(part.generators):
                group = range(part.role.groups) if part.generators < part.role.groups else index
                yield number, function(*fields, TAG, group, self.rings, shared)

    def locate(self, fault: KernelError) -> None:
        """Set the place of an error to that of the operation that raised it, if one did."""
        trace = fault.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_code.co_filename == FILE:
                (of,) = (p for p, _ in self.parts.values() if p.constants is frame.f_globals)
                fault.loc = of.loc(trace.tb_lineno)
            trace = trace.tb_next


@dataclass
class CoarseMachine:
    """A run of a schedule. counts: the counters. shared: the memory outside of rings that each block has."""

    schedule: Schedule
    kinds: dict[str, RunningKind]
    shared: list[dict[Value, Any]]
    counts: defaultdict[int, int]

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for number in order(self.schedule):
                self._run(number)

    def _run(self, number: int) -> None:
        """Run an instruction, by its number."""
        step, schedule = self.schedule.program.instructions[number], self.schedule
        events = [(number, role) for role in range(len(schedule.groups))]
        for event in events:
            for counter, value in schedule.waits.get(event, ()):
                if (found := self.counts[counter]) != value:
                    raise ScheduleError(
                        f"{who(schedule, event)} waits for counter {counter} to be {value}, and it is {found} "
                        "when the instruction starts",
                        help="the instructions that it waits for signal too little, or come too late",
                    )
        kind = self.kinds[step.kind.name]
        try:
            self._run_all(number, list(kind.generators(step.fields, self.shared[step.block or 0])))
        except KernelError as fault:
            kind.locate(fault)
            fault.operands.setdefault("instruction", str(step))
            raise
        for ring in kind.rings.values():
            ring.end(step)
        for event in schedule.signals.keys() & events:
            self.counts[schedule.signals[event]] += schedule.groups[event[1]]

    def _run_all(self, number: int, generators: list[tuple[int, Iterator[Wait]]]) -> None:
        """Run generators to their end, each as far as it goes."""
        stopped = {generator: pause(None) for _, generator in generators}
        while stopped:
            ready = [generator for generator, wait in stopped.items() if wait.ready()]
            for generator in ready:
                if (wait := next(generator, None)) is not None:
                    stopped[generator] = wait
                else:
                    del stopped[generator]
            if not ready:
                raise DeadlockError(
                    f"deadlock: the roles of {self.schedule.text((number, 0))} wait for one another",
                    operands={
                        self.schedule.roles[role]: stopped[generator].describe()
                        for role, generator in generators
                        if generator in stopped
                    },
                    loc=next(iter(stopped.values())).loc,
                )


def run(schedule: Schedule, arguments: tuple[Any, ...]) -> None:
    """Run a schedule once, with the arguments of the kernel for its first launch."""
    made, checked = recorded(schedule.program, arguments)
    if checked.device != "cpu":
        raise ArgumentError("the coarse machine runs on arrays on the CPU, not on a GPU")
    known = known_values(made.kernel, checked)
    check_requirements(made.kernel, checked, known)
    arrays = {name: array.numpy() for name, array in checked.tensors.items()}
    used = dict.fromkeys(step.kind.name for step in schedule.program.instructions)
    kinds = {name: RunningKind(name, made, known, arrays) for name in used}
    shared = [shared_values(made.kernel.shared, b) for b in range(schedule.program.blocks)]
    CoarseMachine(schedule, kinds, shared, defaultdict(int)).run()
    checked.mark_written([checked.order.index(name) for name in written(made.kernel)])
