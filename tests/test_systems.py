"""What needs no GPU has nothing of Linux in it: it runs without the modules and functions that other systems lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pykittens import errors
from tests.test_wheel import PROGRAM

ROOT = Path(__file__).resolve().parent.parent

# Runs the commands of its arguments as on the system that is its first argument. NumPy and rich adapt to a system on
# their own, and pathlib takes its classes from `os.name`, so these see Linux.
SYSTEM = """
import ctypes, os, pathlib, shutil, signal, subprocess, sys, tempfile
import ml_dtypes, numpy, rich.console, rich.table

system, *words = sys.argv[1:]
sys.platform = system
if system == "win32":
    for name in ("fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios"):
        sys.modules[name] = None
    for name in ("fork", "getuid", "killpg", "sched_getaffinity", "O_NONBLOCK"):
        delattr(os, name)
    for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "setitimer"):
        delattr(signal, name)

def library(name, *rest, **others):
    if name is None and system == "win32":
        raise TypeError("a library has a name")
    raise OSError(f"{name} is a file of Linux")

ctypes.CDLL = library
shutil.which = lambda *words, **others: None  # it takes its functions from sys.platform
sys.modules["nvidia"] = sys.modules["torch"] = None
sys.path.insert(0, os.getcwd())
sys.argv = ["pykittens", *words]
if words:
    from pykittens.cli import main
    sys.exit(main())
import runpy
runpy.run_path("program.py", run_name="__main__")
"""


def run(folder: Path, system: str, *words: str, code: int = 0, encoding: str = "utf-8") -> str:
    (folder / "system.py").write_text(SYSTEM)
    (folder / "program.py").write_text(PROGRAM)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    variables |= {"PYKITTENS_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-W", "error", "system.py", system, *words]
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout.decode(encoding) + done.stderr.decode(encoding)
    return done.stdout.decode(encoding)


SYSTEMS = pytest.mark.parametrize("system", ["darwin", "win32"])


@SYSTEMS
def test_kernels_run_in_the_emulator(system: str, tmp_path: Path) -> None:
    assert str(ROOT) in run(tmp_path, system)


@SYSTEMS
def test_kernels_are_checked(system: str, tmp_path: Path) -> None:
    shown = run(tmp_path, system, "check", "program.py", "--schedules", "2")
    assert shown.count("no fault found") == 2


@SYSTEMS
def test_source_and_layouts_are_shown(system: str, tmp_path: Path) -> None:
    words = ("program.py", "--kernel", "softened", "--arg", "x=f32[9,64]", "--arg", "y=f32[9,64]")
    assert "softened(" in run(tmp_path, system, "show", "source", *words)
    run(tmp_path, system, "show", "layout", "st<bf16, 64x64>", "-o", "tile.svg")
    assert (tmp_path / "tile.svg").is_file()


@SYSTEMS
def test_the_doctor_finds_nothing_wrong_but_the_compiler_that_has_no_wheel(
    system: str, tmp_path: Path
) -> None:
    lacks = ["NVRTC"] if system == "win32" else []
    report = json.loads(run(tmp_path, system, "doctor", "--json", code=len(lacks)))
    wrong = [f["name"] for f in report["findings"] if f["mark"] == "wrong"]
    assert wrong == lacks


def test_a_page_of_another_encoding_is_written(tmp_path: Path) -> None:
    assert "?" in run(tmp_path, "darwin", "doctor", encoding="cp1252")


def test_a_file_on_another_drive_is_shown_with_its_whole_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def other_drive(path: str) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr(os.path, "relpath", other_drive)
    assert errors._shown_path("D:/kernels/sum.py") == "D:/kernels/sum.py"
