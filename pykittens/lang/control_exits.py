"""Refuses `break` and other exits from a loop or branch that turns out to be run-time."""

from __future__ import annotations

from pykittens.errors import LanguageError

_WAYS_OUT = {
    "continue": "put the rest of the body under an `if`",
    "break": "use a `while` with the condition, or put the rest of the body under an `if`",
    "return": "bind a name in the branch and return it at the end",
}
_NAMES_ONLY = "attributes are not carried or merged; assign to a name"


class Construct:
    """A loop or a branch: `live` says whether it is run-time, `word` what an error text calls it."""

    live = False
    word = "loop"

    def forbid(self, word: str) -> None:
        """Raise if the construct is run-time: this word stands inside it."""
        if self.live:
            raise LanguageError(
                f"`{word}` inside a run-time {self.word}", help=_WAYS_OUT.get(word, _NAMES_ONLY)
            )
