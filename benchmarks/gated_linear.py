"""Linear attention with a gate for each channel, forward and backward, beside its chunk form in PyTorch, on a cold L2.

Targets and errors are those of benchmarks/linear.py; the bytes of a gate of each channel, which has as many heads as q
and k, are part of the target.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from linear import (  # noqa: E402
    CHUNK,
    COLUMNS,
    COPY,
    LENGTHS,
    TIMES,
    cells,
    drawn,
    largest_ratio,
    options_of,
    with_gradients,
    write,
)
from linear import Problem as OfPositions  # noqa: E402
from protocol import isolated  # noqa: E402

from pykittens.kernels.linear import (  # noqa: E402
    gated_linear_attention,
    gated_linear_attention_backward,
)

CHECKED = 512  # positions whose errors are found


@dataclass(frozen=True)
class Problem(OfPositions):
    """A call, of 16-bit elements and a gate in f32 of each channel of q and k."""

    @property
    def target(self) -> float:
        """Microseconds that a forward pass may take."""
        return super().target + TIMES * 4 * self.batch * self.n * self.groups * self.d / COPY


GIVEN = tuple(
    Problem(batch, heads, heads, n, d, d)
    for heads, d in ((16, 64), (16, 128), (4, 256))
    for batch, n in LENGTHS
)


def tensors(p: Problem, device: str = "cuda") -> dict[str, Any]:
    """Random normal q, k, v and gradient, and logarithms of gates as GLA has them: of a sigmoid, divided by 16."""
    shapes = {"q": (p.groups, p.d), "k": (p.groups, p.d)}
    shapes |= {"v": (p.heads, p.width), "gradient": (p.heads, p.width)}
    found = {
        name: torch.randn(p.batch, heads, p.n, size, device=device).bfloat16()
        for name, (heads, size) in shapes.items()
    }
    gate = torch.randn(p.batch, p.groups, p.n, p.d, device=device)
    return found | {"decay": torch.nn.functional.logsigmoid(gate) / 16}


def chunked(q: Any, k: Any, v: Any, decay: Any) -> Any:
    """The chunk form in the operations of PyTorch: states are f32, and weights of values have the dtype of q."""
    shared, dtype, n = v.shape[1] // q.shape[1], q.dtype, v.shape[2]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    q, k, log = (x.repeat_interleave(shared, dim=1).to(wide) for x in (q, k, decay))
    state = torch.zeros(*v.shape[:2], q.shape[3], v.shape[3], dtype=wide, device=v.device)
    parts = []
    for at in range(0, n, CHUNK):
        a, b, c, g = (x[:, :, at : at + CHUNK] for x in (q, k, v, log))
        sums, size = g.cumsum(dim=2), c.shape[2]
        kept = (sums[..., :, None, :] - sums[..., None, :, :]).clamp(max=0).exp()
        pairs = torch.einsum("bhid,bhjd,bhijd->bhij", a, b, kept).tril().to(dtype)
        parts.append((pairs @ c).to(wide) + (a * sums.exp()) @ state)
        total = sums[:, :, size - 1 :]
        state = total.mT.exp() * state + (b * (total - sums).exp()).mT @ c.to(wide)
    return (torch.cat(parts, dim=2) * q.shape[3] ** -0.5).to(dtype)


def error_ratio(p: Problem, device: str = "cuda") -> float:
    """The largest error of a result or gradient to that of the chunk form, on fewer positions and one batch."""
    given = tensors(Problem(1, p.heads, p.groups, min(p.n, CHECKED), p.d, p.width), device)
    exact = with_gradients(chunked, {name: x.double() for name, x in given.items()})
    found = gated_linear_attention(**{n: x for n, x in given.items() if n != "gradient"})
    of_ours = [found, *gated_linear_attention_backward(**given)]
    return largest_ratio(of_ours, with_gradients(chunked, given), exact)


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a problem, forward and backward."""
    given = tensors(p)
    words = {n: x for n, x in given.items() if n != "gradient"}
    out = torch.empty_like(given["v"])
    contenders = {
        "forward": lambda _: gated_linear_attention(**words, out=out),
        "backward": lambda _: gated_linear_attention_backward(**given),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    return {"problem": str(p), "target": p.target, "errors": error_ratio(p), **figures}


def main() -> None:
    """Measure, print a table and write it."""
    options = options_of("gated_linear", __doc__)
    random = (Problem(**vars(p)) for p in drawn(options.drawn, options.seed))
    rows = [measured(p, options.rounds) for p in (*GIVEN, *random)]
    write("gated-linear", rows, COLUMNS, cells, options)


if __name__ == "__main__":
    main()
