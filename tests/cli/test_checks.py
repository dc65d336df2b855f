"""Each check of the package and the compiler sees what is there and what is not."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from pykittens import settings
from pykittens.cli import checks, trial
from pykittens.cli.findings import Finding, Mark
from pykittens.errors import BackendError
from pykittens.runtime import cubin, nvrtc
from pykittens.targets.architectures import TARGETS

ROOT = Path(__file__).resolve().parents[2]
needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")


def one(found) -> Finding:
    (finding,) = list(found)
    return finding


def named(found, name: str) -> Finding:
    return one(f for f in found if f.name == name)


def test_the_least_versions_are_those_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={'.'.join(map(str, checks.PYTHON))}"
    plain = {d for d in project["dependencies"] if ";" not in d}
    assert plain == {f"{n}>={v}" for n, v in checks.PACKAGES.items()}
    compiler = {d.split(";")[0] for d in project["dependencies"] if ";" in d}
    assert compiler == {f"{n}>={v},<{int(v) + 1}" for n, v in checks.COMPILER_PACKAGES.items()}


@pytest.mark.parametrize(
    ("version", "mark", "text"),
    [
        ("2.1.0", Mark.OK, "2.1.0"),
        ("2.0.0rc1", Mark.OK, "2.0.0rc1"),
        ("1.26.4", Mark.WRONG, "1.26.4 is older than 2"),
    ],
)
def test_an_old_numpy_is_wrong(version, mark, text, monkeypatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: version if n == "numpy" else real(n))
    found = named(checks.packages(), "numpy")
    assert (found.mark, found.text) == (mark, text)
    assert found.help == ("" if mark is Mark.OK else "pip install 'numpy>=2'")


def absent(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_missing_compiler_is_wrong_where_it_has_wheels_and_optional_elsewhere(
    monkeypatch,
) -> None:
    monkeypatch.setattr(metadata, "version", absent)
    monkeypatch.setattr(nvrtc, "available", lambda: "no compiler")
    monkeypatch.setattr(checks, "HAS_COMPILER", True)
    found = list(checks.compiler_packages())
    assert {f.mark for f in found} == {Mark.WRONG}
    assert found[0].help == "pip install 'cuda-bindings>=13,<14'"
    monkeypatch.setattr(checks, "HAS_COMPILER", False)
    found = list(checks.compiler_packages())
    assert {f.mark for f in found} == {Mark.OPTIONAL}
    assert {f.help for f in found} == {""}


def test_a_toolkit_serves_in_place_of_the_wheels(monkeypatch) -> None:
    monkeypatch.setattr(metadata, "version", absent)
    monkeypatch.setattr(nvrtc, "available", lambda: None)
    marks = {f.name: f.mark for f in checks.compiler_packages()}
    assert marks["nvidia-cuda-nvrtc"] is Mark.OPTIONAL
    assert marks["cuda-bindings"] is (Mark.WRONG if checks.HAS_COMPILER else Mark.OPTIONAL)


def test_a_compiler_of_another_generation_is_wrong(monkeypatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "14.0.1")
    found = named(checks.compiler_packages(), "cuda-bindings")
    assert (found.mark, found.text) == (Mark.WRONG, "14.0.1 is newer than 13.x")


@needs_nvrtc
def test_a_kernel_is_compiled_for_every_target(monkeypatch) -> None:
    compiled = []
    real = nvrtc.compile
    monkeypatch.setattr(
        nvrtc, "compile", lambda text, arch, *rest: compiled.append(arch) or real(text, arch, *rest)
    )
    found = list(checks.compiler())
    assert [f.name for f in found[:2]] == ["NVRTC", "CUDA headers"]
    assert [f.name for f in found[2:]] == [f"compile {name}" for name in TARGETS]
    assert {f.mark for f in found} == {Mark.OK}
    assert compiled == list(TARGETS)


@needs_nvrtc
def test_a_target_that_does_not_compile_is_wrong(monkeypatch) -> None:
    def refuse(text: str, arch: str, *rest: object) -> None:
        raise BackendError(f"NVRTC 13.0 does not know the architecture {arch}", help="update it")

    monkeypatch.setattr(nvrtc, "compile", refuse)
    found = list(checks.compiler())[2:]
    assert {f.mark for f in found} == {Mark.WRONG}
    assert found[0].help == "update it"


def test_a_missing_library_and_missing_headers_are_wrong(monkeypatch) -> None:
    def missing() -> tuple[int, int]:
        raise BackendError("the NVRTC library was not found", help="pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(checks, "HAS_COMPILER", True)
    monkeypatch.setattr(nvrtc, "version", missing)
    found = one(checks.compiler())
    assert (found.mark, found.help) == (Mark.WRONG, "pip install nvidia-cuda-nvrtc")
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc, "header_folder", lambda: None)
    found = named(checks.compiler(), "CUDA headers")
    assert (found.mark, found.help) == (Mark.WRONG, "pip install nvidia-cuda-runtime")
    monkeypatch.setattr(checks, "HAS_COMPILER", False)
    assert named(checks.compiler(), "CUDA headers").mark is Mark.OPTIONAL


def test_a_missing_disassembler_is_no_fault(monkeypatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    assert one(checks.disassembler()).mark is Mark.OPTIONAL
    monkeypatch.setattr(cubin, "disassembler", lambda: "/bin/nvdisasm")
    assert one(checks.disassembler()) == Finding("nvdisasm", Mark.OK, "/bin/nvdisasm")


def test_the_emulator_runs_a_kernel_and_a_wrong_result_shows(monkeypatch) -> None:
    assert one(checks.emulator()).mark is Mark.OK

    def nearly(x, y) -> None:
        y[:] = x - x.max(axis=1, keepdims=True)
        y[-1, -1] = np.nextafter(y[-1, -1], np.float32(np.inf))

    monkeypatch.setattr(trial, "centred", nearly)
    assert one(checks.emulator()).mark is Mark.WRONG
    monkeypatch.setattr(trial, "centred", lambda x, y: None)
    assert one(checks.emulator()).mark is Mark.WRONG


def test_the_cache_is_told_with_its_size(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(settings.NO_CACHE.variable, raising=False)
    monkeypatch.setenv(settings.CACHE_DIR.variable, str(tmp_path / "new"))
    assert one(checks.cache()).text == f"{tmp_path / 'new'}, 0 kernels, 0.0 MiB"
    (tmp_path / "new" / "a.kernel").write_bytes(bytes(3 * 2**20))
    (tmp_path / "new" / "other").write_bytes(bytes(2**20))
    assert one(checks.cache()).text.endswith("1 kernel, 3.0 MiB")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.kernel", "other"]


def test_a_cache_that_cannot_be_written_is_wrong(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(settings.NO_CACHE.variable, raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(settings.CACHE_DIR.variable, str(tmp_path / "file" / "below"))
    found = one(checks.cache())
    assert found.mark is Mark.WRONG
    assert "PYKITTENS_CACHE_DIR=" in found.help
    monkeypatch.setenv(settings.NO_CACHE.variable, "1")
    assert one(checks.cache()).mark is Mark.OPTIONAL


def test_variables_that_are_set_misspelt_or_no_number_are_told(monkeypatch) -> None:
    for setting in settings.SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    assert one(checks.variables()).text == "none set"
    monkeypatch.setenv("PYKITTENS_SEED", "3")
    assert one(checks.variables()) == Finding("variables", Mark.OK, "PYKITTENS_SEED=3")
    monkeypatch.setenv("PYKITTENS_SEEDS", "3")
    found = list(checks.variables())[1]
    assert (found.mark, found.help) == (Mark.OPTIONAL, "unset PYKITTENS_SEEDS")
    monkeypatch.setenv("PYKITTENS_SEED", "three")
    assert next(iter(checks.variables())).mark is Mark.WRONG
