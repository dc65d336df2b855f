"""`in_turn`: the groups of a role run a block of code one after another."""

from __future__ import annotations

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.ir.nodes import Shared
from pykittens.ir.op import called
from pykittens.ir.values import Turns
from pykittens.ops.semaphore import pass_turn, take_turn
from pykittens.types.tiles import TURNS


class in_turn:  # noqa: N801  (a word of the language)
    """`with pk.in_turn():` the groups of the role run the block one after another: group 0, 1, ..., and again from 0.

    Each run of the block is a turn, and all groups take the same number of turns. Two such blocks are independent. A
    group sees all writes of the previous group's turn.
    """

    @called("pk.in_turn")
    def __init__(self) -> None:
        pass

    def __enter__(self) -> None:
        builder = current("in_turn")
        homes = builder.homes
        role, index = homes.consumers if homes is not None else (builder.role, None)
        if role is None:
            raise LanguageError(
                "pk.in_turn: must be inside a role, whose groups it orders",
                help="pk.consumers(n), pk.warpgroups(n) and pk.warps(n) have n groups",
            )
        self.turns = Turns(TURNS(role.groups, role.warps), "turns", Loc.here())
        given = index if index is not None else role.index
        self.group = given if given is not None else 0
        if homes is None or homes.runs("consumers"):
            builder.kernel.shared.append(Shared(self.turns, None, self.turns.loc))
        take_turn(self.turns, self.group)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            pass_turn(self.turns, self.group)
