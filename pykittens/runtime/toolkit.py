"""Finds the parts of a CUDA toolkit on this machine: the compiler NVRTC and the disassembler.

Their wheels are enough; an installed toolkit serves as well.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pykittens import settings

# The file names of NVRTC, newest first, and the folders of a toolkit that may hold it.
_WINDOWS = sys.platform == "win32"
NVRTC = (
    ("nvrtc64_130_0.dll", "nvrtc64_120_0.dll") if _WINDOWS else ("libnvrtc.so.13", "libnvrtc.so.12")
)
_LIBRARY_FOLDERS = ("bin/x86_64", "bin/x64", "bin", "lib") if _WINDOWS else ("lib", "lib64")


def folders() -> list[Path]:
    """Folders that may hold a toolkit's `lib` and `bin`: wheels, conda's, then installed toolkits."""
    try:
        wheels = [Path(root) for root in importlib.import_module("nvidia").__path__]
    except ImportError:
        wheels = []
    # The wheels of CUDA 13 share one folder; those before have one each.
    found = [folder for root in wheels for folder in sorted(root.glob("cu[1-9]*"), reverse=True)]
    found += [folder for root in wheels for folder in sorted(root.glob("cuda_*"))]
    if conda := os.environ.get("CONDA_PREFIX"):
        found += [*Path(conda).glob("targets/*"), Path(conda, "Library"), Path(conda)]
    homes = [os.environ.get(variable, "") for variable in ("CUDA_HOME", "CUDA_PATH")]
    return found + [Path(home) for home in (*homes, "/usr/local/cuda") if home]


def nvrtc_libraries() -> Iterator[str]:
    """The candidates for NVRTC: a name that the loader finds, a toolkit's file, PyTorch's copy.

    The names come first: once a file is loaded, its name means this file. If PYKITTENS_NVRTC is set, it is the only
    candidate.
    """
    if given := settings.NVRTC.read():
        yield given
        return
    yield from NVRTC
    yield from _nvrtc_files(folders())
    yield from _nvrtc_files(Path(root, "torch") for root in sys.path)


def _nvrtc_files(roots: Iterable[Path]) -> Iterator[str]:
    files = (root / sub / name for root in roots for sub in _LIBRARY_FOLDERS for name in NVRTC)
    return (str(file) for file in files if file.is_file())
