"""The kernels of `kernels_pipeline.py` with arguments and expected outputs; for the emulator and the GPU."""

from __future__ import annotations

from typing import Any

import torch

from tests.kernels_pipeline import (
    ORDERS,
    batched,
    by_parts,
    interleaved,
    mixed_fill,
    taken_over,
    two_fillers,
)


def run_all(device: str, ragged: bool) -> dict[str, tuple[Any, Any]]:
    """The outputs of each kernel and the expected outputs, by name."""
    torch.manual_seed(0)
    n, m = (270, 100) if ragged else (256, 128)
    results: dict[str, tuple[Any, Any]] = {}

    def normal(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape).to(dtype).to(device)

    def empty(*shape: int, dtype: Any = torch.float32) -> Any:
        fill = torch.nan if dtype.is_floating_point else -7
        return torch.full(shape, fill, dtype=dtype).to(device)

    a, b, out = normal(n, m), normal(n, m), empty(n, m)
    interleaved(a, b, out)
    even = (torch.arange(n, device=device) // 64 % 2 == 0)[:, None]
    results["interleaved"] = (out, torch.where(even, a, b))

    x, out = normal(n, m, dtype=torch.bfloat16), empty(n, m, dtype=torch.bfloat16)
    by_parts(x, out)
    results["by_parts"] = (out, x)

    for name, kernel, width, dtype in (
        ("two_fillers", two_fillers, 64, torch.float32),
        ("mixed_fill", mixed_fill, 16, torch.bfloat16),
    ):
        m_ = -(-m // width) * width
        x = torch.zeros(n, m_, dtype=dtype, device=device)
        x[:, :m] = normal(n, m, dtype=dtype)
        out = empty(n, 2 * m_, dtype=dtype)
        kernel(x, out)
        other = x + x if kernel is two_fillers else -x
        pairs = torch.stack([x.view(n, -1, width), other.view(n, -1, width)], 2)
        results[name] = (out, pairs.reshape(n, -1))

    for name, order in ORDERS.items():
        x = torch.randint(-99, 99, (2, 3, 2, 70, 40), dtype=torch.int32).to(device)
        out = empty(2, 3, 2, 70, 40, dtype=torch.int32)
        batched(x, out, order=order)
        results[f"batched_{name}"] = (out, x)

    x, out = normal(128, 256, dtype=torch.bfloat16), empty(128, 128, dtype=torch.bfloat16)
    taken_over(x, out)
    expected = torch.cat([(p.double() @ p.double().T).repeat(1, 2) for p in x.split(64)])
    close = (out.double() - expected).abs() <= 2.0**-7 * (expected.abs() + 16)
    results["taken_over"] = (close, torch.ones_like(close))
    return results
