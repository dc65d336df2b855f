"""Configurations of models of the shape of Llama: their sizes, their tensors, the angles of positions, some by name."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_count
from pykittens.models.config_json import (
    COUNTS,
    TYPES,
    ends_of,
    fields_of,
    flag,
    positive,
    read_json,
)


@dataclass(frozen=True)
class Scaling:
    """The scaling of angles of Llama 3: slow angles are divided by `factor`, fast ones stay.

    An angle is slow if it makes at most `low_freq_factor` turns in `original_max_position_embeddings` positions, and
    fast if it makes at least `high_freq_factor`; between the two, its frequency is interpolated.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        name = "original_max_position_embeddings"
        check_count(name, getattr(self, name))
        if self.high_freq_factor <= self.low_freq_factor:
            raise ArgumentError(
                "`high_freq_factor` must be above `low_freq_factor`, "
                f"not {self.high_freq_factor} and {self.low_freq_factor}"
            )

    def of(self, frequencies: np.ndarray) -> np.ndarray:
        """The scaled frequencies, like the given ones in radians per position."""
        turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
        width = self.high_freq_factor - self.low_freq_factor
        fast = np.clip((turns - self.low_freq_factor) / width, 0, 1)
        scaled: np.ndarray = frequencies * (fast + (1 - fast) / self.factor)
        return scaled


@dataclass(frozen=True)
class Config:
    """The shape of a model.

    heads, key_heads, head: the number of heads of queries, the number of heads of keys and values, and the width of a
    head. inner: the width inside the feed-forward layer. positions: the most positions that the model is made for.
    eps: what a norm adds to the mean square. theta, scaling: the base and the scaling of the angles. tied: the output
    matrix is the embedding. biases: q, k and v have biases. head_norms: each head of queries and keys is normalised
    before it is rotated. ends: the tokens that end a text.
    """

    hidden: int
    layers: int
    heads: int
    key_heads: int
    head: int
    inner: int
    vocabulary: int
    positions: int
    eps: float = 1e-5
    theta: float = 10000.0
    scaling: Scaling | None = None
    tied: bool = False
    biases: bool = False
    head_norms: bool = False
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in (*COUNTS.values(), "key_heads", "head"):
            check_count(name, getattr(self, name))
        for name in ("eps", "theta"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        for name in ("tied", "biases", "head_norms"):
            flag(name, getattr(self, name))
        if self.heads % self.key_heads:
            raise ArgumentError(
                "the number of heads of queries must be a multiple of that of keys, "
                f"not {self.heads} and {self.key_heads}"
            )
        if self.head % 2:
            raise ArgumentError(f"the width of a head must be even, not {self.head}")

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> Config:
        """The configuration of the checkpoint in a folder: config.json, and the ends of generation_config.json too."""
        path = Path(folder) / "config.json"
        data = read_json(path)
        generation = path.with_name("generation_config.json")
        more = read_json(generation) if generation.exists() else {}
        try:
            ends = dict.fromkeys(ends_of(data) + ends_of(more))
            return Config.of(data | {"eos_token_id": list(ends)})
        except ArgumentError as fault:
            raise ArgumentError(f"{path}: {fault.message}", help=fault.help) from None

    @staticmethod
    def of(data: Mapping[str, Any]) -> Config:
        """The configuration that the keys of a config.json of Hugging Face state."""
        fields = fields_of(data)
        scaling = fields.pop("scaling")
        return Config(**fields, scaling=None if scaling is None else Scaling(**scaling))

    def as_dict(self) -> dict[str, Any]:
        """The configuration with the keys of config.json, from which `Config.of` makes it again."""
        own = {"biases": self.biases, "head_norms": self.head_norms}
        has = {name: value for name, value in own.items() if value}
        kind = next((kind for kind, with_ in TYPES.items() if with_ == has), None)
        if kind is None:
            raise ArgumentError("no type of model in Hugging Face has both biases and head norms")
        scaling = None if self.scaling is None else {"rope_type": "llama3", **asdict(self.scaling)}
        return {
            "architectures": [f"{kind.capitalize()}ForCausalLM"],
            "model_type": kind,
            **{key: getattr(self, field) for key, field in COUNTS.items()},
            "num_key_value_heads": self.key_heads,
            "head_dim": self.head,
            "hidden_act": "silu",
            "rms_norm_eps": self.eps,
            "rope_theta": self.theta,
            "rope_scaling": scaling,
            "tie_word_embeddings": self.tied,
            "eos_token_id": list(self.ends) or None,
            "torch_dtype": "bfloat16",
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors of a checkpoint, by their names in Hugging Face."""
        layer = self._layer()
        layers = {
            f"model.layers.{n}.{name}": shape
            for n in range(self.layers)
            for name, shape in layer.items()
        }
        table = (self.vocabulary, self.hidden)
        return {
            "model.embed_tokens.weight": table,
            **layers,
            "model.norm.weight": (self.hidden,),
            **({} if self.tied else {"lm_head.weight": table}),
        }

    def _layer(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors of a layer."""
        hidden, inner, wide = self.hidden, self.inner, self.heads * self.head
        rows = {"q": wide, "k": self.key_heads * self.head, "v": self.key_heads * self.head}
        biases = rows if self.biases else {}
        norms = "qk" if self.head_norms else ""
        return {
            "input_layernorm.weight": (hidden,),
            **{f"self_attn.{x}_proj.weight": (n, hidden) for x, n in rows.items()},
            **{f"self_attn.{x}_proj.bias": (n,) for x, n in biases.items()},
            **{f"self_attn.{x}_norm.weight": (self.head,) for x in norms},
            "self_attn.o_proj.weight": (hidden, wide),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }

    def angles(self, capacity: int) -> np.ndarray:
        """For each position below the capacity the cosines and then the sines of its angles, in float32.

        Angle i of position p is p theta^(-2i / head), for i below head / 2; `scaling` changes the frequencies. They are
        computed in float64 and rounded once.
        """
        check_count("capacity", capacity)
        frequencies = self.theta ** -(np.arange(0, self.head, 2) / self.head)
        if self.scaling is not None:
            frequencies = self.scaling.of(frequencies)
        angles = np.arange(capacity)[:, None] * frequencies
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _llama(factor: float, **sizes: Any) -> Config:
    """A Llama of the releases 3.1 and 3.2."""
    scaling = Scaling(factor, 1.0, 4.0, 8192)
    shared: dict[str, Any] = {
        "key_heads": 8,
        "vocabulary": 128256,
        "positions": 131072,
        "theta": 500000.0,
    }
    return Config(**shared, **sizes, scaling=scaling, ends=(128001,))


# Configurations by name, for models with random weights: those of Llama-3.2-1B, Llama-3.1-8B and Qwen3-0.6B, and a
# small one.
NAMED: dict[str, Config] = {
    "llama-1b": _llama(32.0, hidden=2048, layers=16, heads=32, head=64, inner=8192, tied=True),
    "llama-8b": _llama(8.0, hidden=4096, layers=32, heads=32, head=128, inner=14336),
    "qwen-0.6b": Config(
        hidden=1024,
        layers=28,
        heads=16,
        key_heads=8,
        head=128,
        inner=3072,
        vocabulary=151936,
        positions=40960,
        eps=1e-6,
        theta=1000000.0,
        tied=True,
        head_norms=True,
        ends=(151645, 151643),
    ),
    "tiny": Config(
        hidden=192,
        layers=2,
        heads=4,
        key_heads=2,
        head=64,
        inner=320,
        vocabulary=300,
        positions=2048,
        tied=True,
    ),
}
