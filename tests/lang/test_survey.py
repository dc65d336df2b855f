"""What a kernel of an installed package depends on: the files of that package can change, those of others cannot."""

import importlib
import sys

import pytest

from pykittens.errors import LanguageError
from tests.lang.test_dependencies import value, writes

SCALED = """
import pykittens as pk
SCALE = 1.0
@pk.kernel(warps=1)
def scaled(out):
    (row,) = pk.grid(out.rows)
    pk.store(out[row], pk.full(pk.f32, SCALE, 8))
"""
COUNTED = """
import pykittens as pk
class Counter:
    def __init__(self):
        self.count = 1.0
    def add(self):
        self.count = self.count + 1.0
@pk.kernel(warps=1)
def counted(out):
    (row,) = pk.grid(out.rows)
    counter = Counter()
    for _ in pk.range(out.rows):
        counter.add()
    pk.store(out[row], pk.full(pk.f32, counter.count, 8))
"""


@pytest.fixture(params=["site-packages", "dist-packages"])
def installed(request, tmp_path, monkeypatch):
    """`installed(text)` imports an installed package with this text."""
    folder = tmp_path / request.param
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def load(text):
        (folder / "of_an_installer.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module("of_an_installer")

    yield load
    sys.modules.pop("of_an_installer", None)


def test_a_kernel_of_an_installed_package_follows_that_package(installed):
    loaded = installed(SCALED)
    assert value(loaded.scaled) == 1
    loaded.SCALE = 2.0
    assert value(loaded.scaled) == 2
    kernel = writes(lambda: loaded.SCALE)  # from outside it is constant
    assert value(kernel) == 2
    loaded.SCALE = 3.0
    assert value(kernel) == 2


def test_a_loop_of_an_installed_package_sees_the_objects_of_that_package(installed):
    with pytest.raises(LanguageError, match="a run-time loop changes `counter.count`"):
        value(installed(COUNTED).counted)
