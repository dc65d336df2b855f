"""Based linear attention beside its chunk form in PyTorch, on a cold L2 cache.

A time is to stay under the target of its shape, which is the smaller of the best time known and 15 microseconds with
four times what the memory or the tensor cores need at least; the last column is the part of it that is taken. Errors
are the largest ones against float64, to those of the chunk form in PyTorch with states in f32.
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

from pykittens.kernels.linear import based_attention, based_attention_backward  # noqa: E402

COPY, PRODUCTS = 4.25e6, 790e6  # bytes and FLOP in a microsecond of an H200
FIXED, TIMES = 15.0, 4.0
CHUNK = 64
CHECKED = 2048  # positions whose errors are found
HEADS = 16
# Microseconds of an H200 by batch and positions, of the best kernel known.
KNOWN = {
    (16, 1024): 67.0,
    (16, 3072): 188.0,
    (16, 12288): 717.0,
    (1, 1024): 47.0,
    (1, 6144): 282.0,
    (1, 12288): 562.0,
}


@dataclass(frozen=True)
class Problem:
    """A call with 16-bit elements."""

    batch: int
    n: int
    normalize: bool
    d: int = 16
    width: int = 64

    def __str__(self) -> str:
        return f"{self.batch}, {HEADS}, {self.n}, {self.d}, {self.width}" + (
            ", divided" if self.normalize else ""
        )

    @property
    def target(self) -> float:
        """Microseconds that a forward pass may take."""
        positions = self.batch * HEADS * self.n
        moved = 2 * positions * (2 * self.d + 2 * self.width)
        features = 1 + self.d + self.d**2
        flops = 2 * positions * (CHUNK * (self.d + self.width) + 2 * features * self.width)
        own = FIXED + TIMES * max(moved / COPY, flops / PRODUCTS)
        return min(own, KNOWN.get((self.batch, self.n), own))


GIVEN = tuple(Problem(*size, normalize) for normalize in (False, True) for size in KNOWN)


def tensors(p: Problem, device: str = "cuda") -> dict[str, Any]:
    """Random normal q, k, v."""
    sizes = {"q": p.d, "k": p.d, "v": p.width}
    return {
        name: torch.randn(p.batch, HEADS, p.n, size, device=device).bfloat16()
        for name, size in sizes.items()
    }


def features(x: Any) -> Any:
    """1, the elements, and all products of two."""
    return torch.cat(
        [torch.ones_like(x[..., :1]), x, (x[..., :, None] * x[..., None, :]).flatten(-2)], -1
    )


def chunked(p: Problem, q: Any, k: Any, v: Any) -> Any:
    """The chunk form in the operations of PyTorch: states are f32, what is multiplied has the dtype of q."""
    dtype, n = q.dtype, q.shape[2]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    if p.normalize:
        v = torch.cat([v, torch.ones_like(v[..., :1])], dim=3)
    fill = -n % CHUNK
    q, k, v = (
        torch.nn.functional.pad(x, (0, 0, 0, fill)).unflatten(2, (-1, CHUNK)) for x in (q, k, v)
    )
    s = (q @ k.mT).to(wide) * p.d**-0.5
    inside = (torch.tril(1 + s + s * s / 2).to(dtype) @ v).to(wide)
    factors = torch.ones(1 + p.d + p.d**2, dtype=wide, device=q.device)
    factors[1 : 1 + p.d] = p.d**-0.5
    factors[1 + p.d :] = 0.5 / p.d
    of_q, of_k = (features(q.to(wide)) * factors).to(dtype), features(k.to(wide)).to(dtype)
    added = of_k.mT.to(wide) @ v.to(wide)
    states = (added.cumsum(dim=2) - added).to(dtype)
    out = inside + (of_q @ states).to(wide)
    out = out[..., :-1] / (out[..., -1:] + 1e-6) if p.normalize else out
    return out.to(dtype).flatten(2, 3)[:, :, :n]


def error_ratio(p: Problem, device: str = "cuda") -> float:
    """The largest error of a result to that of the chunk form, on fewer positions and one batch."""
    own = Problem(1, min(p.n, CHECKED), p.normalize, p.d, p.width)
    given = tensors(own, device)
    exact = chunked(own, **{n: x.double() for n, x in given.items()})
    ours = based_attention(**given, normalize=p.normalize)
    worst, other = (float((x - exact).abs().max()) for x in (ours, chunked(own, **given)))
    return worst / max(other, 1e-30)


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a problem, forward and backward."""
    given = tensors(p)
    out, gradient = torch.empty_like(given["v"]), torch.randn_like(given["v"])
    how: dict[str, Any] = {"normalize": p.normalize}
    more: tuple[Any, ...] = ()
    if p.normalize:
        more = tuple(based_attention(**given, **how, return_weights=True))
    contenders = {
        "forward": lambda _: based_attention(**given, **how, out=out),
        "backward": lambda _: based_attention_backward(*given.values(), gradient, *more),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    return {"problem": str(p), "target": p.target, "errors": error_ratio(p), **figures}


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    times = (f"{r[name]:,.1f}" for name in ("forward", "backward", "target"))
    return r["problem"], *times, f"{r['errors']:.2f}", f"{r['forward'] / r['target']:.2f}"


def main() -> None:
    """Measure, print a table and write it."""
    options = record.parser(__doc__, rounds=15).parse_args()
    if not torch.cuda.is_available():
        sys.exit("feature_maps: no CUDA device")
    rows = [measured(p, options.rounds) for p in GIVEN]
    heads = ("Batch, heads, n, d, width", "Forward us", "Backward us", "Target us", "Errors")
    where = about()
    text = f"{heading(where)}\n\n{markdown((*heads, 'Of target'), map(cells, rows))}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"feature-maps{options.label}", text)


if __name__ == "__main__":
    main()
