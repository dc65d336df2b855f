"""One's own operators of PyTorch: functions that call kernels, with gradients, under torch.compile, in torch.func.

    @op("mine::scale_rows")
    def scale_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scaled_rows(x, scale, y)
        return y

torch.library.custom_op defines the operator. The function is also its fake implementation, because a call of a kernel
with tensors that have no memory launches nothing.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _get_tracing_state
from torch.compiler import is_dynamo_compiling

from pykittens.errors import ArgumentError, Loc
from pykittens.ir.signature import signature_of
from pykittens.runtime.kernel import KernelFunction
from pykittens.torch.registration import count_flops, is_direct, needs_gradient
from pykittens.torch.transforms import TRANSFORMS, Transformed

F = TypeVar("F", bound=Callable[..., Any])
_NO_TENSORS = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device))
_OWN: dict[str, OwnOperator] = {}  # by name, so that a newer definition replaces an older one


def op(
    name: str, *, mutates: Iterable[str] = (), flops: Callable[..., int] | None = None
) -> Callable[[Callable[..., Any]], OwnOperator]:
    """Decorator: the function becomes the operator `namespace::name` of PyTorch, which compilers do not look into.

    The function has annotations, allocates its results and calls kernels. mutates: the names of the tensors that it
    writes; all others are only read. flops: the number of floating-point operations for the arguments of a call. An
    ArgumentError if the name has no namespace or another module has defined it, if an annotation is missing, or if
    torch.library refuses the function.

        >>> @pk.kernel
        ... def twice(x, y):
        ...     row, col = pk.grid(*x.tiles(64, 64))
        ...     pk.store(y[row, col], 2 * pk.load(x[row, col], rows=64, cols=64))
        >>> @op("mine::double")
        ... def double(x: torch.Tensor) -> torch.Tensor:
        ...     y = torch.empty_like(x)
        ...     twice(x, y)
        ...     return y
        >>> double(torch.ones(3, 5)).sum()
        tensor(30.)
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", name):
        shown = name if isinstance(name, str) else getattr(name, "__name__", "scale_rows")
        own = re.sub(r"\W", "_", shown.rpartition("::")[2])
        raise ArgumentError(
            f"op: takes the name of an operator with its namespace, not {name!r}",
            help=f'write @op("mine::{own}") above the function, with the name of your project for mine',
        )
    names = frozenset((mutates,) if isinstance(mutates, str) else mutates)

    def define(function: Callable[..., Any]) -> OwnOperator:
        if inspect.isfunction(function):
            return OwnOperator(name, function, names, flops)
        kind = "a kernel" if isinstance(function, KernelFunction) else repr(function)
        kernel = getattr(function, "__name__", "kernel")
        own = name.rpartition(":")[2]
        raise ArgumentError(
            f"op: {name} must be a function that calls kernels, not {kind}",
            help=f"def {own}(x: torch.Tensor) -> torch.Tensor: y = torch.empty_like(x); {kernel}(x, y); return y",
        )

    return define


class OwnOperator:
    """A function as an operator. A call of plain tensors that needs no gradient bypasses PyTorch's dispatcher.

    name: as in torch.ops. function: the implementation. definition: the operator of torch.library, for what is not
    here, such as register_autocast and opcheck.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        mutates: frozenset[str],
        flops: Callable[..., int] | None,
    ) -> None:
        self.name, self.function, self.mutates = name, function, mutates
        functools.update_wrapper(self, function)
        self.signature = signature_of(function)
        self._check_annotations()
        self._check_name()
        self.setup: Callable[..., Any] | None = None
        self.gradient: Callable[..., Any] | None = None
        run: Any = functools.wraps(function)(functools.partial(self._run))  # errors name its module
        try:
            schema = torch.library.infer_schema(function, mutates_args=mutates)
            self.definition = torch.library.custom_op(
                name, run, mutates_args=mutates, schema=schema
            )
        except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
            raise self.error(f"torch.library refuses the function: {error}") from error
        self.definition.register_fake(function)
        space, _, own = name.partition("::")
        packet = getattr(getattr(torch.ops, space), own)
        self._operator = packet.default
        if flops is not None:
            count_flops(packet, self.signature, flops)
        # The first call goes through the dispatcher, which checks the results.
        self._was_checked = False
        parameters = self.signature.parameters.values()
        self.by_word = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self.positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        given = self._complete, self._positional_call, self._keep, self._gradients
        kernel = Transformed(self._operator, *given, fail=self.error)
        self.definition._lib.impl(own, kernel, TRANSFORMS, with_keyset=True)
        _OWN[name] = self

    def __call__(self, *args: Any, **words: Any) -> Any:
        if is_dynamo_compiling():
            return self._operator(*args, **words)
        tensors = [x for x in (*args, *words.values()) if type(x) not in _NO_TENSORS]
        is_plain = self._was_checked and _get_tracing_state() is None and is_direct(*tensors)
        if is_plain and not needs_gradient(*tensors):
            return self.function(*args, **words)
        return self._operator(*args, **words)

    def __reduce__(self) -> str:
        """Pickled by name, as functions are; a copy is the operator itself."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        return f"<operator {self.name}{self.signature}>"

    def _check_annotations(self) -> None:
        names = *self.signature.parameters, "return"
        missing = [name for name in names if name not in self.function.__annotations__]
        if missing:
            what = "its result" if missing[0] == "return" else f"`{missing[0]}`"
            raise self.error(
                f"{what} has no annotation, from which PyTorch takes the types of the operator",
                "as in `def scale_rows(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor`",
            )

    def _check_name(self) -> None:
        older = _OWN.get(self.name)
        if older is not None and older.function.__module__ == self.function.__module__:
            return  # a module or a cell of a notebook that is run again
        space, _, own = self.name.partition("::")
        if hasattr(getattr(torch.ops, space), own):
            place = f" by {older.function.__module__}" if older is not None else ""
            raise self.error(f"the name is taken{place}", "choose another")

    # -- gradients ---------------------------------------------------------------------------------

    def setup_context(self, function: F) -> F:
        """Decorator: function(ctx, inputs, output) keeps what the gradient needs, as in torch.library."""
        self.setup = function
        self._register_gradient()
        return function

    def backward(self, function: F) -> F:
        """Decorator: function(ctx, *gradients) returns a gradient, or None, for each argument.

        The gradients of the results are contiguous, as kernels need them.
        """

        def gradient(ctx: Any, *given: Any) -> Any:
            return function(ctx, *(x if x is None else x.contiguous() for x in given))

        self.gradient = gradient
        self._register_gradient()
        return function

    def _register_gradient(self) -> None:
        if self.mutates:
            raise self.error(
                "an operator that writes to its arguments has no gradient",
                "let it return new tensors, and write to the others in another operator",
            )
        if self.gradient is not None:
            self.definition.register_autograd(self.gradient, setup_context=self.setup)

    # -- inside transforms, where all arguments are given by position ------------------------------

    def _complete(self, args: tuple[Any, ...], words: dict[str, Any]) -> tuple[Any, ...]:
        given = self.signature.bind(*args, **words)
        given.apply_defaults()
        return tuple(given.arguments.values())

    def _split(self, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count = len(self.positional)
        return inputs[:count], dict(zip(self.by_word, inputs[count:], strict=True))

    def _positional_call(self, *inputs: Any) -> Any:
        args, words = self._split(inputs)
        return self(*args, **words)

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if self.setup is not None:
            args, words = self._split(inputs)
            more = {"keyword_only_inputs": words} if words else {}
            self.setup(ctx=ctx, inputs=args, output=output, **more)

    def _gradients(self, ctx: Any, *given: Any) -> tuple[Any, ...]:
        if self.gradient is None:
            raise self.error("there is no gradient", "give it one with @….backward")
        found = self.gradient(ctx, *given)
        return *(found if isinstance(found, tuple) else (found,)), *[None] * len(self.by_word)

    # -- the implementation ------------------------------------------------------------------------

    def _run(self, *args: Any, **words: Any) -> Any:
        """What the dispatcher calls; raises if a tensor was written that `mutates` does not name."""
        given = self.signature.bind(*args, **words).arguments
        read = [
            (name, x, x._version)
            for name, value in given.items()
            if name not in self.mutates
            for x in (value if isinstance(value, list | tuple) else (value,))
            if isinstance(x, Tensor) and not x.is_inference()
        ]
        result = self.function(*args, **words)
        for name, x, version in read:
            if x._version != version:
                declared = ", ".join(f'"{n}"' for n in given if n in {*self.mutates, name})
                raise self.error(
                    f"the function writes to `{name}`, which is not in `mutates`",
                    f'write @op("{self.name}", mutates={{{declared}}}), or write to a tensor that the function makes',
                )
        self._was_checked = True
        return result

    def error(self, message: str, help: str | None = None) -> ArgumentError:
        """The error for a fault of the operator, with the line of its function."""
        code = self.function.__code__
        loc = Loc(code.co_filename, code.co_firstlineno, code.co_name)
        return ArgumentError(f"{self.name}: {message}", loc=loc, help=help)
