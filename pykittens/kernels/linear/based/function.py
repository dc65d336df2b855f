"""The host function of Based linear attention, and its cases."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.linear.based.call import BasedPasses, check, make_outputs
from pykittens.kernels.linear.based.reference import reference
from pykittens.kernels.linear.call import checked
from pykittens.kernels.plan import Plan

EPS = 1e-6
CASES = (
    {"batch": 16, "heads": 16, "length": 1024, "d": 16, "width": 64},
    {"batch": 16, "heads": 16, "length": 12288, "d": 16, "width": 64},
    {"batch": 1, "heads": 16, "length": 6144, "d": 16, "width": 64},
    {"batch": 1, "heads": 1, "length": 100, "d": 16, "width": 48, "normalize": True},
    {"batch": 1, "heads": 2, "length": 65, "d": 16, "width": 24},
)


def inputs(
    rng: np.random.Generator,
    batch: int,
    heads: int,
    length: int,
    d: int,
    width: int,
    normalize: bool = False,
) -> dict[str, Any]:
    """Random normal q, k and v in bf16."""
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, heads, length, size)).astype(ml_dtypes.bfloat16)
        for name, size in {"q": d, "k": d, "v": width}.items()
    }
    return found | ({"normalize": True} if normalize else {})


@entry(reference=reference, cases=CASES, inputs=inputs)
def based_attention(
    q: Any,
    k: Any,
    v: Any,
    out: Any = None,
    *,
    scale: float | None = None,
    normalize: bool = False,
    eps: float = EPS,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
    return_weights: bool = False,
    segments: int | None = None,
) -> Plan:
    """The sum of (1 + s + s^2 / 2) v over all positions up to each, with s = scale q k: Based linear attention.

    q, k: (batch, heads, n, d), v: (batch, heads, n, width), all bf16 or all f16, NumPy or PyTorch, in any strides; d is
    at most 32. The result (batch, heads, n, width) has their dtype; it is written to `out` if that is given. scale: 1 /
    sqrt(d) if None. normalize: divide by the sum of the weights and eps. Sums are in f32; weights, states and features
    are rounded to the dtype where they are multiplied.

    initial_state: f32 (sequences, heads, d (d + 1) / 2 + d + 1, width), or width + 1 with `normalize`: the sums of
    features of keys times values, and times 1 in the last column. Row r < d (d + 1) / 2 is that of the pair of elements
    r % d and (r % d + r // d) % d, of which each occurs once; then come the elements, and 1. return_state,
    return_weights: the result is a tuple of out, the state after the last position, and the sums by which outputs are
    divided, f32 (batch, heads, n).

    ends: int32 (sequences + 1,), where packed sequences start and where the last one ends, as of linear_attention;
    without it, each batch is a sequence. segments: parts of a sequence that have blocks of their own; if None, chosen
    so that few heads keep the GPU busy. An ArgumentError for other arguments.

        >>> x = np.zeros((1, 2, 8, 16), np.float16)
        >>> based_attention(x, x, x + 1)[0, 0, :3, 0]
        array([1., 2., 3.], dtype=float16)
    """
    given = {"q": q, "k": k, "v": v, "initial_state": initial_state, "ends": ends, "out": out}
    arrays = Arrays("based_attention", **given)
    check(arrays, normalize)
    parts = checked(arrays, segments)
    if return_weights and not normalize:
        raise arrays.fail("`return_weights` goes with `normalize`")
    result = make_outputs(arrays, normalize, return_state)
    if normalize and not return_weights:
        result = result[:-1]
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    arrays.number("eps", float(eps))
    passes = BasedPasses(arrays, scale, parts, bool(normalize))
    (before,) = arrays.present("initial_state")
    states = before, "state" if return_state else None
    names = ("q", "k", "v", "out")
    passes.outputs(names, "weights" if normalize else None, states, name="states", alone=True)
    return Plan(arrays, passes.steps, passes.scratch, result)
