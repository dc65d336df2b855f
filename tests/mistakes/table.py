"""The rows of all operations, of the functions composed of them, and of the words of the language.

A file of cases may hold rows, too, so that a new operation needs one file of tests.
"""

from __future__ import annotations

from tests import cases
from tests.mistakes import elements, functions, moving, words
from tests.mistakes.rows import TABLE, Row

__all__ = ["TABLE", "Row", "cases", "elements", "functions", "moving", "words"]
