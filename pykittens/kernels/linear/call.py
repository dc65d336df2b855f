"""Checks that the host functions of linear attention share."""

from __future__ import annotations

from pykittens.kernels.arrays import NARROW, Arrays

WIDEST = 256  # elements of a query


def check_heads(arrays: Arrays) -> int:
    """How many heads of v share a head of q and k; an ArgumentError unless that and the dtypes are right."""
    dims = arrays.dims
    arrays.dtypes("q", "k", "v", "out", among=NARROW)
    for name in ("decay", "initial_state", "state", "next_state"):
        arrays.dtypes(name, among=("f32",))
    if not dims["groups"] or dims["heads"] % dims["groups"]:
        raise arrays.fail(f"{dims['heads']} heads of v do not share {dims['groups']} of q and k")
    if not 1 <= dims["d"] <= WIDEST:
        raise arrays.fail(f"d must be from 1 to {WIDEST}, not {dims['d']}")
    shared: int = dims["heads"] // dims["groups"]
    return shared


def add_scale(arrays: Arrays, scale: float | None) -> None:
    """Add the number by which results are multiplied: that of attention, or what is given."""
    number = arrays.dims["d"] ** -0.5 if scale is None else float(scale)
    arrays.views["scale"] = arrays.given["scale"] = number
