"""Based and Hedgehog linear attention beside their explicit forms in PyTorch, on a cold L2 cache.

A time is to stay under the target of its shape, which is the smaller of the best time known and 15 microseconds with
four times what the memory or the tensor cores need at least; the last columns are the part of it that is taken, and
that of three times as much by gradients. Errors are the largest ones against float64, to those of the explicit form in
PyTorch with weights in the dtype; those of gradients are to what autograd finds of it, the worst of q, k, v and maps.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from protocol import isolated  # noqa: E402
from record import about, heading, markdown  # noqa: E402

from pykittens.kernels.linear import (  # noqa: E402
    based_attention,
    based_attention_backward,
    hedgehog_attention,
    hedgehog_attention_backward,
)

COPY, PRODUCTS = 4.25e6, 790e6  # bytes and FLOP in a microsecond of an H200
FIXED, TIMES = 15.0, 4.0
BACKWARD = 3  # times what a forward pass may take
CHUNK = 64
CHECKED = 2048  # positions whose errors are found
HEADS = 16


@dataclass(frozen=True)
class Problem:
    """A call with 16-bit elements. known: microseconds of an H200 of the best kernel known, or None."""

    kind: str
    batch: int
    n: int
    d: int
    width: int
    known: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.kind}: {self.batch}, {HEADS}, {self.n}, {self.d}, {self.width}"

    @property
    def flops(self) -> int:
        """Of a position and head, of a chunk with itself, or two with a softmax, and with the state."""
        if self.kind == "hedgehog":
            return 4 * CHUNK * (self.d + self.width) + 4 * self.d * CHUNK + 8 * self.width * CHUNK
        features = 1 + self.d + self.d**2
        return 2 * CHUNK * (self.d + self.width) + 4 * features * self.width

    @property
    def target(self) -> float:
        """Microseconds that a forward pass may take."""
        positions = self.batch * HEADS * self.n
        moved = 2 * positions * (2 * self.d + 2 * self.width)
        own = FIXED + TIMES * max(moved / COPY, positions * self.flops / PRODUCTS)
        return own if self.known is None else min(own, self.known)


KNOWN = {
    "based": ((16, 1024, 67.0), (16, 3072, 188.0), (16, 12288, 717.0))
    + ((1, 1024, 47.0), (1, 6144, 282.0), (1, 12288, 562.0)),
    "hedgehog": ((16, 1024, 206.0), (16, 3072, 608.0), (16, 12288, 2421.0))
    + ((1, 1024, 68.0), (1, 6144, 278.0)),
}
SIZES = {"based": (16, 64), "divided based": (16, 64), "hedgehog": (128, 128)}
GIVEN = tuple(
    Problem(kind, batch, n, *sizes, known)
    for kind, sizes in SIZES.items()
    for batch, n, known in KNOWN[kind.split()[-1]]
)


def tensors(p: Problem, device: str = "cuda") -> list[Any]:
    """Random normal q, k, v, and for Hedgehog two maps."""
    sizes = (p.d, p.d, p.width)
    found = [torch.randn(p.batch, HEADS, p.n, size, device=device).bfloat16() for size in sizes]
    if p.kind == "hedgehog":
        shape = (HEADS, p.d, CHUNK)
        found += [(torch.randn(shape, device=device) * p.d**-0.5).bfloat16() for _ in range(2)]
    return found


def explicit(p: Problem, q: Any, k: Any, v: Any, *matrices: Any) -> Any:
    """All pairs of positions, with weights in the dtype of v."""
    n, wide = q.shape[2], torch.float64 if q.dtype is torch.float64 else torch.float32
    i = torch.arange(n, device=q.device)
    s = (q @ k.mT).to(wide) * p.d**-0.5
    if p.kind != "hedgehog":
        weights = torch.tril(1 + s + s * s / 2)
    else:
        own, other = i[:, None] // CHUNK, i[None, :] // CHUNK
        s = s.masked_fill((i[None, :] > i[:, None]) | (other < own - 1), -torch.inf)
        weights = (s - s.amax(dim=-1, keepdim=True)).exp()
        of_q, of_k = (_maps(x, m, wide) for x, m in zip((q, k), matrices, strict=True))
        weights = weights + (of_q @ of_k.mT).to(wide) * (other < own - 1)
    out = (weights.to(v.dtype) @ v).to(wide)
    return (out if p.kind == "based" else out / weights.sum(dim=-1, keepdim=True)).to(v.dtype)


def _maps(x: Any, matrix: Any, wide: Any) -> Any:
    y = (x @ matrix).to(wide)
    return torch.cat([y.softmax(dim=-1), (-y).softmax(dim=-1)], dim=-1).to(x.dtype)


def attend(p: Problem, given: list[Any], **words: Any) -> Any:
    """The kernel of a problem."""
    if p.kind == "hedgehog":
        return hedgehog_attention(*given, **words)
    return based_attention(*given, **words, normalize=p.kind != "based")


def error_ratio(p: Problem, device: str = "cuda") -> float:
    """The largest error of a result to that of the explicit form, on fewer positions and one batch."""
    own = Problem(p.kind, 1, min(p.n, CHECKED), p.d, p.width)
    given = tensors(own, device)
    exact = explicit(own, *(x.double() for x in given))
    found = attend(own, given), explicit(own, *given)
    worst, other = (float((x.double() - exact).abs().max()) for x in found)
    return worst / max(other, 1e-30)


def kept(p: Problem, given: list[Any]) -> Any:
    """What gradients take of a call besides its arguments."""
    if p.kind == "hedgehog":
        return attend(p, given, return_rows=True)
    return attend(p, given, return_weights=True) if p.kind != "based" else ()


def gradients(p: Problem, given: list[Any], gradient: Any, more: Any) -> Any:
    """The kernels of the gradients of a problem."""
    if p.kind == "hedgehog":
        return hedgehog_attention_backward(*given, *more, gradient)
    return based_attention_backward(*given, gradient, *more)


def gradient_error_ratio(p: Problem, device: str = "cuda") -> float:
    """The largest error of a gradient to that of autograd of the explicit form, the worst of all; as `error_ratio`."""
    own = Problem(p.kind, 1, min(p.n, CHECKED), p.d, p.width)
    given = tensors(own, device)
    gradient = torch.randn_like(given[2])

    def explicitly(wide: bool) -> Any:
        leaves = [(x.double() if wide else x).requires_grad_() for x in given]
        out = explicit(own, *leaves)
        return torch.autograd.grad(out, leaves, gradient.to(out.dtype))

    exact, others = explicitly(True), explicitly(False)
    given = [x.detach() for x in given]
    found = gradients(own, given, gradient, kept(own, given))

    def error(x: Any, y: Any) -> float:
        return float((x.double() - y).abs().max())

    triples = zip(found, others, exact, strict=True)
    return max(error(x, z) / max(error(y, z), 1e-30) for x, y, z in triples)


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a problem, forward and backward."""
    given = tensors(p)
    out, gradient, more = torch.empty_like(given[2]), torch.randn_like(given[2]), kept(p, given)
    contenders: dict[str, Any] = {
        "forward": lambda _: attend(p, given, out=out),
        "backward": lambda _: gradients(p, given, gradient, more),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    errors = {"errors": error_ratio(p), "gradient_errors": gradient_error_ratio(p)}
    return {"problem": str(p), "target": p.target, **errors, **figures}


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    times = (f"{r[name]:,.1f}" for name in ("forward", "backward", "target"))
    errors = (f"{r[name]:.2f}" for name in ("errors", "gradient_errors"))
    parts = (r["forward"] / r["target"], r["backward"] / (BACKWARD * r["target"]))
    return r["problem"], *times, *errors, *(f"{x:.2f}" for x in parts)


def main() -> None:
    """Measure, print a table and write it."""
    options = record.parser(__doc__, rounds=15).parse_args()
    if not torch.cuda.is_available():
        sys.exit("feature_maps: no CUDA device")
    rows = [measured(p, options.rounds) for p in GIVEN]
    heads = ["Batch, heads, n, d, width", "Forward us", "Backward us", "Target us", "Errors"]
    heads += ["Of gradients", "Of target", "Backward"]
    where = about()
    text = f"{heading(where)}\n\n{markdown(heads, map(cells, rows))}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"feature-maps{options.label}", text)


if __name__ == "__main__":
    main()
