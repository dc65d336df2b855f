"""The rows of all operations, of the functions composed of them, and of the words of the language."""

from __future__ import annotations

from tests.mistakes import elements, functions, moving, words
from tests.mistakes.rows import TABLE, Row

__all__ = ["TABLE", "Row", "elements", "functions", "moving", "words"]
