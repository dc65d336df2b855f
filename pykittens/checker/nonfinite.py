"""Finds the first lines at which finite inputs give NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pykittens.emulate.finding import Finding, FindingStep, Kind, Level
from pykittens.emulate.memory import Array, GlobalTile
from pykittens.emulate.races.initialized import Initialized
from pykittens.emulate.regions import SharedRegion
from pykittens.emulate.watch import Watcher
from pykittens.ir.nodes import Call, Kernel, tensors, walk

MOST = 3  # lines that are shown


class Origins(Watcher):
    """Notes the lines at which NaN arises from operands without NaN, and infinity from finite operands."""

    def __init__(self) -> None:
        self.steps: dict[str, FindingStep] = {}

    def computes(self, call: Call, args: Mapping[str, Any], result: Any) -> None:
        has_nan, has_inf = _nonfinite(result if isinstance(result, tuple) else (result,))
        if not (has_nan or has_inf) or any(isinstance(a, GlobalTile) for a in args.values()):
            return  # the contents of a tensor are an input
        nan_before, inf_before = _nonfinite(args.values())
        if has_nan and not nan_before:
            self._arises(call, "gives NaN" + (" from infinity" if inf_before else ""))
        elif has_inf and not (nan_before or inf_before):
            self._arises(call, "gives infinity")

    def _arises(self, call: Call, what: str) -> None:
        if len(self.steps) < MOST and call.loc is not None:
            self.steps.setdefault(call.loc.path, FindingStep("this line", what, call.loc))


def nonfinite_outputs(
    kernel: Kernel,
    initialized: Initialized,
    before: Mapping[str, Array],
    after: Mapping[str, Array],
) -> Iterator[tuple[str, int]]:
    """The outputs into which a launch with finite inputs has written NaN or infinity, and the number of elements."""
    read = {
        t
        for node in walk(kernel.body)
        if isinstance(node, Call)
        for t in tensors(node, node.op.effects.reads)
        if initialized.names[t] not in initialized.undefined
    }
    if any(not _finite(before[name]).all() for name in read):
        return
    for name, mask in initialized.masks.items():
        if count := int((~_finite(after[name]) & mask).sum()):
            yield name, count


def finding(
    outputs: Iterable[tuple[str, int]], after: Mapping[str, Array], origins: Origins
) -> Finding | None:
    """The note on these outputs; None if no operation was seen to give NaN or infinity."""
    if not origins.steps:
        return None
    shown = ", ".join(
        f"{count} of {after[name].size} elements of `{name}`" for name, count in outputs
    )
    return Finding(
        Kind.NON_FINITE,
        f"NaN or infinity is written to {shown}, and all inputs are finite",
        tuple(origins.steps.values()),
        level=Level.NOTE,
    )


def _nonfinite(values: Iterable[Any]) -> tuple[bool, bool]:
    """Whether there is NaN, and whether there is infinity, among values in registers or shared memory."""
    has_nan = has_inf = False
    for value in values:
        held = value.array if isinstance(value, SharedRegion) else value
        if (
            isinstance(held, np.ndarray | np.generic | float)
            and not _finite(np.asarray(held)).all()
        ):
            is_nan = np.asarray(held) != np.asarray(held)
            has_nan |= bool(is_nan.any())
            has_inf |= bool((~_finite(np.asarray(held)) & ~is_nan).any())
    return has_nan, has_inf


def _finite(array: Array) -> Array:
    """Which elements are finite; integers and bools are."""
    if array.dtype.kind in "iub":
        return np.ones(array.shape, np.bool_)
    return np.isfinite(array.astype(np.float32))
