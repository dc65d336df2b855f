"""Machine code comes from the cache only if the same compiler has compiled the same text."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pykittens.runtime import cache, cache_folder, nvrtc
from pykittens.runtime.compiled import binary_of
from pykittens.targets.source import Source

SPILL = "warning : Registers are spilled to local memory in function 'k'"
PROGRAM = 'extern "C" __global__ void __launch_bounds__(1024) k(float *p) { *p = 1.0f; }'


class Compiler:
    """In place of NVRTC: machine code that tells its text; a program spills if the log says so."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.spills = False

    def __call__(self, text: str, arch: str, name: str) -> nvrtc.Binary:
        self.texts.append(text)
        tight = "__launch_bounds__(1024)" in text
        return nvrtc.Binary(
            f"{name} {arch} {text}".encode(), "ptx", SPILL * (self.spills and tight)
        )


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    monkeypatch.setattr(nvrtc, "identity", lambda: "13.0.88")
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    made = Compiler()
    monkeypatch.setattr(nvrtc, "compile", made)
    return made


def source(program: str = PROGRAM, name: str = "k") -> Source:
    return Source(name, "// k", "", program, 1024, 0, [], [])


def test_a_text_is_compiled_once(compiler):
    assert binary_of(source(), "sm_90a") == binary_of(source(), "sm_90a")
    assert len(compiler.texts) == 1


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (nvrtc, "identity", lambda: "13.0.48"),
        (nvrtc, "OPTIONS", ("-std=c++17",)),
        (cache, "package_version", lambda: "99.0"),
    ],
)
def test_another_compiler_option_or_package_compiles_anew(
    compiler, monkeypatch, module, name, value
):
    binary_of(source(), "sm_90a")
    with monkeypatch.context() as patch:
        patch.setattr(module, name, value)
        binary_of(source(), "sm_90a")
    binary_of(source(), "sm_90a")
    assert len(compiler.texts) == 2


def test_another_architecture_or_name_compiles_anew(compiler):
    found = [
        binary_of(source(name=name), arch).cubin
        for name in ("k", "l")
        for arch in ("sm_80", "sm_90a")
    ]
    assert len(set(found)) == len(compiler.texts) == 4


def test_both_programs_of_a_kernel_that_spills_are_kept(compiler):
    compiler.spills = True
    first = binary_of(source(), "sm_90a")
    assert b"__launch_bounds__(1024, 1)" in first.cubin
    assert binary_of(source(), "sm_90a") == first
    assert len(compiler.texts) == 2
    # The choice is made anew: here by a reading of the log that finds no fault.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "performance_faults", lambda log: [])
        assert b"__launch_bounds__(1024)" in binary_of(source(), "sm_90a").cubin
    assert len(compiler.texts) == 2


@pytest.mark.parametrize("line", ["#include <cuda_fp16.h>", "#  include SOME", "#import <x>"])
def test_a_text_that_includes_a_header_is_compiled_each_time(compiler, line):
    for _ in range(2):
        binary_of(source(f"{line}\n{PROGRAM}"), "sm_90a")
    assert len(compiler.texts) == 2
    assert cache_folder.entries() == []


def test_the_identity_of_a_compiler_changes_with_its_files(tmp_path, monkeypatch):
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        (tmp_path / name).write_bytes(b"one")
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc, "library_path", lambda: str(tmp_path / "libnvrtc.so.13"))
    seen = [nvrtc.identity.__wrapped__()]
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        (tmp_path / name).write_bytes(b"another")
        seen.append(nvrtc.identity.__wrapped__())
    assert len(set(seen)) == 3


def test_compilations_and_reads_are_logged(compiler, caplog):
    with caplog.at_level(logging.INFO, logger="pykittens"):
        binary_of(source(), "sm_90a")
        binary_of(source(), "sm_90a")
    first, second = caplog.messages
    assert first.startswith("k for sm_90a: compiled in ")
    assert second.startswith("k for sm_90a: read from the cache in ")


SHOWN = """
import numpy as np
import pykittens as pk
@pk.kernel
def copied(x, y):
    (row,) = pk.grid(1)
    pk.store(y[row, 0], pk.load(x[row, 0], rows=64, cols=64))
x = np.ones((16, 16), np.float32)
copied(x, x.copy())
"""


@pytest.mark.parametrize(("value", "lines"), [("1", 1), ("0", 0), ("", 0)])
def test_the_log_is_shown_if_the_setting_asks_for_it(tmp_path, value, lines):
    (tmp_path / "program.py").write_text(SHOWN)
    root = str(Path(nvrtc.__file__).parents[2])
    shown = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env={**os.environ, "PYTHONPATH": root, "PYKITTENS_LOG": value},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert shown.count("copied: recorded") == shown.count("\n") == lines
