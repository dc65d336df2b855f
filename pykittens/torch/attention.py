"""Attention with gradients, and PyTorch's scaled_dot_product_attention by its kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import pykittens as pk
from pykittens.kernels.arrays import FLOATS
from pykittens.kernels.attention import attention as attend
from pykittens.kernels.attention import attention_backward, scores
from pykittens.kernels.attention.call import (
    LEAST,
    MOST,
    SHAPES,
    bounds_of,
    check_numbers,
    check_shapes,
    is_number,
)
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator

_TENSORS = ("mask", "slopes", "sinks", "key_start", "key_stop", "seed")
_OPTIONS = (
    "str causal='', int? left=None, int? right=None, float? scale=None, float soft_cap=0.,"
    " float dropout=0., bool deterministic=True"
)
_MORE = "".join(f", Tensor? {name}=None" for name in _TENSORS) + f", {_OPTIONS}"
_ALIGNMENTS = {False: "", True: "top_left"}


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool | str = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    mask: Tensor | None = None,
    slopes: Tensor | None = None,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
    key_start: Tensor | None = None,
    key_stop: Tensor | None = None,
    dropout: float = 0.0,
    deterministic: bool = True,
    return_lse: bool = False,
) -> Any:
    """softmax(scale q k^T) v of bf16 or f16 along the keys that each query sees; sums in f32.

    q: (batch, heads, queries, d), k: (batch, kv_heads, keys, d), v: (batch, kv_heads, keys, width), in any strides; d
    and width are multiples of 16 up to 256. Head h of q goes with head h // (heads / kv_heads) of k and v. The result
    (batch, heads, queries, width) has q's dtype; a query that sees no key has 0. With return_lse it is (out, lse), with
    the log-sum-exp of the scores, f32 (batch, heads, queries), which has no gradient.

    causal, window, scale, sinks, key_start, key_stop: as in pykittens.kernels.attention.attention. soft_cap: scores s
    become soft_cap tanh(s / soft_cap), unless it is 0. mask: broadcast to (batch, heads, queries, keys); bools, True
    where a query sees a key, or floats that are added to scores and have no gradient; -inf and torch.finfo(f).min of
    bf16 and f32 hide a key. slopes: f32 (heads,), ALiBi. dropout: the part of the weights that is set to 0, drawn by
    PyTorch's generator.

    deterministic: equal calls have equal gradients. If False, the gradient of q is added up in the order in which its
    parts come, which needs no waiting. Raises ArgumentError for a call without a kernel.

    >>> q, k = torch.ones(1, 4, 8, 32, dtype=torch.bfloat16), torch.ones(1, 2, 16, 32, dtype=torch.bfloat16)
    >>> attention(q, k, k, causal="bottom_right", window=(4, 0)).shape
    torch.Size([1, 4, 8, 32])
    """
    if _are_of_rank_4(q, k):
        mask = _laid_out(mask, (*q.shape[:3], k.shape[2]))
    seed = _seed(q) if dropout else None
    tensors = (q, k, v, mask, slopes, sinks, key_start, key_stop, seed)
    if window is not None and not (isinstance(window, tuple | list) and len(window) == 2):
        message = f"attention: `window` must be (left, right), not {window!r}"
        raise ATTENTION.error((q, k, v), message, None)
    left, right = window or (None, None)
    aligned = _ALIGNMENTS[causal] if isinstance(causal, bool) else causal
    scale, soft_cap, dropout = map(_real, (scale, soft_cap, dropout))
    options = (aligned, left, right, scale, soft_cap, dropout, deterministic)
    found = ATTENTION.call(tensors, options, False)
    return found if return_lse else found[0]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, with its arguments and their meanings.

    query: (..., heads, queries, d), key and value: (..., heads, keys, d or width); dtypes and widths are those of
    `attention`, and gradients are deterministic. Calls without a kernel are PyTorch's, with its errors.

    >>> x = torch.ones(2, 4, 8, 32, dtype=torch.bfloat16)
    >>> scaled_dot_product_attention(x, x, x, is_causal=True).shape
    torch.Size([2, 4, 8, 32])
    """
    tensors = _as_ours(query, key, value, attn_mask, is_causal, enable_gqa)
    if tensors is not None:
        seed = _seed(query) if dropout_p else None
        numbers = _real(scale), 0.0, _real(dropout_p)
        options = (_ALIGNMENTS[is_causal], None, None, *numbers, True)
        found, _ = ATTENTION.call((*tensors, None, None, None, None, seed), options, True)
        return found.reshape(*query.shape[:-3], *found.shape[-3:])
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _as_ours(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, grouped: bool
) -> tuple[Tensor | None, ...] | None:
    """q, k, v and the mask as `attention` takes them; None if the call is PyTorch's."""
    given = (query, key, value)
    if any(x.dim() < 3 or x.is_nested for x in given) or (mask is not None and is_causal):
        return None
    lead, heads = query.shape[:-3], query.shape[-3]
    if any(x.shape[:-3] != lead for x in given) or key.shape[-3] != value.shape[-3]:
        return None
    if key.shape[-3] != heads and not grouped:
        return None
    if mask is not None:
        whole = (*lead, heads, query.shape[-2], key.shape[-2])
        mask = None if mask.requires_grad else _laid_out(mask, whole)
        if mask is None or mask.shape != whole:
            return None
        mask = mask.reshape(prod(lead), *whole[-3:])
    return *(x.reshape(prod(lead), *x.shape[-3:]) for x in given), mask


def _laid_out(mask: Any, shape: tuple[int, ...]) -> Any:
    """The mask in this shape, of bytes if it is of bools, with a last stride of 1; as it is if it does not fit."""
    if not isinstance(mask, Tensor) or mask.dim() > len(shape):
        return mask
    own = shape[len(shape) - mask.dim() :]
    if not all(n == 1 or n == whole for n, whole in zip(mask.shape, own, strict=True)):
        return mask
    mask = mask.expand(*mask.shape[:-1], shape[-1])  # so that a copy repeats no other axis
    mask = mask if mask.shape[-1] < 2 or mask.stride(-1) == 1 else mask.contiguous()
    mask = mask.expand(shape)
    return mask.view(torch.uint8) if mask.dtype is torch.bool else mask


def _are_of_rank_4(*tensors: Any) -> bool:
    return all(isinstance(x, Tensor) and not x.is_nested and x.dim() == 4 for x in tensors)


def _real(x: Any) -> Any:
    """A number as a float; anything else as it is."""
    return float(x) if isinstance(x, Real) and not isinstance(x, bool) else x


def _seed(q: Any) -> Tensor | None:
    """A number of PyTorch's generator; None without a device, where no kernel is called."""
    if not isinstance(q, Tensor):
        return None
    return torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=q.device)


# -- the operators ---------------------------------------------------------------------------------


def _check(
    of: Operands,
    causal: str,
    left: Any,
    right: Any,
    scale: Any,
    cap: float,
    dropout: float,
    _: bool,
) -> None:
    dtype = check_shapes(of)
    of.shapes(mask="batch heads queries keys", slopes="heads")
    of.dtypes("mask", among=(*FLOATS, "uint8"))
    of.dtypes("slopes", among=("f32",))
    bounds_of(of, False if causal == "" else causal, _window(left, right))
    check_numbers(of, scale, None if dropout == 0 else dropout)
    if not (is_number(cap) and (cap == 0 or LEAST <= cap <= MOST)):
        raise of.fail(f"`soft_cap` must be positive, from 2^-100 to 2^100, or 0, not {cap!r}")
    if "out" not in of:
        of.result(SHAPES["out"], dtype)
        of.make("lse", SHAPES["lse"], "f32")


def _window(left: Any, right: Any) -> tuple[Any, Any] | None:
    return None if left is None and right is None else (left, right)


def _how(
    mask: Any, slopes: Any, sinks: Any, key_start: Any, key_stop: Any, seed: Any, *options: Any
) -> dict[str, Any]:
    """The keyword arguments of the library's functions."""
    causal, left, right, scale, soft_cap, dropout, _ = options
    of_mask = "bias" if mask is not None and mask.dtype.is_floating_point else "allowed"
    tensors = {"soft_cap": soft_cap or None, "linear_bias": slopes, of_mask: mask}
    tensors = {name: x for name, x in tensors.items() if x is not None}
    how = {"sinks": sinks, "key_start": key_start, "key_stop": key_stop}
    how |= {"seed": seed, "scale": scale, "causal": causal or False, "dropout": dropout or None}
    how |= {"window": _window(left, right)}
    how |= {"score": _score(tuple(tensors)), "tensors": tuple(tensors.values())}
    return {name: x for name, x in how.items() if x is not None and x != ()}


@functools.cache
def _score(names: tuple[str, ...]) -> Callable[..., Any] | None:
    """The functions of pykittens.kernels.attention.scores of these names, one after another."""
    functions = [getattr(scores, name) for name in names]

    @pk.function
    def score(s: Any, place: Any, *tensors: Any) -> Any:
        for function, x in zip(functions, tensors, strict=True):
            s = function(s, place, x)
        return s

    return scores.by_row(score) if functions else None


def _run(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> Any:
    return attend(q, k, v, return_lse=True, **_how(*more))


def _of_torch(q: Tensor, k: Tensor, v: Tensor, mask: Any, *more: Any) -> Any:
    causal, _, _, scale, _, dropout, _ = more[-7:]
    mask = mask.view(torch.bool) if mask is not None and mask.dtype is torch.uint8 else mask
    how = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    return functional.scaled_dot_product_attention(
        q, k, v, mask, dropout, bool(causal), **how
    ), None


def _setup(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
    for i, name in enumerate(ATTENTION.names):
        if ctx.needs_input_grad[i] and name in ("mask", "slopes"):
            message = f"attention: `{name}` has no gradient, and it requires one"
            raise ATTENTION.error(args, message, f"pass {name}.detach()")
    ctx.save_for_backward(*args[:9], *result)
    ctx.options = args[9:]
    ctx.mark_non_differentiable(result[1])


def _backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
    q, k, v, *tensors, out, lse = ctx.saved_tensors
    dq, dk, dv, of_sinks = GRADIENTS.launch(q, k, v, out, lse, gradient, *tensors, *ctx.options)
    of_tensors = {"sinks": None if tensors[_TENSORS.index("sinks")] is None else of_sinks}
    return dq, dk, dv, *map(of_tensors.get, _TENSORS), *(None,) * len(ctx.options)


def _check_gradients(of: Operands, *options: Any) -> None:
    of.shapes(q=SHAPES["q"], v=SHAPES["v"])
    _check(of, *options)
    of.shapes(out=SHAPES["out"], gradient=SHAPES["out"], lse=SHAPES["lse"])
    of.dtypes("lse", among=("f32",))
    for name, x in (("dq", "q"), ("dk", "k"), ("dv", "v")):
        of.make(name, SHAPES[x], of.found["q"].dtype)
    of.make("d_sinks", "heads" if "sinks" in of else "0", "f32")


def _run_gradients(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, gradient: Tensor, *more: Any
) -> Any:
    how = _how(*more)
    if "key_start" in how or "key_stop" in how:
        how |= _turned(q, k, how)
    found = attention_backward(q, k, v, out, lse, gradient, deterministic=more[-1], **how)
    return found if "sinks" in how else (*found, lse.new_empty(0))


def _turned(q: Tensor, k: Tensor, how: dict[str, Any]) -> dict[str, Tensor]:
    """The bounds of the queries of each key, and of the keys of each query, which would hang if they fell."""
    batch, queries, keys = q.shape[0], q.shape[2], k.shape[2]
    whole = {"dtype": torch.int32, "device": q.device}
    start = how.get("key_start", torch.zeros((batch, queries), **whole))
    stop = how.get("key_stop", torch.full((batch, queries), keys, **whole))
    start, stop = (x.cummax(dim=1).values if queries else x for x in (start, stop))
    at = torch.arange(keys, **whole).expand(batch, keys).contiguous()
    of_keys = [
        torch.searchsorted(x.contiguous(), at, right=True, out_int32=True) for x in (stop, start)
    ]
    return {
        "key_start": start,
        "key_stop": stop,
        "query_start": of_keys[0],
        "query_stop": of_keys[1],
    }


def _flops(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    flops: int = 2 * (q.numel() // q.shape[3]) * k.shape[2] * (q.shape[3] + v.shape[3])
    return flops


def _gradient_flops(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    flops: int = 2 * (q.numel() // q.shape[3]) * k.shape[2] * (3 * q.shape[3] + 2 * v.shape[3])
    return flops


ATTENTION = Operator(
    f"attention(Tensor q, Tensor k, Tensor v{_MORE}) -> (Tensor, Tensor)",
    _check,
    _run,
    fallback=_of_torch,
    setup=_setup,
    backward=_backward,
    flops=_flops,
    casts="q k v",
    way="let PyTorch do it with torch.nn.functional.scaled_dot_product_attention",
)

GRADIENTS = Operator(
    "attention_backward(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor gradient"
    f"{_MORE}) -> (Tensor, Tensor, Tensor, Tensor)",
    _check_gradients,
    _run_gradients,
    flops=_gradient_flops,
    no_gradient=("there is no second derivative", "compute the first without create_graph"),
)
