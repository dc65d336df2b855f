"""Long convolutions in float64, by the Fourier transform of twice the length."""

from __future__ import annotations

from typing import Any

import numpy as np


def reference(
    u: Any,
    filter: Any,
    *,
    gate_before: Any = None,
    gate_after: Any = None,
    circular: bool = False,
) -> Any:
    """gate_after * (filter convolved with gate_before * u), of the length of u: causal or circular."""
    x, n = u.astype(np.float64), u.shape[2]
    x = x if gate_before is None else x * gate_before.astype(np.float64)
    length = n if circular else 2 * n
    y = np.fft.irfft(
        np.fft.rfft(x, length) * np.fft.rfft(filter.astype(np.float64), length), length
    )[..., :n]
    return y if gate_after is None else y * gate_after.astype(np.float64)
