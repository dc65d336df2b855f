"""The cache of prepared calls of a function on PyTorch's tensors.

The key is the form of a call: everything that distinguishes two calls except the addresses of tensors and the values of
the numbers that are passed to kernels. A prepared call serves all calls of its form.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from math import copysign
from typing import Any, Generic, TypeVar

import numpy as np

from pykittens.ir.numbers import number
from pykittens.lang.contents import EXACT_TYPES, kept
from pykittens.lang.structures import flatten

T = TypeVar("T")

# The most forms that are kept for one function; when there are more, all are dropped.
MAX_FORMS = 4096

_NUMBERS = frozenset((float, int, bool))
_NUMPY_NUMBERS = (np.floating, np.integer)

# The prepared call, the form, the addresses and numbers of the call, and the current stream of its GPU.
Found = tuple[T | None, Hashable | None, list[Any], int]
_NOTHING: Found[Any] = (None, None, [], 0)


class Calls(Generic[T]):
    """The prepared calls of one function.

    passed: the keyword arguments whose numbers are passed to kernels, each with its neutral value. None if all keyword
    arguments are constants. Positional numbers are always passed.
    """

    def __init__(self, passed: Mapping[str, Any] | None = None) -> None:
        self.passed, self._neutral = passed, passed or {}
        self._prepared: dict[Hashable, T] = {}
        self._torch: tuple[type, type, Any] | None = None

    def __len__(self) -> int:
        return len(self._prepared)

    def find(
        self, args: tuple[Any, ...], words: Mapping[str, Any], more: Sequence[Hashable] = ()
    ) -> Found[T]:
        """The prepared call for these positional and keyword arguments, or None.

        Also returns the form of the call, which includes `more`; the addresses of its tensors and the numbers that are
        passed, in the order of the call; and PyTorch's current stream of their GPU.

        The form includes the dtype, shape, strides and GPU of each tensor, and its address modulo 16 bytes. It is None
        for arrays of other libraries, subclasses of tensors, tensors on the CPU or on two GPUs, negated views, and
        tensors without dense memory.
        """
        names = self._torch or self._find_torch()
        if names is None:
            return _NOTHING
        plain, weight, c_module = names
        form: list[Any] = [*more]
        given: Sequence[Any] = args
        if words:
            passed = self._neutral
            for name in words:  # faster than items() for one or two
                x = words[name]
                if (x is True or x is False) and name not in passed:  # most constants
                    form.append(name)
                    form.append(x)
                    continue
                kind = type(x)
                if name not in passed and (
                    self.passed is None
                    or (kind is not plain and kind is not weight and x is not None)
                ):
                    form += (name, kind, x) if kind in EXACT_TYPES else (name, kept(x))
                    continue
                form.append(name)
                if kind in _NUMBERS:
                    x = None if x == passed[name] else x
                elif isinstance(x, _NUMPY_NUMBERS):
                    x = None if float(x) == passed[name] else float(x)
                elif kind is tuple or kind is list:
                    form.append(len(x))
                    given = (*given, *x)
                    continue
                given = (*given, x)
        values: list[Any] = []
        ordinal = -2  # the CPU is -1
        for x in given:
            kind = type(x)
            if kind is plain or kind is weight:
                device = x.get_device()
                if device != ordinal:
                    if device < 0 or ordinal >= 0:
                        return _NOTHING
                    ordinal = device
                if x.is_neg():
                    return _NOTHING
                try:
                    address = x.data_ptr()
                    form += (x.dtype, x.shape, x.stride(), address & 15)
                except RuntimeError:  # it has no dense memory
                    return _NOTHING
                values.append(address)
            elif x is None:
                form.append(None)
            elif kind is float or kind is int or kind is bool:
                # 0.0 and -0.0 compare equal, but they are different constants.
                form.append(kind if x or kind is not float else copysign(1.0, x))
                values.append(x)
            else:
                return self._find_flat(args, words, more)
        if ordinal < 0:
            return _NOTHING
        form.append(ordinal)
        key = tuple(form)
        try:
            prepared = self._prepared.get(key)
        except TypeError:  # a constant that is not hashable
            return _NOTHING
        return prepared, key, values, c_module._cuda_getCurrentRawStream(ordinal)

    def _find_flat(
        self, args: tuple[Any, ...], words: Mapping[str, Any], more: Sequence[Hashable]
    ) -> Found[T]:
        """`find` for positional arguments that have parts or are numbers of NumPy."""
        if self.passed is not None or (more and type(more[0]) is tuple):
            return _NOTHING
        leaves: list[Any] = []
        forms = tuple([flatten(x, leaves) for x in args])
        given = tuple([x if hasattr(x, "data_ptr") else number(x) for x in leaves])
        return self.find(given, words, (forms, *more))

    def _find_torch(self) -> tuple[type, type, Any] | None:
        """PyTorch's tensor, its parameter and its module in C, once it is imported; every call uses them."""
        if torch := sys.modules.get("torch"):
            self._torch = torch.Tensor, torch.nn.Parameter, torch._C
        return self._torch

    def names(
        self, parameters: Sequence[str], args: tuple[Any, ...], words: Mapping[str, Any]
    ) -> list[str]:
        """The names of the addresses and numbers of a call, in the order of its values.

        The elements of a tuple of `operands` are operand0, operand1 and so on.
        """
        assert self.passed is not None, (
            "only keyword arguments that are passed to kernels have names"
        )
        given = list(zip(parameters, args, strict=False))
        for name, x in words.items():
            if name in self.passed and isinstance(x, tuple | list):
                given += [(element_name(name, i), each) for i, each in enumerate(x)]
            elif hasattr(x, "data_ptr") or (name in self.passed and x != self.passed[name]):
                given.append((name, x))
        return [name for name, x in given if x is not None]

    def keep(self, form: Hashable | None, prepared: T) -> None:
        """Keep a prepared call for a form; does nothing if the form is None."""
        if form is None:
            return
        if len(self._prepared) >= MAX_FORMS:
            self._prepared.clear()
        self._prepared[form] = prepared

    def forget(self) -> None:
        """Drop all prepared calls."""
        self._prepared.clear()


def element_name(name: str, i: int) -> str:
    """The name of element i of a tuple argument: operand0 of `operands`."""
    return f"{name.removesuffix('s')}{i}"
