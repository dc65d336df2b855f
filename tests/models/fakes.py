"""A model that stands for a loaded one: its logits follow from a table, and its calls are recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FakeConfig:
    """What generation and the command read of a configuration."""

    vocabulary: int = 300
    positions: int = 64
    ends: tuple[int, ...] = (0,)


class FakeModel:
    """After the token t, the logits are those of row t of a table."""

    def __init__(self, table: np.ndarray, capacity: int = 32, ends: tuple[int, ...] = (0,)) -> None:
        self.config = FakeConfig(len(table), ends=ends)
        self.capacity = capacity
        self.table = table
        self.prompts: list[list[int]] = []
        self.steps: list[tuple[int, int]] = []

    def prefill(self, tokens):
        self.prompts.append([*tokens])
        self.last = tokens[-1]
        return self.logits()

    def step(self, token, position):
        self.steps.append((token, position))
        self.last = token
        return int(self.logits().argmax())

    def logits(self):
        return self.table[self.last].astype(np.float32)


def chain(*texts: list[int], vocabulary: int = 300) -> np.ndarray:
    """The table with which each token of a text is followed by the next; the last one, and others, by token 0."""
    table = np.zeros((vocabulary, vocabulary), np.float32)
    table[:, 0] = 1
    for text in texts:
        for token, following in zip(text, text[1:], strict=False):
            table[token, following] = 2
    return table
