"""The placeholder of a name without a value: every use of it raises an error that says why."""

from __future__ import annotations

from typing import Any, NoReturn

from pykittens.errors import LanguageError


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

    def _use(self, *_: Any, **__: Any) -> NoReturn:
        self.fail()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _use
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __call__ = __getitem__ = (
        __iter__
    ) = _use
    __pow__ = __rpow__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _use
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __abs__ = __invert__ = _use
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __index__ = __int__ = __float__ = _use
    __enter__ = __exit__ = __len__ = __contains__ = __setitem__ = __eq__ = __ne__ = _use
    __hash__ = object.__hash__
