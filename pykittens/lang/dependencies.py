"""What a recording depends on: all that the kernel, and the functions that it called, have read from outside.

Recording runs Python once and so fixes the values of globals, of variables of enclosing functions, of attributes, items
and defaults, and the code of helpers. While it runs, a profile hook lists the code that runs; its bytecode tells which
paths it can have read. A generated function then compares the values at the ends of these paths by identity, which is
exact because the values are kept alive. If one differs, the contents decide: a helper that was defined anew with the
same text changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from pykittens.errors import LanguageError
from pykittens.lang.contents import code_key
from pykittens.lang.survey import Roots, Survey


class Dependencies:
    """What a recording has read from outside.

    guard: compares all of it with what it was. is_empty: whether nothing of it can change.
    """

    def __init__(self, roots: Roots, ran: Set[CodeType]) -> None:
        self._ran = {code_key(code) for code in ran}
        survey = Survey(roots, self._ran)
        self._contents = survey.of_kernel()
        survey.check_found(ran)
        self.guard, self.is_empty = survey.guard(), not survey.tests

    def renewed(self, roots: Roots) -> bool:
        """Whether the contents of all that was read are the same; if so, the guard compares with the new objects."""
        survey = Survey(roots, self._ran)
        try:
            if survey.of_kernel() != self._contents:
                return False
        except LanguageError:  # what stands there now cannot be followed
            return False
        self.guard = survey.guard()
        return True


@contextmanager
def code_that_runs(roots: Roots) -> Iterator[set[CodeType]]:
    """The user's code that this thread runs inside the `with`; the roots are all that can lead to it."""
    ran: set[CodeType] = set()
    survey, function = Survey(roots, ran=frozenset()), roots[0]
    if not survey.follows(function.__code__, function.__globals__):
        survey.of_kernel()
        if not survey.tests:  # a kernel of the package, without functions of the user
            yield ran
            return
    known: dict[int, CodeType] = {}  # keeps code alive, so that no other gets its id
    before = sys.getprofile()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and id(code := frame.f_code) not in known:
            known[id(code)] = code
            if survey.follows(code, frame.f_globals):
                ran.add(code)

    sys.setprofile(note)
    try:
        yield ran
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:  # a profiler in C, such as cProfile's, which setprofile does not take
            sys.setprofile(None)
            before.enable()
