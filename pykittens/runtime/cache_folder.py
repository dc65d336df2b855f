"""The folder of the cache: who may write to it, whole files in it, and how much of the disk they take.

An entry of the cache is machine code, so a folder in which strangers can write is not used. Only regular files are
read. If the entries take more than PYKITTENS_CACHE_LIMIT, those that were used least recently are removed; the time
of an entry's file is that of its last use.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pykittens import settings

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

ENTRY, TEMPORARY = ".kernel", ".tmp"
# An entry's time is written once per hour of use at most; a temporary file of this age belongs to no writer.
_HOUR = 3600.0
# Seconds for which a lock is waited for.
PATIENCE, _POLL_SECONDS = 300.0, 0.05

_warned: set[Path] = set()
# Bytes that this process may still write before the entries are counted: none before the first count.
_uncounted = 0


@dataclass(frozen=True)
class Entry:
    """The file of an entry: its size in bytes, and the time of its last use."""

    path: Path
    bytes: int
    used: float


def folder() -> Path | None:
    """The folder of the entries; None, with one warning, if others can write to it."""
    path = settings.cache_dir()
    reason = distrust(path)
    if reason is None:
        return path
    if path not in _warned:
        _warned.add(path)
        warnings.warn(
            f"the cache {path} is not used: it {reason}, and its entries are machine code; "
            f"chmod 700 it, or set {settings.CACHE_DIR.variable} to a folder of your own",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def distrust(path: Path) -> str | None:
    """Why a folder may hold files of strangers; None if only this user, its own group and root can write to it."""
    if os.name != "posix":
        return None
    try:
        found = path.stat()
    except OSError:
        return None  # it can be made
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to the user {found.st_uid}"
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid != os.getegid()
    if found.st_mode & stat.S_IWOTH or by_group:
        return "can be written by other users"
    return None


def read_whole(path: Path) -> bytes | None:
    """The content of a regular file; None if there is none. A pipe or a device is not waited for."""
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            return None
        with open(handle, "rb") as file:
            return file.read()
    except OSError:
        return None


def _make(place: Path) -> None:
    """Make a folder in the cache, which is for its user only."""
    settings.cache_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    place.mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file and rename it into place: a reader sees the old file or the whole new one."""
    _make(path.parent)
    # In the same folder: a rename is atomic only within a file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:16], suffix=TEMPORARY)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def locked(path: Path, waits: Callable[[], object]) -> Iterator[None]:
    """Hold a lock among processes: a file, which is removed at the end. `waits` is called if another one holds it.

    The lock is not held if the system or the folder has no locks, or after PATIENCE seconds.
    """
    handle, until, is_told = None, time.monotonic() + PATIENCE, False
    with contextlib.suppress(OSError):
        _make(path.parent)
        while fcntl and (handle := _try_lock(path)) is None and time.monotonic() < until:
            if not is_told:
                waits()
            is_told = True
            time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked process may have the file open, too
            os.close(handle)


def _try_lock(path: Path) -> int | None:
    """The open file if its lock is held, None if another process holds it. Raises OSError if there are no locks."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except (BlockingIOError, FileNotFoundError):  # or it has just removed the file
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def touch(path: Path) -> None:
    """Note that an entry is used."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _HOUR:
            os.utime(path)


def entries() -> list[Entry]:
    """The entries, least recently used first."""
    found = []
    for item in _items(settings.cache_dir()):
        with contextlib.suppress(OSError):
            if item.name.endswith(ENTRY) and item.is_file(follow_symlinks=False):
                about = item.stat(follow_symlinks=False)
                found.append(Entry(Path(item.path), about.st_size, about.st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def keep_limit(written: int) -> None:
    """Remove entries beyond the limit, after `written` more bytes.

    The entries are counted at the first call and once per eighth of the limit; each time an eighth of it is made free.
    """
    global _uncounted
    limit = settings.cache_limit()
    if limit is None:
        return
    _uncounted -= written
    if _uncounted > 0:
        return
    _uncounted = limit // 8
    remove_abandoned()
    known = entries()
    total = sum(entry.bytes for entry in known)
    for entry in known:
        if total <= limit - limit // 8:
            break
        with contextlib.suppress(OSError):
            entry.path.unlink()
        total -= entry.bytes


def remove_abandoned() -> None:
    """Remove temporary files whose writers have ended."""
    home = settings.cache_dir()
    for place in (home, *home.glob("tuning/*")):
        for item in _items(place):
            with contextlib.suppress(OSError):
                old = time.time() - item.stat(follow_symlinks=False).st_mtime > _HOUR
                if old and item.name.endswith(TEMPORARY):
                    os.unlink(item.path)


def clear() -> list[Entry]:
    """Remove all entries and abandoned temporary files; returns the entries that were removed."""
    removed = []
    for entry in entries():
        with contextlib.suppress(OSError):
            entry.path.unlink()
            removed.append(entry)
    remove_abandoned()
    return removed


def _items(place: Path) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(place) as items:
        yield from items
