"""Operations as data: a name, a signature, a type rule, a NumPy meaning and effects."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from pykittens.errors import KernelError, LanguageError, TypeMismatch
from pykittens.ir import habits
from pykittens.ir.numbers import numbers
from pykittens.ir.signature import signature_of

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any], covariant=True)


class Engine(Enum):
    """Hardware that completes an operation after its instruction has been issued."""

    PRODUCT = "tensor cores"
    COPY_IN = "copy engine, global to shared"
    COPY_OUT = "copy engine, shared to global"
    SEND = "stores to shared memory of the cluster"


# What a fence covers: the shared memory of the block, or tensors in global memory.
Space = Literal["shared", "tensors"]


@dataclass(frozen=True)
class Effects:
    """The effects of an operation besides its result; operands have the names of its signature.

    reads, writes: memory operands. engine: the hardware that completes it after the issue and uses the memory
    operands until then. accumulates: the register operand that a product adds to, which may still be in flight.
    narrows: the result takes fewer registers than the operand, so it is best computed late.
    waits: semaphores, flags and turns at which it stops until others signal them; what others wrote before they
    signalled is visible after it. signals: semaphores, flags and turns that it signals after everything that the group
    did before; if an engine completes the operation, the engine signals then. acquires: flags that it reads without
    waiting; what others wrote before the signals that it finds is visible after it. managed: the argument that says
    whether the compiler waits for the engine; if false, the user does, with an operation that finishes the engine.
    finishes: the engine that it waits for, until at most `pending` of its operations are unfinished. meets: the warps
    of the group wait for one another. fences: the memory of which the engines see what the group wrote before. shows:
    it shows the user something. stays: it may do more than compute its result, so it runs once where the user wrote it.
    index: the vector operand that names the rows of the memory operand, one by one. tagged: each element that it reads
    or writes says whether it is written, so reads and writes of others need no order. prefetches: memory operands that
    it brings nearer; it accesses none of their elements, and it runs where the user wrote it. block: the operand that
    names a block of the cluster: what it writes and signals lies there, at the place that the operands have in its own.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    engine: Engine | None = None
    accumulates: str | None = None
    narrows: bool = False
    waits: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    acquires: tuple[str, ...] = ()
    managed: str | None = None
    finishes: Engine | None = None
    meets: bool = False
    fences: tuple[Space, ...] = ()
    shows: bool = False
    stays: bool = False
    index: str | None = None
    tagged: bool = False
    prefetches: tuple[str, ...] = ()
    block: str | None = None

    @property
    def removable(self) -> bool:
        """Whether the operation may be left out, moved or repeated if nothing reads its result."""
        return self.pure and not self.stays

    @functools.cached_property
    def only_reads(self) -> bool:
        """Whether the operation does no more than read memory and compute its result."""
        return replace(self, reads=()).removable

    @property
    def flags(self) -> tuple[str, ...]:
        """The operands by which groups and blocks are ordered: semaphores, flags and turns."""
        return self.waits + self.signals + self.acquires

    @property
    def pure(self) -> bool:
        """Whether the operation only computes its result, as far as the package knows."""
        return (
            not (self.reads or self.writes or self.flags or self.prefetches)
            and self.engine is self.finishes is None
            and not (self.meets or self.fences or self.shows)
        )


PURE = Effects()


@dataclass(frozen=True)
class ScalarMeaning:
    """The meaning on one element: a NumPy function and its spelling in CUDA C++ (`{0}`, `{1}` for operands).

    kinds: the kinds that operands may have. truth: the result is a bool. hint: the help if a kind is refused.
    wrapping: the spelling for integers of tiles and vectors, if that for scalars may overflow. wraps: a scalar that
    overflows its integer type wraps; without it, overflow is an error. folds: on Python numbers it is computed while
    the kernel is recorded. quotient: the spelling in Python of a division by a number other than 0.
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
    """Operations that share a type rule and a way to apply their NumPy meaning.

    by_element: an element of the result follows from those at its place in the operands, broadcast together.
    """

    name: str
    type_rule: Callable[[Op[Any], dict[str, Any]], Any]
    numpy: Callable[[Op[Any], dict[str, Any]], Any]
    by_element: bool = False


class Binder:
    """Gives the arguments of a call their names, in a fraction of the time that `inspect.Signature.bind` takes."""

    def __init__(self, name: str, signature: inspect.Signature) -> None:
        self.name, self.signature = name, signature

    @functools.cached_property
    def _named(self) -> Callable[..., dict[str, Any]]:
        """The function of the signature that returns its arguments by name."""
        parameters = self.signature.parameters.values()
        scope: dict[str, Any] = {f"_{i}": p.default for i, p in enumerate(parameters)}
        scope["__name__"] = __name__  # whose code it is
        shown = [
            p.replace(
                annotation=p.empty,
                default=p.empty if p.default is p.empty else _Shown(f"_{i}"),
            )
            for i, p in enumerate(parameters)
        ]
        names = ", ".join(f"{p.name!r}: {p.name}" for p in shown)
        text = str(inspect.Signature(shown))[1:-1]
        made: Callable[..., dict[str, Any]] = eval(f"lambda {text}: {{{names}}}", scope)
        return made

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by their names; a TypeMismatch if there are too few, too many or unknown arguments."""
        try:
            found = self._named(*args, **kwargs)
        except TypeError:
            raise self._mismatch(args, kwargs) from None
        return {name: numbers(x) for name, x in found.items()}

    def _mismatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeMismatch:
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            fault = str(error)
        help = [habits.KEYWORDS[word] for word in kwargs if word in habits.KEYWORDS]
        if "too many positional" in fault and (use := habits.use(self.name)):
            help.append(use)
        help.append(f"it is {self.name}{_bare(self.signature)}")
        return TypeMismatch(f"{self.name}: {fault}", help="; ".join(help))


@dataclass(frozen=True)
class _Shown:
    """The name of a default in the text of a signature."""

    name: str

    def __repr__(self) -> str:
        return self.name


def _bare(signature: inspect.Signature) -> inspect.Signature:
    """A signature without the annotations."""
    return inspect.Signature([p.replace(annotation=p.empty) for p in signature.parameters.values()])


def called(
    name: str, kind: type[KernelError] = LanguageError
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: a wrong call of a word of the language is reported as for an operation."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        signature = signature_of(function)
        parameters = [*signature.parameters.values()]
        skipped = int([p.name for p in parameters[:1]] == ["self"])
        bound = Binder(name, signature.replace(parameters=parameters[skipped:]))

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound(args[skipped:], kwargs)
            given: Any = numbers(args)
            words: Any = numbers(kwargs)
            try:
                return function(*given, **words)
            except Mismatch as fault:
                message = f"{name}: {fault.message}"
                operands = getattr(args[0], "operand", None) if skipped else None
                raise kind(message, operands=operands, help=fault.help) from None

        return call

    return wrap


class Mismatch(Exception):
    """Raised by a type rule or a check of an argument; reported with the operands and the user's line."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message, self.help = message, help


@dataclass(frozen=True)
class Parts:
    """The operations of a sum that lanes hold in parts: the value is the sum of what they hold.

    made: leaves in each lane the sum of its own elements, in place of the sum of all. alone: makes a value the part of
    one lane, the others having zero. joined: adds the parts. To the emulator parts are the value.
    """

    made: Op[Any]
    alone: Op[Any]
    joined: Op[Any]


@dataclass(eq=False, repr=False)
class Op(Generic[F]):
    """An operation. Calling it inside a kernel records it (`ops/core.py`).

    shown: its name in error texts, if the user calls it by another name. linear: sets of operands in which it is linear
    together, for fixed values of the others. parts: how lanes can hold the result in parts, if it is a sum over lanes.
    by_element: as that of its family.
    """

    name: str
    function: F
    effects: Effects = PURE
    family: Family | None = None
    scalar: ScalarMeaning | None = None
    record: Callable[[Op[Any], dict[str, Any]], Any] = field(default=lambda op, args: None)
    type_rule: Callable[..., Any] | None = None
    meaning: Callable[..., Any] | None = None
    missing: Callable[..., str | None] | None = None
    shown: str = ""
    linear: tuple[tuple[str, ...], ...] = ()
    parts: Parts | None = None
    by_element: bool = False

    def __post_init__(self) -> None:
        self.shown = self.shown or self.name
        self.by_element |= self.family is not None and self.family.by_element
        self.__doc__ = self.function.__doc__
        self.__name__ = self.name
        self.__signature__ = signature_of(self.function)
        self.bound = Binder(self.shown, self.__signature__)

    def __repr__(self) -> str:
        return f"<operation {self.shown}{_bare(self.__signature__)}>"

    if TYPE_CHECKING:  # a call has the type of a call of the function, overloads and all
        __call__: F = field(init=False)

    else:

        def __call__(self, *args, **kwargs):
            return self.record(self, self.bound(args, kwargs))

    def type(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the type rule, called with the operation's arguments.

        It returns the result's type, a tuple of the types of several results, or None.
        """
        self.type_rule = rule
        return rule

    def numpy(self, meaning: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the NumPy meaning, called with arrays and regions of memory instead of handles.

        It returns a tuple if there are several results.
        """
        self.meaning = meaning
        return meaning

    def until(self, missing: Callable[..., str | None]) -> Callable[..., str | None]:
        """Decorator: the text of what an operation that waits still waits for; None once it may go on.

        It takes the arguments of the NumPy meaning, is called repeatedly and changes nothing.
        """
        self.missing = missing
        return missing

    def result_type(self, args: dict[str, Any]) -> Any:
        """The type of the result for these arguments, a tuple if there are several results, None if there is none.

        Raises Mismatch if the arguments do not fit.
        """
        if self.type_rule is not None:
            return self.type_rule(**args)
        assert self.family is not None, f"{self.name} has neither a type rule nor a family"
        return self.family.type_rule(self, args)

    def evaluate(self, args: dict[str, Any]) -> Any:
        """The NumPy meaning applied to the arguments, with arrays instead of handles."""
        if self.meaning is not None:
            return self.meaning(**args)
        assert self.family is not None, f"{self.name} has neither a meaning nor a family"
        return self.family.numpy(self, args)
