"""Functions that a user gives beside a kernel that is tuned; each is asked about a call, with the call's arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykittens.ir.op import Mismatch
from pykittens.ir.signature import signature_of
from pykittens.lang.structures import rebuild
from pykittens.runtime.arguments import Arguments
from pykittens.runtime.candidates import TunedParameters


@dataclass(frozen=True)
class UserFunction:
    """A function of the arguments of a call, as the caller passes them, and of constants that are not tuned.

    named: the constants that it names.
    """

    function: Callable[..., Any]
    named: tuple[str, ...]

    @staticmethod
    def of(
        word: str,
        function: Callable[..., Any] | None,
        parameters: TunedParameters,
        first: tuple[str, ...] = (),
    ) -> UserFunction | None:
        """The function that is passed as `word`, which also takes what `first` names. Raises Mismatch."""
        if function is None:
            return None
        try:
            signature = signature_of(function)
        except ValueError:  # some functions in C have none
            return UserFunction(function, ())
        others = [name for name in parameters.constants if name not in parameters.tuned_names]
        named = tuple(name for name in others if name in signature.parameters)
        takes = *first, *parameters.positional
        if parameters.further is None:
            try:
                signature.bind(*takes, **dict.fromkeys(named))
            except TypeError as error:
                may = f", and by keyword {', '.join(others)}" if others else ""
                raise Mismatch(
                    f"`{word}` does not take the arguments of {parameters.name}: {error}",
                    help=f"it takes {', '.join(takes)}{may}",
                ) from None
        return UserFunction(function, named)

    def __call__(self, arguments: Arguments, *first: Any) -> Any:
        tensors, scalars = arguments.tensors, arguments.scalars
        leaves = iter([scalars[n] if n in scalars else tensors[n].owner for n in arguments.order])
        given = [rebuild(form, leaves) for form in arguments.forms.values()]
        return self.function(*first, *given, **{n: arguments.constants[n] for n in self.named})
