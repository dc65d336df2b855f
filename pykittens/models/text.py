"""Text and tokens: the tokenizer of a model, numbers if it has none, and a decoder for tokens as they come."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pykittens.errors import ArgumentError

FILE = "tokenizer.json"
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # decoders write it for bytes that are no UTF-8
_PARTIAL = 3  # the most bytes of an incomplete character


class Text:
    """A tokenizer, `tokenizer.json` of a model's folder, read by the package `tokenizers`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()

    @staticmethod
    def read(folder: str | Path) -> Text:
        """The tokenizer of a folder."""
        file = Path(folder) / FILE
        if not file.is_file():
            raise _no_tokenizer(Path(folder))
        try:
            tokenizers: Any = importlib.import_module("tokenizers")
        except ImportError:
            raise ArgumentError(
                f"{file} is read by the package `tokenizers`, which is not installed",
                help="pip install tokenizers",
            ) from None
        try:
            return Text(tokenizers.Tokenizer.from_file(str(file)))
        except Exception as error:  # tokenizers raises no other class
            raise ArgumentError(f"{file} is not a tokenizer: {error}") from None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with the special tokens that the tokenizer adds, such as one for the begin."""
        return self._encoded(text, add_special_tokens=True)

    def encode_plain(self, text: str) -> list[int]:
        """The tokens of a text without special ones: where the text has the name of one, it is text as well."""
        self._tokenizer.encode_special_tokens = True
        try:
            return self._encoded(text, add_special_tokens=False)
        finally:
            self._tokenizer.encode_special_tokens = False

    def _encoded(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids = self._tokenizer.encode(_valid(text), add_special_tokens=add_special_tokens).ids
        return [int(token) for token in ids]

    def token(self, name: str) -> int | None:
        """The token of this name, such as "<|im_end|>"; None if there is none."""
        found = self._tokenizer.token_to_id(name)
        return None if found is None else int(found)

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens, without the special ones."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def decoder(self) -> Decoder:
        """A decoder for the tokens of one text."""
        return Decoder(self.decode)


class Numbers:
    """What stands for a tokenizer if there is none: bytes modulo the vocabulary as tokens, tokens as numbers."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        """The bytes of a text in UTF-8, modulo the vocabulary."""
        return [byte % self.vocabulary for byte in _valid(text).encode()]

    def decode(self, tokens: list[int]) -> str:
        """The tokens as numbers with spaces between them."""
        return " ".join(map(str, tokens))

    def decoder(self) -> Decoder:
        """A decoder for the tokens of one text."""
        return Decoder(self.decode)


class Decoder:
    """The text of tokens as they come: `feed` returns the characters that a token completes, `finish` what is left.

    The text of a token depends on those before it: a tokenizer may cut a character into several tokens, and some write
    the space between two words only if both are there. So the tokens of the last characters are decoded again together
    with the next token.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._context = 0  # tokens at the begin of the window whose text was returned
        self._returned = ""  # the text of the window that was returned

    def feed(self, token: int) -> str:
        """The characters that are complete with this token."""
        self._window.append(token)
        text = self._decode(self._window)
        complete = _complete(text)
        # If not, a tokenizer that decodes runs of bytes writes a run in full as unknown until it is complete.
        if not complete.startswith(self._returned):
            return ""
        new = complete[len(self._returned) :]
        self._returned = complete
        if new and complete == text:
            del self._window[: self._context]
            self._context = len(self._window)
            self._returned = self._decode(self._window)
        return new

    def finish(self) -> str:
        """The text that is left, in which an incomplete character is U+FFFD."""
        text = self._decode(self._window)
        is_longer = text.startswith(self._returned)
        return text[len(self._returned) :] if is_longer else _UNKNOWN


def _complete(text: str) -> str:
    """A text without those characters at its end that may stand for the first bytes of a longer character."""
    for _ in range(_PARTIAL):
        text = text.removesuffix(_UNKNOWN)
    return text


def _valid(text: str) -> str:
    """A text that UTF-8 can express: a byte of a command line that is no UTF-8 comes as a lone surrogate."""
    return text.encode(errors="replace").decode()


def _no_tokenizer(folder: Path) -> ArgumentError:
    """The error for a folder without a tokenizer that can be read."""
    if not folder.is_dir():
        return ArgumentError(f"there is no folder {folder}")
    others = [f for f in ("tokenizer.model", "vocab.json", "vocab.txt") if (folder / f).is_file()]
    if not others:
        return ArgumentError(
            f"{folder} has no {FILE}", help="copy it from where the model comes from"
        )
    return ArgumentError(
        f"{folder} has no {FILE}, and {others[0]} is not read",
        help=f"transformers writes it: AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained(...)",
    )
