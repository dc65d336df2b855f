"""Operators of PyTorch, each stated by a schema and a few functions.

    MATMUL = Operator("matmul(Tensor a, Tensor b, bool tune=False) -> Tensor", check, run, backward=..., ...)

The dispatcher's kernels, fakes for compilers, autocast, errors and direct calls past the dispatcher follow from these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from inspect import Parameter, Signature
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active, _increment_version
from torch.autograd import Function, profiler
from torch.compiler import is_dynamo_compiling

from pykittens.errors import ArgumentError, KernelError, Loc
from pykittens.runtime.arrays import torch_dtype
from pykittens.runtime.calls import MAX_FORMS
from pykittens.torch.host_call import HostCall
from pykittens.torch.operands import Operands, description
from pykittens.torch.registration import (
    AUTOCAST,
    LIBRARY,
    are_wrapped,
    casting,
    count_flops,
    form_of,
    has_tangents,
    is_direct,
    is_intercepted,
    is_special,
    needs_gradient,
    plain_form_of,
)
from pykittens.torch.transforms import NO_FORWARD_MODE, TRANSFORMS, Transformed, function_of

_TORCH = os.path.dirname(torch.__file__) + os.sep


@dataclass(eq=False)
class Operator:
    """torch.ops.pykittens.<name>, and calls of the function of that name, which bypass the dispatcher if they may.

    schema: as torch.library takes it. Tensors come first, options after them; all functions take them in this order.

    check(operands, *options): states shapes, dtypes and results as a host function of the library does, and raises
    operands.fail(...) if there is no kernel. run(*args): the result of a call that passed the check; a HostCall if a
    host function does all of it, which takes the least time. fallback(*args): PyTorch's result. rearranged(*args):
    the result of a call for which the check called operands.rearrange(...).

    setup(ctx, args, result), backward(ctx, *gradients): setup_context and backward of a torch.autograd.Function, whose
    `apply` is the operator's. forward(ctx, *args): the result, if more than arguments and result is to be kept; not
    inside transforms. recorded(*args): the result if autograd or a transform records the call; `apply` unless given.
    no_gradient: the message and help if there is no gradient.

    flops(*args): the number of floating-point operations, for FlopCounterMode. casts: the names of the arguments that
    autocast converts. function: the name of the function, if it differs. defaults: of arguments, where a schema has
    them in another form. way: how PyTorch computes a call that has no kernel.
    """

    schema: str
    check: Callable[..., None]
    run: Callable[..., Any]
    _: KW_ONLY
    fallback: Callable[..., Any] | None = None
    rearranged: Callable[..., Any] | None = None
    setup: Callable[..., None] | None = None
    forward: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    recorded: Callable[..., Any] | None = None
    no_gradient: tuple[str, str] = ("there is no gradient", "call it under torch.no_grad()")
    flops: Callable[..., int] | None = None
    casts: str = ""
    function: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    way: str = "let PyTorch do it with fallback=True"

    def __post_init__(self) -> None:
        name = self.schema[: self.schema.index("(")]
        LIBRARY.define(self.schema, tags=(torch.Tag.pt2_compliant_tag,))
        operators = getattr(torch.ops.pykittens, name)
        self.op = operators.default
        arguments = self.op._schema.arguments
        self.words = tuple(x.name for x in arguments)
        self._defaults = [self.defaults.get(x.name, x.default_value) for x in arguments]
        if self.flops is not None:
            count_flops(operators, Signature([*map(_parameter, arguments)]), self.flops)
        self._cast = frozenset(self.casts.split())
        cast = [i for i, name in enumerate(self.words) if name in self._cast]
        kernels = {"CompositeExplicitAutograd": self._run, "Autograd": self._autograd}
        kernels |= {key: casting(self.op, key, cast) for key in AUTOCAST if cast}
        for key, kernel in kernels.items():
            LIBRARY.impl(name, kernel, key)
        torch.library.register_fake(f"pykittens::{name}", self._fake, lib=LIBRARY)
        written = [x.alias_info is not None for x in arguments]
        self.function = self.function or name
        tensors = [x for x in arguments if "Tensor" in str(x.type)]
        self.names = tuple(x.name for x in tensors)
        self._needed = {x.name for x in tensors if not x.has_default_value()}
        self._written = [i for i, is_written in enumerate(written) if is_written]
        self._transformed = Transformed(
            *(self.op, lambda args, _: self._full(args), self.op),
            setup=self._keep,
            backward=self.backward or self._no_backward,
            fail=self._fault,
            recorded=self.recorded,
            any_strides=True,
        )
        LIBRARY.impl(name, self._transformed, TRANSFORMS, with_keyset=True)
        if self.backward is not None:
            forward = self.forward or self._forward
            self._apply = function_of(name, forward=forward, backward=self.backward)
            # Past what Function.apply does in Python for transforms, which takes 3 us.
            self._apply_plain = super(Function, self._apply.__self__).apply  # type: ignore
            self.recorded = self.recorded or self.apply
        self.host: HostCall | None = self.run if isinstance(self.run, HostCall) else None
        # The forms of calls that have passed the check, each with `run` or `rearranged`.
        self._known: dict[tuple[Any, ...], Callable[..., Any]] = {}

    # -- a call of the function --------------------------------------------------------------------

    def call(self, tensors: tuple[Any, ...], options: tuple[Any, ...], fallback: bool) -> Any:
        """The result of a call of the function; without a kernel, PyTorch's if `fallback`, else an ArgumentError."""
        form, is_recorded = None, False
        if not is_intercepted():
            is_recorded = needs_gradient(*tensors)
            if not is_recorded:
                found = self._known_to_host(tensors, options)
                if found is not None:
                    return found
            form = plain_form_of(tensors, options)
        call = None if form is None else self._known.get(form)
        if call is not None:
            if call is self.run:
                if is_recorded:
                    call = self.record
                elif profiler._is_profiler_enabled:
                    call = self.op  # the dispatcher tells the profiler
            try:
                return call(*tensors, *options)
            except KernelError:  # an error that the form does not show, raised by the host function
                if is_direct(*tensors) and self._examined((*tensors, *options)).refusal is None:
                    raise
        args = (*tensors, *options)
        of = self._examined(args)
        if of.refusal is None:
            call = self._remember(form, of)
            return (self.launch if call is self.run else call)(*args)
        if fallback and self.fallback is not None:
            return self.fallback(*args)
        if is_dynamo_compiling():
            return self.op(*args)  # raises the error
        raise self.error(args, *of.refusal)

    def launch(self, *args: Any) -> Any:
        """The result of a call whose arguments have passed the check."""
        if is_intercepted():
            return self.op(*args)
        count = len(self.names)
        tensors = args[:count]
        is_recorded = needs_gradient(*tensors)
        if self.host is self.run and not is_recorded:
            found = self._known_to_host(tensors, args[count:])
            if found is not None:
                return found
        if not is_direct(*tensors):
            return self.op(*args)
        return self.record(*args) if is_recorded else self.run(*args)

    def _known_to_host(self, tensors: tuple[Any, ...], options: tuple[Any, ...]) -> Any:
        """What the host function returns if it knows the form of a call, and no profiler is to see it; else None."""
        if self.host is None or profiler._is_profiler_enabled:
            return None
        return self.host.launch(tensors, options)

    def record(self, *args: Any) -> Any:
        """The result, recorded by autograd; an ArgumentError if no gradient of the kind asked for exists."""
        if has_tangents(args):
            message, help = NO_FORWARD_MODE
        elif self.recorded is None:
            message, help = self.no_gradient
        else:
            return self.recorded(*args)
        raise self.error(args, f"{self.function}: {message}", help)

    def apply(self, *args: Any) -> Any:
        """The result of the operator, recorded by autograd or by a transform."""
        if _are_functorch_transforms_active():
            return self._transformed.apply(*args)
        is_wrapped = are_wrapped(args[: len(self.names)])
        return (self._apply if is_wrapped else self._apply_plain)(*args)

    def _forward(self, ctx: Any, *args: Any) -> Any:
        assert self.setup is not None, f"{self.function} has a backward and no setup"
        result = self.launch(*args)
        self.setup(ctx, args, result)
        return result

    def _keep(self, ctx: Any, args: tuple[Any, ...], result: Any) -> None:
        if self.setup is not None:
            self.setup(ctx, args, result)
        elif self._written and any(ctx.needs_input_grad):
            message, help = self.no_gradient
            raise self.error(args, f"{self.function}: {message}", help)

    def _no_backward(self, ctx: Any, *gradients: Any) -> Any:
        # A transform records a backward pass, too, whether or not its gradient is asked for.
        raise self._fault(*self.no_gradient)

    # -- checks ------------------------------------------------------------------------------------

    def _examined(self, args: tuple[Any, ...]) -> Operands:
        of = Operands(self.function, self.way)
        try:
            for i, name in enumerate(self.names):
                if args[i] is not None or name in self._needed:
                    of.add(name, args[i], cast=name in self._cast)
            self.check(of, *args[len(self.names) :])
        except ArgumentError as error:
            of.refusal = error.message, error.help
        return of

    def _remember(self, form: tuple[Any, ...] | None, of: Operands) -> Callable[..., Any]:
        """`run` or `rearranged`, whichever takes these operands; later calls of this form are not checked."""
        call = self.run if of.rearranged is None else self.rearranged
        assert call is not None, f"{self.function} takes its tensors in one form"
        if form is not None:
            if len(self._known) >= MAX_FORMS:
                self._known.clear()
            self._known[form] = call
        return call

    def _checked(self, args: tuple[Any, ...]) -> Operands:
        """The operands of a call of the operator; an ArgumentError if it has no kernel for them."""
        of = self._examined(args)
        if (refusal := of.refusal or of.rearranged) is not None:
            raise self.error(args, *refusal)
        return of

    def error(self, args: tuple[Any, ...], message: str, help: str | None) -> ArgumentError:
        """The error of a call with these arguments."""
        given = zip(self.names, args, strict=False)
        shown = {name: description(x) for name, x in given if x is not None}
        place = Loc.here(beyond=(_TORCH,))  # the dispatcher's frames may lie in between
        return ArgumentError(message, operands=shown, loc=place, help=help)

    def _fault(self, message: str, help: str | None = None) -> ArgumentError:
        return self.error((), f"{self.function}: {message}", help)

    # -- functions that the dispatcher calls -------------------------------------------------------

    def _run(self, *args: Any) -> Any:
        args = self._full(args)
        form = self._form(args)
        if form is None or self._known.get(form) is not self.run:
            self._remember(form, self._checked(args))
        return self.run(*args)

    def _form(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return form_of(args[: len(self.names)], args[len(self.names) :])

    def _fake(self, *args: Any) -> Any:
        args = self._full(args)
        of = self._checked(args)
        _increment_version([args[i] for i in self._written])
        results = [
            of.like.new_empty(made.shape, dtype=torch_dtype(made.dtype))
            for made in of.made.values()
        ]
        return results[0] if len(results) == 1 else tuple(results) or None

    def _autograd(self, *args: Any) -> Any:
        args = self._full(args)
        if needs_gradient(*args):
            self._checked(args)
            return self.record(*args)
        form = self._form(args)
        if form and self._known.get(form) is self.run and not is_special(args):
            return self.run(*args)  # the dispatcher would only call `_run`
        with torch._C._AutoDispatchBelowAutograd():
            return self.op(*args)

    def _full(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """All arguments of a call; the dispatcher leaves out defaults at the end."""
        return (*args, *self._defaults[len(args) :])


def _parameter(x: Any) -> Parameter:
    """An argument of a schema."""
    default = x.default_value if x.has_default_value() else Parameter.empty
    return Parameter(x.name, Parameter.POSITIONAL_OR_KEYWORD, default=default)
