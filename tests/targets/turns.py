"""Which targets a program is compiled for: where several compile the same text, not each of them every time."""

from __future__ import annotations

import functools
import re
import zlib

from pykittens.targets.source import Source
from tests import lanes

BEFORE_HOPPER = ("sm_80", "sm_89")
_COMMENT = re.compile(r"^\s*(#line|//).*\n", re.MULTILINE)
# What a device function or a type is called.
_NAME = re.compile(r"(\w+)\(|struct (?:__align__\(\d+\) )?(\w+)")
# What it uses: the methods of a type come with it, whether or not a function is called the same.
_USED = re.compile(r"(?<!::)\b\w+")
_UNUSED = re.compile(r"//.*|static DEVICE [\w ]+\b\w+\(")


def is_in_turn(name: str, arch: str, turns: int = len(BEFORE_HOPPER)) -> bool:
    """Whether it is this target's turn, by the name of a program: one of so many each before Hopper, all Hopper's."""
    if arch not in BEFORE_HOPPER:
        return True
    return zlib.crc32(name.encode()) % turns == BEFORE_HOPPER.index(arch)


def code(made: Source) -> str:
    """A program without comments: those that differ in numbers known at run time are the same."""
    return _COMMENT.sub("", made.program)


def are_one(sources: dict[str, Source | None]) -> bool:
    """Whether the compiler reads the same in the programs of one kernel for these targets; None where one has none."""
    read = [
        (code(made), _needed(made, int(re.findall(r"\d+", arch)[0])))
        for arch, made in sources.items()
        if made is not None
    ]
    return len(read) == len(sources) and all(other == read[0] for other in read)


def _needed(made: Source, number: int) -> frozenset[str]:
    """The device functions and types that a program needs for an architecture, directly or not."""
    parts = _parts(made.functions, number)
    words, kept = set(re.findall(r"\w+", code(made))), set[str]()
    while more := {t for names, _, t in parts if (names & words or not names) and t not in kept}:
        kept |= more
        words |= {w for _, used, text in parts if text in more for w in used}
    return frozenset(kept)


@functools.cache
def _parts(header: str, number: int) -> list[tuple[set[str], set[str], str]]:
    """The functions and types of a header: the name of each, the words it uses, its text."""
    found = []
    for text in lanes.items(header, number * 10):
        names = {a or b for a, b in _NAME.findall(text.partition("{")[0])[-1:]}
        if not text.startswith("#"):
            found.append((names, set(_USED.findall(_UNUSED.sub("", text))), text))
    return found
