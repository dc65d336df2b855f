"""The folder of the cache: strangers write nothing to it, odd files in it do no harm, and its size has a limit."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from pykittens import settings
from pykittens.errors import ArgumentError
from pykittens.runtime import cache, cache_folder

on_posix = pytest.mark.skipif(os.name != "posix", reason="owners and devices of POSIX")
MIB = 2**20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    monkeypatch.delenv("PYKITTENS_CACHE_LIMIT", raising=False)
    monkeypatch.setattr(cache, "_unwritten", {})
    monkeypatch.setattr(cache_folder, "_warned", set())
    monkeypatch.setattr(cache_folder, "_uncounted", 0)
    return tmp_path / "kernels"


def kept(key: str) -> bool:
    return cache.entry_path(key).exists()


def put(key: str, size: int, age: float = 0.0) -> None:
    """An entry that was used `age` seconds ago."""
    cache.fetch(key, lambda: {"cubin": bytes(size)})
    then = time.time() - age
    os.utime(cache.entry_path(key), (then, then))


def test_the_entries_used_least_recently_are_removed(folder, monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_LIMIT", "4")
    for i in range(20):
        put(f"entry{i}", MIB // 2, age=1000 - i)
        assert sum(entry.bytes for entry in cache_folder.entries()) <= 4 * MIB
    assert [i for i in range(20) if kept(f"entry{i}")] == list(range(14, 20))


def test_an_entry_that_is_used_is_not_the_oldest(folder, monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_LIMIT", "4")
    for i in range(4):
        put(f"entry{i}", MIB, age=1e6 - i)
    cache.fetch("entry1", lambda: pytest.fail("it is there"))
    put("entry4", MIB)
    assert [i for i in range(5) if kept(f"entry{i}")] == [1, 3, 4]


def test_without_a_limit_nothing_is_removed(folder, monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_LIMIT", "0")
    monkeypatch.setattr(cache_folder, "entries", lambda: pytest.fail("the entries are counted"))
    for i in range(3):
        put(f"entry{i}", MIB)


def test_lookups_count_no_entries(folder, monkeypatch):
    put("one", 100)
    monkeypatch.setattr(cache_folder, "entries", lambda: pytest.fail("the entries are counted"))
    put("one", 100)
    put("two", 100)


@pytest.mark.parametrize("text", ["-1", "much", "nan", "inf"])
def test_a_limit_that_is_no_size_is_refused(text, monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_LIMIT", text)
    with pytest.raises(ArgumentError, match="PYKITTENS_CACHE_LIMIT must be a number of MiB"):
        settings.cache_limit()


def test_temporary_files_of_writers_that_were_killed_are_removed(folder):
    (folder / "tuning" / "gemm").mkdir(parents=True)
    old, new = folder / "entry-x.tmp", folder / "entry-y.tmp"
    tuned = folder / "tuning" / "gemm" / "z.tmp"
    for path in (old, new, tuned):
        path.write_bytes(b"half")
    for path in (old, tuned):
        os.utime(path, (0, 0))
    put("one", 100)
    assert (old.exists(), tuned.exists(), new.exists()) == (False, False, True)


def test_clearing_removes_the_entries_and_keeps_other_files(folder):
    put("one", 100)
    (folder / "notes.txt").write_text("mine")
    assert [entry.path.name for entry in cache_folder.clear()] == ["one.kernel"]
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@on_posix
def test_a_new_folder_is_for_its_user_only(folder):
    before = os.umask(0)
    try:
        put("one", 100)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@on_posix
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_folder_that_others_can_write_to_is_not_used(folder, mode):
    put("one", 100)
    folder.chmod(mode)
    built = []
    with pytest.warns(RuntimeWarning, match=r"is not used: it can be written by other users"):
        assert cache.fetch("one", lambda: built.append(1) or {"cubin": b"new"}) == {"cubin": b"new"}
    cache.fetch("two", lambda: {"cubin": b"2"})  # without another warning
    assert built == [1]
    assert not kept("two")
    assert cache.fetch("one", lambda: pytest.fail("it is in memory")) == {"cubin": b"new"}


@on_posix
def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    put("one", 100)
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    if folder.stat().st_uid != 0:
        assert cache_folder.distrust(folder) == f"belongs to the user {folder.stat().st_uid}"
        return
    assert cache_folder.distrust(folder) is None  # root's
    monkeypatch.undo()
    os.chown(folder, 4242, -1)
    assert cache_folder.distrust(folder) == "belongs to the user 4242"


@on_posix
def test_a_folder_of_the_users_own_group_is_used(folder, monkeypatch):
    folder.mkdir(mode=0o770)
    folder.chmod(0o770)
    assert cache_folder.distrust(folder) is None
    monkeypatch.setattr("os.getegid", lambda: 4242)
    assert cache_folder.distrust(folder) == "can be written by other users"


@on_posix
@pytest.mark.parametrize("kind", ["pipe", "device", "link", "folder"])
def test_an_entry_that_is_no_regular_file_is_built_anew(folder, kind):
    folder.mkdir()
    path = cache.entry_path("one")
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "link":
            path.symlink_to(path)
        case "folder":
            path.mkdir()
    assert cache.fetch("one", lambda: {"cubin": b"1"}) == {"cubin": b"1"}
    assert cache.fetch("one", lambda: pytest.fail("built twice")) == {"cubin": b"1"}


def test_a_file_in_the_place_of_another_is_not_served(folder):
    put("one", 100)
    put("two", 50)
    cache.entry_path("two").write_bytes(cache.entry_path("one").read_bytes())
    assert cache.fetch("two", lambda: {"cubin": b"2"}) == {"cubin": b"2"}


def test_an_entry_with_other_parts_is_built_anew(folder):
    cache.fetch("one", lambda: {"ptx": b"1"})
    right = {"cubin": b"1", "ptx": b"1"}
    assert cache.fetch("one", lambda: right, right.keys()) == right
    assert cache.fetch("one", lambda: pytest.fail("built twice"), right.keys()) == right


def test_an_empty_setting_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", "")
    assert settings.cache_dir() == tmp_path / ".cache" / "pykittens"


@on_posix
@pytest.mark.parametrize("home", [None, ""])
@pytest.mark.parametrize("given", [None, "", "~/.cache/pykittens"])
def test_a_user_without_a_home_has_a_folder_among_the_temporary_files(home, given, monkeypatch):
    for variable, value in (("HOME", home), ("PYKITTENS_CACHE_DIR", given)):
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)

    def nobody(_: int) -> None:
        raise KeyError("no such user")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert settings.cache_dir() == Path(f"/tmp/pykittens-{os.getuid()}")


@on_posix
def test_the_home_of_nobody_is_refused(monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", "~nobody-of-that-name/cache")
    with pytest.raises(ArgumentError, match="PYKITTENS_CACHE_DIR must be a folder"):
        settings.cache_dir()
