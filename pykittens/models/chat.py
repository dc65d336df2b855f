"""Prompts for chats, in formats that are built in: that of Llama 3, and ChatML, which Qwen uses.

The chat template in the folder of a model is a program in Jinja, and such programs are not executed. A format is chosen
by the special tokens of the tokenizer instead. It adds no system message of its own: some templates add one, such as
that of Llama 3.1 with the date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pykittens.errors import ArgumentError
from pykittens.models.text import Text

Role = Literal["system", "user", "assistant"]


class Message(NamedTuple):
    """One message of a chat."""

    role: Role
    content: str


class Special(str):
    """The name of a special token; all other text of a prompt, whatever it says, has no special tokens."""


Piece = Special | str


def _llama3(messages: Sequence[Message]) -> Iterator[Piece]:
    yield Special("<|begin_of_text|>")
    for message in messages:
        yield from _header(message.role, message.content.strip())
        yield Special("<|eot_id|>")
    yield from _header("assistant", "")


def _header(role: Role, content: str) -> Iterator[Piece]:
    yield Special("<|start_header_id|>")
    yield role
    yield Special("<|end_header_id|>")
    yield f"\n\n{content}"


def _chatml(messages: Sequence[Message]) -> Iterator[Piece]:
    for role, content in messages:
        if role == "assistant":  # the model does not see again what it thought before a reply
            content = content.rpartition("</think>")[2].lstrip("\n")
        yield Special("<|im_start|>")
        yield f"{role}\n{content}"
        yield Special("<|im_end|>")
        yield "\n"
    yield Special("<|im_start|>")
    yield "assistant\n"


@dataclass(frozen=True)
class Format:
    """A format of chats: its special tokens, of which `end` ends a reply, and the pieces of a prompt."""

    name: str
    specials: tuple[str, ...]
    end: str
    pieces: Callable[[Sequence[Message]], Iterator[Piece]]

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt for the next reply, as text."""
        return "".join(self.pieces(messages))

    def encode(self, text: Text, messages: Sequence[Message]) -> list[int]:
        """The prompt for the next reply, as tokens."""
        tokens: list[int] = []
        for piece in self.pieces(messages):
            if isinstance(piece, Special):
                token = text.token(piece)
                assert token is not None, f"{piece} is in `specials`"
                tokens.append(token)
            else:
                tokens += text.encode_plain(piece)
        return tokens


LLAMA3 = Format(
    "Llama 3",
    ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "<|eot_id|>",
    _llama3,
)
CHATML = Format("ChatML", ("<|im_start|>", "<|im_end|>"), "<|im_end|>", _chatml)
FORMATS = (LLAMA3, CHATML)


def format_of(text: Text) -> Format:
    """The format whose special tokens the tokenizer has."""
    for found in FORMATS:
        if all(text.token(name) is not None for name in found.specials):
            return found
    known = "; ".join(f"{f.name}: {' '.join(f.specials)}" for f in FORMATS)
    raise ArgumentError(
        f"the tokenizer has the special tokens of no chat format that is built in ({known})",
        help="give the model a prompt in its own format with --prompt",
    )
