"""The oldest releases are stated once: what pip reads and what people read are the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pykittens.runtime import least

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_project_file_states_them() -> None:
    assert PROJECT["requires-python"] == f">={least.shown(least.PYTHON)}"
    plain = {d for d in PROJECT["dependencies"] if ";" not in d}
    assert plain == {f"{n}>={least.shown(v)}" for n, v in least.PACKAGES.items()}
    extras = PROJECT["optional-dependencies"]
    assert extras["torch"] == [f"torch>={least.shown(least.TORCH)}"]
    (cuda12,) = extras["cuda12"]
    assert cuda12.startswith(f"nvidia-cuda-nvrtc-cu12>={least.shown(least.NVRTC)};")


def test_a_bare_installation_has_the_compiler_of_cuda_13() -> None:
    assert PROJECT["optional-dependencies"]["cuda13"] == [
        d for d in PROJECT["dependencies"] if ";" in d
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Python", least.shown(least.PYTHON)),
        (", ".join(least.PACKAGES), ", ".join(map(least.shown, least.PACKAGES.values()))),
        ("NVRTC, the compiler", least.shown(least.NVRTC)),
        ("NVIDIA driver", f"{least.DRIVERS[least.CUDA[0]]} (CUDA {least.shown(least.CUDA)})"),
        ("PyTorch", least.shown(least.TORCH)),
    ],
)
def test_the_page_on_installation_states_them(name: str, text: str) -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").lower()
    assert re.search(rf"^\| {re.escape(name.lower())} \| {re.escape(text.lower())} \|", page, re.M)
