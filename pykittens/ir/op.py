"""Operations as data: a name, a signature, a type rule, a NumPy meaning and effects."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, ParamSpec, TypeVar

from pykittens.errors import KernelError, LanguageError, TypeMismatch

P = ParamSpec("P")
R = TypeVar("R")


class Engine(Enum):
    """Hardware that carries an operation out after the instruction has been issued."""

    PRODUCT = "tensor cores"
    COPY_IN = "copy engine, global to shared"
    COPY_OUT = "copy engine, shared to global"


@dataclass(frozen=True)
class Effects:
    """What an operation does besides giving its result; operands are named as in its signature.

    reads, writes: memory operands. engine: who works on after the issue, so that the memory operands are
    still in use. accumulates: the register operand a product adds to, which may itself be in flight.
    narrows: the result takes fewer registers than the operand, so it is best made late.
    waits: semaphores, flags and turns that it stops at until others have signalled them; what those did before is
    seen after it. signals: those that it signals, after all the group did before; where an engine carries the
    operation on, when that is done. managed: the argument that says whether the compiler waits for the engine;
    where it is false, an operation that finishes the engine does. finishes: the engine of whose operations at most
    `pending` are left unfinished. meets: the warps of the group wait for one another. fences: what the group wrote
    is seen by the engines that read next. shows: it tells the user something, so it stays though nothing reads it.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    engine: Engine | None = None
    accumulates: str | None = None
    narrows: bool = False
    waits: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    managed: str | None = None
    finishes: Engine | None = None
    meets: bool = False
    fences: bool = False
    shows: bool = False

    @property
    def pure(self) -> bool:
        """Whether the operation does nothing but give its result."""
        return (
            not (self.reads or self.writes or self.waits or self.signals)
            and self.engine is self.finishes is None
            and not (self.meets or self.fences or self.shows)
        )


PURE = Effects()


@dataclass(frozen=True)
class ScalarMeaning:
    """The meaning on one element: a NumPy function and its spelling in CUDA C++ (`{0}`, `{1}` for operands).

    kinds: what the operands may be; truth: the result is a bool; hint: the way out where a kind is refused.
    wrapping: the spelling for integers of tiles and vectors, where that for scalars may overflow. wraps: a scalar
    that leaves its integer type wraps, too, where others are an error. folds: on Python's numbers it is done at once.
    quotient: the spelling in Python of a division by a number other than 0.
    """

    numpy: Callable[..., Any]
    c: str
    kinds: tuple[str, ...] = ("float", "int")
    truth: bool = False
    hint: str | None = None
    wrapping: str | None = None
    wraps: bool = False
    folds: bool = True
    quotient: str | None = None


@dataclass(frozen=True)
class Family:
    """Operations that share a type rule and the way their NumPy meaning is applied."""

    name: str
    type_rule: Callable[[Op[..., Any], dict[str, Any]], Any]
    numpy: Callable[[Op[..., Any], dict[str, Any]], Any]


def bound(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by their names; a TypeMismatch where it gives too few, too many or unknown ones."""
    try:
        found = signature.bind(*args, **kwargs)
    except TypeError as error:
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        told = f"it is {name}{inspect.Signature(bare)}"
        raise TypeMismatch(f"{name}: {error}", help=told) from None
    found.apply_defaults()
    return found.arguments


def called(
    name: str, kind: type[KernelError] = LanguageError
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: a word of the language whose wrong calls are told as those of operations are."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = [*signature.parameters.values()]
        skipped = int([p.name for p in parameters[:1]] == ["self"])
        signature = signature.replace(parameters=parameters[skipped:])

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound(name, signature, args[skipped:], kwargs)
            try:
                return function(*args, **kwargs)
            except Mismatch as fault:
                raise kind(f"{name}: {fault.message}", help=fault.help) from None

        return call

    return wrap


class Mismatch(Exception):
    """Raised by a type rule; becomes a TypeMismatch with the operands and the user's line."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message, self.help = message, help


@dataclass(eq=False)
class Op(Generic[P, R]):
    """An operation. Calling it inside a kernel records it; `ops/core.py` says how.

    shown: what error texts call it, where the user reaches it by another name than its own.
    """

    name: str
    function: Callable[P, R]
    effects: Effects = PURE
    family: Family | None = None
    scalar: ScalarMeaning | None = None
    record: Callable[[Op[P, R], dict[str, Any]], Any] = field(
        repr=False, default=lambda op, args: None
    )
    type_rule: Callable[..., Any] | None = field(repr=False, default=None)
    meaning: Callable[..., Any] | None = field(repr=False, default=None)
    missing: Callable[..., str | None] | None = field(repr=False, default=None)
    shown: str = ""

    def __post_init__(self) -> None:
        self.shown = self.shown or self.name
        self.__doc__ = self.function.__doc__
        self.__name__ = self.name
        self.__signature__ = inspect.signature(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.record(self, bound(self.shown, self.__signature__, args, kwargs))
        return result

    def type(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the type rule, called with the operation's arguments; returns the result's type or None."""
        self.type_rule = rule
        return rule

    def numpy(self, meaning: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the NumPy meaning, called with arrays and regions of memory in place of handles."""
        self.meaning = meaning
        return meaning

    def until(self, missing: Callable[..., str | None]) -> Callable[..., str | None]:
        """Decorator: what an operation that waits still waits for, in words; None when it may go on.

        It is called as the NumPy meaning is, again and again, and changes nothing.
        """
        self.missing = missing
        return missing

    def result_type(self, args: dict[str, Any]) -> Any:
        """The type of the result for these arguments, None if there is none; raises Mismatch where they do not fit."""
        if self.type_rule is not None:
            return self.type_rule(**args)
        assert self.family is not None, f"{self.name} has neither a type rule nor a family"
        return self.family.type_rule(self, args)

    def evaluate(self, args: dict[str, Any]) -> Any:
        """The NumPy meaning applied to the arguments with arrays in place of handles."""
        if self.meaning is not None:
            return self.meaning(**args)
        assert self.family is not None, f"{self.name} has neither a meaning nor a family"
        return self.family.numpy(self, args)
