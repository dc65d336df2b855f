"""A result of tuning holds for the files of the kernels and of what they import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pykittens.runtime import tuning_records
from pykittens.runtime.program_files import files_of, modules_of

FILES = {
    "my_configs": "class Tiles: pass\n",
    "my_parts": "import my_numbers\ndef part(x): return x\n",
    "my_numbers": "SCALE = 2.0\n",
    "my_modules": "import json, numpy, pykittens\nimport my_parts as parts\n",
    "my_kernels": """
import pykittens as pk
from my_configs import Tiles
from my_parts import part
@pk.kernel
def doubled(x, y):
    (row,) = pk.grid(1)
    pk.store(y[row, 0], part(pk.load(x[row, 0], rows=64, cols=64)))
""",
    "my_host": "from my_kernels import doubled\n",
    "my_other": "",
}


@pytest.fixture
def program(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    files_of.cache_clear()
    yield tmp_path
    files_of.cache_clear()
    for name in FILES:
        sys.modules.pop(name, None)


def reached(*names):
    for name in names:
        __import__(name)
    files_of.cache_clear()
    found = files_of(tuple(names))
    return None if found is None else {path.stem for path in found}


def test_the_files_are_those_of_all_modules_that_are_reached(program):
    assert reached("my_configs") == {"my_configs"}
    assert reached("my_parts") == {"my_parts", "my_numbers"}
    assert reached("my_modules") == {"my_modules", "my_parts", "my_numbers"}
    assert reached("my_kernels") == {"my_kernels", "my_configs", "my_parts", "my_numbers"}
    assert reached("my_host") == {"my_host", *reached("my_kernels")}


def test_a_kernel_in_another_file_than_the_candidates_counts(program):
    __import__("my_kernels")
    kernels = sys.modules["my_kernels"]
    names = modules_of((kernels.Tiles, kernels.doubled))
    assert names == ("my_configs", "my_kernels")
    hashed = tuning_records._hash_of_programs.__wrapped__
    files = files_of(names)
    seen = [hashed(files)]
    for name in ("my_configs", "my_kernels", "my_parts", "my_numbers", "my_other"):
        (program / f"{name}.py").write_text(FILES[name] + "# changed\n")
        seen.append(hashed(files))
    assert len(set(seen[:-1])) == 5
    assert seen[-1] == seen[-2]


def test_a_module_without_a_file_gives_none(program, monkeypatch):
    __import__("my_parts")
    monkeypatch.delattr(sys.modules["my_parts"], "__file__")
    assert reached("my_parts") is None
    assert files_of(("no_module_of_that_name",)) is None


def test_modules_of_python_and_of_installed_packages_are_not_followed(program):
    __import__("tests.runtime.tuning")
    found = files_of(("tests.runtime.tuning",))
    installed = Path(pytest.__file__).parent.parent
    assert not any(path.is_relative_to(installed) for path in found)
