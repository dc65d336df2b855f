"""Llama-shaped models by PyTorch, operation by operation: what programs of a token are compared with.

In bf16 every operation rounds its result, as in models of Hugging Face: norms are computed in float32, the rest in
bf16, and the hidden state that the layers add to is bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from pykittens.models.config import Config

Tensor = torch.Tensor


@dataclass
class Eager:
    """A model of PyTorch with the weights of a checkpoint, converted to a dtype when they are used.

    add: how a layer's result is added to the hidden state.
    """

    config: Config
    weights: Mapping[str, Tensor]
    dtype: torch.dtype
    add: Callable[[Tensor, Tensor], Tensor] = torch.add
    angles: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.device = self.weights["model.embed_tokens.weight"].device

    def logits(self, tokens: Tensor) -> Tensor:
        """The logits after each token of a text, float32, (tokens, vocabulary)."""
        n = len(tokens)
        angles = torch.from_numpy(self.config.angles(n)).to(self.device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (y.transpose(0, 1)[None] for y in (q, k, v))
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            )[0].transpose(0, 1)

        return self._run(tokens, angles, attend)

    def step(self, token: Tensor, position: int, cache: Tensor) -> Tensor:
        """The likeliest token after one at a position; its keys and values go to the cache."""
        c = self.config
        angles = self.angles[position : position + 1]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            for i, new in enumerate((k, v)):
                cache[2 * layer + i, position] = new.reshape(-1)
            kept = cache[2 * layer : 2 * layer + 2, : position + 1]
            keys, values = kept.view(2, -1, c.key_heads, c.head).transpose(1, 2)[:, None]
            q = q.transpose(0, 1)[None]
            return functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)[
                0
            ].transpose(0, 1)

        return self._run(token, angles, attend).argmax()

    def prepare(self, positions: int) -> None:
        """Compute the angles of positions, before steps."""
        self.angles = torch.from_numpy(self.config.angles(positions)).to(self.device)

    def _run(self, tokens: Tensor, angles: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        c, n = self.config, len(tokens)
        cos, sin = (x.to(self.dtype) for x in angles[:, None].chunk(2, dim=2))

        def rotated(x: Tensor) -> Tensor:
            a, b = x.chunk(2, dim=2)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], 2)

        h = self.weights["model.embed_tokens.weight"][tokens].to(self.dtype)
        for layer in range(c.layers):
            name = f"model.layers.{layer}."
            x, of = self._norm(h, f"{name}input_layernorm.weight"), f"{name}self_attn."
            q, k, v = (self._times(x, f"{of}{i}_proj").view(n, -1, c.head) for i in "qkv")
            if c.head_norms:
                q, k = (self._norm(y, f"{of}{i}_norm.weight") for i, y in (("q", q), ("k", k)))
            mixed = attend(layer, rotated(q), rotated(k), v)
            h = self.add(h, self._times(mixed.reshape(n, -1), f"{of}o_proj"))
            x = self._norm(h, f"{name}post_attention_layernorm.weight")
            gate, up = (self._times(x, f"{name}mlp.{i}_proj") for i in ("gate", "up"))
            h = self.add(h, self._times(functional.silu(gate) * up, f"{name}mlp.down_proj"))
        output = "model.embed_tokens" if c.tied else "lm_head"
        return self._times(self._norm(h, "model.norm.weight"), output).float()

    def _norm(self, x: Tensor, gain: str) -> Tensor:
        """The norm in float32, rounded before it is multiplied with its gains."""
        wide = x.float()
        scaled = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.config.eps)
        return scaled.to(self.dtype) * self.weights[gain].to(self.dtype)

    def _times(self, x: Tensor, name: str) -> Tensor:
        bias: Any = self.weights.get(f"{name}.bias")
        bias = bias if bias is None else bias.to(self.dtype)
        return functional.linear(x, self.weights[f"{name}.weight"].to(self.dtype), bias)
