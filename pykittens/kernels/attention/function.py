"""The host function of the forward pass, its cases and its rival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.ir.numbers import number
from pykittens.kernels.attention.balance import UNKNOWN, chosen
from pykittens.kernels.attention.call import BOUNDS, SHAPES, Call, see_nothing
from pykittens.kernels.attention.config import AttentionConfig, configs_for, splits_for
from pykittens.kernels.attention.forward import attention_blocks
from pykittens.kernels.attention.reference import reference
from pykittens.kernels.library import entry
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

CASES = (
    {"batch": 16, "heads": 16, "length": 3072, "d": 128, "causal": False},
    {"batch": 16, "heads": 16, "length": 3072, "d": 128, "causal": True},
    {"batch": 16, "heads": 16, "length": 3072, "d": 64, "causal": False},
    {"batch": 16, "heads": 16, "length": 3072, "d": 64, "causal": True},
    {"batch": 16, "heads": 16, "length": 3072, "d": 256, "causal": False},
    {"batch": 16, "heads": 16, "length": 3072, "d": 256, "causal": True},
    {"batch": 2, "heads": 3, "length": 1000, "d": 256, "causal": True},
    {"batch": 1, "heads": 2, "length": 200, "d": 64, "causal": False},
    {"batch": 1, "heads": 2, "length": 300, "d": 48, "causal": True},
)


def inputs(
    rng: np.random.Generator, batch: int, heads: int, length: int, d: int, causal: bool
) -> dict[str, Any]:
    """Random normal q, k and v in bf16."""
    shape = (batch, heads, length, d)
    tensors = {x: rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for x in ("q", "k", "v")}
    return {**tensors, "causal": causal}


def work(batch: int, heads: int, length: int, d: int, causal: bool) -> tuple[float, Any]:
    """The floating-point operations of the two products; half of them if causal."""
    return 4.0 * batch * heads * length**2 * d * (0.5 if causal else 1.0), "FLOP"


def rival(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    """PyTorch's attention: cuDNN's, or FlashAttention's if d > 128."""
    backends = torch.nn.attention.SDPBackend
    backend = backends.FLASH_ATTENTION if q.shape[-1] > 128 else backends.CUDNN_ATTENTION
    with torch.nn.attention.sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@entry(
    reference=reference,
    cases=CASES,
    inputs=inputs,
    rival=rival,
    work=work,
    numbers={"tensors": ()},
)
def attention(
    q: Any,
    k: Any,
    v: Any,
    out: Any = None,
    *,
    causal: bool | str = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    key_start: Any = None,
    key_stop: Any = None,
    score: Callable[..., Any] | None = None,
    tensors: tuple[Any, ...] = (),
    sinks: Any = None,
    dropout: float | None = None,
    seed: Any = None,
    return_lse: bool = False,
    splits: int | None = None,
    config: AttentionConfig | None = None,
) -> Plan:
    """softmax(scale q k^T) v along the keys that each query sees, and 0 for a query that sees none.

    q: (batch, heads, queries, d), k: (batch, kv_heads, keys, d), v: (batch, kv_heads, keys, width), all bf16 or all
    f16, NumPy or PyTorch, in any strides; d and width are multiples of 16 up to 256. Head h of q goes with head
    h // (heads / kv_heads) of k and v. The result (batch, heads, queries, width) has their dtype; it is written to
    `out` if that is given. Sums are in f32; weights are rounded to the dtype before they are multiplied by v. With
    return_lse the result is (out, lse): the logarithm of each query's sum of exp(score), f32, -inf without a key.

    causal: True or "top_left": query i sees the keys up to i; "bottom_right": up to i + keys - queries. window: (left,
    right): query i sees the keys from i - left to i + right, shifted like those of `causal`; None is no bound.
    key_start, key_stop: int32 (batch, queries), the keys of each query, from key_start to before key_stop, neither of
    which falls from one query to the next; pykittens.kernels.attention.visible.packed makes those of packed sequences.

    scale: 1 / sqrt(d) if None. score: a @pk.function (s, place, *tensors) of a tile of scaled scores in f32, which
    returns the scores of the softmax, of which those below -2.3e38 count as -inf, a key that is not seen;
    pykittens.kernels.attention.scores has some. sinks: f32 (heads,), for each head the score of a key without a value,
    which every query sees. dropout: the part of the weights that is set to 0, by random bits of `seed`, int32 (1,); the
    others are divided by 1 - dropout.

    The heads of a group share tiles if their queries are few: if their number times the group, rounded up to a power of
    two, is at most the rows of a tile, 128 on Hopper. Any strides will do. A function of scores must permit that, as
    those of the library do (scores.by_row).

    splits: the number of blocks that share the keys of some queries; if None, it is chosen so that few queries keep the
    GPU busy. The parts are merged in one order, so equal calls have equal results. config: how the work is cut; if
    None, it is chosen for d, width and the GPU of `q`. An ArgumentError for other arguments.

    >>> x = np.ones((1, 2, 8, 32), np.float16)
    >>> attention(x, x, x, causal=True).shape
    (1, 2, 8, 32)
    """
    given = {"q": q, "k": k, "v": v, "out": out, "key_start": key_start, "key_stop": key_stop}
    given |= {"sinks": sinks, "seed": seed}
    how = {"causal": causal, "window": window, "scale": scale, "dropout": dropout, "score": score}
    call = Call("attention", given, tensors, **how)
    arrays, dims, splits = call.arrays, call.arrays.dims, number(splits)
    if splits is not None and not (type(splits) is int and splits > 0):
        raise arrays.fail(f"`splits` must be a positive int or None, not {splits!r}")
    arrays.result(SHAPES["out"], arrays.found["q"].dtype)
    if return_lse:
        arrays.make("lse", SHAPES["lse"], "f32")
    result = ("out", "lse") if return_lse else ("out",)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    call.pack()
    arrays.lines(*arrays.found)
    if not dims["keys"]:
        args = (*result, *("sinks",) * (return_lse and "sinks" in arrays))
        return Plan(arrays, [PlanStep(see_nothing, args)], result=result)
    limits = limits_of(q)
    configs = (config,) if config else configs_for(dims["d"], dims["width"], limits)
    configs, packed = call.packing(configs)
    lead = dims["batch"], dims["kv_heads" if packed else "heads"]
    heads = lead[0] * lead[1]
    head_bytes = 2 * dims["keys"] * (dims["d"] + dims["width"])
    head_bytes //= 1 if packed else max(call.group, 1)
    counts = heads, dims["queries"], dims["keys"]
    config, section = chosen(configs, *counts, head_bytes, call.seen, limits)
    if splits is None:
        splits = splits_for(heads, dims, config, limits.multiprocessors)
    bounds = any(name in arrays for name in BOUNDS)
    if splits == 1 and (call.seen.high is not None or bounds):
        call.add("section", min(heads, UNKNOWN) if bounds else section)
    names, scratch = call.names, {}
    more: tuple[str, ...] = ()
    if splits == 1 and bounds and limits.warpgroups:  # elsewhere they cost registers
        scratch = {"tickets": Scratch((1,), flags=True)}
    if splits > 1:
        call.add("splits", splits)
        groups = -(-dims["queries"] // config.rows) * config.consumers
        queries = dims["queries"] * (call.group if packed else 1)
        scratch = {
            "arrivals": Scratch((*lead, groups), flags=True),
            "partial": Scratch((splits, *lead, queries, dims["width"])),
            "partial_lse": Scratch((splits, *lead, queries)),
        }
        more = ("splits",)
    own = len(names) - len(call.tensors)
    names = (*names[:own], *more, *scratch, *call.tensors)
    constants = {"config": config, "form": call.form(names, packed)}
    step = PlanStep(attention_blocks, ("q", "k", "v", "out", *names), constants)
    return Plan(arrays, [step], scratch, result)
