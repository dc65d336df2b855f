"""A fragment restyles nothing around it, and follows the theme of its notebook."""

from __future__ import annotations

import re

from pykittens.pictures.markup import fragment, table
from pykittens.pictures.picture import picture
from pykittens.types.text import parse
from tests.parsed import Parsed


def rules(text: str) -> list[tuple[str, str]]:
    """The outermost rules of a style sheet: selector and contents."""
    found, depth, start, head = [], 0, 0, ""
    for at, letter in enumerate(text):
        if letter == "{":
            if depth == 0:
                head, start = text[start:at].strip(), at + 1
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                found.append((head, text[start:at]))
                start = at + 1
    assert depth == 0
    return found


def sheet(text: str) -> str:
    return "".join(re.findall(r"<style>(.*?)</style>", text, re.S))


def test_no_rule_of_a_fragment_reaches_beyond_it() -> None:
    found = rules(sheet(fragment("<p>text</p>", ".own { color: red; }\n")))
    assert len(found) == 3
    for selectors, _ in found:
        assert all(s.split()[-1] == ".pykittens" * 3 for s in selectors.split(", "))
    inner = [selectors for selectors, _ in rules(found[-1][1])]
    assert ".own" in inner
    assert not {"body", "html", ":root", "*"} & {word for s in inner for word in s.split()}


def test_no_rule_of_a_picture_reaches_beyond_pictures() -> None:
    found = rules(sheet(picture(parse("rt<bf16, 64x64>"))))
    assert len(found) == 8
    assert all(selector.startswith(".pk-svg ") for selector, _ in found)


def test_a_fragment_is_dark_where_its_notebook_is() -> None:
    dark = next(s for s, _ in rules(sheet(fragment(""))) if "dark" in s)
    assert '[data-jp-theme-light="false"] .pykittens' in dark
    assert ".vscode-dark .pykittens" in dark
    assert "prefers-color-scheme" not in fragment("")


def test_a_table_has_its_cells_as_texts_and_aligns_numbers() -> None:
    shown = table(("name", "n"), [("<a>", "1"), ("b", "22")], (False, True))
    assert Parsed(shown).text == "namen\n<a>1\nb22\n"
    assert shown.count('class="number"') == 3
