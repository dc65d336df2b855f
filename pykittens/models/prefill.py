"""Prompts of Llama-shaped models by the kernels of the library: all tokens at once, layer after layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.kernels.attention import attention
from pykittens.kernels.gemm import gemm
from pykittens.kernels.rms_norm import rms_norm
from pykittens.mega.isa.packing import cast, joined
from pykittens.models.config import Config
from pykittens.types.dtypes import bf16, f32

if TYPE_CHECKING:
    from pykittens.models.llama import Llama


def fill_cache(
    config: Config, weights: Mapping[str, Any], cache: Any, tokens: Sequence[int]
) -> None:
    """Fill the cache of a model with the keys and the values of tokens, from position 0 on.

    weights: by the names of Hugging Face. cache: (layers, 2, positions, heads of keys * width of a head), bf16.
    """
    c, w, n = config, weights, len(tokens)
    h = cast(w["model.embed_tokens.weight"][[*tokens]], f32)
    cos, sin = (like(cache, x) for x in np.split(c.angles(n)[:, None], 2, axis=2))

    def normed(x: Any, gain: str) -> Any:
        return rms_norm(x, w[gain], c.eps)

    def heads_of(name: str, which: str, x: Any) -> Any:
        y = gemm(
            x,
            w[f"{name}{which}_proj.weight"],
            bias=w.get(f"{name}{which}_proj.bias"),
            out_dtype=f32,
        )
        y = y.reshape(-1, c.head)
        if which != "v" and c.head_norms:
            y = normed(y, f"{name}{which}_norm.weight")
        y = y.reshape(n, -1, c.head)
        if which != "v":
            a, b = y[..., : c.head // 2], y[..., c.head // 2 :]
            y = joined([a * cos - b * sin, b * cos + a * sin], 2)
        return cast(y, bf16)

    for layer in range(c.layers):
        name = f"model.layers.{layer}."
        x = cast(normed(h, f"{name}input_layernorm.weight"), bf16)
        q, k, v = (heads_of(f"{name}self_attn.", which, x) for which in "qkv")
        for i, kept in enumerate((k, v)):
            cache[layer, i, :n] = kept.reshape(n, -1)
        q, k, v = (y.swapaxes(0, 1)[None] for y in (q, k, v))
        mixed = attention(q, k, v, causal=True)[0].swapaxes(0, 1).reshape(n, -1)
        h = h + gemm(mixed, w[f"{name}self_attn.o_proj.weight"], out_dtype=f32)
        x = cast(normed(h, f"{name}post_attention_layernorm.weight"), bf16)
        gate, up, down = (w[f"{name}mlp.{i}_proj.weight"] for i in ("gate", "up", "down"))
        h = h + gemm(gemm(x, gate, gate=up, activation="silu"), down, out_dtype=f32)


def fill(model: Llama, texts: Sequence[Sequence[int]]) -> None:
    """Run a model on the tokens of each sequence from position 0 on, the last of them by a step."""
    if len(texts) != model.batch:
        raise ArgumentError(f"`tokens` must be {model.batch} texts, not {len(texts)}")
    for n in map(len, texts):
        if not 1 <= n <= model.capacity:
            raise ArgumentError(
                f"`tokens` must be from 1 to {model.capacity}, the capacity, not {n}"
            )
    before = [len(text) - 1 for text in texts]
    first = 0
    if model.is_on_gpu:
        first = max(before)
        cache = model.cache.reshape(-1, model.batch, 2, *model.cache.shape[1:])
        for row, (text, n) in enumerate(zip(texts, before, strict=True)):
            if n:
                fill_cache(model.config, model.weights, cache[:, row], text[:n])
    # A sequence that is at its end repeats its last token, which leaves its cache as it is.
    for position in range(first, max(before) + 1):
        at = [min(position, n) for n in before]
        tokens = [text[i] for text, i in zip(texts, at, strict=True)]
        model.step(*((tokens, at) if model.batch > 1 else (tokens[0], at[0])))


def like(x: Any, values: np.ndarray[Any, Any]) -> Any:
    """An array of NumPy, as a tensor of PyTorch on the device of x if x is one."""
    if isinstance(x, np.ndarray):
        return values
    import torch

    return torch.from_numpy(values).to(x.device)
