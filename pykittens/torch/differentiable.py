"""Operators whose gradients are those of another operator: of all tensors that are given, by a host function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import torch
from torch import Tensor

from pykittens.kernels.library import HostFunction
from pykittens.torch.host_call import HostCall
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator


@dataclass(eq=False)
class Differentiable:
    """torch.ops.pykittens.<name>, and <name>_backward, which finds its gradients.

    tensors, options: the arguments; names of tensors that may be None end in "?" and come last, and options are as in a
    schema. forward, backward: host functions with arguments of these names. backward takes also the `gradient` of the
    result, and returns those of all tensors that are given, in this order, whichever are asked for.

    check(operands, *options), outputs(operands, *options): the check of an operator in two, of which the second adds
    what the call makes. like: the tensor whose shape and dtype the result has. flops(*tensors): of the result; the
    gradients have `times` as many. casts: tensors that autocast converts.

    has_state: the option `return_state`, which comes last and which check and backward do not take, makes the result a
    tuple of it and a state; backward takes `state_gradient`. constants: further tensors, without gradients, as
    `tensors`. kept: further results, each perhaps None, which backward takes by these names, and the result as `out`;
    if one is None, it takes None for all. way: as of `Operator`.
    """

    name: str
    tensors: str
    options: str
    _: KW_ONLY
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    check: Callable[..., Any]
    outputs: Callable[..., Any]
    like: str
    flops: Callable[..., int]
    times: int
    way: str = "compute it by products of PyTorch, in f32 or position by position"
    casts: str = ""
    has_state: bool = True
    constants: str = ""
    kept: str = ""

    def __post_init__(self) -> None:
        with_gradient, given = self.tensors.split(), f"{self.tensors} {self.constants}".split()
        needed, more = ([x for x in given if x.endswith("?") == is_more] for is_more in (0, 1))
        kept = [f"{name}?" for name in ("out", *self.kept.split())] if self.kept else []
        ends = ["state_gradient?"] * self.has_state
        asked = ", bool return_state=False" * self.has_state
        results = 1 + self.has_state + len(self.kept.split())
        of_options = f", {self.options}" if self.options else ""
        self.has_gradient = [x in with_gradient for x in given]
        self.operator = Operator(
            f"{self.name}({_tensors(given)}{of_options}{asked}) -> {_results(results)}",
            self._check,
            self._run,
            setup=self._setup,
            backward=self._backward,
            flops=self.flops,
            casts=self.casts,
            way=self.way,
        )
        of_backward = [*needed, "gradient", *more, *kept, *ends]
        if hasattr(self.forward, "calls"):  # a HostFunction
            words, count = self.operator.words, len(given)
            names = " ".join(words[:count]), " ".join(words[count:])
            self.operator.host = HostCall(cast(HostFunction, self.forward), *names)
        self.gradients = Operator(
            f"{self.name}_backward({_tensors(of_backward)}{of_options})"
            f" -> {_results(len(with_gradient))}",
            self._check_gradients,
            self._run_gradients,
            flops=lambda *args: self.times * self.flops(*args),
            no_gradient=("there is no second derivative", "compute the first without create_graph"),
            way=self.way,
        )
        self.needed, self.differentiated = len(needed), [x.rstrip("?") for x in with_gradient]

    def call(self, tensors: tuple[Any, ...], options: tuple[Any, ...]) -> Any:
        """The result of a call, with the state if that is asked for; an ArgumentError if there is no kernel."""
        found = self.operator.call(tensors, options, False)
        if not self.has_state or isinstance(found, Tensor):  # the host function's, without a state
            return found
        return found[:2] if options[-1] else found[0]

    def _check(self, of: Operands, *options: Any) -> None:
        self.check(of, *(options[:-1] if self.has_state else options))
        self.outputs(of, *options)

    def _run(self, *args: Any) -> Any:
        if self.operator.host is not None:
            found = self.operator.host(*args)
        else:
            found = self.forward(**dict(zip(self.operator.words, args, strict=True)))
        if not self.has_state:
            return found
        return _filled(found if isinstance(found, tuple) else (found, None))

    def _setup(self, ctx: Any, args: tuple[Any, ...], result: Any) -> None:
        count, kept = len(self.has_gradient), list[Any]()
        ctx.set_materialize_grads(False)
        ctx.options = args[count:-1] if self.has_state else args[count:]
        if self.has_state:
            ctx.mark_non_differentiable(*result[2 if args[-1] else 1 :])
        if self.kept:
            kept = [result[0], *result[2:]]
            if any(x.dim() == 1 for x in kept):  # in place of None
                kept = [None] * len(kept)
        ctx.save_for_backward(*args[:count], *kept)

    def _backward(self, ctx: Any, gradient: Tensor | None, *of_state: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        if gradient is None:
            gradient = torch.zeros_like(saved[self.operator.names.index(self.like)])
        args = (*saved[: self.needed], gradient, *saved[self.needed :], *of_state[: self.has_state])
        found = iter(self.gradients.launch(*args, *ctx.options))
        of_tensors = [next(found) if has else None for has in self.has_gradient]
        pairs = zip(of_tensors, saved, strict=False)
        none = (None,) * (len(ctx.options) + self.has_state)
        return *(None if x is None else g for g, x in pairs), *none

    def _check_gradients(self, of: Operands, *options: Any) -> None:
        self.check(of, *options)
        of.gradients(*self.differentiated)

    def _run_gradients(self, *args: Any) -> Any:
        given = dict(zip(self.gradients.words, args, strict=True))
        found = iter(self.backward(**given))
        return _filled([None if given[x] is None else next(found) for x in self.differentiated])


def _tensors(names: list[str]) -> str:
    """The arguments of a schema that are tensors; those that may be None end in "?"."""
    return ", ".join(f"Tensor? {x[:-1]}=None" if x.endswith("?") else f"Tensor {x}" for x in names)


def _results(count: int) -> str:
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"


def _filled(results: Sequence[Any]) -> tuple[Tensor, ...]:
    """The results of an operator: an empty tensor in place of None."""
    like = next(x for x in results if x is not None)
    return tuple(like.new_empty(0, dtype=torch.float32) if x is None else x for x in results)
