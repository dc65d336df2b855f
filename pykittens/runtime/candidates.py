"""Candidates of a kernel that is tuned: values of its constants, from which a call without them takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import FunctionType
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import numbers
from pykittens.ir.op import Mismatch
from pykittens.lang.contents import exact
from pykittens.runtime.arguments import Arguments, Parameters
from pykittens.runtime.function_names import function_name


@dataclass(frozen=True, repr=False, eq=False)
class Candidate:
    """Values of some constants. Records know it by its text, which is the same in all processes."""

    values: tuple[tuple[str, Any], ...]

    def applied(self, arguments: Arguments, by_value: bool = False) -> Arguments:
        """The arguments of a call with these constants; `by_value`: numbers among the arguments decided them."""
        constants = {**arguments.constants, **dict(self.values)}
        return replace(arguments, constants=constants, by_value=by_value)

    def __repr__(self) -> str:
        return ", ".join(f"{name}={stable_text(value)}" for name, value in self.values)


def stable_text(value: Any) -> str:
    """The text of a constant, without addresses: a function has the name and a hash of its code."""
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    function = getattr(value, "function", value)  # that of a kernel, a helper or an operation
    if isinstance(function, FunctionType):
        return function_name(function)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


@dataclass(frozen=True)
class TunedParameters(Parameters):
    """A signature whose constants have the values of the first candidate that agrees with those of a call."""

    candidates: tuple[Candidate, ...] = ()

    @staticmethod
    def tuned(function: Callable[..., Any], given: object) -> TunedParameters:
        """The signature with candidates as users write them. Raises Mismatch."""
        of = Parameters.of(function)
        found = tuple(_candidate(one, of) for one in _listed(given))
        for i, one in enumerate(found):
            if repr(one) in map(repr, found[:i]):
                raise Mismatch(
                    f"candidate {i} is given twice: {one!r}",
                    help="values are told apart by their text without addresses: give their class a __repr__, or make "
                    "it a dataclass",
                )
            if one.values and {*dict(one.values)} != {*dict(found[0].values)}:
                raise Mismatch(
                    f"all candidates must give the same constants, not {found[0]!r} and {one!r}"
                )
        return TunedParameters(**vars(of), candidates=found)

    @property
    def tuned_names(self) -> tuple[str, ...]:
        """The constants that candidates give."""
        return tuple(name for name, _ in self.candidates[0].values)

    def fitting(self, given: Mapping[str, Any]) -> tuple[Candidate, ...]:
        """The candidates that agree with the constants of a call."""
        pinned = {n: exact(numbers(given[n])) for n in self.tuned_names if n in given}
        return tuple(
            c
            for c in self.candidates
            if all(exact(x) == pinned.get(n, exact(x)) for n, x in c.values)
        )

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments and the constants by name; constants that the call lacks are those of a candidate."""
        fit = self.fitting(kwargs)
        if not fit and not all(name in kwargs for name in self.tuned_names):
            pinned = ", ".join(f"{n}={kwargs[n]!r}" for n in self.tuned_names if n in kwargs)
            raise ArgumentError(
                f"{self.name}: no candidate has {pinned}",
                operands={f"candidate {i}": c for i, c in enumerate(self.candidates)},
                help="give all of the constants, or those of a candidate",
            )
        return super().bind(args, {**dict(fit[0].values if fit else ()), **kwargs})


def _listed(given: object) -> list[Any]:
    if isinstance(given, Iterable) and not isinstance(given, Mapping | str) and (made := [*given]):
        return made
    raise Mismatch(
        f"`candidates` must be a list of dicts with values of constants, not {_shown(given)}",
        help='as in @pk.autotune([{"rows": 64}, {"rows": 128}])',
    )


def _shown(given: object) -> str:
    return repr(given) if isinstance(given, list | tuple | dict) else f"a {type(given).__name__}"


def _candidate(given: Any, of: Parameters) -> Candidate:
    if is_dataclass(given) and not isinstance(given, type):
        given = {field.name: getattr(given, field.name) for field in fields(given)}
    if hasattr(given, "kwargs") and hasattr(given, "num_warps"):
        raise Mismatch(
            "a candidate of pykittens is a dict, not a triton.Config",
            help='{"rows": 64, "cols": 128} has values of constants of the kernel; its stages are one of them, and '
            "`warps` is an option of @pk.kernel",
        )
    try:
        values = dict(given)
        hash(made := tuple((n, numbers(value)) for n, value in values.items()))
    except (TypeError, ValueError) as error:
        raise Mismatch(
            f"a candidate must be a dict, a dataclass or pairs of names and hashable values, not {given!r}: {error}",
        ) from None
    wrong = [name for name in values if name not in of.constants]
    if wrong or not values:
        what = f"`{wrong[0]}` is no constant of {of.name}" if wrong else "a candidate is empty"
        raise Mismatch(
            what,
            help=f"candidates give keyword-only parameters; it takes {of.name}({of.shown})",
        )
    return Candidate(made)
