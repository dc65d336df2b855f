"""A user's function in a template, called with the values that its parameters name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.signature import signature_of
from pykittens.ir.values import describe

_TEMPLATES = (os.path.dirname(os.path.abspath(__file__)) + os.sep,)


def refused(message: str, help: str | None = None, loc: Loc | None = None) -> LanguageError:
    """An error in the arguments of a template, by default at the innermost line outside the templates."""
    return LanguageError(f"lcsf: {message}", loc=loc or Loc.here(_TEMPLATES), help=help)


class Callback:
    """A function given to a template; its parameters are the words of the template that it takes."""

    def __init__(self, name: str, function: Callable[..., Any], known: tuple[str, ...]) -> None:
        self.name, self.function, self.known = name, function, known
        if not callable(function):
            raise refused(f"`{name}` must be a function, not {describe(function)}")
        parameters = signature_of(function).parameters.values()
        # A parameter with a default is the user's, as in `def load(task, input, tile=tile)`.
        self.words = [p.name for p in parameters if p.default is p.empty]
        for word in self.words:
            if word not in known:
                raise self.fault(f"has a parameter `{word}`, which is no word of the template")

    def takes(self, word: str) -> bool:
        """Whether the function has this word among its parameters."""
        return word in self.words

    def __call__(self, **words: Any) -> Any:
        """The result of the function for those of the words that it takes."""
        return self.function(**{word: words[word] for word in self.words})

    def fault(self, message: str, help: str | None = None) -> LanguageError:
        """An error at the line of the function; the default help lists the words that it can take."""
        code = getattr(self.function, "__code__", None)
        loc = Loc(code.co_filename, code.co_firstlineno, code.co_name) if code else None
        words = ", ".join(f"`{word}`" for word in self.known)
        return refused(f"`{self.name}` {message}", help or f"its parameters can be {words}", loc)
