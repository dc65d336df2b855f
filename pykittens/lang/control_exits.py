"""Refuses `break` and other exits from a run-time loop or branch."""

from __future__ import annotations

from pykittens.errors import LanguageError

_WAYS_OUT = {
    "continue": "put the rest of the body under an `if`",
    "break": "use a `while` with the condition, or put the rest of the body under an `if`",
    "return": "put what follows under an `else`; a function binds a name in the branches and returns it at the end",
}
_NAMES_ONLY = "attributes are not carried or merged; assign to a name"


class Construct:
    """A loop or a branch. live: it is run-time. word: its name in error texts."""

    live = False
    word = "loop"

    def forbid(self, word: str) -> None:
        """Raise if the construct is run-time, because it contains this word."""
        if self.live:
            raise LanguageError(
                f"`{word}` inside a run-time {self.word}", help=_WAYS_OUT.get(word, _NAMES_ONLY)
            )
