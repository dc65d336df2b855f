"""For every operation a correct call, and for each operand a rule for the things that are accepted.

A call is written with the names of things. `{a}` is an operand that is replaced by every thing, one at a time: the
things that its rule accepts must pass, all others must be refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.mistakes.operands import Rule

ANY, NUMBER, FLOAT = ("float", "int", "bool"), ("float", "int"), ("float",)


@dataclass(frozen=True)
class Row:
    """call: the good call, `{name}` where an operand stands. good and takes: what stands there, and what may.

    shown: the name that texts call it by. of: what can stand at an operand at all, where Python's own rules take
    others. blames: what else than the operand a text may name as the one that does not fit. rows: it makes 64 rows
    of what lies in no registers, so that a group of eight warps is too large. scalars: it may stand outside roles.
    wrong: the calls with wrong arguments, where they are not made of the good one. word: it is no operation and
    lists no operands. warps: of the group in which it is right.
    """

    name: str
    call: str
    good: dict[str, str]
    takes: dict[str, Rule]
    shown: str
    of: dict[str, Rule] = field(default_factory=dict)
    blames: dict[str, str] = field(default_factory=dict)
    rows: bool = False
    scalars: bool = False
    wrong: tuple[str, ...] = ()
    word: bool = False
    warps: int = 4


TABLE: dict[str, Row] = {}


def row(name: str, call: str, /, **operands: tuple[str, Rule]) -> None:
    row_with(name, call, operands)


def row_of_rows(name: str, call: str, /, **operands: tuple[str, Rule]) -> None:
    """A row of an operation that makes 64 rows itself."""
    row_with(name, call, operands, rows=True)


def row_with(
    name: str, call: str, operands: dict[str, tuple[str, Rule]], shown: str = "", **more: Any
) -> None:
    """A row that says more than what its operands may be."""
    good = {n: g for n, (g, _) in operands.items()}
    takes = {n: rule for n, (_, rule) in operands.items()}
    TABLE[name] = Row(name, call, good, takes, shown or name, **more)
