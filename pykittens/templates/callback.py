"""A user's function in a template, called with the values that its parameters name."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.values import describe

_TEMPLATES = os.path.dirname(os.path.abspath(__file__)) + os.sep


def outside() -> Loc | None:
    """The innermost line on the stack that is not a template's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_TEMPLATES):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    return Loc(code.co_filename, frame.f_lineno, code.co_name, code, frame.f_lasti)


class Callback:
    """One function of a kernel made from a template; its parameters say which of the template's words it takes."""

    def __init__(self, name: str, function: Callable[..., Any], known: tuple[str, ...]) -> None:
        self.name, self.function, self.known = name, function, known
        if not callable(function):
            raise LanguageError(
                f"lcsf: `{name}` must be a function, not {describe(function)}", loc=outside()
            )
        parameters = inspect.signature(function).parameters.values()
        # A default binds what is the user's own, as in `def load(task, input, tile=tile)`.
        self.takes_words = [p.name for p in parameters if p.default is p.empty]
        for word in self.takes_words:
            if word not in known:
                raise self.fault(f"has a parameter `{word}`, which is no word of the template")

    def takes(self, word: str) -> bool:
        """Whether the function has this word among its parameters."""
        return word in self.takes_words

    def __call__(self, **words: Any) -> Any:
        """What the function returns, given its share of the words."""
        return self.function(**{word: words[word] for word in self.takes_words})

    def fault(self, message: str, help: str | None = None) -> LanguageError:
        """An error that points at the function and says what it may take."""
        code = getattr(self.function, "__code__", None)
        loc = Loc(code.co_filename, code.co_firstlineno, code.co_name) if code else outside()
        words = ", ".join(f"`{word}`" for word in self.known)
        return LanguageError(
            f"lcsf: `{self.name}` {message}", loc=loc, help=help or f"its parameters can be {words}"
        )
