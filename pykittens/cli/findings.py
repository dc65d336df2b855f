"""What a check of `pykittens doctor` says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Mark(Enum):
    """How a check came out."""

    OK = "ok"
    OPTIONAL = "missing, optional"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    mark: Mark
    text: str
    help: str = ""


Findings = Iterator[Finding]
