"""Launches that a host function makes again and again: bound to what was checked once, found again at little cost.

A call of a kernel checks its arguments and finds its plan. A host function has checks of its own before that, which
cost more. `PreparedCalls` finds what it worked out for a call like this one, and a `BoundLaunch` launches with that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pykittens.errors import ArgumentError
from pykittens.ir.nodes import written
from pykittens.lang.outside import Outside
from pykittens.runtime.arguments import Arguments, check_aliasing
from pykittens.runtime.launch import Plan

T = TypeVar("T")

# Calls of one host function; a program that meets more starts anew.
MAX_CALLS = 4096


@dataclass(frozen=True)
class _Planned:
    """A plan and what it takes for granted besides shapes, strides and dtypes.

    aligned: positions of tensors that start at a multiple of 16 bytes. numbers: positions of numbers on which the plan
    depends, and what they are. outside: the constants that the kernel reads from outside itself.
    """

    plan: Plan
    aligned: tuple[int, ...]
    numbers: tuple[tuple[int, int | float | bool], ...]
    outside: list[Any] | None

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the plan is one for these addresses and numbers."""
        bits = 0
        for i in self.aligned:
            bits |= values[i]
        return not bits & 15 and all(values[i] == n for i, n in self.numbers)


class BoundLaunch:
    """A launch whose arguments have been checked, to be made again with other memory of the same form.

        launch = kernel.bind(x, y, 2.0)
        launch([other_x.data_ptr(), other_y.data_ptr(), 3.0], stream)

    `values` are the addresses of the tensors and the numbers in the order of the parameters, `stream` is the driver's
    handle. The caller answers for it that the tensors have the shapes, strides, dtypes and the GPU of those that were
    bound, and that they live; an output that shares memory with another tensor is refused, as in a call. Threads may
    share a bound launch, and it may be captured into a CUDA graph.
    """

    def __init__(
        self, arguments: Arguments, make: Callable[[Arguments], Plan], outside: Outside
    ) -> None:
        assert not isinstance(arguments.device, str)
        self.ordinal = arguments.device[1]
        self._arguments = arguments
        self._arguments = self._with(arguments.values)  # does not keep the memory of the first call
        self._make, self._outside = make, None if outside.is_empty else outside
        self._planned = self._made(arguments)

    def __call__(self, values: Sequence[Any], stream: int) -> None:
        if len(values) != len(self._arguments.order):
            self._refuse_count(values)
        planned = self._planned
        if self._outside is not None and self._outside.values() != planned.outside:
            planned = self._made_again(values)
        plan = planned.plan
        if values != plan.last:
            values = list(values)  # the plan remembers them, and the caller may change its own
            if not planned.holds(values):
                plan = self._made_again(values).plan
            elif plan.overlaps(values):
                self._check_aliasing(plan, values)
        plan.launch(values, stream)

    def fixed(self, values: Sequence[Any]) -> FixedLaunch | None:
        """The launch that these values were last used for; None where it depends on more than them."""
        plan = self._planned.plan
        if self._outside is not None or plan.last != list(values):
            return None
        return FixedLaunch(plan, values)

    def _made(self, arguments: Arguments) -> _Planned:
        outside = None if self._outside is None else self._outside.values()
        plan = self._make(arguments)
        places = list(enumerate(arguments.order))
        aligned = tuple(
            i for i, n in places if n in arguments.tensors and not arguments.tensors[n].address % 16
        )
        numbers = tuple(
            (i, arguments.scalars[n]) for i, n in places if plan.by_value and n in arguments.scalars
        )
        return _Planned(plan, aligned, numbers, outside)

    def _made_again(self, values: Sequence[Any]) -> _Planned:
        """A plan for another alignment, other numbers that decide something, or other constants."""
        self._planned = planned = self._made(self._with(values))
        return planned

    def _with(self, values: Sequence[Any]) -> Arguments:
        """The arguments with other addresses and numbers."""
        bound = self._arguments
        given = dict(zip(bound.order, values, strict=True))
        tensors = {n: replace(a, address=given[n], owner=None) for n, a in bound.tensors.items()}
        return replace(bound, tensors=tensors, scalars={n: given[n] for n in bound.scalars})

    def _check_aliasing(self, plan: Plan, values: list[Any]) -> None:
        kernel = plan.loaded.kernel
        check_aliasing(kernel.name, written(kernel), self._with(values).tensors, kernel.inplace)

    def _refuse_count(self, values: Sequence[Any]) -> None:
        order, name = self._arguments.order, self._planned.plan.loaded.kernel.name
        raise ArgumentError(
            f"{name}: {len(values)} values for a bound launch of {len(order)} arguments",
            help=f"it takes the addresses and numbers of {', '.join(order)}",
        )


class FixedLaunch:
    """A launch with the very arguments of an earlier one: there is nothing left to set but the stream."""

    def __init__(self, plan: Plan, values: Sequence[Any]) -> None:
        self._plan = replace(plan)  # with parameters of its own
        self._plan.fix(list(values))

    def __call__(self, stream: int) -> bool:
        self._plan.launch_fixed(stream)
        return True


class SameTensors:
    """Launches of a host function, found again by where its tensors lie, what else was said, and the current stream.

        if same.launch((x, y, out), word):
            return out
        ...                                     # the slow way, with a bound launch
        if same.recurs((x, y, out), word):
            same.keep((x, y, out), word, launch.fixed(values))

    What is kept holds for tensors of one place, type, dtype, shape and strides, whichever objects they are.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Any, Callable[[int], bool]]] = {}
        self._seen: set[Hashable] = set()

    def launch(self, tensors: Sequence[Any], said: Hashable) -> bool:
        """Launch as before with such tensors; False where there was no such call, or the launch declines."""
        key, stream = _place(tensors, said)
        try:
            found = self._kept.get(key)
        except TypeError:  # a word without a hash
            return False
        return found is not None and found[0] == _facts(tensors) and found[1](stream)

    def recurs(self, tensors: Sequence[Any], said: Hashable) -> bool:
        """Whether there was such a call before; to keep one that is made once would cost more than it saves."""
        if len(self._seen) >= MAX_CALLS:
            self._seen.clear()
        key, _ = _place(tensors, said)
        try:
            known = key in self._seen
        except TypeError:
            return False
        if key is not None:
            self._seen.add(key)
        return known

    def keep(self, tensors: Sequence[Any], said: Hashable, launch: Callable[[int], bool]) -> None:
        """Keep what launches for such tensors; it is called with the stream, and says whether it has launched."""
        if len(self._kept) >= MAX_CALLS:
            self._kept.clear()
        self._kept[_place(tensors, said)[0]] = _facts(tensors), launch

    def forget(self) -> None:
        """Keep nothing any longer."""
        self._kept.clear()
        self._seen.clear()


def _place(tensors: Sequence[Any], said: Hashable) -> tuple[Hashable | None, int]:
    """Where tensors lie, with what was said and the current stream; None if these are not tensors of a GPU."""
    try:
        stream = torch_stream(tensors[0].get_device())
        return (*[x.data_ptr() for x in tensors], stream, said), stream
    except (AttributeError, TypeError, RuntimeError):  # another library, or the CPU
        return None, 0


def _facts(tensors: Sequence[Any]) -> list[Any]:
    facts: list[Any] = [tensors[0].get_device()]
    for x in tensors:
        facts += (type(x), x.dtype, x.shape, x.stride(), x.is_neg())
    return facts


def torch_stream(ordinal: int) -> int:
    """PyTorch's current stream of a GPU."""
    stream: int = sys.modules["torch"]._C._cuda_getCurrentRawStream(ordinal)
    return stream


class PreparedCalls(Generic[T]):
    """What a host function worked out for its calls, kept by all that tells two calls apart but addresses.

        calls = PreparedCalls[Prepared]()

        def scale(x, factor, out):
            found, key, values, stream = calls.find((x, out), factor > 1)
            if found is None:
                found = ...                     # checks, choices, kernel.bind(x, out, factor)
                calls.keep(key, found)
            found.launch([*values, factor], stream)

    What is kept must hold for every such call on any stream and thread: memory that launches share is kept by stream.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, T] = {}

    def find(
        self, tensors: Sequence[Any], *constants: Hashable
    ) -> tuple[T | None, Hashable | None, list[Any], int]:
        """What was kept for such a call; its key; the addresses of the tensors; the current stream of their GPU.

        Of a tensor the dtype, shape, strides, GPU and the address modulo 16 bytes count; None stands for one that is
        not given, and for its address. `constants` are all else that was decided on. The key is None for arguments that
        have to go the slow way: of another library, subclasses of tensors, on the CPU or on two GPUs.
        """
        torch = sys.modules.get("torch")
        if torch is None:
            return None, None, [], 0
        plain, weight = torch.Tensor, torch.nn.Parameter
        key: list[Any] = []
        values: list[Any] = []
        ordinal = -2  # the CPU is -1
        for tensor in tensors:
            kind = type(tensor)
            if (kind is plain or kind is weight) and not tensor.is_neg():
                device = tensor.get_device()
                if device != ordinal:
                    if device < 0 or ordinal >= 0:
                        return None, None, [], 0
                    ordinal = device
                address = tensor.data_ptr()
                key += (tensor.dtype, tensor.shape, tensor.stride(), address & 15)
                values.append(address)
            elif tensor is None:
                key.append(None)
                values.append(None)
            else:
                return None, None, [], 0
        if ordinal < 0:
            return None, None, [], 0
        key += (ordinal, *constants, *map(type, constants))  # 1, 1.0 and True are three
        whole = tuple(key)
        try:
            found = self._kept.get(whole)
        except TypeError:  # a constant that is not hashable
            return None, None, [], 0
        return found, whole, values, torch._C._cuda_getCurrentRawStream(ordinal)

    def keep(self, key: Hashable | None, prepared: T) -> None:
        """Keep what holds for all calls of a key; nothing where there is none."""
        if key is None:
            return
        if len(self._kept) >= MAX_CALLS:
            self._kept.clear()
        self._kept[key] = prepared

    def forget(self) -> None:
        """Forget all calls, where what was decided for them may be decided anew."""
        self._kept.clear()
