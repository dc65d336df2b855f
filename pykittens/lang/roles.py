"""Roles: blocks of a kernel that run concurrently, each on its own warps."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import Builder, current
from pykittens.ir.nodes import Block, Role, RoleKind
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch, called
from pykittens.ir.values import Scalar, describe
from pykittens.lang.bindings import Named
from pykittens.lang.homes import Restart
from pykittens.ops.arguments import check_between, either
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR

I = TypeVar("I", Scalar, None)

COPY_WARPS = (1, 2, 4, 8, 16)  # powers of two divide the pieces of tiles evenly


class RoleContext(Named, Generic[I]):
    """`with pk.consumers(2) as index`: a role, and the index of the group if the role can have several."""

    def __init__(
        self,
        kind: RoleKind,
        groups: int,
        warps: int,
        registers: int | None,
        copy_warps: int | None = None,
    ) -> None:
        check_between("groups", groups, 1, 32)
        if registers is not None and (
            not is_int(registers) or registers % 8 or not 24 <= registers <= 240
        ):
            raise Mismatch(
                f"`registers` must be a multiple of 8 from 24 to 240, not {describe(registers)}"
            )
        if copy_warps is not None and copy_warps not in COPY_WARPS:
            raise Mismatch(f"`copy_warps` must be {either(COPY_WARPS)}, not {describe(copy_warps)}")
        self.kind, self.groups, self.warps, self.registers = kind, groups, warps, registers
        self.copy_warps = copy_warps
        self.loc: Loc | None = None  # that of the role of an instruction
        self.home = ""  # its name in a function whose values have homes

    @property
    def shape(self) -> tuple[RoleKind, int, int, int | None, bool]:
        """Equal for contexts of which one role can be made; it has the most of their registers."""
        return self.kind, self.groups, self.warps, self.copy_warps, self.registers is None

    @property
    def description(self) -> str:
        each = "one group" if self.groups == 1 else f"{self.groups} groups"
        registers = "" if self.registers is None else f", of {self.registers} registers"
        copies = "" if self.copy_warps is None else f", {self.copy_warps} of which copy"
        return f"{each} of {self.warps} warps{copies}{registers}"

    def opened(self, builder: Builder) -> Role:
        """A role without statements, to which statements go from here on."""
        body = Block(owner=f"the role `{self.kind}`")
        index = None if self.kind in ("producer", "storer") else Scalar(SCALAR(int32), self.name)
        loc = self.loc or Loc.here()
        role = Role(
            self.kind,
            self.groups,
            self.warps,
            index,
            body,
            self.registers,
            loc,
            self.home,
            self.copy_warps,
        )
        if index is not None:
            builder.define(index, role, body)
        builder.role = role
        builder.stack.append(body)
        return role

    def __enter__(self) -> I:
        builder = current(self.kind)
        if builder.merging is not None:
            merged: I = builder.merging.enter(self, builder)
            return merged
        if builder.role is not None:
            raise LanguageError(
                f"pk.{self.kind}: a role cannot be inside another role",
                operands={"the outer role": builder.role.loc},
            )
        if len(builder.stack) != 1:
            raise LanguageError(
                f"pk.{self.kind}: a role cannot be inside a run-time loop or branch"
            )
        role = self.opened(builder)
        builder.kernel.body.nodes.append(role)
        given: Any = role.index
        found: I = given
        return found

    def __exit__(self, *_: object) -> None:
        builder = current(self.kind)
        if builder.merging is not None:
            builder.merging.leave(builder)
            return
        builder.stack.pop()
        builder.role = None


def at_top(word: str) -> Builder:
    """The builder of the kernel that is recorded; raises unless it is outside roles, loops and branches."""
    builder = current(word.removeprefix("pk."))
    if builder.role is not None or len(builder.stack) > 1:
        raise LanguageError(f"{word}: must be outside roles, loops and branches")
    return builder


@called("pk.producer")
def producer(*, registers: int | None = None, copy_warps: int | None = None) -> RoleContext[None]:
    """One warp that fills pipelines with copies. It shares a warpgroup and its registers with the storer.

    copy_warps: 1, 2, 4, 8 or 16 warps that share what the copy engine cannot copy, such as rows at any address, if
    the role only copies; if None, those that are left in the warpgroup. Four of them take the registers of a warpgroup.
    """
    return RoleContext("producer", 1, 1, registers, copy_warps)


@called("pk.storer")
def storer(*, registers: int | None = None, copy_warps: int | None = None) -> RoleContext[None]:
    """One warp that drains pipelines with copies to global memory; `copy_warps` as for a producer."""
    return RoleContext("storer", 1, 1, registers, copy_warps)


@called("pk.consumers")
def consumers(groups: int, *, registers: int | None = None) -> RoleContext[Scalar]:
    """`groups` warpgroups that compute; yields the index of the group. Each can issue matrix products."""
    return RoleContext("consumers", groups, 4, registers)


@called("pk.warpgroups")
def warpgroups(groups: int, *, registers: int | None = None) -> RoleContext[Scalar]:
    """`groups` groups of four warps; yields the index of the group."""
    return RoleContext("warpgroups", groups, 4, registers)


@called("pk.warps")
def warps(groups: int, *, registers: int | None = None) -> RoleContext[Scalar]:
    """`groups` groups of one warp; yields the index of the warp. `registers` are for multiples of four warps."""
    return RoleContext("warps", groups, 1, registers)


@called("pk.homes")
def homes(consumers: RoleContext[Scalar], *, fetchers: int = 1) -> Scalar:
    """Let the values of this function have homes instead of its statements roles; returns the group of the consumers.

    consumers: the groups that compute, such as pk.warps(8) or pk.consumers(2). fetchers: the warps among which each
    `fetch` is divided. A producer of one warp streams, and a storer of one warp has what is handed to it; a role that
    has nothing to do is left out. Call it once, before the first operation on tiles.
    """
    if not isinstance(consumers, RoleContext) or consumers.kind in ("producer", "storer"):
        raise Mismatch(
            f"`consumers` must be a role such as pk.warps(8) or pk.consumers(2), not {describe(consumers)}"
        )
    check_between("fetchers", fetchers, 1, 8)
    builder = current("homes")
    if builder.merging is None:
        if builder.role is not None or len(builder.stack) > 1:
            raise LanguageError("pk.homes: must be outside roles, loops and branches")
        builder.has_homes = True
        raise Restart
    contexts = {
        "producer": RoleContext[Any]("producer", 1, 1, None),
        "fetchers": RoleContext[Any]("warps", fetchers, 1, None),
        "consumers": consumers,
        "storer": RoleContext[Any]("storer", 1, 1, None),
    }
    for home, context in contexts.items():
        context.home, context.loc = home, Loc.here()
    index: Scalar = builder.merging.settle(contexts, builder)
    return index
