"""Text becomes tokens, and tokens become text, a whole character at a time."""

from __future__ import annotations

import json
import random
import sys

import pytest

from pykittens.errors import ArgumentError
from pykittens.models.text import Numbers, Text
from tests.models import tiny_tokenizer

TEXT = "The cat sat: 12 €, 你好 🐈‍⬛, Grüße"


@pytest.fixture(scope="module")
def tokenizers():
    return pytest.importorskip("tokenizers", reason="the package `tokenizers` is not installed")


@pytest.fixture(scope="module")
def tiny(tokenizers):
    return Text.read(tiny_tokenizer.FILE.parent)


@pytest.fixture(scope="module")
def pieces(tokenizers):
    """A tokenizer as of Llama 2: words with their spaces, and bytes for all other characters."""
    words = ["▁The", "▁cat", "▁", "s", "."]
    vocabulary = {w: 256 + i for i, w in enumerate(words)}
    vocabulary |= {f"<0x{byte:02X}>": byte for byte in range(256)}
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocabulary, merges=[], byte_fallback=True)
    )
    d = tokenizers.decoders
    made.decoder = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    return Text(made)


def streamed(text, tokens):
    decoder = text.decoder()
    return [*map(decoder.feed, tokens), decoder.finish()]


def test_the_tiny_tokenizer_is_that_of_its_function(tokenizers, request):
    if request.config.getoption("--update-golden"):
        tiny_tokenizer.write()
    made = json.loads(tiny_tokenizer.made().to_str())
    found = json.loads(tiny_tokenizer.FILE.read_text(encoding="utf-8"))
    assert found["model"]["vocab"] == made["model"]["vocab"]
    assert len(made["model"]["vocab"]) == 300


def test_a_text_comes_back(tiny):
    tokens = tiny.encode(TEXT)
    assert tiny.decode(tokens) == TEXT
    assert "".join(streamed(tiny, tokens)) == TEXT


def test_characters_come_when_their_last_token_has_come(tiny):
    tokens = tiny.encode("a🐈b")
    assert len(tokens) == 6
    assert streamed(tiny, tokens) == ["a", "", "", "", "🐈", "b", ""]


def test_an_incomplete_character_is_unknown_at_the_end(tiny):
    tokens = tiny.encode("a🐈")[:-1]
    assert streamed(tiny, tokens) == ["a", "", "", "", "\ufffd"]


def test_no_text_is_no_text(tiny):
    assert streamed(tiny, []) == [""]


def test_bytes_that_are_no_text_are_as_if_all_were_decoded_at_once(tiny):
    rng = random.Random(0)
    high = [t for t in range(300) if "\ufffd" in tiny.decode([t])]
    for _ in range(300):
        known = high if rng.random() < 0.5 else range(300)
        tokens = rng.choices(known, k=rng.randrange(40))
        assert "".join(streamed(tiny, tokens)) == tiny.decode(tokens)


def test_the_space_between_words_depends_on_both(pieces):
    the, cat, s, dot = 256, 257, 259, 260
    assert pieces.decode([cat]) == "cat"
    assert streamed(pieces, [the, cat, s, dot, the]) == ["The", " cat", "s", ".", " The", ""]


def test_characters_of_bytes_come_when_they_are_complete(pieces):
    tokens = [256, *"é€€🐈".encode(), 257]
    assert [t for t in streamed(pieces, tokens) if t] == ["The", "é", "€", "€", "🐈", " cat"]
    assert streamed(pieces, ["€".encode()[0]]) == ["", "\ufffd"]
    assert streamed(pieces, [*"€".encode(), 0xE2]) == ["", "", "€", "", "\ufffd"]


def test_special_tokens_are_tokens_and_no_text(tiny):
    end = tiny.token("<|end|>")
    tokens = tiny.encode("a<|end|>b")
    assert tokens == [*tiny.encode("a"), end, *tiny.encode("b")]
    assert streamed(tiny, tokens) == ["a", "", "b", ""]
    assert tiny.token("<|begin|>") is None


def test_plain_text_has_no_special_tokens(tiny):
    tokens = tiny.encode_plain("a<|end|>b")
    assert tiny.token("<|end|>") not in tokens
    assert tiny.decode(tokens) == "a<|end|>b"
    assert len(tiny.encode("<|end|>")) == 1


def test_tokens_that_the_tokenizer_adds_are_added(tokenizers):
    made = tiny_tokenizer.made("<|begin|>")
    begin = made.token_to_id("<|begin|>")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", begin)]
    )
    text = Text(made)
    assert text.encode("cat")[0] == begin
    assert text.encode("") == [begin]
    assert begin not in text.encode_plain("cat")


def test_text_is_neither_cut_nor_filled(tokenizers):
    made = tiny_tokenizer.made()
    made.enable_truncation(2)
    made.enable_padding(length=50)
    text = Text(made)
    assert text.decode(text.encode(TEXT)) == TEXT


def test_what_is_no_text_is_a_question_mark(tiny):
    assert tiny.encode("a\udcffb") == tiny.encode("a?b")
    assert Numbers(300).encode("a\ud800") == [97, 63]


def test_numbers_stand_for_a_tokenizer():
    numbers = Numbers(100)
    assert numbers.encode("aé") == [97, 0xC3 % 100, 0xA9 % 100]
    assert streamed(numbers, [5, 60, 7]) == ["5", " 60", " 7", ""]


@pytest.mark.parametrize(
    ("files", "text", "help"),
    [
        ([], "{0} has no tokenizer.json", "copy it"),
        (["tokenizer.model"], "{0} has no tokenizer.json, and tokenizer.model is not read", "tra"),
        (["vocab.json"], "{0} has no tokenizer.json, and vocab.json is not read", "transformers"),
    ],
)
def test_a_folder_without_the_file_is_refused(files, text, help, tmp_path):
    for name in files:
        (tmp_path / name).write_text("")
    with pytest.raises(ArgumentError) as error:
        Text.read(tmp_path)
    assert error.value.message == text.format(tmp_path)
    assert error.value.help.startswith(help)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="there is no folder"):
        Text.read(tmp_path / "model")


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "none"}}'])
def test_a_file_that_is_no_tokenizer_is_refused(tokenizers, content, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ArgumentError, match=r"tokenizer.json is not a tokenizer: .+"):
        Text.read(tmp_path)


def test_without_the_package_its_installation_is_suggested(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ArgumentError, match="is read by the package `tokenizers`") as error:
        Text.read(tiny_tokenizer.FILE.parent)
    assert error.value.help == "pip install tokenizers"
