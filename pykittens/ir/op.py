"""What an operation is: a name, a signature, a type rule, a NumPy meaning and its effects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, ParamSpec, TypeVar

from pykittens.errors import TypeMismatch

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
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    engine: Engine | None = None
    accumulates: str | None = None
    narrows: bool = False

    @property
    def pure(self) -> bool:
        return not self.reads and not self.writes and self.engine is None


PURE = Effects()


@dataclass(frozen=True)
class ScalarMeaning:
    """The meaning on one element: a NumPy function and its spelling in CUDA C++ (`{0}`, `{1}` for operands).

    kinds: what the operands may be; truth: the result is a bool; hint: the way out where a kind is refused.
    """

    numpy: Callable[..., Any]
    c: str
    kinds: tuple[str, ...] = ("float", "int")
    truth: bool = False
    hint: str | None = None


@dataclass(frozen=True)
class Family:
    """Operations that share a type rule and the way their NumPy meaning is applied."""

    name: str
    type_rule: Callable[[Op[..., Any], dict[str, Any]], Any]
    numpy: Callable[[Op[..., Any], dict[str, Any]], Any]


class Mismatch(Exception):
    """Raised by a type rule; becomes a TypeMismatch with the operands and the user's line."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message, self.help = message, help


@dataclass(eq=False)
class Op(Generic[P, R]):
    """An operation. Calling it inside a kernel records it; `ops/core.py` says how."""

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

    def __post_init__(self) -> None:
        self.__doc__ = self.function.__doc__
        self.__name__ = self.name
        self.__signature__ = inspect.signature(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeMismatch(
                f"{self.name}: {error}", help=f"it is {self.name}{self._takes}"
            ) from None
        bound.apply_defaults()
        result: R = self.record(self, bound.arguments)
        return result

    @property
    def _takes(self) -> str:
        """The signature without its annotations."""
        bare = [p.replace(annotation=p.empty) for p in self.__signature__.parameters.values()]
        return str(inspect.Signature(bare))

    def type(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the type rule, called with the operation's arguments; returns the result's type or None."""
        self.type_rule = rule
        return rule

    def numpy(self, meaning: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the NumPy meaning, called with arrays and regions of memory in place of handles."""
        self.meaning = meaning
        return meaning

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
