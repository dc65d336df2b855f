"""Linear attention, forward and backward, beside its chunk form in PyTorch, on a cold L2 cache.

A time is to stay under 15 microseconds and four times what the memory or the tensor cores need at least, backward under
three times that; columns "of target" are the parts of it that are taken. Errors are the largest ones against the
recurrence in float64, to those of the chunk form in PyTorch with states in f32. Besides given shapes there are random
ones. Mamba-2 of the same sizes, with steps, a bias, a softplus and D inside, is timed beside it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from protocol import isolated  # noqa: E402
from record import about, heading, markdown  # noqa: E402

from pykittens.kernels.linear import (  # noqa: E402
    linear_attention,
    linear_attention_backward,
    mamba2,
    mamba2_backward,
)

COPY, PRODUCTS = 4.25e6, 790e6  # bytes and FLOP in a microsecond of an H200
FIXED, TIMES, BACKWARD = 15.0, 4.0, 3.0
CHUNK = 64
CHECKED = 2048  # positions whose errors are found
COLUMNS = (
    *("Batch, heads, n, d, width", "Forward us", "Backward us", "Target us", "Errors"),
    *("Of target", "Of target, backward"),
)
MAMBA2 = ("mamba2", "mamba2 backward")  # microseconds
LENGTHS = ((16, 1024), (16, 3072), (16, 12288), (1, 1024), (1, 6144), (1, 12288))


@dataclass(frozen=True)
class Problem:
    """A call, of 16-bit elements and a decay of each position."""

    batch: int
    heads: int
    groups: int
    n: int
    d: int
    width: int

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.groups else f"{self.heads}/{self.groups}"
        return f"{self.batch}, {heads}, {self.n}, {self.d}, {self.width}"

    @property
    def target(self) -> float:
        """Microseconds that a forward pass may take."""
        of_qk, of_v = self.groups * self.d, self.heads * self.width
        moved = (
            2 * self.batch * self.n * (2 * of_qk + 2 * of_v) + 4 * self.batch * self.heads * self.n
        )
        inside = CHUNK * (self.d + self.width)
        flops = 2 * self.batch * self.heads * self.n * (inside + 2 * self.d * self.width)
        return FIXED + TIMES * max(moved / COPY, flops / PRODUCTS)


GIVEN = tuple(
    Problem(batch, 16, groups, n, d, d)
    for d, groups in ((128, 16), (64, 1))
    for batch, n in LENGTHS
)


def drawn(count: int, seed: int) -> list[Problem]:
    """Random problems of up to 2^28 elements of values."""
    draw, found = random.Random(seed), list[Problem]()
    while len(found) < count:
        shared = draw.choice((1, 1, 2, 8))
        groups, batch = draw.choice((1, 2, 4, 8, 16)), draw.choice((1, 1, 2, 4, 16))
        n = int(2 ** draw.uniform(8, 15))
        d, width = (16 * draw.choice((1, 2, 4, 4, 6, 8, 8, 12, 16)) for _ in range(2))
        one = Problem(batch, groups * shared, groups, n, d, width)
        if batch * one.heads * n * (d + width) <= 2**28:
            found.append(one)
    return found


def tensors(p: Problem, device: str = "cuda") -> dict[str, Any]:
    """Random normal q, k, v and gradient, and logarithms of decay from 0 to -0.1."""
    shapes = {"q": (p.groups, p.d), "k": (p.groups, p.d)}
    shapes |= {"v": (p.heads, p.width), "gradient": (p.heads, p.width)}
    found = {
        name: torch.randn(p.batch, heads, p.n, size, device=device).bfloat16()
        for name, (heads, size) in shapes.items()
    }
    return found | {"decay": -0.1 * torch.rand(p.batch, p.heads, p.n, device=device)}


def chunked(q: Any, k: Any, v: Any, decay: Any) -> Any:
    """The chunk form in the operations of PyTorch: states are f32, what is multiplied has the dtype of q."""
    shared, dtype, n = v.shape[1] // q.shape[1], q.dtype, v.shape[2]
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    fill = -n % CHUNK
    q, k, v = (torch.nn.functional.pad(x, (0, 0, 0, fill)) for x in (q, k, v))
    q, k = (x.repeat_interleave(shared, dim=1).unflatten(2, (-1, CHUNK)) for x in (q, k))
    v = v.unflatten(2, (-1, CHUNK))
    log = torch.nn.functional.pad(decay.to(wide), (0, fill)).unflatten(2, (-1, CHUNK))
    sums = log.cumsum(dim=3)
    seen = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    kept = (sums[..., :, None] - sums[..., None, :]).masked_fill(~seen, -torch.inf).exp()
    inside = (((q @ k.mT).to(wide) * kept).to(dtype) @ v).to(wide)
    total = sums[..., -1:]
    added = (k.to(wide) * (total - sums).exp()[..., None]).mT @ v.to(wide)
    state, states = torch.zeros_like(added[:, :, 0]), []
    for i in range(added.shape[2]):
        states.append(state)
        state = total[:, :, i].exp()[..., None] * state + added[:, :, i]
    between = sums.exp()[..., None] * (q.to(wide) @ torch.stack(states, dim=2))
    out = (inside + between) * q.shape[-1] ** -0.5
    return out.to(dtype).flatten(2, 3)[:, :, :n]


def with_gradients(function: Callable[..., Any], given: dict[str, Any]) -> list[Any]:
    """A result, and the gradients of q, k, v and decay."""
    leaves = [given[name].detach().requires_grad_() for name in ("q", "k", "v", "decay")]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, given["gradient"].to(out.dtype))]


def largest_ratio(ours: list[Any], theirs: list[Any], exact: list[Any]) -> float:
    """The largest error of a tensor to that of another, of several tensors."""
    ratios = []
    for own, other, wanted in zip(ours, theirs, exact, strict=True):
        worst, of_other = (float((x.double() - wanted).abs().max()) for x in (own, other))
        ratios.append(worst / max(of_other, 1e-30))
    return max(ratios)


def error_ratio(p: Problem, device: str = "cuda") -> float:
    """The largest error of a result or gradient to that of the chunk form, on fewer positions and one batch."""
    own = Problem(1, p.heads, p.groups, min(p.n, CHECKED), p.d, p.width)
    given = tensors(own, device)
    exact = with_gradients(chunked, {n: x.double() for n, x in given.items()})
    found = linear_attention(**{n: x for n, x in given.items() if n != "gradient"})
    of_ours = [found, *linear_attention_backward(**given)]
    return largest_ratio(of_ours, with_gradients(chunked, given), exact)


def of_mamba2(given: dict[str, Any]) -> dict[str, Any]:
    """The tensors of a call of Mamba-2 with the queries, keys and values of another, and steps of 0.002 to 0.3."""
    v, decay = given["v"], given["decay"]
    numbers = {x: torch.rand(v.shape[1], device=v.device) for x in ("A", "D", "dt_bias")}
    found = {"x": v, "B": given["k"], "C": given["q"], "dt": 40 * decay - 2}
    return found | numbers | {"A": -1 - numbers["A"], "softplus": True}


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a problem, forward and backward."""
    given = tensors(p)
    words = {n: x for n, x in given.items() if n != "gradient"}
    out, mamba = torch.empty_like(given["v"]), of_mamba2(given)
    contenders = {
        "forward": lambda _: linear_attention(**words, out=out),
        "backward": lambda _: linear_attention_backward(**given),
        "mamba2": lambda _: mamba2(**mamba, out=out),
        "mamba2 backward": lambda _: mamba2_backward(**mamba, gradient=given["gradient"]),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    return {"problem": str(p), "target": p.target, "errors": error_ratio(p), **figures}


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    forward, backward = r["forward"] / r["target"], r["backward"] / r["target"] / BACKWARD
    times = (f"{r[name]:,.1f}" for name in ("forward", "backward", "target"))
    return r["problem"], *times, f"{r['errors']:.2f}", f"{forward:.2f}", f"{backward:.2f}"


def with_mamba2(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table with the times of Mamba-2."""
    return *cells(r), *(f"{r[name]:,.1f}" for name in MAMBA2)


def options_of(name: str, doc: str | None) -> Any:
    """The options of a program that needs a GPU and draws at random."""
    parser = record.parser(doc, rounds=15)
    parser.add_argument("--drawn", type=int, default=20, help="random problems")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"{name}: no CUDA device")
    return options


def write(
    name: str,
    rows: list[dict[str, Any]],
    columns: Sequence[str],
    cells: Callable[[dict[str, Any]], tuple[str, ...]],
    options: Any,
) -> None:
    """Print a table of the rows and write it."""
    where = about()
    text = f"{heading(where)}\n\n{markdown(columns, map(cells, rows))}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"{name}{options.label}", text)


def main() -> None:
    """Measure, print a table and write it."""
    options = options_of("linear", __doc__)
    rows = [measured(p, options.rounds) for p in (*GIVEN, *drawn(options.drawn, options.seed))]
    write("linear", rows, (*COLUMNS, *MAMBA2), with_mamba2, options)


if __name__ == "__main__":
    main()
