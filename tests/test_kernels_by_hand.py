"""The kernels by hand compute the documented results, compared with NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.launches import launches

Array = np.ndarray[Any, Any]
UNIT, ROUNDED = 2.0**-24, 2.0**-8  # of f32 and of bf16, half a unit in the last place of 1


def product(a: Array, b: Array) -> tuple[Array, Array]:
    """A B^T, and a bound on the error of a sum in f32."""
    exact, size = wide(a) @ wide(b).T, abs(wide(a)) @ abs(wide(b)).T
    return exact, 2 * a.shape[1] * UNIT * size


def wide(x: Array) -> Array:
    return x.astype(np.float64)


def attention(q: Array, k: Array, v: Array, unit: float) -> tuple[Array, Array]:
    """softmax(q k^T / 8) v, and a bound if scores and weights are as exact as the unit."""
    s = wide(np.atleast_2d(q)) @ wide(k).T / 8
    p = np.exp(s - s.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p @ wide(v), 4 * unit * (p @ abs(wide(v))) + 2.0**-15


def of(name: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Array, Array, Array]:
    """The output of a launch, the exact output, and a bound on the difference."""
    match name.split("-")[1]:
        case "ring_to_ring":
            x = wide(before[0])
            return after[1], 2 * x + 1, 2 * UNIT * (2 * abs(x) + 1)
        case "sums_with_neighbours":
            x, _, _, sweeps = before
            return after[1], *swept(x, sweeps)
        case "two_layers":
            x, first, second = before[:3]
            hidden, y = after[3:5]
            exact, bound = product(x, first)
            assert (abs(wide(hidden) - np.maximum(exact, 0)) <= ROUNDED * abs(exact) + bound).all()
            return y, *product(hidden, second)
        case "scores_ahead":
            return after[3], *attention(*before[:3], ROUNDED)
        case "one_query":
            exact, bound = attention(*before[:3], 2.0**-18)
            return after[3], exact[0], bound[0]
        case _:
            return after[2], *product(*before[:2])


def swept(x: Array, sweeps: int) -> tuple[Array, Array]:
    """Repeated sums of tiles of 64 rows with the tiles above and below."""

    def sweep(t: Array) -> Array:
        padded = np.pad(t, ((64, 64), (0, 0)))
        return padded[:-128] + padded[64:-64] + padded[128:]

    t, size = wide(x), abs(wide(x))
    for _ in range(sweeps):
        t, size = sweep(t), sweep(size)
    return t, 2 * sweeps * UNIT * size


@pytest.mark.parametrize("name", [n for n in launches() if n.startswith("hand-")])
def test_a_kernel_by_hand_computes_what_it_says(name):
    launch = launches()[name]
    before, after = launch.make(), launch.make()
    launch.kernel(*after, **launch.constants)
    got, exact, bound = of(name, before, after)
    assert (abs(wide(got) - exact) <= bound).all()
