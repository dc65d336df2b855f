"""The definition of one's own operator: its name, its schema, and errors that explain what PyTorch does not take."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import _OpNamespace

from pykittens.errors import ArgumentError, Loc
from pykittens.ir.signature import signature_of

_EXAMPLE = "as in `def scale_rows(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor`"
_RESULTS = (
    "let it return a tensor, tuple[torch.Tensor, ...] of a fixed length, list[torch.Tensor] or None"
)
_TYPES = (
    "parameters are of torch.Tensor, int, float, bool, str, torch.dtype or torch.device, each perhaps `| None`, or"
    " lists of tensors or numbers; the parts of a tuple are parameters of their own"
)


class Definition:
    """A function with the name and the schema of an operator.

    positional, by_word: the names of its parameters. mutates: those that it writes. results: the type of each result in
    the schema, Tensor or Tensor[].
    """

    def __init__(self, name: str, function: Callable[..., Any], mutates: Any) -> None:
        self.name, self.function = name, function
        self.signature = signature_of(function)
        parameters = self.signature.parameters.values()
        self.by_word = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self.positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self._check_annotations()
        self.mutates = self._names(mutates)
        with self.refusals():
            self.schema: str = torch.library.infer_schema(function, mutates_args=self.mutates)
        self.results = re.findall(r"[^\s(),]+", self.schema.rpartition(" -> ")[2])
        if not {*self.results} <= {"Tensor", "Tensor[]"}:
            raise self.error(
                f"its result is of {self.annotation}, and compilers trace tensors only",
                _RESULTS,
            )
        if not self.results and not self.mutates:
            raise self.error(
                "it returns None and `mutates` names nothing, so a compiler would leave its calls out",
                'name the tensors that it writes, as in mutates={"y"}, or let it return tensors',
            )

    @property
    def annotation(self) -> str:
        """What the function says it returns."""
        found = self.signature.return_annotation
        return found if isinstance(found, str) else inspect.formatannotation(found)

    def error(self, message: str, help: str | None = None) -> ArgumentError:
        """The error for a fault of the operator, with the line of its function."""
        code = self.function.__code__
        loc = Loc(code.co_filename, code.co_firstlineno, code.co_name)
        return ArgumentError(f"{self.name}: {message}", loc=loc, help=help)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Raise what PyTorch does not take as an error of the operator."""
        try:
            yield
        except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
            text = str(error).removeprefix("infer_schema(func): ")
            text = re.split(r"\s*(?:The valid types|Please file|Got func with|Got:)", text)[0]
            help = _RESULTS if text.startswith("Return") else _TYPES
            raise self.error(f"torch.library refuses the function: {text}", help) from None

    def check_takes(
        self, what: str, function: Any, given: Iterable[str], words: Iterable[str] = ()
    ) -> None:
        """Raise unless a function can be called with these arguments."""
        try:
            signature_of(function).bind(*given, **dict.fromkeys(words))
        except (TypeError, ValueError):
            names = ", ".join((*given, *words))
            raise self.error(f"`{what}` must be a function that takes ({names})") from None

    def check_result(self, result: Any) -> None:
        """Raise unless a result is what the annotation says."""
        found = result if type(result) is tuple and len(self.results) > 1 else (result,)
        found = () if result is None and not self.results else found
        if len(found) != len(self.results) or not all(map(_is_of, found, self.results)):
            kind = "None" if result is None else type(result).__name__
            raise self.error(
                f"the function returns {kind}, and its annotation says {self.annotation}"
            )

    def _check_annotations(self) -> None:
        names = *self.signature.parameters, "return"
        missing = [name for name in names if name not in self.function.__annotations__]
        if missing:
            what = "its result" if missing[0] == "return" else f"`{missing[0]}`"
            raise self.error(
                f"{what} has no annotation, from which PyTorch takes the types of the operator",
                _EXAMPLE,
            )

    def _names(self, mutates: Any) -> frozenset[str]:
        names = (mutates,) if isinstance(mutates, str) else mutates
        known = ", ".join(self.signature.parameters)
        if not isinstance(names, Iterable):
            raise self.error(
                f"`mutates` must be names of parameters, not {mutates!r}", f"of {known}"
            )
        found = frozenset(names)
        for name in found - {*self.signature.parameters}:
            raise self.error(f"`mutates` has {name!r}, which is no parameter", f"they are {known}")
        return found


def _is_of(x: Any, kind: str) -> bool:
    """Whether a result has a type of the schema."""
    if kind == "Tensor":
        return isinstance(x, torch.Tensor)
    return isinstance(x, list) and all(isinstance(part, torch.Tensor) for part in x)


def check_name(name: Any) -> None:
    """Raise unless an operator can have this name."""
    words = name.split("::") if isinstance(name, str) else []
    if len(words) == 2 and all(map(_is_word, words)):
        if not isinstance(getattr(torch.ops, words[0]), _OpNamespace):
            raise ArgumentError(f"op: the namespace of {name} is taken", help="choose another")
        return
    shown = words[-1] if words else getattr(name, "__name__", "")
    shown = re.sub(r"\W", "_", shown, flags=re.ASCII)
    own = shown if _is_word(shown) else "scale_rows"
    raise ArgumentError(
        f"op: takes the name of an operator with its namespace, not {name!r}",
        help=f'write @op("mine::{own}") above the function, with the name of your project for mine',
    )


def _is_word(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
