"""The arguments of a call, checked against the parameters of the kernel."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError, Loc
from pykittens.ir import habits
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Grid, Kernel, Require, Tasks, walk, written
from pykittens.ir.numbers import number, numbers
from pykittens.ir.signature import signature_of
from pykittens.ir.values import Global, Value
from pykittens.lang.structures import Form, flatten, names
from pykittens.lang.trace import ScalarArg, TensorArg
from pykittens.runtime.arrays import Array, Device, describe
from pykittens.types.dtypes import DTYPES, DType, bool_, f32, int32
from pykittens.types.tiles import GL

INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True)
class Parameters:
    """The signature of a kernel: what it takes by position, and its compile-time constants by keyword.

    further: the parameter that takes any number of further arguments, as `*operands` does.
    """

    name: str
    positional: tuple[str, ...]
    constants: dict[str, Any]
    loc: Loc
    further: str | None = None

    @staticmethod
    def of(function: Callable[..., Any]) -> Parameters:
        positional, constants, further = [], {}, None
        if not inspect.isfunction(function):
            raise ArgumentError(
                f"kernel: takes a function, not {_described(function)}",
                help=_way_to_kernel(function),
            )
        code = function.__code__
        loc = Loc(code.co_filename, code.co_firstlineno, code.co_name)
        for p in signature_of(function).parameters.values():
            if p.kind is p.KEYWORD_ONLY:
                constants[p.name] = p.default
            elif p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty:
                positional.append(p.name)
            elif p.kind is p.VAR_POSITIONAL:
                further = p.name
            else:
                raise ArgumentError(
                    f"{function.__name__}: `{p.name}` must be a plain or a keyword-only parameter",
                    loc=loc,
                    help="arguments without a default are tensors and numbers; constants follow a `*`, as in "
                    "`def k(x, y, *, rows=64)`",
                )
        if positional[:1] == ["self"]:
            raise ArgumentError(
                f"kernel: {function.__qualname__} is a method",
                loc=loc,
                help="a kernel takes tensors, numbers and constants: define it outside of the class, or without `self` "
                "as a @staticmethod",
            )
        return Parameters(function.__name__, tuple(positional), constants, loc, further)

    @property
    def shown(self) -> str:
        """The parameters as texts show them."""
        further = () if self.further is None else (f"*{self.further}",)
        return ", ".join((*self.positional, *further, *(f"{c}=" for c in self.constants)))

    def names(self, count: int) -> tuple[str, ...]:
        """The names of `count` positional arguments; further ones are numbered from 0."""
        more = count - len(self.positional)
        if self.further is None or more <= 0:
            return self.positional
        taken = {*self.positional, *self.constants}
        return (*self.positional, *(_free(f"{self.further}{i}", taken) for i in range(more)))

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments and the constants by name."""
        names = self.names(len(args))
        values, constants = dict(zip(names, args, strict=False)), {}
        takes = self.shown
        extra = len(args) - len(names)
        if extra > 0:
            raise ArgumentError(
                f"{self.name}: {extra} argument{'s' * (extra > 1)} too many",
                help=f"it takes {takes}",
            )
        for name, value in kwargs.items():
            if name in self.constants:
                constants[name] = value
            elif name in self.positional and name not in values:
                values[name] = value
            else:
                word = "given twice" if name in self.positional else "not one of its arguments"
                if name == self.further:
                    word = "for further arguments, which have no names in a call"
                help = "; ".join(filter(None, (habits.launch(name), f"it takes {takes}")))
                raise ArgumentError(f"{self.name}: `{name}` is {word}", help=help)
        missing = [n for n in self.positional if n not in values]
        missing += [
            n
            for n, d in self.constants.items()
            if n not in constants and d is inspect.Parameter.empty
        ]
        if missing:
            raise ArgumentError(f"{self.name}: `{missing[0]}` is missing", help=f"it takes {takes}")
        for name, default in self.constants.items():
            constants[name] = numbers(constants.get(name, default))
            try:
                hash(constants[name])
            except TypeError:
                raise ArgumentError(
                    f"{self.name}: `{name}` is a compile-time constant and must be hashable, "
                    f"not a {type(constants[name]).__name__}"
                ) from None
        return {n: values[n] for n in names}, constants


def _free(name: str, taken: set[str]) -> str:
    """The name, followed by underscores until it is unique."""
    while name in taken:
        name += "_"
    return name


@dataclass
class Arguments:
    """The checked arguments of one call.

    forms: what each parameter is, in the order of the signature. order: the names of the tensors and numbers in this
    order; those in a tuple, a named tuple or a dataclass are named as the kernel reads them, `weights.q`. by_value:
    numbers among the arguments decided constants.
    """

    forms: dict[str, Form]
    order: tuple[str, ...]
    tensors: dict[str, Array]
    scalars: dict[str, int | float | bool]
    constants: dict[str, Any]
    device: Device
    by_value: bool = False

    @property
    def types(self) -> dict[str, TensorArg | ScalarArg]:
        """The types that recording sees, in the order of the signature."""
        return {name: self._type(name) for name in self.order}

    @property
    def absent(self) -> tuple[str, ...]:
        """The names of arguments that are None, and of parts of arguments."""
        return tuple(n for n, is_leaf in leaf_names(self.forms) if not is_leaf)

    @property
    def reads(self) -> list[str]:
        """How each tensor and number is read from the tuple of the positional arguments: `[0]`, `[1].q`."""
        given = {f"[{i}]": form for i, form in enumerate(self.forms.values())}
        return [read for read, is_leaf in leaf_names(given) if is_leaf]

    @property
    def values(self) -> list[int | float | bool]:
        """The addresses of the tensors and the numbers, in the order of the signature."""
        return [
            self.tensors[n].address if n in self.tensors else self.scalars[n] for n in self.order
        ]

    def at(self, values: Sequence[Any]) -> Arguments:
        """The same arguments with other addresses and numbers, in the order of the signature; owns no memory."""
        given = dict(zip(self.order, values, strict=True))
        tensors = {n: replace(a, address=given[n], owner=None) for n, a in self.tensors.items()}
        return replace(self, tensors=tensors, scalars={n: given[n] for n in self.scalars})

    def holding(self, leaves: Sequence[Any]) -> Arguments:
        """The same arguments with other arrays and numbers like these, in the order of the signature."""
        given = dict(zip(self.order, leaves, strict=True))
        tensors = {n: array for n in self.tensors if (array := describe(given[n])) is not None}
        return replace(self, tensors=tensors, scalars={n: given[n] for n in self.scalars})

    def mark_written(self, outputs: Sequence[int]) -> None:
        """Raise the versions of PyTorch's tensors at these positions, so that autograd detects what a kernel wrote."""
        if torch := sys.modules.get("torch"):
            owners = [self.tensors[self.order[i]].owner for i in outputs]
            torch._C._increment_version([x for x in owners if isinstance(x, torch.Tensor)])

    def _type(self, name: str) -> TensorArg | ScalarArg:
        if name in self.scalars:
            return ScalarArg(scalar_dtype(self.scalars[name]), self.scalars[name])
        a = self.tensors[name]
        whole = a.shape[-1] * a.itemsize % 16 == 0
        return TensorArg(GL(DTYPES[a.dtype], len(a.shape), reachable(a), whole), tuple(a.shape))


def leaf_names(forms: Mapping[str, Form]) -> Iterator[tuple[str, bool]]:
    """The name of each tensor, number and None, and whether it is no None."""
    for name, form in forms.items():
        yield from names(form, name)


def scalars(arguments: Arguments) -> dict[str, int | bool | np.float32]:
    """The numbers among the arguments as kernels see them."""
    return {n: np.float32(v) if isinstance(v, float) else v for n, v in arguments.scalars.items()}


def scalar_dtype(value: int | float | bool) -> DType:
    """The dtype with which a Python number is passed."""
    return bool_ if isinstance(value, bool) else int32 if isinstance(value, int) else f32


def reachable(array: Array) -> bool:
    """Whether the copy engine can address a tensor: 16-byte base and strides, no empty and no repeated axis."""
    size = array.itemsize
    if array.address % 16 or 0 in array.shape:
        return False
    outer = zip(array.shape[:-1], array.strides[:-1], strict=True)
    return all(n == 1 or (s > 0 and s * size % 16 == 0 and s * size < 2**40) for n, s in outer)


def _described(function: object) -> str:
    return (
        repr(function)
        if isinstance(function, int | float | str)
        else f"a {type(function).__name__}"
    )


def _way_to_kernel(function: object) -> str:
    """Help for what is given to pk.kernel in place of a function."""
    if isinstance(function, int):
        return f"the number of warps is a keyword: @pk.kernel(warps={function})"
    if isinstance(function, staticmethod | classmethod):
        return "@staticmethod stands above @pk.kernel"
    return (
        "constants are keyword-only parameters, `def k(x, y, *, rows)`, and are given at each call"
    )


def check(parameters: Parameters, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """The checked arguments of a call. Raises ArgumentError, which names the wrong argument."""
    given, constants = parameters.bind(args, kwargs)
    tensors: dict[str, Array] = {}
    scalars: dict[str, int | float | bool] = {}
    leaves: list[Any] = []
    forms = {name: flatten(value, leaves) for name, value in given.items()}
    order = tuple(name for name, is_leaf in leaf_names(forms) if is_leaf)
    for name, value in zip(order, leaves, strict=True):
        value = number(value)
        if isinstance(value, bool | int | float):
            check_number(parameters.name, name, value, scalar_dtype(value))
            scalars[name] = value
            continue
        array = describe(value)
        if array is None:
            raise ArgumentError(
                f"{parameters.name}: `{name}` must be an array or a number, not {type(value).__name__}",
                help=next(t for kind, t in _HELP.items() if isinstance(value, kind)).format(name),
            )
        _check_array(parameters, name, array)
        tensors[name] = array
    if not tensors:
        raise ArgumentError(f"{parameters.name}: at least one argument must be an array")
    devices = {a.device for a in tensors.values()}
    if len(devices) > 1:
        raise ArgumentError(
            f"{parameters.name}: all arrays must be on one device",
            operands={n: f"on {device_name(a.device)}" for n, a in tensors.items()},
        )
    return Arguments(forms, order, tensors, scalars, constants, devices.pop())


_CONSTANT = "constants are keyword-only parameters of the kernel, after a `*`"
_HELP = {
    tuple: "tuple(...) makes a plain tuple of it",
    list: "np.asarray({0}, np.float32) makes an array of numbers; several arrays are a tuple, a NamedTuple or a "
    "dataclass",
    dict: "several arrays with names are a NamedTuple or a dataclass",
    str: _CONSTANT,
    DType: _CONSTANT,
    object: "NumPy arrays, PyTorch tensors and anything with __dlpack__ are arrays",
}


def check_number(kernel: str, name: str, value: int | float | bool, dtype: DType) -> None:
    """Raise ArgumentError unless a number is in the range of the dtype with which it is passed."""
    if not dtype.represents(value):
        raise ArgumentError(f"{kernel}: `{name}` = {value} is outside the range of {dtype}")


def device_name(device: Device) -> str:
    """A device as PyTorch writes it."""
    return device if isinstance(device, str) else f"{device[0]}:{device[1]}"


def _check_array(parameters: Parameters, name: str, array: Array) -> None:
    def fail(message: str, help: str | None = None) -> None:
        raise ArgumentError(
            f"{parameters.name}: `{name}` {message}", operands={name: array}, help=help
        )

    if array.dtype not in DTYPES:
        fail(
            f"is {array.dtype}, which kernels do not compute with",
            help=f"{habits.converted(name, array.dtype)}the dtypes are {', '.join(DTYPES)}",
        )
    if not 1 <= len(array.shape) <= 5:
        fail(f"has rank {len(array.shape)}, kernels take rank 1 to 5")
    if any(n not in INT32 for n in array.shape):
        fail("has an extent outside the range of int32")
    if 0 in array.shape:
        return  # the strides of an empty array have no meaning; NumPy makes them 0
    if array.shape[-1] > 1 and array.strides[-1] != 1:
        fail(
            f"has a last stride of {array.strides[-1]}, it must be 1",
            help=f"pass a contiguous copy of `{name}`; if the kernel writes to it, copy the result back",
        )
    if any(s < 0 for n, s in zip(array.shape, array.strides, strict=True) if n > 1):
        fail("has a negative stride", help=f"pass a contiguous copy of `{name}`")
    if array.address == 0:
        fail("has no memory", help="tensors of FakeTensorMode have shapes only")
    if array.address % array.itemsize:
        fail(
            f"starts at the address {array.address:#x}, which is no multiple of its {array.itemsize}-byte elements",
            help=f"pass a copy of `{name}`",
        )


# -- what a recorded kernel asks of its arguments --------------------------------------------------


def known_values(kernel: Kernel, arguments: Arguments) -> dict[Value, Any]:
    """The extents and scalar arguments, keyed by the values that represent them in the kernel."""
    known: dict[Value, Any] = {}
    for param in kernel.params:
        if isinstance(param, Global):
            known.update(zip(param.extents, arguments.tensors[param.name].shape, strict=True))
        else:
            known[param] = arguments.scalars[param.name]
    return known


def check_requirements(kernel: Kernel, arguments: Arguments, known: Mapping[Value, Any]) -> None:
    """Raise ArgumentError for a `require` that does not hold, an uneven cluster or an output that cannot be written."""
    check_values(kernel, requirements(kernel), known, lambda: arguments)
    outputs = written(kernel)
    for name in outputs:
        array = arguments.tensors[name]
        if not array.writable:
            raise ArgumentError(
                f"{kernel.name}: `{name}` is written and is read-only",
                operands={name: array},
                help=f"pass a copy of `{name}`, which can be written",
            )
        fault = repetition(array)
        if fault is not None and 0 not in array.shape:
            raise ArgumentError(
                f"{kernel.name}: `{name}` is written and {fault}", operands={name: array}
            )
    check_aliasing(kernel.name, outputs, arguments.tensors, kernel.inplace)


def check_values(
    kernel: Kernel,
    required: Sequence[Require],
    known: Mapping[Value, Any],
    arguments: Callable[[], Arguments],
) -> None:
    """Raise ArgumentError for the first `require` that does not hold, or if clusters cannot share the work evenly."""
    for node in required:
        if not host_value(node.condition, known):
            given = arguments()
            shown: dict[str, object] = {**given.tensors, **given.scalars}
            raise ArgumentError(f"{kernel.name}: {node.message}", operands=shown, loc=node.loc)
    _check_clusters(kernel, known)


def requirements(kernel: Kernel) -> list[Require]:
    """The requirements of a kernel on its arguments."""
    return [node for node in walk(kernel.body) if isinstance(node, Require)]


def repetition(array: Array) -> str | None:
    """What is wrong if two elements of an array share an address."""
    axes = sorted((s, n) for n, s in zip(array.shape, array.strides, strict=True) if n > 1)
    if axes and axes[0][0] == 0:
        return "has an axis of stride 0"
    reach = 0
    for level, (stride, extent) in enumerate(axes):
        # An axis whose stride is above the reach of the smaller strides meets no element twice.
        if stride <= reach and _meets(array, axes[: level + 1]):
            return "has elements that share an address"
        reach += (extent - 1) * stride
    return None


def _meets(array: Array, axes: list[tuple[int, int]]) -> bool:
    """Whether a step along the last of these axes reaches an element that the other axes reach, too."""
    *inner, (stride, extent) = axes
    strides, shape = (tuple(part) for part in zip(*inner, strict=True))
    start = replace(array, shape=shape, strides=strides)
    steps = replace(
        array,
        shape=(*shape, extent - 1),
        strides=(*strides, stride),
        address=array.address + stride * array.itemsize,
    )
    return overlap(start, steps)


def _check_clusters(kernel: Kernel, known: Mapping[Value, Any]) -> None:
    """Raise ArgumentError if clusters cannot share the work evenly and the rest would lie outside a tensor."""
    if isinstance(kernel.launch, Grid) and kernel.cluster > 1:
        points = prod(int(host_value(d, known)) for d in kernel.launch.dims)
        if points % kernel.cluster:
            raise ArgumentError(
                f"{kernel.name}: a grid of {points} blocks cannot be divided into clusters of {kernel.cluster}",
                loc=kernel.launch.loc,
                help="pk.persistent(...) distributes any number of tasks among clusters",
            )
    if isinstance(kernel.launch, Tasks) and kernel.launch.cluster_axis is not None:
        axis, dims = kernel.launch.cluster_axis, kernel.launch.dims
        extent = host_value(dims[axis], known)
        if axis < len(dims) - 2 and extent % kernel.cluster:
            raise ArgumentError(
                f"{kernel.name}: {extent} tasks along axis {axis} cannot be shared by clusters of {kernel.cluster}",
                loc=kernel.launch.loc,
                help="only the last two axes of the tasks may end inside a cluster, because a tensor has edges there",
            )


def check_aliasing(
    name: str, outputs: list[str], tensors: Mapping[str, Array], inplace: bool
) -> None:
    """Raise ArgumentError if an output shares memory with another argument; `inplace` permits the same tensor."""
    for out in outputs:
        for other, array in tensors.items():
            if other == out or not overlap(tensors[out], array):
                continue
            same = (tensors[out].address, tensors[out].shape, tensors[out].strides) == (
                array.address,
                array.shape,
                array.strides,
            )
            if same and inplace:
                continue
            way = "@pk.kernel(inplace=True) allows the same tensor for both" if same else None
            raise ArgumentError(
                f"{name}: the output `{out}` shares memory with `{other}`",
                operands={out: tensors[out], other: array},
                help=way or "pass a copy of one of them",
            )


def span(array: Array) -> int:
    """Bytes from the start of the first element to the end of the last one."""
    if 0 in array.shape:
        return 0
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return (reach + 1) * array.itemsize


def overlap(a: Array, b: Array) -> bool:
    """Whether two tensors have an element in common."""
    if a.address + span(a) <= b.address or b.address + span(b) <= a.address:
        return False
    # Views of one tensor often interleave without touching; NumPy decides from addresses and strides alone.
    return bool(np.shares_memory(_shadow(a), _shadow(b)))


class _Shadow:
    def __init__(self, array: Array) -> None:
        size = array.itemsize
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": tuple(array.shape),
            "strides": tuple(s * size for s in array.strides),
            "data": (array.address, True),
        }


def _shadow(array: Array) -> Any:
    """An array at the same addresses, which is never read."""
    return np.asarray(_Shadow(array))
