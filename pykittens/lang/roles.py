"""Roles: parts of a kernel that run side by side, each by its own warps."""

from __future__ import annotations

from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import Builder, current
from pykittens.ir.nodes import Block, Role, RoleKind
from pykittens.ir.op import called
from pykittens.ir.values import Scalar, describe
from pykittens.lang.bindings import Named
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR


class _RoleContext(Named):
    """`with pk.consumers(2) as index`: a role, and the index of the group where it may have several."""

    def __init__(self, kind: RoleKind, groups: int, warps: int, registers: int | None) -> None:
        self.kind, self.groups, self.warps, self.registers = kind, groups, warps, registers

    def __enter__(self) -> Any:
        builder = current(self.kind)
        self._check(builder)
        body = Block(owner=f"the role `{self.kind}`")
        index = None if self.kind in ("producer", "storer") else Scalar(SCALAR(int32), self.name)
        role = Role(self.kind, self.groups, self.warps, index, body, self.registers, Loc.here())
        builder.append(role)
        if index is not None:
            builder.define(index, role, body)
        builder.role = role
        builder.stack.append(body)
        return index

    def __exit__(self, *_: object) -> None:
        builder = current(self.kind)
        builder.stack.pop()
        builder.role = None

    def _check(self, builder: Builder) -> None:
        word, groups, registers = f"pk.{self.kind}", self.groups, self.registers
        if builder.role is not None:
            raise LanguageError(
                f"{word}: a role cannot stand inside another",
                operands={"the outer role": builder.role.loc},
            )
        if len(builder.stack) != 1:
            raise LanguageError(f"{word}: a role cannot stand inside a run-time loop or branch")
        known = isinstance(groups, int) and not isinstance(groups, bool)
        if not known or not 1 <= groups <= 32:
            raise LanguageError(
                f"{word}: `groups` must be a compile-time int from 1 to 32, not {describe(groups)}"
            )
        if registers is not None and (
            not isinstance(registers, int) or registers % 8 or not 24 <= registers <= 240
        ):
            raise LanguageError(
                f"{word}: `registers` must be a multiple of 8 from 24 to 240, not {describe(registers)}"
            )


@called("pk.producer")
def producer(*, registers: int | None = None) -> _RoleContext:
    """One warp that fills pipelines with copies. It shares a warpgroup and its registers with the storer."""
    return _RoleContext("producer", 1, 1, registers)


@called("pk.storer")
def storer(*, registers: int | None = None) -> _RoleContext:
    """One warp that drains pipelines with copies to global memory."""
    return _RoleContext("storer", 1, 1, registers)


@called("pk.consumers")
def consumers(groups: int, *, registers: int | None = None) -> _RoleContext:
    """`groups` warpgroups that compute; gives the index of the group. Each may issue matrix products."""
    return _RoleContext("consumers", groups, 4, registers)


@called("pk.warpgroups")
def warpgroups(groups: int, *, registers: int | None = None) -> _RoleContext:
    """`groups` groups of four warps; gives the index of the group."""
    return _RoleContext("warpgroups", groups, 4, registers)


@called("pk.warps")
def warps(groups: int) -> _RoleContext:
    """`groups` groups of one warp; gives the index of the warp."""
    return _RoleContext("warps", groups, 1, None)
