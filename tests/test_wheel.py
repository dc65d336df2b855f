"""The wheel works if it is installed alone, away from the source tree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import pykittens
from pykittens.runtime import least, nvrtc
from pykittens.targets.architectures import TARGETS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")

PROGRAM = '''
import numpy as np
import pykittens as pk


@pk.kernel
def copied(x, y):
    """y = x, through shared memory: one warp fills it, another empties it."""
    ring = pk.pipeline(2, pk.st(pk.f32, 64, 64))
    tasks = pk.persistent(x.tiles(64, 64))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as tile:
                pk.load_async(tile, x[row, col])
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as tile:
                pk.store_async(y[row, col], tile)


@pk.kernel
def softened(x, y):
    row, col = pk.grid(pk.cdiv(x.rows, 64), 1)
    t = pk.load(x[row, col], rows=64, cols=64)
    e = pk.exp(t - pk.row_max(t))
    pk.store(y[row, col], e / pk.row_sum(e))


if __name__ == "__main__":
    x = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)
    y = np.full_like(x, np.nan)
    softened(x, y)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.abs(y - e / e.sum(axis=1, keepdims=True)).max() < 2.0**-20
    copied(x, y)
    assert (y == x).all()
    print(pk.__file__)
'''


class Alone:
    """An environment with the wheel, a folder away from the source tree, and the commands run there."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.home, self.folder = folder / "environment", folder / "elsewhere"
        self.folder.mkdir()
        (self.folder / "program.py").write_text(PROGRAM)
        venv.create(self.home, with_pip=False)
        self.bin = self.home / ("Scripts" if os.name == "nt" else "bin")
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python")]
        done(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
        # What the package needs is taken from here, but for the package itself and its paths. Links, and no
        # line in a .pth file: the compiler's library is looked for in the folder of the environment only.
        (site,) = self.home.rglob("site-packages")
        for needed in Path(sysconfig.get_path("purelib")).iterdir():
            if "pykittens" not in needed.name and not (site / needed.name).exists():
                (site / needed.name).symlink_to(needed)

    def run(self, program: str, *words: str) -> str:
        variables = {
            n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "PYKITTENS"))
        }
        variables["PYKITTENS_CACHE_DIR"] = str(self.folder / "cache")
        return done(str(self.bin / program), *words, cwd=self.folder, env=variables)


def done(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The output of a command; fails if the command did."""
    ran = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    done(sys.executable, "-m", "pip", "wheel", str(ROOT), *options)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("alone"), wheel)


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    files = {
        str(p.relative_to(ROOT))
        for p in (ROOT / "pykittens").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert any(f.endswith(".cuh") for f in files)
    held = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert held == files


def test_the_description_links_to_nothing_that_a_package_index_lacks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "| the tour | ten kernels" in text
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert [t for t in targets if not t.startswith("https://")] == []


def test_the_releases_of_python_are_those_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    minors = [int(c.removeprefix(prefix)) for c in project["classifiers"] if c.startswith(prefix)]
    assert (3, minors[0]) == least.PYTHON
    assert minors == [*range(minors[0], minors[0] + len(minors))]
    assert [c for c in project["classifiers"] if c not in trove_classifiers()] == []


def trove_classifiers() -> set[str]:
    return pytest.importorskip("trove_classifiers").classifiers  # hatchling needs it


def test_the_command_says_its_version(alone: Alone) -> None:
    assert alone.run("pykittens", "--version").strip() == f"pykittens {pykittens.__version__}"


def test_a_kernel_runs_in_the_emulator(alone: Alone) -> None:
    file = Path(alone.run("python", "-W", "error", "program.py").strip())
    assert file.is_relative_to(alone.home)


@needs_nvrtc
@pytest.mark.parametrize("kernel", ["softened", "copied"])
def test_a_kernel_is_compiled(alone: Alone, kernel: str) -> None:
    words = ("program.py", "--kernel", kernel, "--arg", "x=f32[100,64]", "--arg", "y=f32[100,64]")
    assert "registers per thread at entry" in alone.run("pykittens", "show", "resources", *words)
    alone.run("pykittens", "compile", *words, "--out", "built")
    assert (alone.folder / "built" / f"{kernel}.sm_90a.cubin").read_bytes()[:4] == b"\x7fELF"


def test_a_layout_is_drawn(alone: Alone) -> None:
    alone.run("pykittens", "show", "layout", "st<bf16, 64x64>", "-o", "tile.svg")
    assert (alone.folder / "tile.svg").read_text(encoding="utf-8").startswith("<svg ")


@needs_nvrtc
def test_the_doctor_finds_the_wheel_well(alone: Alone) -> None:
    report = json.loads(alone.run("pykittens", "doctor", "--json"))
    assert report["ok"]
    found = {f["name"]: f for f in report["findings"]}
    assert str(alone.home) in found["pykittens"]["text"]
    assert found["emulator"]["mark"] == "ok"
    assert {f"compile {name}" for name in TARGETS} <= set(found)
    assert str(alone.folder / "cache") in found["cache"]["text"]


def test_pytest_finds_the_fixture_without_configuration(alone: Alone) -> None:
    test = """
import numpy as np
from program import softened

def test_softened(check_kernel):
    x = np.ones((100, 64), np.float32)
    assert len(check_kernel(softened, x, np.empty_like(x)).seeds) == 3
"""
    (alone.folder / "test_program.py").write_text(test)
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--kernel-schedules", "3")
    assert "1 passed" in alone.run("python", *words, "test_program.py")


def test_the_checker_runs_a_file(alone: Alone) -> None:
    shown = alone.run("pykittens", "check", "program.py", "--schedules", "2")
    assert shown.count("no fault found") == 2


def test_the_demo_says_that_it_needs_the_examples(alone: Alone) -> None:
    assert "run it in a clone" in alone.run("pykittens", "demo")
