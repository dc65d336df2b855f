"""Numbers with bounds on their errors, carried through what the operators compute: each rounding is counted once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

UNIT_F32 = 2.0**-24
UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: UNIT_F32}
SUBNORMAL = {torch.bfloat16: 2.0**-133, torch.float16: 2.0**-24, torch.float32: 2.0**-149}


@dataclass
class Bounded:
    """Exact values in float64, and how far those that were computed may lie from them."""

    exact: Any
    error: Any

    @staticmethod
    def of(tensor: Any) -> Bounded:
        """A tensor that is what it should be."""
        exact = tensor.detach().double()
        return Bounded(exact, torch.zeros_like(exact))

    @property
    def mT(self) -> Bounded:
        return Bounded(self.exact.mT, self.error.mT)

    @property
    def largest(self) -> Any:
        """How large the computed values may be."""
        return self.exact.abs() + self.error

    def __matmul__(self, other: Bounded) -> Bounded:
        """A product summed in f32, as in tests/tolerance.py."""
        error = self.largest @ other.largest - self.exact.abs() @ other.exact.abs()
        sums = 2 * (self.exact.shape[-1] + 1) * UNIT_F32 * (self.largest @ other.largest)
        return Bounded(self.exact @ other.exact, error + sums)

    def __mul__(self, other: Bounded) -> Bounded:
        error = self.largest * other.largest - (self.exact * other.exact).abs()
        return Bounded(self.exact * other.exact, error)

    def __add__(self, other: Bounded) -> Bounded:
        total = self.exact + other.exact
        sums = UNIT_F32 * (total.abs() + self.error + other.error)
        return Bounded(total, self.error + other.error + sums)

    def through(self, function: Any, slope: float) -> Bounded:
        """function(x) in f32, good to 16 units of the larger of x and 1; `slope` bounds its derivative."""
        own = 16 * UNIT_F32 * (1 + self.largest)
        return Bounded(function(self.exact), slope * self.error + own)

    def rounded(self, dtype: Any) -> Bounded:
        return Bounded(self.exact, self.error + UNIT[dtype] * self.largest + SUBNORMAL[dtype])

    def check(self, found: Any) -> None:
        """Raise unless every element lies within its bound; NaN lies nowhere."""
        assert found.shape == self.exact.shape
        wrong = ~((found.double() - self.exact).abs() <= self.error)
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} elements are wrong"
