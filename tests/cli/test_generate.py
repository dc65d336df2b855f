"""`pykittens generate` prints the text of a model as it comes, and what it took on stderr."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pykittens.cli import main
from pykittens.errors import ArgumentError
from pykittens.models.chat import CHATML, Message
from pykittens.models.text import Text
from pykittens.runtime import driver
from tests.models import tiny_tokenizer
from tests.models.fakes import FakeConfig, FakeModel, chain

MODULES = ("config", "checkpoint", "llama")


class Stdin(io.StringIO):
    """Lines of a terminal or of a pipe; the line "^C" is Ctrl-C."""

    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(text)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def readline(self, *args):
        line = super().readline(*args)
        if line == "^C\n":
            raise KeyboardInterrupt
        return line


class Loading:
    """What the command asked the modules of models for, and the model that they return."""

    def __init__(self) -> None:
        self.config = FakeConfig()
        self.table = chain([1, 2, 3])
        self.calls: list[tuple] = []
        self.model = None

    def read_config(self, folder):
        if folder == "missing":
            raise ArgumentError(f"there is no folder {folder}")
        return self.config

    def llama(self, config, weights, *, capacity):
        self.calls.append((config, weights, capacity))
        self.model = FakeModel(self.table, capacity, config.ends)
        return self.model


@pytest.fixture
def loading(monkeypatch):
    found = Loading()
    config = SimpleNamespace(read=found.read_config)
    modules = {
        "config": SimpleNamespace(Config=config, NAMED={"tiny": found.config, "llama-1b": None}),
        "checkpoint": SimpleNamespace(
            read=lambda *args: ("read", *args), random_weights=lambda *args: ("random", *args)
        ),
        "llama": SimpleNamespace(Llama=found.llama),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"pykittens.models.{name}", module)
    monkeypatch.setattr(driver, "available", lambda: "no driver")
    return found


@pytest.fixture
def text():
    pytest.importorskip("tokenizers", reason="the package `tokenizers` is not installed")
    return Text.read(tiny_tokenizer.FILE.parent)


@pytest.fixture
def chatting(loading, monkeypatch, tmp_path):
    """A folder whose tokenizer has the special tokens of ChatML; `chatting(lines)` sets what is typed."""
    pytest.importorskip("tokenizers", reason="the package `tokenizers` is not installed")
    tokenizer = tiny_tokenizer.made(*CHATML.specials)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    spoken = Text(tokenizer)
    (line_end,) = spoken.encode("\n")
    end = spoken.token(CHATML.end)
    loading.config = FakeConfig(400, 200, ends=())
    loading.table = chain([line_end, *spoken.encode(" the 🐈"), end], vocabulary=400)
    return SimpleNamespace(text=spoken, folder=str(tmp_path))


FOLDER = str(tiny_tokenizer.FILE.parent)


def typed(monkeypatch, text, *, terminal=True):
    monkeypatch.setattr(sys, "stdin", Stdin(text, terminal=terminal))


def test_the_text_after_the_prompt_is_printed(loading, text, capsys):
    loading.table = chain(text.encode("The cat sat 🐈."))
    prompt = text.encode("The cat")
    assert main(["generate", FOLDER, "--prompt", "The cat"]) == 0
    shown = capsys.readouterr()
    assert shown.out == " sat 🐈.\n"
    assert loading.model.prompts == [prompt]
    assert loading.calls == [(loading.config, ("read", FOLDER, loading.config, "cpu"), 64)]


def test_the_rate_is_told_on_stderr(loading, text, capsys):
    assert main(["generate", FOLDER, "--prompt", "The cat", "--limit", "1"]) == 0
    loading.table = chain([1, 2, 3, 4, 5, 6])
    assert main(["generate", "--random", "tiny", "--prompt", "\1", "--limit", "4"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"prompt of 2 tokens in \S+ s, 0 tokens", first)
    assert re.fullmatch(
        r"prompt of 1 token in \S+ s, 4 tokens at \S+ tokens/s, stopped at the limit", second
    )


def test_random_weights_take_bytes_and_print_numbers(loading, capsys):
    loading.config = FakeConfig(100, ends=())
    sys.modules["pykittens.models.config"].NAMED["tiny"] = loading.config
    loading.table = chain([ord("é".encode()[-1:]) % 100, 7, 42], vocabulary=100)
    words = ("--random", "tiny", "--prompt", "aé", "--limit", "3", "--capacity", "30")
    assert main(["generate", *words]) == 0
    assert capsys.readouterr().out == "7 42 0\n"
    assert loading.model.prompts == [[97, 0xC3 % 100, 0xA9 % 100]]
    assert loading.calls == [(loading.config, ("random", loading.config, 0, "cpu"), 30)]


def test_a_full_cache_is_told(loading, capsys):
    loading.table = chain([1, 1])
    assert main(["generate", "--random", "tiny", "--prompt", "\1", "--capacity", "3"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "1 1 1\n"
    assert shown.err.endswith("stopped because the cache is full\n")


def test_a_seed_draws_the_same_text(loading, capsys):
    loading.table = np.random.default_rng(0).standard_normal((300, 300))

    def printed(seed):
        words = ("--prompt", "a", "--temperature", "1.5", "--top-p", "0.9", "--seed", seed)
        assert main(["generate", "--random", "tiny", *words]) == 0
        return capsys.readouterr().out

    assert printed("1") == printed("1") != printed("2")


@pytest.mark.parametrize("words", [[], ["--prompt", "-"]])
def test_the_prompt_may_come_through_a_pipe(loading, words, monkeypatch):
    typed(monkeypatch, "ab\n", terminal=False)
    assert main(["generate", "--random", "tiny", *words]) == 0
    assert loading.model.prompts == [[97, 98]]


def test_a_prompt_may_be_typed(loading, monkeypatch):
    typed(monkeypatch, "ab\ncd\n")
    assert main(["generate", "--random", "tiny", "--prompt", "-"]) == 0
    assert loading.model.prompts == [[*b"ab\ncd"]]


def test_bytes_of_a_pipe_that_are_no_text_are_replaced(loading, monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(b"a\xff\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", pipe)
    assert main(["generate", "--random", "tiny"]) == 0
    assert loading.model.prompts == [[97, *"\ufffd".encode()]]


def test_typed_bytes_that_are_no_text_are_replaced(loading, chatting, monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(b"a\xff\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", pipe)
    assert main(["generate", chatting.folder, "--chat"]) == 0
    prompt = CHATML.encode(chatting.text, [Message("user", "a\ufffd")])
    assert loading.model.prompts == [prompt]


def test_ctrl_c_stops_the_text(loading, monkeypatch, capsys):
    loading.table = chain([1, 1])

    def interrupted(self, token, position):
        if position == 4:
            raise KeyboardInterrupt
        return 1

    monkeypatch.setattr(FakeModel, "step", interrupted)
    assert main(["generate", "--random", "tiny", "--prompt", "\1"]) == 130
    shown = capsys.readouterr()
    assert shown.out == "1 1 1 1\n"
    assert "4 tokens at" in shown.err
    assert shown.err.endswith("\nstopped\n")


# -- chats -------------------------------------------------------------------------------------


def test_lines_are_answered_until_one_is_empty(loading, chatting, monkeypatch, capsys):
    typed(monkeypatch, "The cat?\nA mat?\n\nmore\n")
    assert main(["generate", chatting.folder, "--chat"]) == 0
    assert capsys.readouterr().out == ">  the 🐈\n>  the 🐈\n> "
    first = [Message("user", "The cat?")]
    second = [*first, Message("assistant", " the 🐈"), Message("user", "A mat?")]
    encoded = [CHATML.encode(chatting.text, messages) for messages in (first, second)]
    assert loading.model.prompts == encoded
    assert len(loading.calls) == 1


def test_the_end_of_the_lines_ends_a_chat(loading, chatting, monkeypatch, capsys):
    typed(monkeypatch, "The cat?\n", terminal=False)
    assert main(["generate", chatting.folder, "--chat"]) == 0
    assert capsys.readouterr().out == " the 🐈\n"


def test_ctrl_c_stops_a_reply_and_then_the_chat(loading, chatting, monkeypatch, capsys):
    step, calls = FakeModel.step, []

    def interrupted(self, token, position):
        calls.append(position)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return step(self, token, position)

    monkeypatch.setattr(FakeModel, "step", interrupted)
    typed(monkeypatch, "The cat?\nA mat?\n^C\nmore\n")
    assert main(["generate", chatting.folder, "--chat"]) == 0
    shown = capsys.readouterr().out
    partial = chatting.text.decode(chatting.text.encode(" the 🐈")[:2])
    assert shown == f"> {partial}\n>  the 🐈\n> \n"
    messages = [Message("user", "The cat?"), Message("assistant", partial)]
    prompt = CHATML.encode(chatting.text, [*messages, Message("user", "A mat?")])
    assert loading.model.prompts[1] == prompt


def test_replies_go_on_drawing(loading, chatting, monkeypatch, capsys):
    loading.table = np.random.default_rng(0).standard_normal((400, 400)) / 10
    typed(monkeypatch, "a\nb\n", terminal=False)
    words = ("--chat", "--temperature", "1", "--seed", "3", "--limit", "8")
    prompts = []
    for _ in range(2):
        typed(monkeypatch, "a\nb\n", terminal=False)
        assert main(["generate", chatting.folder, *words]) == 0
        prompts.append((loading.model.prompts, [t for t, _ in loading.model.steps]))
    assert prompts[0] == prompts[1]
    steps = prompts[0][1]
    assert steps[: len(steps) // 2] != steps[len(steps) // 2 :]


def test_a_conversation_that_fills_the_cache_is_refused(loading, chatting, monkeypatch, capsys):
    typed(monkeypatch, "The cat?\nA mat?\n", terminal=False)
    assert main(["generate", chatting.folder, "--chat", "--capacity", "30"]) == 1
    assert "and the cache of the model has 30 positions" in capsys.readouterr().err


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--random", "llama-2"], ("no model is named llama-2", "there are tiny, llama-1b")),
        (["missing"], ("there is no folder missing",)),
        (["--random", "tiny", "--prompt", ""], ("the prompt is empty",)),
        (["--random", "tiny", "--prompt", "a" * 65], ("has 65 tokens", "--capacity")),
        (["--random", "tiny", "--capacity", "65"], ("from 1 to 64, the positions of the",)),
        (["--random", "tiny", "--capacity", "0"], ("--capacity must be from 1 to 64",)),
        (["--random", "tiny", "--limit", "0"], ("`limit` must be an int of at least 1",)),
        (["--random", "tiny", "--temperature", "-1"], ("`temperature` must be", "not -1.0")),
        (["--random", "tiny", "--top-p", "0"], ("`top_p` must be a number above 0",)),
        (["--random", "tiny", "--seed", "-1"], ("`seed` must be an int of at least 0",)),
        (["--random", "tiny", "--chat"], ("a model with random weights cannot chat",)),
        (["--random", "tiny", "--device", "gpu"], ("there is no device gpu", "cuda, cuda:1 or")),
        (["--random", "tiny", "--device", "cuda"], ("there is no GPU: no driver", "--device cpu")),
        (["--random", "tiny"], ("there is no text to continue", "--prompt TEXT")),
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_a_mistake_is_told_before_the_model_is_loaded(loading, words, told, monkeypatch, capsys):
    typed(monkeypatch, "")
    assert main(["generate", *words]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    for text in told:
        assert text in shown.err
    assert loading.calls == []


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["folder", "--random", "tiny"],
        ["folder", "--prompt", "a", "--chat"],
        ["folder", "--limit", "x"],
    ],
)
def test_a_wrong_command_line_has_the_code_of_usage(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["generate", *words])
    assert end.value.code == 2


def test_a_chat_needs_a_format(loading, text, monkeypatch, capsys):
    assert main(["generate", FOLDER, "--chat"]) == 1
    assert "no chat format that is built in" in capsys.readouterr().err
    assert loading.calls == []


def test_without_the_package_its_installation_is_suggested(loading, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert main(["generate", FOLDER, "--prompt", "a"]) == 1
    assert capsys.readouterr().err.endswith("help: pip install tokenizers\n")


@pytest.mark.parametrize("given", ["cpu", "cuda", "cuda:1", None])
def test_the_device_is_the_gpu_if_there_is_one(loading, given, monkeypatch):
    monkeypatch.setattr(driver, "available", lambda: None)
    words = () if given is None else ("--device", given)
    assert main(["generate", "--random", "tiny", "--prompt", "a", *words]) == 0
    ((_, weights, _),) = loading.calls
    assert weights[-1] == (given or "cuda")


def test_loading_is_shown_on_a_terminal_only(loading, monkeypatch, capsys):
    assert main(["generate", "--random", "tiny", "--prompt", "a"]) == 0
    assert "loading tiny" not in capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    assert main(["generate", "--random", "tiny", "--prompt", "a"]) == 0
    assert "loading tiny" in capsys.readouterr().err


def test_other_commands_load_neither_models_nor_their_packages():
    modules = [f"pykittens.models.{name}" for name in MODULES]
    program = f"""
import sys
import pykittens.cli
print([m for m in ("torch", "tokenizers", "safetensors", *{modules}) if m in sys.modules])
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
