"""Load, compute, store, finish: a kernel made of the functions that process a task.

A producer loads the inputs of a task step by step, consumers compute on them and finish the task, a storer stores the
outputs. The template runs the roles and takes and returns the stages; the functions do the rest.

Source: Spector et al., "ThunderKittens: Simple, Fast, and Adorable AI Kernels", 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.ir.nodes import Tasks
from pykittens.ir.values import describe
from pykittens.lang.pipeline import PipelineHandle
from pykittens.templates.callback import Callback, refused

_OF_CONSUMERS = ("output", "state", "worker")
WORDS = {
    "load": ("task", "step", "input"),
    "compute": ("step", "task", "input", *_OF_CONSUMERS),
    "finish": ("task", *_OF_CONSUMERS),
    "store": ("task", "step", "output"),
    "setup": ("task", "worker"),
    "steps": ("task",),
}


def lcsf(
    *,
    load: Callable[..., None] | None = None,
    compute: Callable[..., Any] | None = None,
    store: Callable[..., None] | None = None,
    finish: Callable[..., None] | None = None,
    setup: Callable[..., Any] | None = None,
    tasks: Any = None,
    steps: Any = 1,
    inputs: Any = None,
    outputs: Any = None,
    consumers: Any = None,
) -> None:
    """Run `load` and `compute` for each step of each task, then `finish`, and `store` for each output.

    A function takes the words that its parameters name: task, its coordinates; step, from 0; input and output, a stage
    of `inputs` and `outputs`; worker, the index of the consumer; state, the result of `setup` and then of the previous
    `compute`. Either `compute` takes `output` and fills it at each step, or `finish` does once per task; `store` takes
    it as often. `steps` is a number or a function of the task.
    """
    needed = {"load": load, "compute": compute, "tasks": tasks, "inputs": inputs}
    for name, value in {**needed, "consumers": consumers}.items():
        if value is None:
            raise refused(f"`{name}` is missing")
    functions = {"load": load, "compute": compute, "finish": finish, "store": store, "setup": setup}
    work = _Work(
        **{n: None if f is None else Callback(n, f, WORDS[n]) for n, f in functions.items()},
        steps=Callback("steps", steps, WORDS["steps"]) if callable(steps) else steps,
        tasks=tasks,
        inputs=inputs,
        outputs=outputs,
        consumers=consumers,
    )
    work.check()
    inputs.name = inputs.name or "inputs"
    _produce(work)
    _consume(work)
    if outputs is not None:
        outputs.name = outputs.name or "outputs"
        _store(work)


@dataclass(frozen=True)
class _Work:
    """The arguments of the template: callbacks, and objects of the language."""

    load: Any
    compute: Any
    finish: Any
    store: Any
    setup: Any
    steps: Any
    tasks: Any
    inputs: Any
    outputs: Any
    consumers: Any

    @property
    def is_one_step(self) -> bool:
        """Whether each task is known to have a single step."""
        return isinstance(self.steps, int) and self.steps == 1

    def passes(self, task: tuple[Any, ...]) -> Iterable[Any]:
        """The range of the steps of a task. A single step is no run-time loop."""
        if self.is_one_step:
            return range(1)
        return pk.range(self.steps(task=task) if isinstance(self.steps, Callback) else self.steps)

    @property
    def finish_fills(self) -> bool:
        """Whether `finish` fills the output, once per task."""
        return self.finish is not None and self.finish.takes("output")

    def stores(self, task: tuple[Any, ...]) -> Iterable[Any]:
        """The range of the outputs of a task."""
        return range(1) if self.finish_fills else self.passes(task)

    @property
    def has_state(self) -> bool:
        """Whether a function of the consumers takes a state."""
        return any(f is not None and f.takes("state") for f in (self.compute, self.finish))

    def first_state(self, task: tuple[Any, ...], worker: Any) -> Any:
        """The state at the start of a task."""
        return self.setup(task=task, worker=worker) if self.setup is not None else None

    def next_state(self, **words: Any) -> Any:
        """The state after a step."""
        state = self.compute(**words)
        if state is None and self.has_state:
            raise self.compute.fault("returns nothing", help="return the state of the next step")
        if state is not None and not self.has_state:
            raise self.compute.fault(
                f"returns {describe(state)}, which no function takes",
                help="a parameter of `compute` or `finish` named `state` takes it",
            )
        return state

    def check(self) -> None:
        """Raise unless the arguments fit together."""
        self._check_kinds()
        if not self.load.takes("input"):
            raise self.load.fault("must take `input`, which it fills")
        self._check_state()
        fillers = [f for f in (self.compute, self.finish) if f is not None and f.takes("output")]
        if len(fillers) == 2:
            raise self.finish.fault(
                "and `compute` both take `output`",
                help="fill it in one of them; pk.store writes registers directly to a tensor",
            )
        self._check_outputs(fillers)

    def _check_state(self) -> None:
        if self.setup is not None:
            if not self.has_state:
                raise self.setup.fault("returns a state that neither `compute` nor `finish` takes")
        elif self.compute.takes("state"):
            raise self.compute.fault(
                "takes a state, but there is no `setup` that returns the first"
            )
        elif self.has_state and not self.is_one_step:
            raise self.finish.fault(
                "takes a state, but there is no `setup` for tasks without steps"
            )

    def _check_outputs(self, fillers: list[Callback]) -> None:
        if self.outputs is None:
            for function in (*fillers, self.store):
                if function is not None:
                    raise function.fault("needs `outputs`", help="pass outputs=pk.pipeline(...)")
            return
        if not fillers:
            raise refused(
                "no function fills `outputs`",
                help="give `compute` or `finish` a parameter `output`",
            )
        if self.store is None:
            raise refused("`store` is missing, which `outputs` need")
        if not self.store.takes("output"):
            raise self.store.fault("must take `output`, which it stores")
        if self.finish_fills and self.store.takes("step"):
            raise self.store.fault("takes `step`, but `finish` fills the output once per task")

    def _check_kinds(self) -> None:
        roles = ("consumers", "warpgroups", "warps")
        kinds = {
            "tasks": ("pk.persistent(...)", isinstance(self.tasks, Tasks)),
            "inputs": ("pk.pipeline(...)", isinstance(self.inputs, PipelineHandle)),
            "outputs": ("pk.pipeline(...)", isinstance(self.outputs, PipelineHandle | None)),
            "consumers": (
                "pk.consumers(n), pk.warpgroups(n) or pk.warps(n)",
                getattr(self.consumers, "kind", None) in roles,
            ),
        }
        for name, (source, fits) in kinds.items():
            if not fits:
                value = describe(getattr(self, name))
                raise refused(f"`{name}` must come from {source}, not be {value}")


@pk.function
def _produce(work: _Work) -> None:
    with pk.producer():
        for task in work.tasks:
            for step in work.passes(task):
                with work.inputs.fill() as input:
                    work.load(task=task, step=step, input=input)


@pk.function
def _consume(work: _Work) -> None:
    with work.consumers as worker:
        for task in work.tasks:
            state = work.first_state(task, worker)
            for step in work.passes(task):
                with work.inputs.drain() as input:
                    words = {"task": task, "step": step, "input": input, "worker": worker}
                    if work.compute.takes("output"):
                        with work.outputs.fill() as output:
                            state = work.next_state(**words, output=output, state=state)
                    else:
                        state = work.next_state(**words, state=state)
            if work.finish_fills:
                with work.outputs.fill() as output:
                    work.finish(task=task, output=output, state=state, worker=worker)
            elif work.finish is not None:
                work.finish(task=task, state=state, worker=worker)


@pk.function
def _store(work: _Work) -> None:
    with pk.storer():
        for task in work.tasks:
            for step in work.stores(task):
                with work.outputs.drain() as output:
                    work.store(task=task, step=step, output=output)
