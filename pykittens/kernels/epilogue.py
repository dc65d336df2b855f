"""Epilogues: functions of a part of a product and its region, applied before the part is stored.

    @pk.function
    def biased_gelu(x, at, bias):
        return pk.gelu(x + at.per_column(bias))

`x` is a part of the product in f32; `at` loads the same part of other tensors. This file has the epilogues with names:
bias, scales, activations and so on. They are applied before the user's function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.errors import ArgumentError, LanguageError
from pykittens.ir.signature import signature_of


@dataclass(frozen=True)
class OutputRegion:
    """The region of a product that the part passed to an epilogue covers.

    lead: the coordinates of the product in its batch. row, col: of the part, counted in parts of rows x cols. swapped:
    whether the part is of the transposed product. height, width: extents of the product. arrived: pairs of a tensor and
    its part, for tensors that are loaded already. Elements past the end of a tensor are read as 0.
    """

    lead: tuple[Any, ...]
    row: Any
    col: Any
    rows: int
    cols: int
    swapped: bool
    height: Any
    width: Any
    arrived: tuple[tuple[Any, Any], ...] = ()

    def tile(self, tensor: Any) -> Any:
        """The same part of a tensor of the product's shape, in f32."""
        for other, part in self.arrived:
            if other is tensor:
                return part
        i, j = (self.col, self.row) if self.swapped else (self.row, self.col)
        at = tensor[_index(tensor, (*self.lead, i, j))]
        return pk.load(at, rows=self.rows, cols=self.cols, transposed=self.swapped).to(pk.f32)

    def per_row(self, vector: Any) -> Any:
        """The part's rows of a vector with an element per row of the product, in f32."""
        return self._vector(vector, along_rows=not self.swapped)

    def per_column(self, vector: Any) -> Any:
        """The part's columns of a vector with an element per column of the product, in f32."""
        return self._vector(vector, along_rows=self.swapped)

    def _vector(self, vector: Any, along_rows: bool) -> Any:
        part = self.row if along_rows else self.col
        at = vector[_index(vector, (*self.lead, part))]
        length, spread = (self.rows, pk.per_row) if along_rows else (self.cols, pk.per_column)
        return pk.load(at, cols=length, spread=spread).to(pk.f32)

    def inside(self, x: Any) -> Any:
        """The part with 0 outside the product, so that its sums are those of the product."""
        height, width = (self.width, self.height) if self.swapped else (self.height, self.width)
        x = pk.right_fill(x, width - self.col * self.cols, 0.0)
        return pk.lower_fill(x, height - self.row * self.rows, 0.0)


def _index(tensor: Any, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """The last coordinates of an index, one per axis of the tensor, with zeros in front if there are too few."""
    rank: int = tensor.rank
    return ((0,) * rank + index)[-rank:]


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda x: x,
    "relu": pk.relu,
    "gelu": pk.gelu,
    "silu": pk.silu,
}


def check_activation(function: str, activation: Any) -> None:
    """Raise unless there is such an activation."""
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        known = ", ".join(map(repr, ACTIVATIONS))
        raise ArgumentError(f"{function}: `activation` must be one of {known}, not {activation!r}")


@dataclass(frozen=True)
class Epilogue:
    """An epilogue: the names of its operands, its activation, and the user's function.

    x = activation(alpha * row_scale * column_scale * product + bias + beta * out); with a gate, x is multiplied by the
    second product, which has its own scales and bias; then x = x + residual; then x = then(x, at, *operands). row_sums
    and column_sums are sums of the result.
    """

    names: tuple[str, ...] = ()
    activation: str = ""
    then: Callable[..., Any] | None = None

    def __call__(
        self, products: list[Any], at: OutputRegion, given: Mapping[str, Any], out: Any
    ) -> Any:
        """The f32 tile that is stored, from one product, or from two, the second of which is the gate."""
        x, *gates = (self._linear(p, at, given, "gate_" * i) for i, p in enumerate(products))
        if "beta" in given:
            x = x + at.tile(out) * given["beta"]
        x = ACTIVATIONS[self.activation](x)
        for gate in gates:
            x = x * gate
        if "residual" in given:
            x = x + at.tile(given["residual"])
        if self.then is not None:
            x = self._then(x, at, [given[n] for n in self.names if n.startswith("operand")])
        return x

    def _then(self, x: Any, at: OutputRegion, operands: list[Any]) -> Any:
        """The result of the user's function for a part."""
        assert self.then is not None
        try:
            signature_of(self.then).bind(x, at, *operands)
        except TypeError as fault:
            raise LanguageError(
                f"epilogue: the function takes other arguments than x, at and {len(operands)} operands: {fault}",
                help="gemm(..., epilogue=function, operands=(...)) calls function(x, at, *operands)",
            ) from None
        made = self.then(x, at, *operands)
        if getattr(made, "type", None) != x.type:
            found = getattr(made, "type", type(made).__name__)
            raise LanguageError(
                f"epilogue: the function must return {x.type}, as x is, not {found}",
                help="`return pk.gelu(x)`; .to(pk.f32) for results of another dtype",
            )
        return made

    def _linear(self, x: Any, at: OutputRegion, given: Mapping[str, Any], of: str) -> Any:
        if (alpha := given.get(of + "alpha")) is not None:
            x = x * (pk.load(alpha).to(pk.f32) if hasattr(alpha, "rank") else alpha)
        if (scale := given.get("row_scale")) is not None:
            x = x * at.per_row(scale)
        if (scale := given.get(of + "column_scale")) is not None:
            x = x * at.per_column(scale)
        if (bias := given.get(of + "bias")) is not None:
            x = x + at.per_column(bias)
        return x
