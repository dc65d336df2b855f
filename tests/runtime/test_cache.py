"""The cache gives back what was built, and builds anew rather than give back something else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pykittens.runtime import cache

PARTS = {"cubin": bytes(range(256)) * 40, "ptx": b"// text", "log": b""}


class Build:
    """Makes `PARTS` and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, bytes]:
        self.calls += 1
        return dict(PARTS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    return tmp_path / "kernels"


def test_an_entry_is_built_once(folder: Path) -> None:
    build = Build()
    assert [cache.fetch("one", build) for _ in range(3)] == [PARTS] * 3
    assert build.calls == 1
    assert [path.name for path in folder.iterdir()] == ["one.kernel"]


def test_different_keys_are_different_entries(folder: Path) -> None:
    cache.fetch("one", Build())
    assert cache.fetch("two", lambda: {"cubin": b"2"}) == {"cubin": b"2"}
    assert len(list(folder.iterdir())) == 2


def test_an_entry_may_be_empty(folder: Path) -> None:
    cache.fetch("none", dict)
    assert cache.entry_path("none").is_file()
    assert cache.fetch("none", dict) == {}


def test_parts_of_a_key_do_not_run_together() -> None:
    keys = {
        cache.key("ab", "c"),
        cache.key("a", "bc"),
        cache.key("abc"),
        cache.key("abc", ""),
        cache.key("", "abc"),
        cache.key(),
    }
    assert len(keys) == 6


def test_a_key_is_a_name_for_a_file_and_the_same_for_text_and_its_bytes() -> None:
    assert cache.key("größe", b"\x00") == cache.key("größe".encode(), "\x00")
    assert len(cache.key("x")) == 64
    assert cache.key("x").isalnum()


def truncate(data: bytes) -> bytes:
    return data[:-1]


def lengthen(data: bytes) -> bytes:
    return data + b"\0"


def cut_in_the_header(data: bytes) -> bytes:
    return data[:20]


def empty(data: bytes) -> bytes:
    return b""


def flip_a_byte_of_a_part(data: bytes) -> bytes:
    return data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]


def flip_a_byte_of_the_hash(data: bytes) -> bytes:
    return data[:30] + bytes([data[30] ^ 0x80]) + data[31:]


def of_another_version(data: bytes) -> bytes:
    return b"pykitn00" + data[8:]


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        lengthen,
        cut_in_the_header,
        empty,
        flip_a_byte_of_a_part,
        flip_a_byte_of_the_hash,
        of_another_version,
    ],
)
def test_a_damaged_entry_is_built_anew_and_mended(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    build = Build()
    cache.fetch("one", build)
    file = cache.entry_path("one")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert cache.fetch("one", build) == PARTS
    assert build.calls == 2
    assert file.read_bytes() == whole
    assert cache.fetch("one", build) == PARTS
    assert build.calls == 2


def test_a_folder_that_cannot_be_made_keeps_the_entry_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Below a file, so that it fails for an administrator too.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    monkeypatch.setattr(cache, "_unwritten", {})
    build = Build()
    assert [cache.fetch("one", build) for _ in range(2)] == [PARTS] * 2
    assert build.calls == 1


def test_a_full_disk_keeps_the_entry_in_memory_and_leaves_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(cache, "_unwritten", {})
    build = Build()
    assert [cache.fetch("one", build) for _ in range(2)] == [PARTS] * 2
    assert build.calls == 1
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="an administrator may write anywhere")
def test_a_folder_without_permission_keeps_the_entry_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(mode=0o500)
    monkeypatch.setattr(cache, "_unwritten", {})
    build = Build()
    assert [cache.fetch("one", build) for _ in range(2)] == [PARTS] * 2
    assert build.calls == 1


def test_without_a_cache_nothing_is_read_or_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.fetch("one", lambda: {"cubin": b"old"})
    monkeypatch.setenv("PYKITTENS_NO_CACHE", "1")
    build = Build()
    assert cache.fetch("one", build) == PARTS
    assert cache.fetch("two", build) == PARTS
    assert build.calls == 2
    assert [path.name for path in folder.iterdir()] == ["one.kernel"]


def test_a_build_that_fails_leaves_no_entry(folder: Path) -> None:
    def fail() -> dict[str, bytes]:
        raise KeyError("no such kernel")

    with pytest.raises(KeyError, match="no such kernel"):
        cache.fetch("one", fail)
    assert cache.fetch("one", Build()) == PARTS


def test_threads_that_build_one_entry_at_once_all_get_it(folder: Path) -> None:
    together = threading.Barrier(8)
    results: list[dict[str, bytes]] = []

    def build() -> dict[str, bytes]:
        together.wait(timeout=30)  # so that all write at once
        return dict(PARTS)

    threads = [
        threading.Thread(target=lambda: results.append(cache.fetch("one", build))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [PARTS] * 8
    assert [path.name for path in folder.iterdir()] == ["one.kernel"]


# Fetches entries that other processes build, read and damage meanwhile.
WORKER = """
import sys
from pykittens.runtime import cache
worker, parts = int(sys.argv[1]), {"cubin": bytes(range(256)) * 40}
for turn in range(40):
    name = f"entry{turn % 4}"
    assert cache.fetch(name, lambda: dict(parts)) == parts
    if turn % 5 == worker:
        cache.entry_path(name).write_bytes(b"damaged")
for index in range(4):
    assert cache.fetch(f"entry{index}", lambda: dict(parts)) == parts
"""


def test_processes_that_build_one_entry_at_once_all_get_it(folder: Path) -> None:
    package = str(Path(cache.__file__).parents[2])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(worker)],
            env={**os.environ, "PYTHONPATH": package},
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker in range(3)
    ]
    errors = [worker.communicate(timeout=60)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], errors
    assert sorted(path.name for path in folder.iterdir()) == [f"entry{i}.kernel" for i in range(4)]
