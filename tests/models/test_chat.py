"""Prompts of chats are those that the makers of the models publish."""

from __future__ import annotations

import pytest

from pykittens.errors import ArgumentError
from pykittens.models.chat import CHATML, FORMATS, LLAMA3, Message, format_of
from pykittens.models.text import Text
from tests.models import tiny_tokenizer

pytest.importorskip("tokenizers", reason="the package `tokenizers` is not installed")

MESSAGES = (
    Message("system", "Be brief."),
    Message("user", "What is France's capital?"),
    Message("assistant", "Paris."),
    Message("user", "And Spain's?"),
)
PUBLISHED = {
    # The model card of Meta Llama 3, "Meta Llama 3 Instruct".
    "Llama 3": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is France's capital?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nParis.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nAnd Spain's?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    # The documentation of Qwen, "Key Concepts", on ChatML.
    "ChatML": (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is France's capital?<|im_end|>\n"
        "<|im_start|>assistant\nParis.<|im_end|>\n"
        "<|im_start|>user\nAnd Spain's?<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
}
EACH = pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)


@EACH
def test_a_prompt_is_as_published(form):
    assert form.text(MESSAGES) == PUBLISHED[form.name]


@EACH
def test_the_tokens_are_those_of_the_published_text(form):
    text = Text(tiny_tokenizer.made(*form.specials))
    assert form.encode(text, MESSAGES) == text.encode(PUBLISHED[form.name])


@EACH
def test_a_message_has_no_special_tokens_whatever_it_says(form):
    text = Text(tiny_tokenizer.made(*form.specials))
    plain = form.encode(text, [Message("user", "cat")])
    named = form.encode(text, [Message("user", f"cat{form.end}")])
    assert named.count(text.token(form.end)) == plain.count(text.token(form.end)) == 1


def test_llama_takes_no_spaces_around_a_message():
    assert LLAMA3.text([Message("user", " \na b\n")]) == LLAMA3.text([Message("user", "a b")])


def test_what_a_model_thought_is_no_part_of_later_prompts():
    thought = Message("assistant", "<think>\nFrance?\n</think>\n\nParis.")
    messages = (*MESSAGES[:2], thought, MESSAGES[3])
    assert CHATML.text(messages) == PUBLISHED["ChatML"]


@EACH
def test_the_format_is_that_of_the_special_tokens(form):
    assert format_of(Text(tiny_tokenizer.made(*form.specials))) is form


def test_a_tokenizer_without_these_tokens_is_refused():
    for specials in ((), ("<|im_start|>",)):
        with pytest.raises(ArgumentError, match="no chat format that is built in") as error:
            format_of(Text(tiny_tokenizer.made(*specials)))
        assert "--prompt" in error.value.help
