"""Llama-shaped models in float64, token by token, from weights by the names of Hugging Face."""

from __future__ import annotations

import numpy as np


def norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * gain


class Reference:
    """A model in float64; keys and values are kept as they are, in float64, or rounded to a dtype."""

    def __init__(self, config, weights, kept=None):
        self.config, self.kept = config, kept
        self.weights = {name: np.asarray(x, np.float64) for name, x in weights.items()}
        self.keys = [[] for _ in range(config.layers)]
        self.values = [[] for _ in range(config.layers)]

    def logits(self, token):
        """The logits after one more token."""
        c, w = self.config, self.weights
        position = len(self.keys[0])
        cos, sin = np.split(c.angles(position + 1)[position].astype(np.float64), 2)
        h = w["model.embed_tokens.weight"][token]
        for layer in range(c.layers):
            name = f"model.layers.{layer}."
            x = norm(h, w[f"{name}input_layernorm.weight"], c.eps)
            q, k, v = (self._projected(f"{name}self_attn.", i, x) for i in "qkv")
            q, k = (self._rotated(y, cos, sin) for y in (q, k))
            self.keys[layer].append(self._rounded(k))
            self.values[layer].append(self._rounded(v))
            keys, values = (
                np.repeat(np.stack(y), c.heads // c.key_heads, axis=1)
                for y in (self.keys[layer], self.values[layer])
            )
            score = np.einsum("hd,phd->hp", q, keys) / c.head**0.5
            p = np.exp(score - score.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            mixed = np.einsum("hp,phd->hd", p, values).ravel()
            h = h + w[f"{name}self_attn.o_proj.weight"] @ mixed
            x = norm(h, w[f"{name}post_attention_layernorm.weight"], c.eps)
            gate = w[f"{name}mlp.gate_proj.weight"] @ x
            up = w[f"{name}mlp.up_proj.weight"] @ x
            h = h + w[f"{name}mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        output = w["model.embed_tokens.weight" if c.tied else "lm_head.weight"]
        return output @ norm(h, w["model.norm.weight"], c.eps)

    def _projected(self, name, which, x):
        y = self.weights[f"{name}{which}_proj.weight"] @ x
        y = (y + self.weights.get(f"{name}{which}_proj.bias", 0)).reshape(-1, self.config.head)
        gain = self.weights.get(f"{name}{which}_norm.weight")
        return y if gain is None else norm(y, gain, self.config.eps)

    @staticmethod
    def _rotated(x, cos, sin):
        a, b = np.split(x, 2, axis=1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)

    def _rounded(self, x):
        return x if self.kept is None else x.astype(self.kept).astype(np.float64)
