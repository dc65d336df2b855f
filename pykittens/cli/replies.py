"""Text on the terminal as a model generates it, what it took, and a chat line by line."""

from __future__ import annotations

import sys
from typing import Any

from rich import text
from rich.console import Console

from pykittens.models.chat import Format, Message
from pykittens.models.generate import Generation, Model, generate
from pykittens.models.text import Decoder, Text

_STOPS = {"limit": "stopped at the limit", "capacity": "stopped because the cache is full"}


def print_text(generation: Generation, decoder: Decoder) -> tuple[str, bool]:
    """Print the text as it comes, and a summary on stderr; returns the text, and whether Ctrl-C stopped it."""
    parts = []
    is_stopped = False
    try:
        for token in generation:
            parts.append(decoder.feed(token))
            print(parts[-1], end="", flush=True)
    except KeyboardInterrupt:
        is_stopped = True
    parts.append(decoder.finish())
    print(parts[-1], flush=True)
    Console(stderr=True).print(text.Text(summary(generation), style="dim"), soft_wrap=True)
    return "".join(parts), is_stopped


def summary(generation: Generation) -> str:
    """The tokens of the prompt and of the text, the time or rate of each, and why the text is no longer."""
    prompt = f"prompt of {_tokens(len(generation.prompt))} in {generation.prompt_seconds:.3g} s"
    rate = "" if generation.rate is None else f" at {generation.rate:.1f} tokens/s"
    parts = [prompt, _tokens(generation.count) + rate]
    if generation.stopped in _STOPS:
        parts.append(_STOPS[generation.stopped])
    return ", ".join(parts)


def _tokens(count: int) -> str:
    return f"{count} token{'s' * (count != 1)}"


def chat(model: Model, text: Text, form: Format, **options: Any) -> None:
    """Answer lines until one is empty; Ctrl-C stops a reply, or the chat if there is no reply to stop."""
    end = text.token(form.end)
    assert end is not None, "the format was chosen by its tokens"
    messages: list[Message] = []
    while line := _line():
        messages.append(Message("user", line))
        prompt = form.encode(text, messages)
        generation = generate(model, prompt, ends=(*model.config.ends, end), **options)
        reply, _ = print_text(generation, text.decoder())
        messages.append(Message("assistant", reply))


def _line() -> str:
    """The next line; an empty one if there is none, or for Ctrl-C."""
    is_terminal = sys.stdin.isatty()
    try:
        return input("> " if is_terminal else "").strip()
    except (EOFError, KeyboardInterrupt):
        if is_terminal:
            print()
        return ""
