"""Linear attention with a gate for each channel: the host function, and its cases."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.limits import limits_of
from pykittens.kernels.linear.call import (
    add_scale,
    check_gates,
    check_shapes,
    checked,
    make_outputs,
)
from pykittens.kernels.linear.channels import (
    channel_outputs,
    channels_of,
    weigh_channels,
    weighing_bytes,
)
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import (
    RESERVED,
    LinearConfig,
    Tiles,
    config_for,
    segments_of_heads,
)
from pykittens.kernels.linear.reference import reference
from pykittens.kernels.linear.states import scan_states
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

OF_GATES = "batch gates n d"

CASES = (
    {"batch": 16, "heads": 16, "length": 1024, "d": 128, "width": 128},
    {"batch": 1, "heads": 4, "length": 12288, "d": 128, "width": 256},
    {"batch": 16, "heads": 16, "length": 1024, "d": 64, "width": 64},
    {"batch": 1, "heads": 2, "length": 100, "d": 16, "width": 24},
    {"batch": 1, "heads": 1, "length": 17, "d": 80, "width": 40},
)


def inputs(
    rng: np.random.Generator, batch: int, heads: int, length: int, d: int, width: int
) -> dict[str, Any]:
    """Random normal q, k and v in bf16, and logarithms of gates as GLA has them: of a sigmoid, divided by 16."""
    sizes = {"q": d, "k": d, "v": width}
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, heads, length, size)).astype(ml_dtypes.bfloat16)
        for name, size in sizes.items()
    }
    gate = rng.standard_normal((batch, heads, length, d))
    return found | {"decay": (-np.logaddexp(0, -gate) / 16).astype(np.float32)}


@entry(reference=reference, cases=CASES, inputs=inputs)
def gated_linear_attention(
    q: Any,
    k: Any,
    v: Any,
    decay: Any,
    out: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    return_state: bool = False,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """scale S^T q at each position, with the state S = diag(exp(decay)) S + k v^T, which begins with `initial_state`.

    decay: the logarithm of what is kept of each row of the state at each position, at most 0, in f32, bf16 or f16. Its
    shape is (batch, gates, n, d), with the heads of q and k, or those of v, or a number between. The other arguments
    are those of linear_attention. An ArgumentError for other arguments.

        >>> x, decay = np.ones((1, 2, 8, 32), np.float16), np.zeros((1, 2, 8, 32), np.float32)
        >>> gated_linear_attention(x, x, x, decay, scale=1.0)[0, 0, :3, 0]
        array([32., 64., 96.], dtype=float16)
    """
    given = {"q": q, "k": k, "v": v, "decay": decay, "initial_state": initial_state, "out": out}
    arrays = Arrays("gated_linear_attention", **given)
    check_shapes(arrays, OF_GATES)
    check_gates(arrays)
    parts = checked(arrays, segments)
    result = make_outputs(arrays, return_state)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines("q", "k", "v", "decay", "initial_state", "out")
    add_scale(arrays, scale)
    arrays.number("one", 1.0)
    return Plan(arrays, *launches(arrays, return_state, parts, config), result)


def launches(
    arrays: Arrays, exact: bool, segments: int | None, config: LinearConfig | None
) -> tuple[list[PlanStep], dict[str, Scratch]]:
    """The launches of a call, and their scratch memory. exact: a state is returned, with the accuracy of f32."""
    dims, dtype, limits = arrays.dims, arrays.found["v"].dtype, limits_of(arrays.like)
    batch, heads, gates, n = (dims[name] for name in ("batch", "heads", "gates", "n"))
    sizes, chunks, wide = (dims["d"], dims["width"]), -(-n // CHUNK), channels_of(dims["d"])
    rest = "rest" if exact else None
    weights = ("queries", "keys", rest, "pairs", "kept")
    scratch = {
        name: Scratch((batch, gates, chunks * CHUNK, columns), dtype=dtype)
        for name, columns in (("queries", wide), ("keys", wide), (rest, wide), ("pairs", CHUNK))
        if name
    }
    scratch["kept"] = Scratch((batch, gates, chunks, wide))
    # Two blocks of a multiprocessor are worth more than a load that is left out.
    keep = 2 * (weighing_bytes(dims["d"], True) + RESERVED) <= limits.shared_bytes
    steps = [PlanStep(weigh_channels, ("q", "k", "decay", *weights), {"keep": keep})]
    tiles = Tiles(2 + exact, 1, 0, 1, of_pairs=1)
    found = config or config_for(wide, dims["width"], limits, tiles)
    if segments is None:
        of_heads = batch * gates, batch * heads
        segments = segments_of_heads(of_heads, chunks, sizes, found, limits)
    (before,) = arrays.present("initial_state")
    after: str | None = "state" if exact else None
    if segments > 1:
        scratch["states"] = Scratch((batch, heads, segments, *sizes))
        scratch["whole"] = Scratch((batch, heads, segments, dims["d"]))
        own = config or config_for(wide, dims["width"], limits, Tiles(1 + exact, 1, 0, 0, 0))
        own_args = (None, "keys", rest, None, "kept", "v", None, None, "states", "whole", "scale")
        steps.append(PlanStep(channel_outputs, own_args, {"config": own}))
        steps.append(PlanStep(scan_states, ("states", "whole", before, after, "one")))
        before, after = "states", None
    args = (*weights, "v", "out", before, after, None, "scale")
    steps.append(PlanStep(channel_outputs, args, {"config": found}))
    return steps, scratch
