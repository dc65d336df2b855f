"""Random calls of attention, forward and backward, against float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.attention import attention, attention_backward
from pykittens.kernels.attention.reference import Exact, exact, gradients, visible_of
from tests import tolerance

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
LENGTHS = (1, 17, 64, 100, 129, 200)
WIDTHS = (1, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16)  # in 16s

Move = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]


def normal(rng: np.random.Generator, *shape: int, dtype: Any = BF16) -> Any:
    """Random normal numbers."""
    return rng.standard_normal(shape).astype(dtype)


def by_rows(x: Any) -> Any:
    """The same array with the heads of a position side by side in memory."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)


def assert_close(found: Any, expected: Any, magnitude: Any, keys: int) -> None:
    """Every element is within a few roundings of the terms that are added up, whose magnitudes are given."""
    unit = tolerance.unit(found.dtype) if found.dtype.itemsize < 4 else tolerance.unit(BF16)
    bound = (6 * unit + 2 * (keys + 64) * 2.0**-24) * magnitude + unit * np.abs(expected) + 1e-6
    tolerance.assert_within(found, expected, bound)


def check(
    q: Any,
    k: Any,
    v: Any,
    gradient: Any,
    known: dict[str, Any],
    slope: Any = 1.0,
    forward: Any = None,
    backward: Any = None,
    memory: Move | None = None,
    **how: Any,
) -> tuple[Exact, Any]:
    """Both passes of a call with `how` against `known`, what `exact` takes for the same.

    memory: moves arrays to a GPU and back, as a pair of functions; None to stay on the CPU.
    """
    to, back = memory or (lambda x: x, lambda x, like: x)
    given = [to(x) for x in (q, k, v)]
    out, lse = attention(*given, return_lse=True, **how, **(forward or {}))
    of = exact(q, k, v, **known)
    magnitude = exact(q, k, np.abs(v), **known).out
    assert_close(back(out, q), of.out, magnitude, k.shape[2])
    seen, logs = np.isfinite(of.lse), back(lse, np.empty(0, np.float32))
    assert (np.isfinite(logs) == seen).all()
    assert np.abs(np.where(seen, logs, 0) - np.where(seen, of.lse, 0)).max(initial=0) < 1e-4
    slope = slope(of) if callable(slope) else slope
    scale = known.get("scale")
    found = attention_backward(*given, out, lse, to(gradient), **how, **(backward or {}))
    results = [back(x, np.empty(0, np.float32) if i > 2 else q) for i, x in enumerate(found)]
    wide = [np.abs(x.astype(np.float64)) for x in (q, k, v, gradient)]
    exactly = gradients(q, k, v, gradient, of, scale=scale, slope=slope)
    terms = type(of)(-magnitude, of.lse, of.weights, of.kept, of.scores)  # so that delta is added
    magnitudes = gradients(*wide, terms, scale=scale, slope=np.abs(slope))
    for x, right, size in zip(results, exactly, magnitudes, strict=False):
        assert_close(x, right, size, max(q.shape[2], k.shape[2]))
    return of, results


@dataclass(frozen=True)
class AttentionProblem:
    """A call of attention and of its gradients; the seed is that of its numbers. Widths are in 16s."""

    batch: int
    kv_heads: int
    group: int
    queries: int
    keys: int
    d: int
    width: int
    causal: bool | str = False
    window: tuple[int | None, int | None] | None = None
    scale: float | None = None
    dtype: str = "bf16"
    by_rows: bool = False
    deterministic: bool = True
    splits: int | None = 1
    seed: int = 0


def problem(rng: random.Random, lengths: tuple[int, ...] = LENGTHS) -> AttentionProblem:
    """A random problem."""
    kv_heads, group = rng.choice([(1, 1), (2, 1), (1, 3), (2, 2)])
    d = rng.choice(WIDTHS)
    width = d if rng.random() < 0.7 else rng.randint(1, 8)
    causal: bool | str = rng.choice([False, False, "top_left", "bottom_right"])
    window = None
    if rng.random() < 0.4:
        sides = [rng.choice([None, 0, 10, 70, -3]) for _ in range(2)]
        window = (sides[0], None if causal else sides[1])
    return AttentionProblem(
        *(rng.randint(1, 2), kv_heads, group, rng.choice(lengths), rng.choice(lengths), d, width),
        causal=causal,
        window=window,
        scale=rng.choice([None, None, 0.05, 0.3]),
        dtype=rng.choice(["bf16", "f16"]),
        by_rows=rng.random() < 0.5,
        deterministic=rng.random() < 0.5,
        splits=rng.choice([1, 1, None, 3, 7]),
        seed=rng.randrange(1000),
    )


def check_problem(p: AttentionProblem, memory: Move | None = None) -> None:
    """Raise an AssertionError unless the results of a problem are right."""
    rng = np.random.default_rng(p.seed)
    heads, d, width = p.kv_heads * p.group, 16 * p.d, 16 * p.width
    shapes = (
        (heads, p.queries, d),
        (p.kv_heads, p.keys, d),
        (p.kv_heads, p.keys, width),
        (heads, p.queries, width),
    )
    dtype = F16 if p.dtype == "f16" else BF16
    arrays = [normal(rng, p.batch, *s, dtype=dtype) for s in shapes]
    if p.by_rows and memory is None:  # a copy to a GPU has the strides of its own
        arrays = [by_rows(x) for x in arrays]
    visible = visible_of(p.causal, p.queries, p.keys, p.window)
    check(
        *arrays,
        {"visible": visible, "scale": p.scale},
        forward={"splits": p.splits},
        backward={"deterministic": p.deterministic},
        memory=memory,
        causal=p.causal,
        window=p.window,
        scale=p.scale,
    )
