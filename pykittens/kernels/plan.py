"""Plans: the launches that a host function decides on for a call. It checks and chooses, and launches nothing.

    @entry(...)
    def rms_norm(x, weight, eps=1e-6, out=None):
        arrays = Arrays("rms_norm", x=x, weight=weight, eps=eps, out=out)
        ...
        return Plan(arrays, [PlanStep(rms_norm_rows, ("x", "weight", "out", "eps"))])

A plan is run, prepared for calls of the same form, compiled, tuned, timed or checked, all from the same steps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

from pykittens.analysis.timeline.profile import Profile
from pykittens.ir.nodes import written
from pykittens.kernels import workspace
from pykittens.kernels.arrays import Arrays, contiguous
from pykittens.kernels.workspace import Scratch
from pykittens.runtime import driver
from pykittens.runtime.arguments import check
from pykittens.runtime.arrays import empty, torch_dtype
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.launch import Launch

Args: TypeAlias = tuple[Any, ...]
Named: TypeAlias = Mapping[Any, Any]  # by name, and None by None
# Where an array of a call is: its position, its keyword, or its keyword and place in a tuple.
Source: TypeAlias = int | str | tuple[str, int]


@dataclass(frozen=True)
class PlanStep:
    """A launch: the kernel, the names of its arrays and numbers, and its compile-time constants.

    The name of an argument that is None is None.
    """

    kernel: KernelFunction
    args: tuple[str | None, ...]
    constants: Named = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the arguments that are not None, which are those of a recorded kernel."""
        return [name for name in self.args if name is not None]


@dataclass(frozen=True)
class Plan:
    """The launches of a call, one after another on the current stream, and its result.

    scratch: memory that only the launches use, by name. result: the names of the arrays that are returned, each of
    which was passed or is made.
    """

    arrays: Arrays
    steps: Sequence[PlanStep]
    scratch: Mapping[str, Scratch] = field(default_factory=dict)
    result: tuple[str, ...] = ("out",)

    def run(self) -> Any:
        """Launch all steps; the result of the call."""
        return self.run_with(self.memory())

    def memory(self, alone: bool = False) -> dict[str | None, Any]:
        """All arrays and numbers by name as kernels take them, and None by None; results and copies are made.

        alone: scratch memory is not shared with other launches.
        """
        like, views = self.arrays.like, dict(self.arrays.views)
        for name, shape in self.arrays.copies.items():
            views[name] = contiguous(views[name]).reshape(shape)
        for name, made in self.arrays.made.items():
            views[name] = empty(like, made.seen, made.dtype)
        views |= workspace.memory(self.scratch, like, alone)
        for name, (of, shape) in self.arrays.aliases.items():
            views[name] = views[of].reshape(shape)
        return {None: None} | views

    def run_with(self, memory: Named) -> Any:
        """Launch all steps with these arrays and numbers; the result of the call."""
        for step in self.steps:
            step.kernel(*[memory[name] for name in step.args], **step.constants)
            if self.arrays.copies:
                self._write_back(step, memory)
        found = [
            memory[name].reshape(self.arrays.made[name].shape)
            if name in self.arrays.made
            else self.arrays.given[name]
            for name in self.result
        ]
        return found[0] if len(found) == 1 else tuple(found)

    def _write_back(self, step: PlanStep, memory: Named) -> None:
        """Copy what a kernel wrote to copies of arrays back to the arrays."""
        args = tuple(memory[name] for name in step.args)
        kernel = step.kernel.record(check(step.kernel.parameters, args, step.constants))
        outputs = written(kernel)
        for param, name in zip(kernel.params, step.names, strict=True):
            own = self.arrays.aliases.get(name, (name,))[0]
            if own in self.arrays.copies and param.name in outputs:
                view = self.arrays.views[own]
                view[...] = memory[name].reshape(view.shape)

    def compile(self, arch: str) -> None:
        """Compile the kernels of all steps without a launch; several threads may do so at once."""
        memory = self.memory(alone=True)
        for step in self.steps:
            step.kernel.compile(*[memory[n] for n in step.args], arch=arch, **step.constants)

    def profile(self) -> list[Profile]:
        """Launch all steps with clock reads, on arrays of a GPU; the timings of each."""
        memory = self.memory(alone=True)
        args = ([memory[name] for name in step.args] for step in self.steps)
        return [s.kernel.profile(*a, **s.constants) for s, a in zip(self.steps, args, strict=True)]

    def launches(self, memory: Named) -> list[tuple[Launch, list[Any]]]:
        """The launches of all steps on a GPU, each with the addresses and numbers of this memory."""
        launches = []
        for step in self.steps:
            args = tuple(memory[name] for name in step.args)
            arguments = check(step.kernel.parameters, args, step.constants)
            launches.append((step.kernel.launch_of(arguments), arguments.values))
        return launches


class Prepared:
    """The launches of a plan for all calls of its form, which differ in addresses and numbers only.

    memory: the plan's arrays and numbers by name. names: the names of a call's addresses and numbers, in order.
    sources: where each array is in a call. is_fixed: whether the launches hold for all numbers, and
    kernels read nothing from outside themselves that may change.
    """

    def __init__(self, plan: Plan, memory: Named, names: Sequence[str], sources: Named) -> None:
        views, made = plan.arrays.views, list(plan.arrays.made)
        defaults = [n for n in views if n not in names and n not in plan.arrays.found]
        order = [*names, *plan.scratch, *defaults, *made]
        aliases = plan.arrays.aliases

        def base(name: str) -> str:
            """The array whose address an argument has."""
            return aliases[name][0] if name in aliases else name

        launches = plan.launches(memory)
        self._steps = [
            (launch.launch, itemgetter(*(order.index(base(n)) for n in step.names), len(order)))
            for (launch, _), step in zip(launches, plan.steps, strict=True)
        ]
        used = {name for step in plan.steps for name in step.names}
        self._shifts = [
            (i, shift)
            for i, n in enumerate(names)
            if n in plan.arrays.found and n in used
            if (shift := memory[n].data_ptr() - plan.arrays.given[n].data_ptr())
        ]  # of views that do not start where their arrays do
        self._scratch = plan.scratch
        self._kept: dict[int, tuple[list[int], Any]] = {}  # addresses and scratch, by stream
        torch = sys.modules["torch"]
        self._made = [
            (x.shape, torch.empty(x.shape, device="meta").stride(), torch_dtype(x.dtype))
            for x in plan.arrays.made.values()
        ]
        # Numbers that the call does not pass, and arrays that all calls share, which are kept here.
        self._constants = [views[name] for name in defaults]
        self._defaults = [x.data_ptr() if hasattr(x, "data_ptr") else x for x in self._constants]
        self._results: list[tuple[bool, Any]] = [
            (name in made, made.index(name) if name in made else sources[name])
            for name in plan.result
        ]
        name, array = next(iter(plan.arrays.found.items()))
        assert not isinstance(array.device, str), "calls on the CPU have no form"
        self._like, self._ordinal = sources[name], array.device[1]
        self._recordings = [launch.recording for launch, _ in launches if launch.recording.changes]
        is_by_value = any(launch.by_value for launch, _ in launches)
        numbers = [(i, views[n]) for i, n in enumerate(names) if n not in plan.arrays.found]
        self._numbers = numbers if is_by_value else []  # those of the call are part of a program
        self.is_fixed = not (self._recordings or self._numbers)
        stored = [
            step.names[i]
            for (launch, _), step in zip(launches, plan.steps, strict=True)
            for i in launch.outputs
        ]
        self._written = [sources[n] for n in stored if n in names]
        self._increment, self._device = torch._C._increment_version, torch._C._cuda_getDevice
        # What programs of torch.compile call takes a quarter of the time of new_empty; not every release has it.
        self._empty = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
        # Most calls are one launch that returns the one array that it writes, and that was passed or is made.
        is_plain = not (made[1:] or plan.result[1:] or plan.steps[1:])
        of_results = [source for is_made, source in self._results if not is_made]
        is_plain = is_plain and self._written == of_results and bool(made) != bool(of_results)
        self._plain = (*self._steps[0], None if made else of_results[0]) if is_plain else None

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the programs are for these values, and kernels read the same as before from outside themselves."""
        return all(values[i] == number for i, number in self._numbers) and all(
            recording.holds() for recording in self._recordings
        )

    def launch(
        self, values: list[Any], stream: int, args: Args, words: Named, memory: Named | None = None
    ) -> Any:
        """Launch with the addresses and numbers of these arguments; the result of the call.

        memory: that of the plan, if its scratch memory is for this launch.
        """
        for i, shift in self._shifts:
            values[i] += shift
        if self._scratch:
            # Each stream has its own scratch memory, and each captured graph.
            is_captured = driver.stream_is_capturing(stream, self._ordinal)
            kept = None if is_captured else self._kept.get(stream)
            if kept is None:
                memory = memory or workspace.memory(
                    self._scratch, _argument(args, words, self._like)
                )
                arrays = [memory[name] for name in self._scratch]
                kept = [x.data_ptr() for x in arrays], arrays  # lives until all is launched
                if not is_captured:
                    self._kept[stream] = kept
            values += kept[0]
        if self._defaults:
            values += self._defaults
        if self._plain is not None:
            launch, pick, source = self._plain
            if source is None:
                result = self._new(self._made[0], args, words)
                values += (result.data_ptr(), stream)
                launch(pick(values))
                return result
            values.append(stream)
            launch(pick(values))
            result = args[source] if type(source) is int else words[source]
            self._increment((result,))
            return result
        made = [self._new(each, args, words) for each in self._made]
        values += [x.data_ptr() for x in made]
        values.append(stream)
        for launch, pick in self._steps:
            launch(pick(values))
        self._increment([_argument(args, words, source) for source in self._written])
        results = [
            made[source] if is_made else _argument(args, words, source)
            for is_made, source in self._results
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def _new(self, made: tuple[Any, Any, Any], args: Args, words: Named) -> Any:
        """A tensor of this shape, these strides and this dtype on the GPU of the call."""
        if self._empty is not None and self._device() == self._ordinal:  # it takes no device
            return self._empty(*made)
        shape, _, dtype = made
        return _argument(args, words, self._like).new_empty(shape, dtype=dtype)


def _argument(args: Args, words: Named, source: Source) -> Any:
    if isinstance(source, tuple):
        return words[source[0]][source[1]]
    return args[source] if isinstance(source, int) else words[source]
