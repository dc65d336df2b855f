"""Loads a model: its configuration, its weights, and the program of a token."""

from __future__ import annotations

import os

from pykittens.errors import ArgumentError
from pykittens.models.checkpoint import random_weights, read
from pykittens.models.config import NAMED, Config
from pykittens.models.llama import Llama

CAPACITY = 4096  # positions of the cache, if the model has so many


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    random: str | None = None,
    capacity: int | None = None,
    batch: int = 1,
    device: str | None = None,
    seed: int = 0,
) -> Llama:
    """The model of a checkpoint of Hugging Face, a folder with config.json and *.safetensors.

    random: the name of a shape in place of a folder, "llama-1b", "llama-8b", "qwen-0.6b" or "tiny", with random weights
    of this seed. capacity: positions of the cache, by default 4096 or what the model has. batch: sequences of a step,
    1, 2, 4 or 8. device: "cuda:1" or "cpu", by default the current GPU if there is one. What is wrong with a checkpoint
    is an ArgumentError before anything runs.
    """
    if (folder is None) == (random is None):
        raise ArgumentError("load takes a folder, or `random`, the name of a shape")
    if random is not None and random not in NAMED:
        raise ArgumentError(
            f"`random` must be one of {', '.join(map(repr, NAMED))}, not {random!r}"
        )
    config = Config.read(folder) if folder is not None else NAMED[str(random)]
    weights = (
        read(folder, config, device) if folder is not None else random_weights(config, seed, device)
    )
    capacity = min(CAPACITY, config.positions) if capacity is None else capacity
    return Llama(config, weights, capacity, batch=batch)
