"""Configurations: fields, shapes of tensors, angles, and the files that they are read from."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from pykittens.models.config import NAMED, Config, Scaling
from tests.refusals import refused

TINY = NAMED["tiny"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("llama-1b", 1_235_814_400), ("llama-8b", 8_030_261_248), ("qwen-0.6b", 596_049_920)],
)
def test_published_models_have_their_parameters(name: str, parameters: int) -> None:
    assert sum(math.prod(shape) for shape in NAMED[name].shapes().values()) == parameters


def test_the_tensors_of_a_model() -> None:
    config = dataclasses.replace(TINY, layers=1, tied=False, biases=True, head_norms=True)
    layer = "model.layers.0."
    assert config.shapes() == {
        "model.embed_tokens.weight": (300, 192),
        layer + "input_layernorm.weight": (192,),
        layer + "self_attn.q_proj.weight": (256, 192),
        layer + "self_attn.k_proj.weight": (128, 192),
        layer + "self_attn.v_proj.weight": (128, 192),
        layer + "self_attn.q_proj.bias": (256,),
        layer + "self_attn.k_proj.bias": (128,),
        layer + "self_attn.v_proj.bias": (128,),
        layer + "self_attn.q_norm.weight": (64,),
        layer + "self_attn.k_norm.weight": (64,),
        layer + "self_attn.o_proj.weight": (192, 256),
        layer + "post_attention_layernorm.weight": (192,),
        layer + "mlp.gate_proj.weight": (320, 192),
        layer + "mlp.up_proj.weight": (320, 192),
        layer + "mlp.down_proj.weight": (192, 320),
        "model.norm.weight": (192,),
        "lm_head.weight": (300, 192),
    }
    plain = dataclasses.replace(TINY, layers=1).shapes()
    assert set(config.shapes()) - set(plain) == {
        "lm_head.weight",
        *(f"{layer}self_attn.{x}_proj.bias" for x in "qkv"),
        *(f"{layer}self_attn.{x}_norm.weight" for x in "qk"),
    }


def frequency(config: Config, index: int) -> float:
    """The turns and more of one angle, case by case, as the paper of Llama 3.1 and its code have it."""
    plain = 1.0 / config.theta ** (2 * index / config.head)
    scaling = config.scaling
    if scaling is None:
        return plain
    wavelength = 2 * math.pi / plain
    context = scaling.original_max_position_embeddings
    if wavelength < context / scaling.high_freq_factor:
        return plain
    if wavelength > context / scaling.low_freq_factor:
        return plain / scaling.factor
    smooth = context / wavelength - scaling.low_freq_factor
    smooth /= scaling.high_freq_factor - scaling.low_freq_factor
    return (1 - smooth) * plain / scaling.factor + smooth * plain


@pytest.mark.parametrize("name", NAMED)
def test_angles_are_rounded_once(name: str) -> None:
    config = NAMED[name]
    found = config.angles(3000)
    assert found.shape == (3000, config.head)
    assert found.dtype == np.float32
    frequencies = [frequency(config, i) for i in range(config.head // 2)]
    for position in (0, 1, 17, 2999):
        angles = [position * f for f in frequencies]
        exact = np.array([*map(math.cos, angles), *map(math.sin, angles)])
        # A rounding of float32, and that of an angle of some thousand in float64.
        assert np.abs(found[position] - exact).max() < 2**-25 * (1 + 1e-3)
    assert (found[0] == [1.0] * (config.head // 2) + [0.0] * (config.head // 2)).all()


def test_scaling_has_its_three_cases() -> None:
    config = NAMED["llama-8b"]
    ratios = [
        frequency(config, i) / frequency(dataclasses.replace(config, scaling=None), i)
        for i in range(config.head // 2)
    ]
    assert ratios[0] == 1.0
    assert ratios[-1] == 1 / 8
    assert any(1 / 8 < ratio < 1 for ratio in ratios)


@pytest.mark.parametrize("name", NAMED)
def test_a_configuration_is_read_from_its_keys(name: str) -> None:
    written = json.loads(json.dumps(NAMED[name].as_dict()))
    assert Config.of(written) == NAMED[name]


def test_types_of_models_follow_from_what_sets_them_apart() -> None:
    assert TINY.as_dict()["model_type"] == "llama"
    assert NAMED["qwen-0.6b"].as_dict()["architectures"] == ["Qwen3ForCausalLM"]
    biases = dataclasses.replace(TINY, biases=True)
    assert biases.as_dict()["model_type"] == "qwen2"
    assert Config.of(biases.as_dict()) == biases
    with refused("no type of model in Hugging Face has both biases and head norms"):
        dataclasses.replace(biases, head_norms=True).as_dict()


def write(folder: Path, **files: object) -> Path:
    for name, data in files.items():
        text = data if isinstance(data, str) else json.dumps(data)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def test_ends_of_both_files_are_joined(tmp_path: Path) -> None:
    data = TINY.as_dict()
    assert Config.read(write(tmp_path, config=data)).ends == ()
    assert Config.read(write(tmp_path, config=data | {"eos_token_id": 7})).ends == (7,)
    both = write(tmp_path, generation_config={"eos_token_id": [9, 7, 8]})
    assert Config.read(both).ends == (7, 9, 8)
    assert Config.read(str(both)) == dataclasses.replace(TINY, ends=(7, 9, 8))


def test_faults_of_files_name_the_file(tmp_path: Path) -> None:
    with refused("there is no folder .*missing\n.*hf download NAME"):
        Config.read(tmp_path / "missing")
    with refused(r"has no file config\.json"):
        Config.read(tmp_path)
    with refused(r"config\.json cannot be read as JSON: Expecting"):
        Config.read(write(tmp_path, config="{"))
    with refused(r"config\.json cannot be read as JSON: "):
        Config.read(write(tmp_path, config="[" * 100_000))
    with refused(r"config\.json must hold a JSON object, not a list"):
        Config.read(write(tmp_path, config=[]))
    with refused(r"config\.json: `model_type` is missing"):
        Config.read(write(tmp_path, config={}))
    write(tmp_path, config=TINY.as_dict())
    with refused(r"generation_config\.json cannot be read as JSON"):
        Config.read(write(tmp_path, generation_config=""))
    (tmp_path / "config.json").write_bytes(b"\xff")
    with refused(r"config\.json cannot be read as JSON: 'utf-8'"):
        Config.read(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"hidden": 0}, "`hidden` must be an int of at least 1, not 0"),
        ({"head": 64.0}, r"`head` must be an int of at least 1, not 64\.0"),
        ({"key_heads": True}, "`key_heads` must be an int of at least 1, not True"),
        ({"key_heads": 3}, "heads of queries must be a multiple of that of keys, not 4 and 3"),
        ({"head": 63}, "the width of a head must be even, not 63"),
        ({"eps": "1"}, "`eps` must be a finite number above 0, not '1'"),
        ({"theta": math.inf}, "`theta` must be a finite number above 0, not inf"),
        ({"tied": 1}, "`tied` must be true or false, not 1"),
    ],
)
def test_fields_are_checked(words: dict[str, object], message: str) -> None:
    with refused(message):
        dataclasses.replace(TINY, **words)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 1, 4, 8192), "`factor` must be a finite number above 0, not 0"),
        ((8, 1, 4, 8192.0), r"`original_max_position_embeddings` must be an int .* not 8192\.0"),
        ((8, 4, 4, 8192), r"`high_freq_factor` must be above `low_freq_factor`, not 4\.0 and 4\.0"),
    ],
)
def test_scalings_are_checked(values: tuple[float, float, float, int], message: str) -> None:
    with refused(message):
        Scaling(*values)


def test_a_capacity_is_a_number_of_positions() -> None:
    with refused("`capacity` must be an int of at least 1, not 0"):
        TINY.angles(0)
