"""`@pk.autotune`: a kernel whose constants are chosen by measurement, once for each kind of call."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError, KernelError
from pykittens.ir.evaluate import numbers_read
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch, called
from pykittens.runtime.arguments import Arguments, check, reachable, scalar_dtype
from pykittens.runtime.candidates import Candidate, TunedParameters, stable_text
from pykittens.runtime.dynamo import leave_out
from pykittens.runtime.fakes import has_fakes
from pykittens.runtime.function_names import function_name
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.program_files import files_of, modules_of
from pykittens.runtime.trial import Trial
from pykittens.runtime.tune import one_at_a_time, tune
from pykittens.runtime.user_functions import UserFunction
from pykittens.types.dtypes import DType

# In the key of a choice; no parameter of a kernel has this name.
OWN_KEY = "its key"


class TunedKernel(KernelFunction):
    """A kernel whose calls choose constants among candidates; without a GPU they have the values of the first.

    candidates: the values of the constants.
    """

    parameters: TunedParameters

    def __init__(
        self,
        kernel: KernelFunction,
        candidates: Iterable[Any],
        key: Callable[..., Any] | None,
        reference: Callable[..., Any] | None,
        prune: Callable[..., Any] | None,
        tolerance: float | None,
    ) -> None:
        super().__init__(kernel.function, kernel.options)
        self.parameters = own = TunedParameters.tuned(kernel.function, candidates)
        self.candidates = tuple(dict(c.values) for c in own.candidates)
        self._key = UserFunction.of("key", key, own)
        self._reference = UserFunction.of("reference", reference, own)
        self._prune = UserFunction.of("prune", prune, own, ("candidates",))
        self._tolerance = tolerance
        self._choices: dict[Hashable, Candidate] = {}
        self._read: dict[Hashable, set[str]] = {}  # numbers, by kind of call

    def best(self, *args: Any, **constants: Any) -> dict[str, Any]:
        """The constants of a call with these arguments; on a GPU the candidates are measured if none is known."""
        if has_fakes(args, constants):
            _, found = self.parameters.bind(args, constants)
        else:
            arguments = check(self.parameters, args, constants)
            if arguments.device != "cpu":
                arguments = self._settled(arguments, constants)
            found = arguments.constants
        return {name: found[name] for name in self.parameters.tuned_names}

    # -- the choice ----------------------------------------------------------------------------

    def _settled(self, arguments: Arguments, given: Mapping[str, Any]) -> Arguments:
        candidates, torch = self.parameters.fitting(given), sys.modules.get("torch")
        owners = [array.owner for array in arguments.tensors.values()]
        if len(candidates) < 2 or not (torch and all(isinstance(x, torch.Tensor) for x in owners)):
            return arguments
        try:
            chosen, by_value = self._choice(arguments, candidates)
        except Mismatch as fault:
            message = f"{self.parameters.name}: {fault.message}"
            raise ArgumentError(message, help=fault.help) from None
        return chosen.applied(arguments, by_value)

    def _choice(
        self, arguments: Arguments, candidates: tuple[Candidate, ...]
    ) -> tuple[Candidate, bool]:
        """The candidate for these arguments, and whether it is that for their numbers only."""
        by_value = bool(arguments.scalars and (self._key or self._prune))
        if self._prune is not None:
            candidates = self._pruned(self._prune, arguments, candidates)
        if len(candidates) == 1:
            return candidates[0], by_value
        key, read = self._key_of(arguments, candidates)
        call = arguments.device, repr(key), candidates
        if call not in self._choices:
            with one_at_a_time:
                if call not in self._choices:  # another thread may have measured it in the meantime
                    self._choices[call] = self._measured(arguments, candidates, key)
        return self._choices[call], by_value or bool(read)

    def _pruned(
        self, prune: UserFunction, arguments: Arguments, candidates: tuple[Candidate, ...]
    ) -> tuple[Candidate, ...]:
        """The candidates that the user's function leaves."""
        all_values = [dict(c.values) for c in candidates]
        left = prune(arguments, all_values)
        if not isinstance(left, Iterable) or not (kept := [*left]):
            raise Mismatch(
                "`prune` leaves no candidate", help="it returns a list of those to measure"
            )
        for values in kept:
            if values not in all_values:
                raise Mismatch(f"`prune` returns {values!r}, which is none of the candidates")
        return tuple(c for c in candidates if dict(c.values) in kept)

    def _measured(
        self, arguments: Arguments, candidates: tuple[Candidate, ...], key: Mapping[str, Any]
    ) -> Candidate:
        """The choice for these arguments: remembered or measured."""
        reference = self._reference
        trial = Trial(self, arguments, candidates, reference, self._tolerance)
        return tune(
            self._name,
            key,
            candidates,
            trial.run,
            trial.fault,
            device=arguments.device,
            kernels=self._programs,
            program={
                "function": function_name(self.function),
                "constants": self._others(arguments),
                "reference": function_name(reference and reference.function),
                "tolerance": trial.tolerance,
            },
            compile=trial.compile,
            restore=trial.restore,
        )

    # -- what a choice depends on --------------------------------------------------------------

    @functools.cached_property
    def _name(self) -> str:
        name = self.function.__qualname__.replace("<locals>.", "")
        return re.sub(r"\W+", "_", name)[:100]  # a folder has this name

    @functools.cached_property
    def _programs(self) -> list[object]:
        """The kernel, its reference, and functions and classes of values of its constants.

        A result holds until one of their files changes.
        """
        values = [value for c in self.candidates for value in c.values()]
        defined = [x if hasattr(x, "__qualname__") else type(x) for x in values]
        found = [self.function, *(x for x in defined if x.__module__ != "builtins")]
        if self._reference is not None:
            # In a notebook the hash of its code has to do.
            found += [x for x in [self._reference.function] if files_of(modules_of([x]))]
        return found

    def _others(self, arguments: Arguments) -> dict[str, str]:
        """The constants that are not tuned."""
        tuned = self.parameters.tuned_names
        given = arguments.constants.items()
        return {name: stable_text(value) for name, value in given if name not in tuned}

    def _key_of(
        self, arguments: Arguments, candidates: tuple[Candidate, ...]
    ) -> tuple[dict[str, Any], set[str]]:
        """What the choice depends on, and the numbers in it; they are not known if the user gives the key."""
        key: dict[str, Any] = self._others(arguments)
        if self._key is not None:
            return {**key, OWN_KEY: _plain(self._key(arguments))}, set()
        key |= dict.fromkeys(arguments.absent, "None")
        for name, array in arguments.tensors.items():
            extents = ",".join(map(str, array.shape))
            key[name] = f"{array.dtype}[{extents}]{'' if reachable(array) else ' unaligned'}"
        numbers = arguments.scalars
        key |= {name: scalar_dtype(number).name for name, number in numbers.items()}
        if not any(map(is_int, numbers.values())):  # pk.static takes no others
            return key, set()
        kind = repr(key), candidates
        if kind not in self._read:
            self._read[kind] = self._numbers_read(arguments, candidates)
        return key | {name: str(numbers[name]) for name in self._read[kind]}, self._read[kind]

    def _numbers_read(self, arguments: Arguments, candidates: tuple[Candidate, ...]) -> set[str]:
        """The numbers that `pk.static` makes part of the program of a candidate."""
        found: set[str] = set()
        for candidate in candidates:
            try:
                found |= numbers_read(self.record(candidate.applied(arguments)))
            except KernelError as error:
                found |= {*error.numbers_read}
        return found


leave_out(
    TunedKernel.best, "the choice of constants of a kernel of pykittens is made outside of graphs"
)


@called("autotune", ArgumentError)
def autotune(
    candidates: Iterable[Any],
    *,
    key: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    prune: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> Callable[[KernelFunction], TunedKernel]:
    """Decorator of a kernel: calls on a GPU use the fastest of these candidates whose results are right.

    candidates: dicts with values of constants of the kernel, best guess first. They are measured at the first call with
    a key, and the choice is remembered on disk. key: what the choice may depend on, a function of the arguments; by
    default all dtypes, shapes and other constants, and which tensors the copy engine reaches. reference: the expected
    outputs, from the arguments; by default those of the first candidate. prune: the candidates that are measured, from
    all of them and the arguments; by default all. tolerance: the largest error of an output, relative to the root mean
    square of its elements, beyond its rounding; by default it follows from the dtypes.
    These functions take the arguments of a call, and by keyword the constants that they name and that are not tuned.
    """
    for word, function in (("key", key), ("reference", reference), ("prune", prune)):
        if function is not None and not callable(function):
            raise Mismatch(
                f"`{word}` must be a function of the arguments, not {function!r}", help=_WAYS[word]
            )
    if tolerance is not None and (type(tolerance) not in (int, float) or not tolerance >= 0):
        raise Mismatch(
            f"`tolerance` must be a number of 0 or more, not {tolerance!r}",
            help="0.01 allows errors of a hundredth of the root mean square of all elements",
        )
    if isinstance(candidates, KernelFunction) or inspect.isfunction(candidates):
        raise Mismatch("the candidates are missing", help=_ABOVE)

    def tuned(kernel: KernelFunction) -> TunedKernel:
        what = None if isinstance(kernel, KernelFunction) else f"a {type(kernel).__name__}"
        if isinstance(kernel, TunedKernel):
            what = "one that is tuned: a candidate gives all constants that are chosen"
        if what is not None:
            raise ArgumentError(f"autotune: takes a kernel, not {what}", help=_ABOVE)
        try:
            return TunedKernel(kernel, candidates, key, reference, prune, tolerance)
        except Mismatch as fault:
            raise ArgumentError(f"autotune: {fault.message}", help=fault.help) from None

    return tuned


_ABOVE = '@pk.autotune([{"rows": 64}, {"rows": 128}]) stands above @pk.kernel'
_WAYS = {
    "key": "as in key=lambda x, y: (x.shape, x.dtype)",
    "reference": "as in reference=lambda x, y: 2 * x",
    "prune": 'as in prune=lambda candidates, x, y: [c for c in candidates if c["rows"] <= x.shape[0]]',
}


def _plain(key: Any) -> Any:
    """A key of the user as JSON has it; dtypes become texts. Raises Mismatch."""
    try:
        return json.loads(json.dumps(key, default=_text, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Mismatch(
            f"`key` must return shapes, dtypes, numbers and strings: {error}", help=_WAYS["key"]
        ) from None


def _text(x: Any) -> Any:
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.dtype | DType | type) or type(x).__name__ in ("dtype", "device"):
        return str(x)
    raise TypeError(f"one is a {type(x).__name__}")
