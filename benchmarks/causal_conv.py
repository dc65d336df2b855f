"""Causal convolutions, forward and backward, beside copies of as many bytes in the same run, on a cold L2 cache.

The bytes are those of x and the result, and backward those of x and both gradients of that size. A copy of PyTorch's
moves as many. The last two columns are the part of the bandwidth of the copy that a pass has.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from protocol import isolated  # noqa: E402
from record import about, heading, markdown  # noqa: E402

from pykittens.kernels.causal_conv import causal_conv, causal_conv_backward  # noqa: E402


@dataclass(frozen=True)
class Problem:
    """A call with 16-bit elements, a bias and silu."""

    batch: int
    n: int
    channels: int
    taps: int
    channels_first: bool

    def __str__(self) -> str:
        layout = "lines" if self.channels_first else "rows"
        return f"{self.batch}, {self.n}, {self.channels}, {self.taps}, {layout}"

    @property
    def bytes(self) -> int:
        """Of x."""
        return 2 * self.batch * self.n * self.channels


SIZES = (
    (8, 4096, 4096, 4),
    (1, 16384, 2560, 4),
    (16, 2048, 2048, 4),
    (4, 8192, 8192, 2),
    (2, 8192, 4096, 8),
    (3, 5001, 3000, 4),
    (1, 1024, 2048, 4),
)
GIVEN = tuple(Problem(*size, first) for size in SIZES for first in (False, True))


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a problem and of its copies."""
    of_x = (p.batch, p.channels, p.n) if p.channels_first else (p.batch, p.n, p.channels)
    x, gradient = (torch.randn(of_x, device="cuda").bfloat16() for _ in range(2))
    weight = torch.randn(p.channels, p.taps, device="cuda").bfloat16()
    bias, out = torch.randn(p.channels, device="cuda").bfloat16(), torch.empty_like(x)
    how: dict[str, Any] = {"activation": "silu", "channels_first": p.channels_first}
    half = torch.empty(3 * x.numel() // 2, dtype=x.dtype, device="cuda")
    other = torch.empty_like(half)
    contenders = {
        "forward": lambda _: causal_conv(x, weight, bias, out, **how),
        "copy": lambda _: out.copy_(x),
        "backward": lambda _: causal_conv_backward(x, weight, gradient, bias, **how),
        "copy_backward": lambda _: other.copy_(half),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    return {"problem": str(p), "bytes": p.bytes, **figures}


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    times = [r[name] for name in ("forward", "copy", "backward", "copy_backward")]
    forward, backward = times[1] / times[0], times[3] / times[2]
    shown = (f"{x:,.1f}" for x in times)
    return r["problem"], f"{r['bytes'] / 1e6:,.0f}", *shown, f"{forward:.2f}", f"{backward:.2f}"


def main() -> None:
    """Measure, print a table and write it."""
    options = record.parser(__doc__, rounds=15).parse_args()
    if not torch.cuda.is_available():
        sys.exit("causal_conv: no CUDA device")
    rows = [measured(p, options.rounds) for p in GIVEN]
    of_forward = ("Batch, n, channels, taps, layout", "MB of x", "Forward us", "Copy us")
    heads = (*of_forward, "Backward us", "Its copy us", "Of the copy", "Of the copy, backward")
    where = about()
    text = f"{heading(where)}\n\n{markdown(heads, map(cells, rows))}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"causal-conv{options.label}", text)


if __name__ == "__main__":
    main()
