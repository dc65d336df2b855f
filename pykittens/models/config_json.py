"""config.json of Hugging Face: the fields of a configuration by its keys, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_count
from pykittens.ir.values import describe

# The types of models, and what sets each apart.
TYPES: dict[str, dict[str, bool]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"biases": True},
    "qwen3": {"head_norms": True},
}
# Fields of a configuration by the keys that every file has.
COUNTS = {
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "inner",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "positions",
}
# The keys that may have one value only, which is also the default, and why.
_ONLY: dict[str, tuple[object, str]] = {
    "hidden_act": ("silu", "the feed-forward layer gates with silu"),
    "attention_bias": (
        False,
        "of the projections of attention only q, k and v of Qwen 2 have biases",
    ),
    "mlp_bias": (False, "the feed-forward layer has no biases"),
    "use_sliding_window": (False, "attention sees all earlier positions"),
    "quantization_config": (None, "weights are bf16; take the checkpoint that was quantised"),
    "partial_rotary_factor": (1.0, "all of a head is rotated"),
}
_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_WINDOW = 4096  # of a Mistral whose file does not state it, in Hugging Face


def check_folder(folder: Path) -> None:
    """Raise unless it is there."""
    if not folder.is_dir():
        raise ArgumentError(
            f"there is no folder {folder}",
            help="a model of Hugging Face is downloaded by `hf download NAME --local-dir FOLDER`",
        )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON."""
    check_folder(path.parent)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArgumentError(f"{path.parent} has no file {path.name}") from None
    except (OSError, ValueError, RecursionError) as fault:
        raise ArgumentError(f"{path} cannot be read as JSON: {fault}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"{path} must hold a JSON object, not {describe(found)}")
    return found


def fields_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a configuration that the keys of config.json state; `scaling` is a dict or None."""
    kind = _stated(data, "model_type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ArgumentError(
            f"`model_type` must be {', '.join(TYPES)}, not {describe(kind)}: other models compute something else"
        )
    rope = _rope(data)
    _check_supported({**rope, **data}, kind)
    for key in COUNTS:
        check_count(key, _stated(data, key))
    theta = rope.get("rope_theta", data.get("rope_theta", 10000.0))
    return {
        **{field: data[key] for key, field in COUNTS.items()},
        **_heads(data, kind),
        **TYPES[kind],
        "eps": positive("rms_norm_eps", _stated(data, "rms_norm_eps")),
        "theta": positive("rope_theta", theta),
        "scaling": _scaling(rope),
        "tied": flag("tie_word_embeddings", data.get("tie_word_embeddings", False)),
        "ends": ends_of(data),
    }


def ends_of(data: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that end a text: none, one or a list."""
    found = data.get("eos_token_id")
    ends = [] if found is None else found if isinstance(found, list) else [found]
    for end in ends:
        check_count("eos_token_id", end, 0)
    return tuple(ends)


def positive(key: str, value: Any) -> float:
    """The number as a float, if it is finite and above 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise ArgumentError(f"`{key}` must be a finite number above 0, not {describe(value)}")
    return float(value)


def flag(key: str, value: Any) -> bool:
    """The value, if it is a bool."""
    if not isinstance(value, bool):
        raise ArgumentError(f"`{key}` must be true or false, not {describe(value)}")
    return value


def _stated(data: Mapping[str, Any], key: str) -> Any:
    if key not in data:
        raise ArgumentError(f"`{key}` is missing")
    return data[key]


def _check_supported(data: Mapping[str, Any], kind: str) -> None:
    """Raise if a key asks for what is not computed."""
    for key, (only, why) in _ONLY.items():
        value = data.get(key)
        ignored = key == "attention_bias" and kind == "qwen2"
        if value is not None and value != only and not ignored:
            text = json.dumps(value)
            shown = text if len(text) <= 60 else f"{text[:60]}..."
            raise ArgumentError(f"`{key}` of {shown} is not supported: {why}")
    window = data.get("sliding_window", _WINDOW) if kind == "mistral" else None
    positions = _stated(data, "max_position_embeddings")
    check_count("max_position_embeddings", positions)
    if window is not None:
        check_count("sliding_window", window)
        if window < positions:
            raise ArgumentError(
                f"`sliding_window` of {window} is not supported if the model has {positions} positions: "
                "attention sees all earlier positions"
            )
    layers = data.get("layer_types")
    if layers is not None and (
        not isinstance(layers, list) or set(map(str, layers)) - {"full_attention"}
    ):
        raise ArgumentError(
            "`layer_types` must be full_attention for all layers: other kinds of layers are not supported"
        )


def _heads(data: Mapping[str, Any], kind: str) -> dict[str, int]:
    """The heads of keys and the width of a head, which the files of some models leave out."""
    heads, hidden = data["num_attention_heads"], data["hidden_size"]
    # In Hugging Face the defaults of the other types are those of one size of model.
    keys = (
        data.get("num_key_value_heads") if kind == "llama" else _stated(data, "num_key_value_heads")
    )
    head = _stated(data, "head_dim") if kind == "qwen3" else data.get("head_dim")
    if head is None and hidden % heads:
        raise ArgumentError(
            "`head_dim` is missing, so `hidden_size` must be a multiple of `num_attention_heads`, "
            f"not {hidden} and {heads}"
        )
    keys, head = heads if keys is None else keys, hidden // heads if head is None else head
    check_count("num_key_value_heads", keys)
    check_count("head_dim", head)
    return {"key_heads": keys, "head": head}


def _rope(data: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of rotation: `rope_parameters` in files of transformers 5, otherwise `rope_scaling`."""
    for key in ("rope_parameters", "rope_scaling"):
        if (found := data.get(key)) is not None:
            if not isinstance(found, dict):
                raise ArgumentError(f"`{key}` must be an object, not {describe(found)}")
            if any(isinstance(value, dict) for value in found.values()):
                raise ArgumentError(
                    f"`{key}` must be the same for all layers, not one for each kind"
                )
            return found
    return {}


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "llama3"):
        raise ArgumentError(
            f"`rope_type` must be default or llama3, not {describe(kind)}: "
            "other scalings of the angles are not supported"
        )
    return None if kind == "default" else {key: _stated(rope, key) for key in _SCALING}
