"""The tokenizer of tests/models/tiny: byte pairs of a few sentences, in about 300 tokens with <|end|>."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "tiny" / "tokenizer.json"
END = "<|end|>"
SENTENCES = (
    "The cat sat on the mat, and the kitten sat on the cat.",
    "A warp loads a tile, a warpgroup multiplies it, and another warp stores the result.",
    "Once upon a time there was a kernel that waited for a barrier.",
    "Grüße aus Köln: 3 × 4 = 12 €, 你好, 🐈!",
)


def made(*specials: str) -> Any:
    """The tokenizer, and with `specials` one that has these special tokens as well."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_special_tokens([*specials])
    return tokenizer


def write() -> None:
    """Write the file."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(made().to_str(pretty=True) + "\n", encoding="utf-8")
