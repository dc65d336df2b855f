"""`pykittens generate`: continues a text with a language model, or chats with it on the terminal."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from pykittens.cli import replies
from pykittens.errors import ArgumentError, BackendError
from pykittens.models.chat import format_of
from pykittens.models.generate import check_limit, check_prompt, generate
from pykittens.models.sampling import check_sampling
from pykittens.models.text import Numbers, Text
from pykittens.runtime import driver

LIMIT = 256  # tokens of a text that continues a prompt
CAPACITY = 4096  # positions, if the model has so many
# The option, its letter, its type and its help.
OPTIONS: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("--limit", "N", int, f"the most new tokens; the default is {LIMIT}, or none in a chat"),
    ("--temperature", "T", float, "0, the default, takes the most likely token; 1 draws one"),
    ("--top-p", "P", float, "draw from the most likely tokens that have this probability together"),
    ("--seed", "S", int, "the same seed draws the same tokens"),
    ("--capacity", "N", int, f"positions of the cache; the default is {CAPACITY}, if the model has as many"),
    ("--device", "D", str, "cuda, cuda:1 or cpu, the emulator; the default is cuda if there is a GPU"),
)  # fmt: skip
_SEED = 0  # of random weights
_DEVICES = re.compile(r"cpu|cuda(:\d+)?")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "generate",
        help="continue a text with a language model, or chat with it",
        description="Continue a text with the model of a folder, which has config.json, *.safetensors and "
        "tokenizer.json, and print the new text as it comes. Without --prompt, the text to continue is read from a "
        "pipe. With --chat, answer the lines of the terminal: Ctrl-C stops a reply, an empty line the chat.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("model", nargs="?", metavar="MODEL_DIR", help="the folder of the model")
    which.add_argument(
        "--random",
        metavar="NAME",
        help="random weights in the shape of this model, such as llama-1b. The tokens of the prompt are its bytes, "
        "modulo the vocabulary, and new tokens are printed as numbers",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--prompt", metavar="TEXT", help="the text to continue; - reads it from stdin"
    )
    what.add_argument("--chat", action="store_true", help="answer one line after another")
    for option, letter, kind, help in OPTIONS:
        parser.add_argument(option, type=kind, metavar=letter, help=help)
    parser.set_defaults(run=run, temperature=0.0, top_p=1.0)


def run(parsed: argparse.Namespace) -> int:
    """Generate; whatever can be wrong with the options is found before the weights are read."""
    check_limit(parsed.limit)
    check_sampling(parsed.temperature, parsed.top_p, parsed.seed)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    device = _device(parsed.device)
    config = _config(parsed)
    capacity = _capacity(parsed.capacity, config.positions)
    options = {"temperature": parsed.temperature, "top_p": parsed.top_p}
    text = Numbers(config.vocabulary) if parsed.random is not None else Text.read(parsed.model)
    if parsed.chat:
        if isinstance(text, Numbers):
            raise ArgumentError("a model with random weights cannot chat", help="--prompt TEXT")
        form = format_of(text)
        model = _loaded(parsed, config, capacity, device)
        random = np.random.default_rng(parsed.seed)  # each reply goes on drawing
        replies.chat(model, text, form, limit=parsed.limit, seed=random, **options)
        return 0
    tokens = check_prompt(text.encode(_prompt(parsed.prompt)), config.vocabulary, capacity)
    model = _loaded(parsed, config, capacity, device)
    limit = LIMIT if parsed.limit is None else parsed.limit
    generation = generate(model, tokens, limit=limit, seed=parsed.seed, **options)
    _, is_stopped = replies.print_text(generation, text.decoder())
    if is_stopped:
        raise KeyboardInterrupt
    return 0


def _device(given: str | None) -> str:
    missing = driver.available()
    if given is None:
        return "cpu" if missing else "cuda"
    if not _DEVICES.fullmatch(given):
        raise ArgumentError(f"there is no device {given}", help="cuda, cuda:1 or cpu")
    if missing and given != "cpu":
        raise BackendError(f"there is no GPU: {missing}", help="--device cpu runs the emulator")
    return given


def _capacity(given: int | None, positions: int) -> int:
    if given is None:
        return min(CAPACITY, positions)
    if not 1 <= given <= positions:
        raise ArgumentError(
            f"--capacity must be from 1 to {positions}, the positions of the model, not {given}"
        )
    return given


def _prompt(given: str | None) -> str:
    """The text to continue; the line end after a text from stdin does not belong to it."""
    if given not in (None, "-"):
        return given
    if given is None and sys.stdin.isatty():
        raise ArgumentError("there is no text to continue", help="--prompt TEXT, --chat, or a pipe")
    return sys.stdin.read().removesuffix("\n")


def _config(parsed: argparse.Namespace) -> Any:
    """The configuration of the model."""
    module: Any = importlib.import_module("pykittens.models.config")
    if parsed.random is None:
        return module.Config.read(parsed.model)
    if parsed.random not in module.NAMED:
        known = ", ".join(module.NAMED)
        raise ArgumentError(f"no model is named {parsed.random}", help=f"there are {known}")
    return module.NAMED[parsed.random]


def _loaded(parsed: argparse.Namespace, config: Any, capacity: int, device: str) -> Any:
    """The model with its weights on the device."""
    checkpoint: Any = importlib.import_module("pykittens.models.checkpoint")
    llama: Any = importlib.import_module("pykittens.models.llama")
    with _progress(f"loading {parsed.random or parsed.model}"):
        if parsed.random is None:
            weights = checkpoint.read(parsed.model, config, device)
        else:
            weights = checkpoint.random_weights(config, _SEED, device)
        return llama.Llama(config, weights, capacity=capacity)


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    """What happens, on stderr if it is a terminal."""
    console = Console(stderr=True)
    with console.status(escape(what)) if console.is_terminal else contextlib.nullcontext():
        yield
