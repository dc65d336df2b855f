"""Calls of a function on PyTorch's tensors, and what was prepared for them.

What is prepared for a call holds for all calls of the same form: all that distinguishes two calls except the addresses
of tensors and the values of the numbers that are passed on to kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from math import copysign
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")

# Forms of the calls of one function; a program that meets more starts anew.
MAX_FORMS = 4096

_NUMBERS = frozenset((float, int, bool))
_NUMPY_NUMBERS = (np.floating, np.integer)

# What was prepared, the form of the call, its addresses and numbers, and the current stream of its GPU.
Found = tuple[T | None, Hashable | None, list[Any], int]
_NOTHING: Found[Any] = (None, None, [], 0)


class Calls(Generic[T]):
    """What was prepared for the calls of one function.

    passed: keyword arguments whose numbers are passed on to kernels, each with the value that has no effect. None if
    all keyword arguments are constants. Positional numbers are always passed on.
    """

    def __init__(self, passed: Mapping[str, Any] | None = None) -> None:
        self.passed = passed
        self._prepared: dict[Hashable, T] = {}

    def __len__(self) -> int:
        return len(self._prepared)

    def find(
        self, args: tuple[Any, ...], words: Mapping[str, Any], more: Sequence[Hashable] = ()
    ) -> Found[T]:
        """What was prepared for a call with these positional and keyword arguments, None if nothing was.

        And the form of the call, to which `more` belongs; the addresses of its tensors and the numbers that are passed
        on, in the order of the call; PyTorch's current stream of their GPU. The form is None if there can be none.

        Of a tensor the dtype, shape, strides, GPU and the address modulo 16 bytes belong to the form. There is no form
        for arguments of another library, subclasses of tensors, tensors of the CPU or of two GPUs, and negated views.
        """
        torch = sys.modules.get("torch")
        if torch is None:
            return _NOTHING
        plain, weight = torch.Tensor, torch.nn.Parameter
        form: list[Any] = list(more)
        given: Sequence[Any] = args
        if words:
            given, passed = list(args), self.passed
            for name, x in words.items():
                form.append(name)
                kind = type(x)
                if passed is not None and (kind is plain or kind is weight or x is None):
                    given.append(x)
                elif passed is None or name not in passed:
                    form += (kind, x)
                elif kind in _NUMBERS:
                    given.append(None if x == passed[name] else x)
                elif kind is tuple or kind is list:
                    form.append(len(x))
                    given += x
                elif isinstance(x, _NUMPY_NUMBERS):
                    given.append(None if float(x) == passed[name] else float(x))
                else:
                    given.append(x)
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
                address = x.data_ptr()
                form += (x.dtype, x.shape, x.stride(), address & 15)
                values.append(address)
            elif x is None:
                form.append(None)
            elif kind is float or kind is int or kind is bool:
                # 0.0 and -0.0 are equal, but not the same.
                form.append(kind if x or kind is not float else copysign(1.0, x))
                values.append(x)
            else:
                return _NOTHING
        if ordinal < 0:
            return _NOTHING
        form.append(ordinal)
        key = tuple(form)
        try:
            prepared = self._prepared.get(key)
        except TypeError:  # a constant that is not hashable
            return _NOTHING
        return prepared, key, values, torch._C._cuda_getCurrentRawStream(ordinal)

    def names(
        self, parameters: Sequence[str], args: tuple[Any, ...], words: Mapping[str, Any]
    ) -> list[str]:
        """The names of the addresses and numbers of a call, in the order of its values.

        The elements of a tuple of `operands` are operand0, operand1 and so on.
        """
        assert self.passed is not None, "only keyword arguments that are passed on have names"
        given = list(zip(parameters, args, strict=False))
        for name, x in words.items():
            if name in self.passed and isinstance(x, tuple | list):
                given += [(f"{name.removesuffix('s')}{i}", each) for i, each in enumerate(x)]
            elif hasattr(x, "data_ptr") or (name in self.passed and x != self.passed[name]):
                given.append((name, x))
        return [name for name, x in given if x is not None]

    def keep(self, form: Hashable | None, prepared: T) -> None:
        """Keep what holds for all calls of a form; nothing if there is no form."""
        if form is None:
            return
        if len(self._prepared) >= MAX_FORMS:
            self._prepared.clear()
        self._prepared[form] = prepared

    def forget(self) -> None:
        """Forget all that was prepared, so that it is decided anew."""
        self._prepared.clear()
