"""Calls of host functions by operators, which need not read the tensors twice."""

from __future__ import annotations

from typing import Any

from pykittens.kernels.library import HostFunction, launch_first


class HostCall:
    """The call of a host function that an operator is: `run` of the operator.

    tensors, options: the names that the function has for the operator's, in the operator's order. constants: its
    further keyword arguments. returns: whether the operator returns the result.

    The form of a call is found from the arguments of the operator. So it tells also that an earlier call of this form
    has passed the operator's check.
    """

    def __init__(
        self,
        function: HostFunction,
        tensors: str,
        options: str = "",
        returns: bool = True,
        **constants: Any,
    ) -> None:
        self.function, self.constants, self.returns = function, constants, returns
        self.tensors, self.options = tensors.split(), options.split()
        self._find, self._key = function.calls.find, (self,)

    def __call__(self, *args: Any) -> Any:
        """The result for all arguments of the operator."""
        count = len(self.tensors)
        tensors, options = args[:count], args[count:]
        result = self.launch(tensors, options)
        if result is None:
            words = dict(zip(self.options, options, strict=True))
            found = self._find(tensors, words, self._key)
            given = dict(zip(self.tensors, tensors, strict=True)) | words | self.constants
            plan, calls = self.function.plan(**given), self.function.calls
            result = launch_first(calls, plan, found, self.tensors, tensors, words)
        return result if self.returns else None

    def launch(self, tensors: tuple[Any, ...], options: tuple[Any, ...]) -> Any:
        """The result for arguments of a form that is known; else None."""
        words = dict(zip(self.options, options))  # noqa: B905  (strict takes 0.1 us)
        prepared, _, values, stream = self._find(tensors, words, self._key)
        if prepared is not None and (prepared.is_fixed or prepared.holds(values)):
            return prepared.launch(values, stream, tensors, words)
        return None
