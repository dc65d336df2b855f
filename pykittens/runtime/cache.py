"""Compiled kernels on disk: one file per entry, named by the hash of the compiler's inputs.

A file is a magic word, the length and the SHA-256 of the rest, and the rest: the key, then a name and bytes for each
part. Files appear by renaming, so a reader sees a whole entry or none; two processes may build the same entry at once,
and either file is right. No lock is needed.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Callable, Set
from pathlib import Path

from pykittens import settings
from pykittens.runtime import cache_folder
from pykittens.runtime.compiler import Parts, decode, encode

_MAGIC = b"pykitn02"
_HEADER = struct.Struct("<8sQ32s")
_LENGTH = struct.Struct("<Q")
_KEY = "key"  # the part that names the entry

# Entries that could not be written; without these, each call would compile again.
_unwritten: dict[str, Parts] = {}


def key(*parts: str | bytes) -> str:
    """The name of an entry: the SHA-256 of the parts, each preceded by its length."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(_LENGTH.pack(len(data)))
        digest.update(data)
    return digest.hexdigest()


@functools.cache
def package_version() -> str:
    """The version of the package; this layer cannot import the package itself, of whose file it is a line."""
    text = (Path(__file__).parent.parent / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.*)"', text, re.MULTILINE)
    assert found is not None, "pykittens/__init__.py states the version"
    return found[1]


def fetch(key: str, build: Callable[[], Parts], names: Set[str] | None = None) -> Parts:
    """The parts kept under `key`. If there are none, or they are damaged, `build` makes them.

    Parts with other names than `names` are damaged. If the folder cannot be written, or strangers can write to it, the
    parts stay in memory instead.
    """
    if settings.NO_CACHE.read():
        return build()
    if key in _unwritten:
        return _unwritten[key]
    folder = cache_folder.folder()
    path = None if folder is None else entry_path(key)
    found = None if path is None else read(path)
    if path is not None and found is not None and (names is None or names == found.keys()):
        cache_folder.touch(path)
        return found
    parts = build()
    try:
        if path is None:
            raise PermissionError
        _write(path, parts)
    except OSError:
        _unwritten[key] = parts
    return parts


def entry_path(key: str) -> Path:
    """The file that holds, or would hold, an entry."""
    return settings.cache_dir() / f"{key}{cache_folder.ENTRY}"


def read(path: Path) -> Parts | None:
    """The parts of an entry; None if the file is damaged, or is the entry of another key."""
    data = cache_folder.read_whole(path)
    if data is None or len(data) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != _MAGIC or length != len(payload) or digest != hashlib.sha256(payload).digest():
        return None
    try:
        parts = decode(payload)
    except ValueError:
        return None
    return parts if parts.pop(_KEY, b"").decode(errors="replace") == path.stem else None


def _write(path: Path, parts: Parts) -> None:
    assert _KEY not in parts, "the key is a part of its own"
    payload = encode({_KEY: path.stem.encode(), **parts})
    header = _HEADER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest())
    cache_folder.write_whole(path, header + payload)
    cache_folder.keep_limit(len(header) + len(payload))
