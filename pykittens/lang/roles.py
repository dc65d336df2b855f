"""Roles: parts of a kernel that run side by side, each by its own warps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.ir.nodes import Block, Role, RoleKind
from pykittens.ir.values import Scalar, describe
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR


@contextmanager
def _role(
    kind: RoleKind, word: str, groups: int, warps: int, registers: int | None
) -> Iterator[Scalar | None]:
    builder = current(word)
    if builder.role is not None:
        raise LanguageError(
            f"pk.{word}: a role cannot stand inside another",
            operands={"the outer role": builder.role.loc},
        )
    if len(builder.stack) != 1:
        raise LanguageError(f"pk.{word}: a role cannot stand inside a run-time loop or branch")
    if not isinstance(groups, int) or groups < 1:
        raise LanguageError(f"pk.{word}: takes a positive compile-time int, not {describe(groups)}")
    if registers is not None and (
        not isinstance(registers, int) or registers % 8 or not 24 <= registers <= 240
    ):
        raise LanguageError(
            f"pk.{word}: `registers` must be a multiple of 8 from 24 to 240, not {registers}"
        )
    body = Block(owner=f"the role `{word}`")
    index = Scalar(SCALAR(int32)) if kind in ("consumers", "warps", "warpgroups") else None
    role = Role(kind, groups, warps, index, body, registers, Loc.here())
    builder.append(role)
    if index is not None:
        builder.define(index, role, body)
    builder.role = role
    try:
        with builder.inside(body):
            yield index
    finally:
        builder.role = None


class _RoleContext:
    """A role as a context manager that learns the name its group index is bound to."""

    def __init__(
        self, kind: RoleKind, word: str, groups: int, warps: int, registers: int | None
    ) -> None:
        self._manager = _role(kind, word, groups, warps, registers)
        self.name = ""
        self.name_by_assignment = True

    def __enter__(self) -> Scalar:
        index = self._manager.__enter__()
        if index is not None:
            index.name = self.name
        return index  # type: ignore[return-value]

    def __exit__(self, *exception: object) -> bool | None:
        return self._manager.__exit__(*exception)  # type: ignore[arg-type]


def producer(*, registers: int | None = None) -> _RoleContext:
    """One warp that fills pipelines with copies. It shares a warpgroup and its registers with the storer."""
    return _RoleContext("producer", "producer", 1, 1, registers)


def storer(*, registers: int | None = None) -> _RoleContext:
    """One warp that drains pipelines with copies to global memory."""
    return _RoleContext("storer", "storer", 1, 1, registers)


def consumers(groups: int, *, registers: int | None = None) -> _RoleContext:
    """`groups` warpgroups that compute; gives the index of the group. Each may issue matrix products."""
    return _RoleContext("consumers", "consumers", groups, 4, registers)


def warpgroups(groups: int, *, registers: int | None = None) -> _RoleContext:
    """`groups` groups of four warps; gives the index of the group."""
    return _RoleContext("warpgroups", "warpgroups", groups, 4, registers)


def warps(groups: int) -> _RoleContext:
    """`groups` groups of one warp; gives the index of the warp."""
    return _RoleContext("warps", "warps", groups, 1, None)
