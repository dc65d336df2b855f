"""What config.json of Hugging Face may state, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from pykittens.models.config import NAMED, Config, Scaling
from tests.refusals import refused

ABSENT = "absent"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 320,
    "vocab_size": 300,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
PLAIN = NAMED["tiny"]
FOUR = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
MISTRAL = {"model_type": "mistral", "sliding_window": None}
QWEN2 = {"model_type": "qwen2"}
QWEN3 = {"model_type": "qwen3"}


def of(**changes: object) -> Config:
    data = {key: value for key, value in (LLAMA | changes).items() if value != ABSENT}
    return Config.of(data)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, {}),
        (MISTRAL, {}),
        (MISTRAL | {"sliding_window": 2048}, {}),
        (QWEN2, {"biases": True}),
        (QWEN2 | {"attention_bias": True}, {"biases": True}),
        (QWEN2 | {"sliding_window": 100, "use_sliding_window": False}, {"biases": True}),
        (QWEN3 | {"layer_types": ["full_attention"] * 2}, {"head_norms": True}),
        ({"num_key_value_heads": ABSENT}, {"key_heads": 4}),
        ({"num_key_value_heads": None}, {"key_heads": 4}),
        ({"head_dim": ABSENT}, {"head": 48}),
        (QWEN3 | {"head_dim": None}, {"head_norms": True, "head": 48}),
        ({"tie_word_embeddings": ABSENT}, {"tied": False}),
        ({"rms_norm_eps": 1}, {"eps": 1.0}),
        ({"eos_token_id": None}, {"ends": ()}),
        ({"eos_token_id": 0}, {"ends": (0,)}),
        ({"eos_token_id": [3, 2]}, {"ends": (3, 2)}),
        ({"hidden_act": "silu", "attention_bias": False, "mlp_bias": None}, {}),
        ({"partial_rotary_factor": 1}, {}),
        ({"rope_theta": 500000}, {"theta": 500000.0}),
        ({"rope_scaling": {"type": "default"}}, {}),
        ({"rope_scaling": FOUR | {"rope_type": "llama3"}}, {"scaling": Scaling(**FOUR)}),
        ({"rope_scaling": FOUR | {"type": "llama3"}}, {"scaling": Scaling(**FOUR)}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, {"theta": 7.0}),
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 7.0}, {"theta": 7.0}),
        (
            {"rope_parameters": FOUR | {"rope_type": "llama3", "rope_theta": 5e5}},
            {"theta": 5e5, "scaling": Scaling(**FOUR)},
        ),
    ],
    ids=str,
)
def test_keys_state_fields(changes: dict[str, object], fields: dict[str, object]) -> None:
    assert of(**changes) == dataclasses.replace(PLAIN, **fields)


@pytest.mark.parametrize("key", [key for key in LLAMA if key != "tie_word_embeddings"])
def test_missing_and_wrong_keys_are_named(key: str) -> None:
    optional = key in ("num_key_value_heads", "head_dim")
    if not optional:
        with refused(f"^`{key}` is missing\n"):
            of(**{key: ABSENT})
    with refused(f"^`{key}` must be .*, not 'x'"):
        of(**{key: "x"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "gemma"},
            "must be llama, mistral, qwen2, qwen3, not 'gemma': other models",
        ),
        ({"model_type": ["llama"]}, "`model_type` must be .*, not a list"),
        ({"hidden_act": "gelu"}, '`hidden_act` of "gelu" is not supported: the feed-forward layer'),
        ({"attention_bias": True}, "`attention_bias` of true is not supported: of the projections"),
        (QWEN3 | {"attention_bias": True}, "`attention_bias` of true is not supported"),
        ({"mlp_bias": True}, "`mlp_bias` of true is not supported: the feed-forward layer has no"),
        (
            QWEN2 | {"use_sliding_window": True},
            "`use_sliding_window` of true is not supported: att",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4, "modules": ["x"] * 30}},
            r'`quantization_config` of {"quant_method": "gptq", .*\.\.\. is not supported: weights',
        ),
        ({"partial_rotary_factor": 0.5}, r"`partial_rotary_factor` of 0\.5 is not supported: all"),
        (
            {"rope_parameters": {"rope_theta": 1.0, "partial_rotary_factor": 0.5}},
            r"`partial_rotary_factor` of 0\.5 is not supported",
        ),
        (MISTRAL | {"sliding_window": 1024}, "`sliding_window` of 1024 is .* has 2048 positions"),
        (MISTRAL | {"sliding_window": "x"}, "`sliding_window` must be an int of at least 1"),
        (
            {"model_type": "mistral", "max_position_embeddings": 8192},
            "`sliding_window` of 4096 is not supported if the model has 8192 positions",
        ),
        (
            QWEN3 | {"layer_types": ["full_attention", "sliding_attention"]},
            "`layer_types` must be full_attention for all layers",
        ),
        ({"layer_types": "full"}, "`layer_types` must be full_attention for all layers"),
        ({"num_key_value_heads": 3}, "must be a multiple of that of keys, not 4 and 3"),
        ({"num_attention_heads": 5, "head_dim": None}, "`head_dim` is missing, .* not 192 and 5"),
        (QWEN2 | {"num_key_value_heads": ABSENT}, "`num_key_value_heads` is missing"),
        (QWEN3 | {"head_dim": ABSENT}, "`head_dim` is missing"),
        ({"hidden_size": True}, "`hidden_size` must be an int of at least 1, not True"),
        ({"hidden_size": 192.0}, r"`hidden_size` must be an int of at least 1, not 192\.0"),
        ({"rms_norm_eps": -1}, "`rms_norm_eps` must be a finite number above 0, not -1"),
        ({"rms_norm_eps": True}, "`rms_norm_eps` must be a finite number above 0, not True"),
        ({"rope_theta": float("nan")}, "`rope_theta` must be a finite number above 0, not nan"),
        ({"tie_word_embeddings": "yes"}, "`tie_word_embeddings` must be true or false, not 'yes'"),
        ({"eos_token_id": [1, -1]}, "`eos_token_id` must be an int of at least 0, not -1"),
        ({"eos_token_id": "</s>"}, "`eos_token_id` must be an int of at least 0, not '</s>'"),
        ({"rope_scaling": "llama3"}, "`rope_scaling` must be an object, not 'llama3'"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}},
            "`rope_parameters` must be the same for all layers",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "`rope_type` must be default or llama3, not 'yarn': other scalings",
        ),
        ({"rope_scaling": {"type": ["yarn"]}}, "`rope_type` must be .*, not a list"),
        ({"rope_scaling": {"type": "llama3"}}, "`factor` is missing"),
        (
            {"rope_scaling": FOUR | {"type": "llama3", "factor": "8"}},
            "`factor` must be a finite number above 0, not '8'",
        ),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused(changes: dict[str, object], message: str) -> None:
    with refused(message):
        of(**changes)
