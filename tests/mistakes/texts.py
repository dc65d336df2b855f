"""The texts of errors of wrong calls, each sentence once: the golden file errors/mistakes.txt.

A heading is a sentence, a help, the operands if they differ from the arguments of the call, or the marked part of the
line if it is not the whole line. Braces stand for text that follows from the mistake. Below a heading are the mistakes
that lead to it: the thing that replaces an operand, then each operation with the operand, as in
`bool_tile, truth: abs.a, neg.a`. `otherwise` is every other thing that is refused for the operand.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from pykittens.ir.values import describe
from tests.mistakes.calls import Fault, Mistake, described, signature
from tests.mistakes.rows import Row
from tests.mistakes.things import THINGS

OTHERWISE = "otherwise"
KINDS = ("", "help: ", "operands: ", "marked: ")


class Entry(NamedTuple):
    """A heading, what is wrong, and the operation or its operand that it is wrong for."""

    heading: str
    wrong: str
    where: str


def entries(row: Row, found: Iterable[tuple[Mistake, Fault]]) -> list[Entry]:
    """What the golden file says of a row."""
    by_place: dict[str, dict[str, tuple[str, ...]]] = {}
    for mistake, fault in found:
        where = f"{row.name}.{mistake.operand}" if mistake.operand else row.name
        by_place.setdefault(where, {})[mistake.wrong] = headings(row, mistake, fault.text)
    made = []
    for where, by_wrong in by_place.items():
        for kind, said in zip(KINDS, zip(*by_wrong.values(), strict=True), strict=True):
            is_otherwise = where != row.name and all(said)
            usual = Counter(said).most_common(1)[0][0] if is_otherwise else None
            for heading in dict.fromkeys(said):
                same = [w for w, h in zip(by_wrong, said, strict=True) if h == heading]
                wrong = OTHERWISE if heading == usual else ", ".join(same)
                if heading:
                    made.append(Entry(kind + heading, wrong, where))
    return made


def headings(row: Row, mistake: Mistake, text: str) -> tuple[str, ...]:
    """The heading of each kind for a text; "" where it follows from the mistake alone."""
    above, _, place = text.partition("  <kernel>, in kernel\n")
    sentence, *listed = above.splitlines()
    sentence = sentence.replace(f": {row.shown}:", ": {op}:", 1)
    operands = {name.strip(): value for name, _, value in (o.partition(" : ") for o in listed)}
    follow = [*operands.items()] == [*arguments(row, mistake).items()]
    line, carets, *below = place.splitlines()
    marked = line[carets.index("^") : len(carets)]
    help = "\n".join(below).removeprefix("help: ")
    if mistake.operand:
        sentence, help = for_any_operand(row, mistake, sentence, help)
        for name in {mistake.operand, row.blames.get(mistake.operand)} & operands.keys():
            operands[name] = re.sub(alone(described(mistake.wrong)), "{thing}", operands[name])
    elif help.startswith("it is "):
        parameters = signature(marked.partition("(")[0]).parameters.values()
        bare = inspect.Signature([p.replace(annotation=p.empty) for p in parameters])
        help = help.replace(f"{row.shown}{bare}", "{signature}")
        first = [repr(p.name) for p in parameters if p.default is p.empty][:1]
        sentence = sentence.replace(f"argument: {''.join(first)}", "argument: {first}")
    shown = ", ".join(f"{name} = {value}" for name, value in operands.items()) or "none"
    calls = [n for n in ast.walk(ast.parse(mistake.call)) if isinstance(n, ast.Call)]
    inner = ast.get_source_segment(mistake.call, calls[0]) if calls else None
    return (
        sentence,
        help,
        "" if follow else re.sub(r"\.py:\d+", ".py:LINE", shown),
        {inner: "the call", mistake.call: ""}.get(marked, marked),
    )


def for_any_operand(row: Row, mistake: Mistake, sentence: str, help: str) -> tuple[str, str]:
    """A sentence and a help with braces for the name and the type of the operand that is wrong."""
    thing = THINGS[mistake.wrong]
    for name in {mistake.operand, row.blames.get(mistake.operand)} - {"", None}:
        sentence = sentence.replace(f"`{name}`", "`{operand}`")
        help = re.sub(rf"\b{name}(?=\.(to|item)\(|, \.\.\.\))", "{operand}", help)
    if thing.name.isidentifier():
        help = re.sub(rf"\b{thing.name}\b(?=[.\[])", "{thing}", help)
    must, but, found = sentence.partition(", not ")
    found = re.sub(alone(described(thing.name)), "{thing}", found)
    if thing.dtype is not None and "{thing}" not in found:
        found = re.sub(alone(str(thing.dtype)), "{dtype}", found)
    for braces, value in (("{shape}", "x".join(map(str, thing.shape))), ("{dtype}", thing.dtype)):
        must = must.replace(f" {value} like `{{operand}}`", f" {braces} like `{{operand}}`")
    return must + but + found, help


def alone(text: str) -> str:
    """A pattern for a text that is no part of a longer word or type."""
    return rf"(?<![\w<]){re.escape(text)}(?!\w)"


def arguments(row: Row, mistake: Mistake) -> dict[str, str]:
    """The descriptions of the arguments of a call of an operation, other than those that are the default."""
    if row.word or not (mistake.operand or row.call.startswith("pk.")):
        return {}
    if not row.call.startswith("pk."):
        given = row.good | {mistake.operand: mistake.wrong}
        return {name: described(given[name]) for name in row.takes}

    def source(node: ast.expr) -> str:
        return ast.get_source_segment(mistake.call, node) or ""

    call = ast.parse(mistake.call, mode="eval").body
    assert isinstance(call, ast.Call)
    known = signature(source(call.func))
    keywords = {k.arg or "": source(k.value) for k in call.keywords}
    try:
        bound = known.bind(*map(source, call.args), **keywords).arguments
    except TypeError:
        return {}
    given = {n: a if isinstance(a, str) else f"({', '.join(a)},)" for n, a in bound.items()}
    default = {n: describe(known.parameters[n].default) for n in given}
    return {n: described(a) for n, a in given.items() if described(a) != default[n]}


def written(all_entries: Iterable[Entry]) -> str:
    """The golden file."""
    below: dict[str, dict[str, list[str]]] = {}
    for heading, wrong, where in all_entries:
        below.setdefault(heading, {}).setdefault(wrong, []).append(where)
    fill = textwrap.TextWrapper(
        120, " " * 4, " " * 8, break_long_words=False, break_on_hyphens=False
    ).fill
    blocks = []
    for heading in sorted(below, key=kind):
        lines = (fill(f"{wrong}: {', '.join(w)}") for wrong, w in below[heading].items())
        blocks.append("\n".join([heading, *lines]))
    return "\n\n".join(blocks) + "\n"


def kind(heading: str) -> int:
    """The number of a heading's kind."""
    return max(i for i, kind in enumerate(KINDS) if heading.startswith(kind))


def read(text: str) -> list[Entry]:
    """The entries of the golden file."""
    found = []
    for block in text.strip().split("\n\n"):
        heading, *lines = re.sub(r"\n {8}", " ", block).split("\n    ")
        for line in lines:
            wrong, _, places = line.rpartition(": ")
            found += [Entry(heading, wrong, where) for where in places.split(", ")]
    return found
