"""Compiled kernels on disk: one file per entry, named by the hash of the compiler's inputs.

A file is a magic word, the length and the SHA-256 of the rest, and the rest: a count, then a name
and bytes for each part. Files appear by renaming, so a reader sees a whole entry or none; two
processes may build the same entry at once, and either file is right. No lock is needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

from pykittens import settings

Parts = dict[str, bytes]

_MAGIC = b"pykitn01"
_HEADER = struct.Struct("<8sQ32s")
_LENGTH = struct.Struct("<Q")

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


def fetch(key: str, build: Callable[[], Parts]) -> Parts:
    """The parts kept under `key`. If there are none, or they are damaged, `build` makes them.

    If the folder cannot be written, the parts stay in memory instead.
    """
    if settings.NO_CACHE.read():
        return build()
    path = entry_path(key)
    found = _read(path)
    if found is None:
        found = _unwritten.get(key)
    if found is not None:
        return found
    parts = build()
    try:
        _write(path, parts)
    except OSError:
        _unwritten[key] = parts
    return parts


def entry_path(key: str) -> Path:
    """The file that holds, or would hold, an entry."""
    return settings.cache_dir() / f"{key}.kernel"


def _read(path: Path) -> Parts | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != _MAGIC or length != len(payload) or digest != hashlib.sha256(payload).digest():
        return None
    return _decode(payload)


def _write(path: Path, parts: Parts) -> None:
    payload = _encode(parts)
    header = _HEADER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest())
    write_whole(path, header + payload)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file and rename it into place: a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder: a rename is atomic only within a file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:16], suffix=".tmp")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _encode(parts: Parts) -> bytes:
    pieces = [_LENGTH.pack(len(parts))]
    for name, data in parts.items():
        for piece in (name.encode(), data):
            pieces += (_LENGTH.pack(len(piece)), piece)
    return b"".join(pieces)


def _decode(payload: bytes) -> Parts:
    """The parts of a payload whose hash is right."""
    (count,) = _LENGTH.unpack_from(payload)
    position = _LENGTH.size
    pieces = []
    for _ in range(2 * count):
        (length,) = _LENGTH.unpack_from(payload, position)
        position += _LENGTH.size
        pieces.append(payload[position : position + length])
        position += length
    return {name.decode(): data for name, data in zip(pieces[::2], pieces[1::2], strict=True)}
