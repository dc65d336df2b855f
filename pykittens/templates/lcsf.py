"""Load, compute, store, finish: a kernel made of the functions that say what happens to a task.

A producer loads the inputs of a task step by step, consumers compute on them and finish the task, a storer stores
the outputs. The template runs the roles and takes and gives back the stages; the functions say the rest.

Source: Spector et al., "ThunderKittens: Simple, Fast, and Adorable AI Kernels", 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.errors import LanguageError
from pykittens.ir.nodes import Tasks
from pykittens.ir.values import describe
from pykittens.lang.pipeline import Ring
from pykittens.templates.callback import Callback, outside


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
    """Run `load` and `compute` for each step of each task, then `finish`, and `store` what they put out.

    A function takes, by the names of its parameters, what it needs of: task, its coordinates; step, from 0; input
    and output, a stage of `inputs` and `outputs`; worker, the index of the consumer; state, what `setup` gave a
    task and `compute` returned last. The one that takes `output` fills it, `compute` at each step or `finish` once
    a task, and `store` takes it as often. `steps` is a number or a function of the task.
    """
    given = {"load": load, "compute": compute, "tasks": tasks, "inputs": inputs}
    for name, value in {**given, "consumers": consumers}.items():
        if value is None:
            raise LanguageError(f"lcsf: `{name}` is missing", loc=outside())
    of_consumers = ("task", "input", "output", "state", "worker")
    work = _Work(
        load=_part("load", load, "task", "step", "input"),
        compute=_part("compute", compute, "step", *of_consumers),
        finish=_part("finish", finish, *(w for w in of_consumers if w != "input")),
        store=_part("store", store, "task", "step", "output"),
        setup=_part("setup", setup, "task", "worker"),
        steps=_part("steps", steps, "task") if callable(steps) else steps,
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


def _part(name: str, function: Callable[..., Any] | None, *words: str) -> Callback | None:
    return None if function is None else Callback(name, function, words)


@dataclass(frozen=True)
class _Work:
    """What the template was given: Parts, and objects of the language."""

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
        """What the steps of a task are counted with. A single step is no loop."""
        if self.is_one_step:
            return range(1)
        return pk.range(self.steps(task=task) if isinstance(self.steps, Callback) else self.steps)

    @property
    def ends_with_output(self) -> bool:
        """Whether it is `finish` that fills the output, once a task."""
        return self.finish is not None and self.finish.takes("output")

    def stores(self, task: tuple[Any, ...]) -> Iterable[Any]:
        """What the outputs of a task are counted with."""
        return range(1) if self.ends_with_output else self.passes(task)

    @property
    def has_state(self) -> bool:
        """Whether one of the functions of the consumers takes a state."""
        return any(p is not None and p.takes("state") for p in (self.compute, self.finish))

    def first_state(self, task: tuple[Any, ...], worker: Any) -> Any:
        """What a task starts from."""
        return self.setup(task=task, worker=worker) if self.setup is not None else None

    def next_state(self, **words: Any) -> Any:
        """What `compute` makes of the state at a step."""
        state = self.compute(**words)
        if state is None and self.has_state:
            raise self.compute.fault("returns nothing", help="return the state of the next step")
        if state is not None and not self.has_state:
            raise self.compute.fault(
                f"returns {describe(state)}, which nothing takes",
                help="a parameter of `compute` or `finish` named `state` takes it",
            )
        return state

    def check(self) -> None:
        """Raise unless the parts fit each other."""
        self._check_kinds()
        if not self.load.takes("input"):
            raise self.load.fault("takes no `input`, which it is there to fill")
        self._check_state()
        fillers = [p for p in (self.compute, self.finish) if p is not None and p.takes("output")]
        if len(fillers) == 2:
            raise self.finish.fault(
                "and `compute` both take `output`",
                help="fill it in one of them; pk.store writes registers straight to a tensor",
            )
        self._check_outputs(fillers)

    def _check_state(self) -> None:
        if self.setup is not None:
            if not self.has_state:
                raise self.setup.fault("gives a state, and neither `compute` nor `finish` takes it")
            return
        if self.compute.takes("state"):
            raise self.compute.fault("takes a state, and there is no `setup` that gives the first")
        if self.has_state and not self.is_one_step:
            raise self.finish.fault("takes a state, and there is no `setup` for a task of no steps")

    def _check_outputs(self, fillers: list[Callback]) -> None:
        if self.outputs is None:
            for part in (*fillers, *([self.store] if self.store is not None else [])):
                raise part.fault("needs `outputs`", help="outputs=pk.pipeline(...) makes them")
            return
        if not fillers:
            raise LanguageError(
                "lcsf: nothing fills `outputs`",
                loc=outside(),
                help="name a parameter of `compute` or `finish` `output`",
            )
        if self.store is None:
            raise LanguageError("lcsf: `store` is missing, and there are `outputs`", loc=outside())
        if not self.store.takes("output"):
            raise self.store.fault("takes no `output`, which it is there to store")
        if self.ends_with_output and self.store.takes("step"):
            raise self.store.fault("takes `step`, and `finish` fills the output once a task")

    def _check_kinds(self) -> None:
        for name, value, made, right in (
            ("tasks", self.tasks, "pk.persistent(...)", isinstance(self.tasks, Tasks)),
            ("inputs", self.inputs, "pk.pipeline(...)", isinstance(self.inputs, Ring)),
            ("outputs", self.outputs, "pk.pipeline(...)", isinstance(self.outputs, Ring | None)),
            (
                "consumers",
                self.consumers,
                "pk.consumers(n), pk.warpgroups(n) or pk.warps(n)",
                getattr(self.consumers, "kind", None) in ("consumers", "warpgroups", "warps"),
            ),
        ):
            if not right:
                raise LanguageError(
                    f"lcsf: `{name}` must come from {made}, not be {describe(value)}", loc=outside()
                )


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
            if work.ends_with_output:
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
