"""Long convolutions, forward and backward, beside torch.fft with the filter's transform given, on a cold L2 cache.

A pass is to take half of the time of torch.fft, and forward passes of given problems have times of their own. Errors
are the largest ones of results and gradients of sequences against float64, to those of torch.fft in f32, rounded; and
of gradients of filters, to the largest gradient. Besides given shapes there are random ones.
"""

from __future__ import annotations

import random
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

from pykittens.kernels.long_conv import filter_spectrum, long_conv, long_conv_backward  # noqa: E402

CHECKED = 4  # channels whose errors are found
PART = 0.5  # of the time of torch.fft


@dataclass(frozen=True)
class Problem:
    """A call, with filters as long as sequences. limit: microseconds of a forward pass, if it has some of its own."""

    batch: int
    channels: int
    n: int
    circular: bool
    limit: float | None = None

    def __str__(self) -> str:
        return f"{self.batch}, {self.channels}, {self.n}{', circular' if self.circular else ''}"


GIVEN = (
    Problem(16, 1024, 4096, True, 150.0),
    Problem(4, 1024, 4096, True, 64.0),
    Problem(16, 1024, 1024, True, 61.0),
    Problem(16, 1024, 256, True),
    Problem(16, 1024, 256, False),
    Problem(16, 1024, 1024, False),
    Problem(4, 1024, 4096, False),
    Problem(16, 1024, 4096, False),
    Problem(16, 1024, 8192, True),
    Problem(16, 1024, 8192, False),
    Problem(4, 1024, 32768, True),
    Problem(4, 1024, 32768, False),
    Problem(1, 256, 131072, False),
    Problem(1, 32, 2**20, False),
)


def drawn(count: int, seed: int) -> list[Problem]:
    """Random problems of 2^22 to 2^26 elements, of any length."""
    draw, found = random.Random(seed), list[Problem]()
    while len(found) < count:
        n = int(2 ** draw.uniform(6, 16))
        batch, channels = draw.choice((1, 2, 4, 8, 16)), draw.choice((64, 256, 768, 1024, 4096))
        if 2**22 <= batch * channels * n <= 2**26:
            found.append(Problem(batch, channels, n, draw.random() < 0.5))
    return found


def tensors(p: Problem, device: str = "cuda") -> dict[str, Any]:
    """Random normal sequences and gradients, and filters whose squares add up to about 1."""
    shape = (p.batch, p.channels, p.n)
    found = {x: torch.randn(shape, device=device).bfloat16() for x in ("u", "gradient")}
    filters = torch.randn(p.channels, p.n, device=device) / p.n**0.5
    return found | {"filter": filters}


def length_of(p: Problem) -> int:
    """The length of transforms for torch.fft."""
    return p.n if p.circular else 2 * p.n


def transformed(p: Problem, u: Any, of_filter: Any) -> Any:
    """The convolution with transforms of PyTorch in f32, or in float64 of a transform of that."""
    wide = torch.float64 if of_filter.dtype is torch.complex128 else torch.float32
    of_u = torch.fft.rfft(u.to(wide), length_of(p))
    return torch.fft.irfft(of_u * of_filter, length_of(p))[..., : p.n].to(u.dtype)


def with_gradients(p: Problem, u: Any, filters: Any, gradient: Any) -> list[Any]:
    """A result of PyTorch, and the gradients of sequences and filters."""
    leaves = [x.detach().requires_grad_() for x in (u, filters)]
    out = transformed(p, leaves[0], torch.fft.rfft(leaves[1], length_of(p)))
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient.to(out.dtype))]


def errors(p: Problem, device: str = "cuda") -> tuple[float, float]:
    """The largest error of a result or a gradient of sequences, to that of PyTorch; of filters, to the largest."""
    own = Problem(p.batch, min(p.channels, CHECKED), p.n, p.circular)
    given = tensors(own, device)
    u, filters, gradient = (given[x] for x in ("u", "filter", "gradient"))
    exact = with_gradients(own, u.double(), filters.double(), gradient.double())
    theirs = with_gradients(own, u, filters, gradient)
    ours = [long_conv(u, filters, circular=p.circular)]
    ours += long_conv_backward(**given, circular=p.circular)

    def largest(x: Any, wanted: Any) -> float:
        return float((x.double() - wanted).abs().max())

    pairs = list(zip(ours, theirs, exact, strict=True))
    ratios = [largest(x, z) / max(largest(y, z), 1e-30) for x, y, z in pairs[:2]]
    return max(ratios), largest(ours[2], exact[2]) / float(exact[2].abs().max())


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a problem, forward and backward, with those of PyTorch."""
    given = tensors(p)
    u, filters, gradient = (given[x] for x in ("u", "filter", "gradient"))
    spectrum = filter_spectrum(filters, n=p.n, circular=p.circular)
    of_filter, out = torch.fft.rfft(filters, length_of(p)), torch.empty_like(u)
    leaves = [u.detach().requires_grad_(), filters.detach().requires_grad_()]
    result = transformed(p, leaves[0], torch.fft.rfft(leaves[1], length_of(p)))
    how: dict[str, Any] = {"spectrum": spectrum, "circular": p.circular}
    contenders = {
        "forward": lambda _: long_conv(u, out=out, **how),
        "backward": lambda _: long_conv_backward(**given, **how),
        "torch_forward": lambda _: transformed(p, u, of_filter),
        "torch_backward": lambda _: torch.autograd.grad(
            result, leaves, gradient, retain_graph=True
        ),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    ratio, of_filters = errors(p)
    return {
        "problem": str(p),
        "limit": p.limit,
        "errors": ratio,
        "of_filters": of_filters,
    } | figures


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    times = (r[x] for x in ("forward", "torch_forward", "backward", "torch_backward"))
    target = min(r["limit"] or float("inf"), PART * r["torch_forward"])
    parts = r["forward"] / target, r["backward"] / (PART * r["torch_backward"])
    shown = (f"{x:,.1f}" for x in (*times, target))
    accuracy = f"{r['errors']:.2f}", f"{r['of_filters']:.1e}"
    return r["problem"], *shown, *accuracy, *(f"{x:.2f}" for x in parts)


def main() -> None:
    """Measure, print a table and write it."""
    parser = record.parser(__doc__, rounds=15)
    parser.add_argument("--drawn", type=int, default=20, help="random problems")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("long_conv: no CUDA device")
    rows = []
    for p in (*GIVEN, *drawn(options.drawn, options.seed)):
        rows.append(measured(p, options.rounds))
        torch.cuda.empty_cache()
    heads = ("Batch, channels, n", "Forward us", "torch.fft", "Backward us", "torch.fft", "Target")
    where = about()
    more = ("Errors", "Filter's", "Of target", "Of target, backward")
    text = markdown((*heads, *more), map(cells, rows))
    text = f"{heading(where)}\n\n{text}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"long-conv{options.label}", text)


if __name__ == "__main__":
    main()
