"""Tuning results on disk: one JSON file per problem, for people and for the next process.

The name of a file is the hash of everything that the choice depends on: the problem, the candidates, the GPU, the
driver, the compiler, and the files of the package that emit and launch programs. So a changed kernel never matches an
old file, files of two versions coexist, and no file is modified. A lock only keeps processes from measuring the same.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pykittens import settings
from pykittens.errors import ArgumentError
from pykittens.runtime import cache, cache_folder, driver, nvrtc
from pykittens.runtime.program_files import files_of, modules_of

_PACKAGE = Path(__file__).resolve().parent.parent
# The folders that determine the program of a configuration.
_PROGRAMS = ("types", "ir", "ops", "lang", "targets", "runtime", "templates", "kernels")

# What this process found, even if nothing can be written: file -> text.
_found: dict[Path, str] = {}


@dataclass(frozen=True)
class Outcome:
    """The outcome for one candidate.

    milliseconds: the median of its last `launches`, None if it was not measured. checked: its result matched the
    reference. fault: why it was skipped.
    """

    candidate: str
    milliseconds: float | None
    launches: int
    checked: bool
    fault: str | None


@dataclass(frozen=True)
class Record:
    """The result of tuning one problem. conditions: the GPU and the versions for which it holds."""

    kernel: str
    key: dict[str, Any]
    conditions: dict[str, Any]
    best: str
    date: str
    seconds: float
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class RecordFile:
    """The file of one problem's result, and the files that mark wrong candidates of its program."""

    kernel: str
    key: dict[str, Any]
    conditions: dict[str, Any]
    candidates: tuple[str, ...]

    @functools.cached_property
    def file(self) -> Path:
        """The file of the problem."""
        return self._named(json.dumps(self.key, sort_keys=True), *self.candidates)

    def wrong_file(self, candidate: str) -> Path:
        """The file that exists if a candidate computed a wrong result under these conditions."""
        return self._named("wrong", candidate)

    def _named(self, *parts: str) -> Path:
        name = cache.key(json.dumps(self.conditions, sort_keys=True), *parts)
        return folder() / self.kernel / f"{name[:32]}.json"

    def read(self) -> Record | None:
        """The record; None if there is none, the file is damaged or the choice was not checked."""
        text = _read(self.file)
        record = None if text is None else _record(text)
        return record if record is not None and record.best in self.candidates else None

    def write(self, record: Record) -> None:
        """Keep a record."""
        _write(self.file, asdict(record))

    def wrong(self, candidate: str) -> str | None:
        """Why a candidate is known to be wrong, or None."""
        text = _read(self.wrong_file(candidate))
        if text is None:
            return None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(json.loads(text)["wrong"])
        return "it was wrong before"  # a damaged file also marks a wrong candidate

    def write_wrong(self, candidate: str, reason: str) -> None:
        """Keep that a candidate is wrong."""
        about = {"kernel": self.kernel, "key": self.key, "conditions": self.conditions}
        _write(self.wrong_file(candidate), {**about, "candidate": candidate, "wrong": reason})


def place(
    name: str,
    key: Mapping[str, Any],
    candidates: Sequence[object],
    kernels: Sequence[object],
    ordinal: int,
    program: Mapping[str, Any] | None = None,
) -> RecordFile | None:
    """The files of a problem on a GPU; None if the candidates' class or a kernel has no file to compare.

    program: what distinguishes programs of one name in the same files, as JSON has it.
    """
    if not name.isidentifier():
        raise ArgumentError(f"tuning: the name of a kernel must be a Python name, not {name!r}")
    problem = _plain(name, key)
    files = files_of(modules_of((type(candidates[0]), *kernels)))
    programs = None if files is None else _hash_of_programs(files)
    if programs is None:
        return None
    gpu = driver.device(ordinal)
    conditions = {
        "device": gpu.name,
        "multiprocessors": gpu.multiprocessors,
        "driver": ".".join(map(str, driver.version())),
        "compiler": ".".join(map(str, nvrtc.version())),
        "target": settings.target() or gpu.arch,
        "pykittens": cache.package_version(),
        "programs": programs,
        **(program or {}),
    }
    return RecordFile(name, problem, conditions, tuple(map(repr, candidates)))


@contextlib.contextmanager
def alone(place: RecordFile | None, waits: Callable[[], object]) -> Iterator[None]:
    """While this lasts, other processes do not measure the problem. `waits` is called if one does."""
    with contextlib.ExitStack() as stack:
        if place is not None and not settings.NO_CACHE.read():
            stack.enter_context(cache_folder.locked(place.file.with_suffix(".lock"), waits))
        yield


def records() -> Iterator[Record]:
    """All records on this machine, ordered by kernel and file."""
    for path in sorted(folder().glob("*/*.json")):
        data = cache_folder.read_whole(path)
        record = None if data is None else _record(data.decode(errors="replace"))
        if record is not None:
            yield record


def has_any(kernel: str) -> bool:
    """Whether any record of a kernel exists. Cheap, because calls of kernels that were never tuned ask it."""
    return any(path.parent.name == kernel for path in _found) or (folder() / kernel).is_dir()


def folder() -> Path:
    """The folder of the records, with one folder per kernel."""
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
    """The record in a text; None if there is none or its choice was not checked."""
    try:
        data = json.loads(text)
        outcomes = tuple(Outcome(**outcome) for outcome in data.pop("outcomes"))
        record = Record(**data, outcomes=outcomes)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not _is_sound(record):
        return None
    right = [o.candidate for o in outcomes if o.checked is True and o.fault is None]
    return record if record.best in right else None


def _is_sound(record: Record) -> bool:
    """Whether the fields of a record that was read have their types."""
    texts = (record.kernel, record.best, record.date, record.conditions, record.key)
    return (
        [type(x) for x in texts] == [str, str, str, dict, dict]
        and isinstance(record.seconds, int | float)
        and "device" in record.conditions
        and all(
            isinstance(o.candidate, str) and isinstance(o.milliseconds, int | float | None)
            for o in record.outcomes
        )
    )


def _read(path: Path) -> str | None:
    if not settings.NO_CACHE.read():
        data = cache_folder.read_whole(path)
        if data is not None:
            return data.decode(errors="replace")
    return _found.get(path)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    text = json.dumps(data, indent=1) + "\n"
    _found[path] = text
    if not settings.NO_CACHE.read():
        # If the folder cannot be written, this process still remembers.
        with contextlib.suppress(OSError):
            cache_folder.write_whole(path, text.encode())


@functools.cache
def _hash_of_programs(files: tuple[Path, ...]) -> str | None:
    """The hash of the files that determine the program of a candidate: the package's and these of the user."""
    try:
        parts = [data for file in files for data in (file.name.encode(), file.read_bytes())]
    except OSError:
        return None
    for name in _PROGRAMS:
        for path in sorted((_PACKAGE / name).rglob("*")):
            if path.suffix in (".py", ".cuh"):
                parts += [str(path.relative_to(_PACKAGE)).encode(), path.read_bytes()]
    return cache.key(*parts)[:16]
