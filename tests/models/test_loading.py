"""A model is loaded by its folder, or made at random by its name."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.models import load
from pykittens.models.checkpoint import random_weights, write
from pykittens.models.config import NAMED


def test_a_model_is_loaded_from_its_folder(tmp_path):
    pytest.importorskip("safetensors", reason="the package `safetensors` is not installed")
    config = NAMED["tiny"]
    write(tmp_path, config, random_weights(config, 3, "cpu"))
    saved = load(tmp_path, capacity=8, device="cpu")
    made = load(random="tiny", capacity=8, device="cpu", seed=3)
    assert saved.config == config
    assert saved.capacity == 8
    logits = [model.prefill([7, 250, 1]) for model in (saved, made)]
    np.testing.assert_array_equal(*logits)
    assert 1 < np.std(logits[0]) < 6
    assert saved.step(5, 3) == made.step(5, 3)


def test_what_is_loaded_must_be_one_thing():
    with pytest.raises(ArgumentError, match="a folder, or `random`"):
        load()
    with pytest.raises(ArgumentError, match="a folder, or `random`"):
        load("somewhere", random="tiny")
    with pytest.raises(ArgumentError, match="`random` must be one of 'llama-1b'.*, not 'gpt'"):
        load(random="gpt")
    with pytest.raises(ArgumentError, match="somewhere"):
        load("somewhere")
