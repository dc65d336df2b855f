"""The gated delta rule, forward and backward, beside its chunk form in PyTorch, on a cold L2 cache.

Two problems have targets of their own. Of random ones a time is to stay under 15 microseconds and four times what the
memory or the tensor cores need at least, as of linear attention. Backward it is to stay under 3.5 times that; the last
columns are the parts of it that are taken. Errors are the largest ones against the chunk form in float64, to those of
the chunk form with states in f32, whose products are of bf16. Keys have length 1, and beta is from 0 to 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import linear  # noqa: E402
import torch  # noqa: E402
from linear import CHECKED, CHUNK, COPY, FIXED, PRODUCTS, TIMES, options_of, write  # noqa: E402
from protocol import isolated  # noqa: E402

from pykittens.kernels.delta import gated_delta_rule, gated_delta_rule_backward  # noqa: E402

BACKWARD = 3.5
NAMES = ("q", "k", "v", "beta", "decay")
ASKED = {(8, 16, 16, 4096, 128, 128): 600.0, (1, 16, 16, 8192, 128, 128): 300.0}


@dataclass(frozen=True)
class Problem(linear.Problem):
    """A call, of 16-bit elements and a decay of each position."""

    @property
    def target(self) -> float:
        """Microseconds that a forward pass may take."""
        if astuple(self) in ASKED:
            return ASKED[astuple(self)]
        positions, heads = self.batch * self.n, self.heads
        moved = 4 * positions * (self.groups * self.d + heads * self.width + 2 * heads)
        inside = 2 * CHUNK * (self.d + self.width)
        flops = 2 * positions * heads * (inside + 3 * self.d * self.width)
        return FIXED + TIMES * max(moved / COPY, flops / PRODUCTS)


def drawn(count: int, seed: int) -> list[Problem]:
    """The random problems of linear attention."""
    return [Problem(*astuple(p)) for p in linear.drawn(count, seed)]


def tensors(p: Problem, device: str = "cuda") -> dict[str, Any]:
    """Those of linear attention, with keys of length 1 and beta from 0 to 1."""
    found = linear.tensors(p, device)
    found["k"] = torch.nn.functional.normalize(found["k"].float(), dim=-1).bfloat16()
    return found | {"beta": torch.rand(p.batch, p.heads, p.n, device=device)}


def chunked(q: Any, k: Any, v: Any, beta: Any, decay: Any) -> Any:
    """The chunk form in the operations of PyTorch: states are f32, what is multiplied has the dtype of q."""
    shared, dtype, n = v.shape[1] // q.shape[1], q.dtype, v.shape[2]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    fill = -n % CHUNK
    q, k, v = (torch.nn.functional.pad(x, (0, 0, 0, fill)) for x in (q, k, v))
    q, k = (x.repeat_interleave(shared, dim=1).unflatten(2, (-1, CHUNK)) for x in (q, k))
    v = v.unflatten(2, (-1, CHUNK))
    beta, log = (
        torch.nn.functional.pad(x.to(wide), (0, fill)).unflatten(2, (-1, CHUNK))
        for x in (beta, decay)
    )
    sums = log.cumsum(dim=3)
    seen = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    kept = (sums[..., :, None] - sums[..., None, :]).masked_fill(~seen, -torch.inf).exp()
    below = (beta[..., None] * (k @ k.mT).to(wide) * kept).tril(-1)
    one = torch.eye(CHUNK, dtype=wide, device=v.device)
    inverse = torch.linalg.solve_triangular(
        one + below, beta.diag_embed(), upper=False, unitriangular=True
    ).to(dtype)
    values = (inverse @ v).to(wide)
    of_keys = inverse @ (k.to(wide) * sums.exp()[..., None]).to(dtype)
    weights, total = ((q @ k.mT).to(wide) * kept).to(dtype), sums[..., -1:]
    state, found = torch.zeros_like(k[:, :, 0].mT.to(wide) @ v[:, :, 0].to(wide)), []
    for i in range(v.shape[2]):
        own = state.to(dtype)
        added = values[:, :, i] - (of_keys[:, :, i] @ own).to(wide)
        between = sums[:, :, i].exp()[..., None] * (q[:, :, i] @ own).to(wide)
        found.append((weights[:, :, i] @ added.to(dtype)).to(wide) + between)
        left = (added * (total - sums)[:, :, i].exp()[..., None]).to(dtype)
        state = total[:, :, i, :, None].exp() * state + (k[:, :, i].mT @ left).to(wide)
    out = torch.stack(found, dim=2) * q.shape[-1] ** -0.5
    return out.to(dtype).flatten(2, 3)[:, :, :n]


def with_gradients(given: dict[str, Any]) -> list[Any]:
    """The result of the chunk form, and the gradients of all that it takes."""
    leaves = {name: given[name].detach().requires_grad_() for name in NAMES}
    out = chunked(**leaves)
    found = torch.autograd.grad(out, list(leaves.values()), given["gradient"].to(out.dtype))
    return [out.detach(), *found]


def error_ratios(p: Problem, device: str = "cuda") -> list[float]:
    """The largest errors of a result and gradients to those of the chunk form, on fewer positions and one batch."""
    given = tensors(Problem(1, p.heads, p.groups, min(p.n, CHECKED), p.d, p.width), device)
    exact = with_gradients({name: x.double() for name, x in given.items()})
    found = gated_delta_rule(**{name: given[name] for name in NAMES})
    ours, theirs = [found, *gated_delta_rule_backward(**given)], with_gradients(given)
    # Gradients are in the order of the names.
    return [
        float((x.double() - e).abs().max()) / max(float((y.double() - e).abs().max()), 1e-30)
        for x, y, e in zip(ours, theirs, exact, strict=True)
    ]


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a problem, forward and backward."""
    given = tensors(p)
    words, out = {name: given[name] for name in NAMES}, torch.empty_like(given["v"])
    contenders: dict[str, Callable[..., Any]] = {
        "forward": lambda _: gated_delta_rule(**words, out=out),
        "backward": lambda _: gated_delta_rule_backward(**given),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    errors = error_ratios(p)
    ratios = {"errors": errors[0], "errors_backward": max(errors[1:])}
    return {"problem": str(p), "target": p.target, **ratios, **figures}


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    forward, backward = r["forward"] / r["target"], r["backward"] / r["target"] / BACKWARD
    times = (f"{r[name]:,.1f}" for name in ("forward", "backward", "target"))
    errors = (f"{r[name]:.2f}" for name in ("errors", "errors_backward"))
    return r["problem"], *times, *errors, f"{forward:.2f}", f"{backward:.2f}"


def main() -> None:
    """Measure, print a table and write it."""
    options = options_of("delta", __doc__)
    given = [Problem(*sizes) for sizes in ASKED]
    rows = [measured(p, options.rounds) for p in (*given, *drawn(options.drawn, options.seed))]
    heads = ("Batch, heads, n, d, width", "Forward us", "Backward us", "Target us", "Errors")
    more = ("Errors, backward", "Of target", "Of target, backward")
    write("delta", rows, (*heads, *more), cells, options)


if __name__ == "__main__":
    main()
