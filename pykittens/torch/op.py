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
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import DispatchKeySet, _get_tracing_state
from torch._library.autograd import make_autograd_impl
from torch.compiler import is_dynamo_compiling

from pykittens.errors import ArgumentError
from pykittens.runtime.kernel import KernelFunction
from pykittens.torch.definition import Definition, check_name
from pykittens.torch.registration import count_flops, has_tangents, is_direct, needs_gradient
from pykittens.torch.transforms import NO_FORWARD_MODE, TRANSFORMS, Transformed

F = TypeVar("F", bound=Callable[..., Any])
_NO_TENSORS = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device))
_WRITTEN = (
    "an operator that writes to its arguments has no gradient, and one of its tensors asks for it",
    "pass tensors after .detach(), or call it under torch.no_grad()",
)
# The keys of which Autograd, for which torch.library has a kernel, is the alias.
_AUTOGRAD = "AutogradCPU", "AutogradCUDA", "AutogradMeta"
_OWN: dict[str, OwnOperator] = {}  # by name, so that a newer definition replaces an older one


def op(
    name: str, *, mutates: Iterable[str] = (), flops: Callable[..., int] | None = None
) -> Callable[[Callable[..., Any]], OwnOperator]:
    """Decorator: the function becomes the operator `namespace::name` of PyTorch, which compilers do not look into.

    The function has annotations, allocates its results and calls kernels. It returns a tensor, a tuple or a list of
    tensors, or None. mutates: the names of the tensors that it writes; all others are only read. flops: the number of
    floating-point operations for the arguments of a call. An ArgumentError if the name has no namespace or another
    function has it, if an annotation is missing, or if torch.library refuses the function.

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
    check_name(name)

    def define(function: Callable[..., Any]) -> OwnOperator:
        if inspect.isfunction(function):
            return OwnOperator(name, function, mutates, flops)
        kind, help = repr(function), None
        if isinstance(function, KernelFunction):
            kind, own, kernel = "a kernel", name.rpartition(":")[2], function.__name__
            help = f"def {own}(x: torch.Tensor) -> torch.Tensor: y = torch.empty_like(x); {kernel}(x, y); return y"
        raise ArgumentError(
            f"op: {name} must be a function that calls kernels, not {kind}", help=help
        )

    return define


class OwnOperator(Definition):
    """A function as an operator. A call of plain tensors that needs no gradient bypasses PyTorch's dispatcher.

    name: as in torch.ops. function: the implementation. definition: the operator of torch.library, for what is not
    here, such as register_autocast and opcheck.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        mutates: Any,
        flops: Callable[..., int] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        super().__init__(name, function, mutates)
        if flops is not None:
            self.check_takes("flops", flops, self.positional, self.by_word)
        self._check_unique()
        self.setup: Callable[..., Any] | None = None
        self.gradient: Callable[..., Any] = self._no_gradient
        with self.refusals():
            self.definition = torch.library.custom_op(
                name, self._run, mutates_args=self.mutates, schema=self.schema
            )
        self._register(flops)
        # The first call goes through the dispatcher, which checks the results.
        self._was_checked = False
        if (older := _OWN.get(name)) is not None:
            older._was_checked = False  # and so do all calls of a definition that this one replaces
        _OWN[name] = self

    def _register(self, flops: Callable[..., int] | None) -> None:
        space, _, own = self.name.partition("::")
        packet = getattr(getattr(torch.ops, space), own)
        self._operator = packet.default
        if flops is not None:
            count_flops(packet, self.signature, flops)
        self.definition.register_fake(self._call)
        if not self.mutates:
            self.definition.register_autograd(self.gradient)
        self._autograd_of_torch = make_autograd_impl(self._operator, self.definition)
        given = self._complete, self._positional_call, self._keep, self._gradients
        kernel = Transformed(self._operator, *given, fail=self.error)
        library = self.definition._lib
        library.impl(own, kernel, TRANSFORMS, with_keyset=True)
        for key in _AUTOGRAD:
            library.impl(own, self._autograd, key, with_keyset=True)
        arguments = enumerate(self._operator._schema.arguments)
        floats = "float", "Optional[float]"
        self._floats = [(i, x.name) for i, x in arguments if str(x.type) in floats]

    def _check_unique(self) -> None:
        space, _, own = self.name.partition("::")
        older, place = _OWN.get(self.name), ""
        if older is not None:
            names = [(f.__module__, f.__qualname__) for f in (older.function, self.function)]
            if names[0] == names[1]:
                return  # a module or a cell of a notebook that is run again
            place = " by {}.{}".format(*names[0])
        if hasattr(getattr(torch.ops, space), own):
            raise self.error(f"the name is taken{place}", "choose another")

    def __reduce__(self) -> str:
        """Pickled by name, as functions are; a copy is the operator itself."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        return f"<operator {self.name}{self.signature}>"

    # -- calls -------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **words: Any) -> Any:
        if is_dynamo_compiling() or not self._was_checked:
            return self._operator(*args, **words)
        given = *args, *words.values()
        tensors = [x for x in given if type(x) not in _NO_TENSORS]
        if (
            is_direct(*tensors)
            and not needs_gradient(*tensors)
            and _get_tracing_state() is None
            and not (self._floats and int in map(type, given) and self._has_int(args, words))
        ):
            return self.function(*args, **words)
        return self._operator(*args, **words)

    def _has_int(self, args: tuple[Any, ...], words: dict[str, Any]) -> bool:
        """Whether an int is given for a float, to which the dispatcher converts it."""
        given = [args[i] if i < len(args) else words.get(name) for i, name in self._floats]
        return int in map(type, given)

    def _run(self, *args: Any, **words: Any) -> Any:
        """What the dispatcher calls: the function, and checks of what it may have written and returned."""
        given = [
            (name, x, 0 if x.is_inference() else x._version)
            for name, value in (*zip(self.positional, args, strict=False), *words.items())
            for x in _tensors(value)
        ]
        result = self._call(*args, **words)
        for name, x, version in given:
            if name not in self.mutates and not x.is_inference() and x._version != version:
                names = dict.fromkeys(n for n, _, _ in given if n in {*self.mutates, name})
                declared = ", ".join(f'"{n}"' for n in names)
                raise self.error(
                    f"the function writes to `{name}`, which is not in `mutates`",
                    f'write @op("{self.name}", mutates={{{declared}}}), or write to a tensor that the function makes',
                )
            if any(torch._C._is_alias_of(x, made) for made in _tensors(result)):
                raise self.error(
                    f"the function returns memory of `{name}`",
                    "let it return a new tensor, such as a .clone(), or None if the caller has the tensor",
                )
        self._was_checked = True
        return result

    def _call(self, *args: Any, **words: Any) -> Any:
        result = self.function(*args, **words)
        self.check_result(result)
        return result

    # -- gradients ---------------------------------------------------------------------------------

    def setup_context(self, function: F) -> F:
        """Decorator: function(ctx, inputs, output) keeps what the gradient needs, as in torch.library.

        It takes keyword_only_inputs, too, if the operator has parameters that are given by keyword only.
        """
        words = ("keyword_only_inputs",) if self.by_word else ()
        self.check_takes("setup_context", function, (), ("ctx", "inputs", "output", *words))
        self.setup = function
        self._register_gradient()
        return function

    def backward(self, function: F) -> F:
        """Decorator: function(ctx, *gradients) returns a gradient, or None, for each positional argument.

        The gradients of the results are contiguous, as kernels need them.
        """
        given = [f"d{i}" for i in range(len(self.results))]
        self.check_takes("backward", function, ("ctx", *given))

        def gradient(ctx: Any, *given: Any) -> tuple[Any, ...]:
            result = function(ctx, *map(_contiguous, given))
            found = result if isinstance(result, tuple) else (result,)
            if len(found) != len(self.positional):
                raise self.error(
                    f"`backward` must return {len(self.positional)} gradients, not {len(found)}",
                    "return a gradient or None for each of " + ", ".join(self.positional),
                )
            return found

        self.gradient = gradient
        self._register_gradient()
        return function

    def _register_gradient(self) -> None:
        if self.mutates:
            raise self.error(
                "an operator that writes to its arguments has no gradient",
                "let it return new tensors, and write to the others in another operator",
            )
        self.definition.register_autograd(self.gradient, setup_context=self.setup)

    def _no_gradient(self, ctx: Any, *given: Any) -> Any:
        way = f"give it one with @{self.function.__name__}.backward"
        raise self.error("there is no gradient", way)

    def _autograd(self, keys: DispatchKeySet, *args: Any, **words: Any) -> Any:
        """What autograd calls; torch.library's would lose tangents, and gradients of what is overwritten."""
        if has_tangents((args, words)):
            raise self.error(*NO_FORWARD_MODE)
        if self.mutates and needs_gradient(*args):
            raise self.error(*_WRITTEN)
        return self._autograd_of_torch(keys, *args, **words)

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
        if self.mutates and any(ctx.needs_input_grad):
            raise self.error(*_WRITTEN)
        if self.setup is not None:
            args, words = self._split(inputs)
            more = {"keyword_only_inputs": words} if words else {}
            self.setup(ctx=ctx, inputs=args, output=output, **more)

    def _gradients(self, ctx: Any, *given: Any) -> tuple[Any, ...]:
        return *self.gradient(ctx, *given), *[None] * len(self.by_word)


def _tensors(x: Any) -> list[Tensor]:
    """The tensors of an argument or a result."""
    if isinstance(x, Tensor):
        return [x]
    return [y for part in x for y in _tensors(part)] if isinstance(x, list | tuple) else []


def _contiguous(gradient: Any) -> Any:
    if isinstance(gradient, list | tuple):
        return [_contiguous(x) for x in gradient]
    return None if gradient is None else gradient.contiguous()
