"""The options of a check, validated."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pykittens.checker.progress import CheckProgress
from pykittens.emulate.finding import Kind
from pykittens.errors import ArgumentError, Loc
from pykittens.ir.numbers import is_int, number
from pykittens.lang.structures import flatten
from pykittens.runtime.arguments import leaf_names
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.devices import DEVICES

SCHEDULES = 20


@dataclass(frozen=True)
class CheckOptions:
    """The options of a check.

    schedules: the number of schedules to try, with the seeds 0, 1, …; seed: the only schedule to try. ignore: kinds to
    leave out. undefined: tensors that are undefined before the launch. kept: tensors of which the launch may leave
    elements as they are. device: the GPU to model. costs: whether to report resources and costs. compile: whether to
    compile the kernel. command: the command line of the check. caller: the location of the call if it is outside the
    user's code. progress: shows how far the runs are.
    """

    schedules: int = SCHEDULES
    seed: int | None = None
    ignore: Collection[str] = ()
    undefined: Collection[str] = ()
    kept: Collection[str] = ()
    device: str = "H200"
    costs: bool = True
    compile: bool = True
    command: str = ""
    caller: Loc | None = None
    progress: CheckProgress | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The schedules to try."""
        return tuple(range(self.schedules)) if self.seed is None else (self.seed,)


def words_of(words: Collection[str]) -> Collection[str]:
    """Several words; a string is one word."""
    return (words,) if isinstance(words, str) else tuple(words)


def check_options(kernel: object, args: Sequence[Any], options: CheckOptions) -> None:
    """Raise if `kernel` is no kernel, or an option is meaningless for a call with these positional arguments."""
    if not isinstance(kernel, KernelFunction):
        raise ArgumentError(
            f"check: `kernel` must be a kernel, not {type(kernel).__name__}",
            help="a kernel is a function marked @pk.kernel; its arguments follow it: pk.check(kernel, x, y)",
        )
    tried, seed = options.schedules, options.seed
    if not is_int(number(tried)) or tried < 1:
        raise ArgumentError(
            f"check: `schedules` must be a whole number of 1 or more, not {tried!r}"
        )
    if seed is not None and not is_int(number(seed)):
        raise ArgumentError(f"check: `seed` must be a whole number, not {seed!r}")
    _check_words("kind of finding", options.ignore, [k.value for k in Kind])
    _check_words("device", [options.device], list(DEVICES))
    takes = kernel.parameters
    named = (*options.undefined, *options.kept)
    names = takes.names(len(args))
    forms = dict.fromkeys(names) | {n: flatten(x, []) for n, x in zip(names, args, strict=False)}
    known = [name for name, _ in leaf_names(forms)]
    _check_words(f"argument of {takes.name}", named, known)


def _check_words(what: str, given: Collection[str], known: Sequence[str]) -> None:
    for word in given:
        if word not in known:
            raise ArgumentError(
                f"check: there is no {what} `{word}`", help=f"there are {', '.join(known)}"
            )
