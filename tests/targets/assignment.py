"""The targets that a program is compiled for: if several compile the same text, only one of them compiles it."""

from __future__ import annotations

import functools
import re
import zlib

from pykittens.targets.source import Source
from tests import lanes

BEFORE_HOPPER = ("sm_80", "sm_89")
_COMMENT = re.compile(r"^\s*(#line|//).*\n", re.MULTILINE)
# The name of a device function or a type.
_NAME = re.compile(r"(\w+)\(|struct (?:__align__\(\d+\) )?(\w+)")
# The names that it uses; the methods of a type come with the type, even if a function has the same name.
_USED = re.compile(r"(?<!::)\b\w+")
_UNUSED = re.compile(r"//.*|static DEVICE [\w ]+\b\w+\(")


def is_assigned(name: str, arch: str, shares: int = len(BEFORE_HOPPER)) -> bool:
    """Whether a target compiles the program of a name: Hopper every one, an older target one of `shares`."""
    if arch not in BEFORE_HOPPER:
        return True
    return zlib.crc32(name.encode()) % shares == BEFORE_HOPPER.index(arch)


def code(made: Source) -> str:
    """A program without comments."""
    return _COMMENT.sub("", made.program)


def compile_alike(sources: dict[str, Source | None]) -> bool:
    """Whether the programs of one kernel for these targets are the same to the compiler; None: there is no program."""
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
