"""Tuning results on disk: one JSON file per problem, for people and for the next process.

The name of a file is the hash of all that the choice depends on: the problem, the candidates, the GPU, the driver, the
compiler, and the files of the package that write and launch programs. So an old file is never taken for a changed
kernel, files of two versions stand side by side, and none is read, changed and written back: no lock is needed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pykittens import settings
from pykittens.errors import ArgumentError
from pykittens.runtime import cache, driver, nvrtc

_PACKAGE = Path(__file__).resolve().parent.parent
# The folders that decide which program a configuration becomes; the library's kernels are written in the last.
_PROGRAMS = ("types", "ir", "ops", "lang", "targets", "runtime", "templates", "kernels")

# What this process found, also where nothing can be written: file -> text.
_found: dict[Path, str] = {}


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate.

    milliseconds: the median of its last `launches`, None where it was not measured. checked: its result was compared
    with the reference and is right. fault: why it was left out.
    """

    candidate: str
    milliseconds: float | None
    launches: int
    checked: bool
    fault: str | None


@dataclass(frozen=True)
class Record:
    """What tuning found for one problem. conditions: the GPU and the versions it holds for."""

    kernel: str
    key: dict[str, Any]
    conditions: dict[str, Any]
    best: str
    date: str
    seconds: float
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class RecordFile:
    """Where what is found for one problem is kept, and that candidates are wrong, whatever the problem."""

    kernel: str
    key: dict[str, Any]
    conditions: dict[str, Any]
    candidates: tuple[str, ...]

    @functools.cached_property
    def file(self) -> Path:
        """The file of the problem."""
        return self._named(json.dumps(self.key, sort_keys=True), *self.candidates)

    def wrong_file(self, candidate: str) -> Path:
        """The file that is there if a candidate computed something wrong under these conditions."""
        return self._named("wrong", candidate)

    def _named(self, *parts: str) -> Path:
        name = cache.key(json.dumps(self.conditions, sort_keys=True), *parts)
        return folder() / self.kernel / f"{name[:32]}.json"

    def read(self) -> Record | None:
        """What was found; None where nothing was, or the file is damaged or its choice was not checked."""
        text = _read(self.file)
        record = None if text is None else _record(text)
        return record if record is not None and record.best in self.candidates else None

    def write(self, record: Record) -> None:
        """Keep what was found."""
        _write(self.file, asdict(record))

    def wrong(self, candidate: str) -> str | None:
        """What was wrong with a candidate, None where nothing is known."""
        text = _read(self.wrong_file(candidate))
        if text is None:
            return None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(json.loads(text)["wrong"])
        return "it was wrong before"  # a damaged file, too, is there for a reason

    def write_wrong(self, candidate: str, reason: str) -> None:
        """Keep that a candidate is wrong."""
        about = {"kernel": self.kernel, "key": self.key, "conditions": self.conditions}
        _write(self.wrong_file(candidate), {**about, "candidate": candidate, "wrong": reason})


def place(
    name: str, key: Mapping[str, Any], candidates: Sequence[object], ordinal: int
) -> RecordFile | None:
    """The place for a problem on a GPU; None where the candidates' class is in no file, so that changes do not show."""
    if not name.isidentifier():
        raise ArgumentError(f"tuning: the name of a kernel must be a Python name, not {name!r}")
    problem = _plain(name, key)
    programs = _hash_of_programs(_file_of(candidates))
    if programs is None:
        return None
    gpu = driver.device(ordinal)
    conditions = {
        "device": gpu.name,
        "multiprocessors": gpu.multiprocessors,
        "driver": ".".join(map(str, driver.version())),
        "compiler": ".".join(map(str, nvrtc.version())),
        "target": settings.target() or gpu.arch,
        "pykittens": _package_version(),
        "programs": programs,
    }
    return RecordFile(name, problem, conditions, tuple(map(repr, candidates)))


def records() -> Iterator[Record]:
    """All that is kept on this machine, in the order of kernels and their files."""
    for path in sorted(folder().glob("*/*.json")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            record = _record(path.read_text(encoding="utf-8"))
            if record is not None:
                yield record


def has_any(kernel: str) -> bool:
    """Whether anything is kept for a kernel, whatever the problem; one look, as calls that never tuned ask it, too."""
    return any(path.parent.name == kernel for path in _found) or (folder() / kernel).is_dir()


def folder() -> Path:
    """The folder of what tuning found, a folder a kernel in it."""
    return settings.cache_dir() / "tuning"


def _plain(name: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """The key as it reads back from JSON."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(key), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"tuning {name}: the key of a problem must be of strings, numbers, bools, lists and dicts: {error}",
            operands={"key": dict(key)},
        ) from error
    return plain


def _record(text: str) -> Record | None:
    """The record that a text holds; None where it holds none, or one whose choice was not checked."""
    try:
        data = json.loads(text)
        outcomes = tuple(Outcome(**outcome) for outcome in data.pop("outcomes"))
        record = Record(**data, outcomes=outcomes)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    right = [o.candidate for o in outcomes if o.checked is True and o.fault is None]
    return record if record.best in right else None


def _read(path: Path) -> str | None:
    if not settings.NO_CACHE.read():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return path.read_text(encoding="utf-8")
    return _found.get(path)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    text = json.dumps(data, indent=1) + "\n"
    _found[path] = text
    if not settings.NO_CACHE.read():
        # A folder that cannot be written fails no call: this process remembers.
        with contextlib.suppress(OSError):
            cache.write_whole(path, text.encode())


def _file_of(candidates: Sequence[object]) -> str | None:
    """The file with the class of the candidates; None for classes of an interpreter, a notebook or Python itself."""
    module = sys.modules.get(type(candidates[0]).__module__)
    return getattr(module, "__file__", None)


@functools.cache
def _hash_of_programs(file: str | None) -> str | None:
    """The hash of the files that decide which program a candidate becomes: the package's, and the candidates' own."""
    try:
        parts = [] if file is None else [Path(file).read_bytes()]
    except OSError:
        return None
    if not parts:
        return None
    for name in _PROGRAMS:
        for path in sorted((_PACKAGE / name).rglob("*")):
            if path.suffix in (".py", ".cuh"):
                parts += [str(path.relative_to(_PACKAGE)).encode(), path.read_bytes()]
    return cache.key(*parts)[:16]


@functools.cache
def _package_version() -> str:
    # The package itself stands behind this layer; its version is a line of its file.
    text = (_PACKAGE / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.*)"', text, re.MULTILINE)
    assert found is not None, "pykittens/__init__.py states the version"
    return found[1]
