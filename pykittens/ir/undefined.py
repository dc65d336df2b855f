"""The placeholder of a name without a value: every use of it raises an error that says why."""

from __future__ import annotations

from typing import Any, NoReturn

from pykittens.errors import LanguageError
from pykittens.ir.operators import Arithmetic


class Undefined:
    """Stands for a name without a value here: bound only inside a loop or in one branch, or with two types."""

    def __init__(self, name: str, reason: str, help: str = "") -> None:
        self._name, self._reason, self._help = name, reason, help

    def fail(self) -> NoReturn:
        raise LanguageError(f"`{self._name}` {self._reason}", help=self._help or None)

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self.fail()


def _use(self: Undefined, *_: Any, **__: Any) -> NoReturn:
    self.fail()


_OPERATORS = [name for name, method in vars(Arithmetic).items() if callable(method)]
_OTHERS = "eq ne bool index int float call getitem setitem contains iter len enter exit"
for _name in [*_OPERATORS, *(f"__{name}__" for name in _OTHERS.split())]:
    setattr(Undefined, _name, _use)
