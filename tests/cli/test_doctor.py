"""`pykittens doctor`: each check sees what is there and what is not, and the report has a line a finding."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest

import pykittens
from pykittens import settings
from pykittens.cli import doctor, main
from pykittens.cli.doctor import Diagnosis, Status
from pykittens.errors import BackendError
from pykittens.runtime import cubin, driver, nvrtc, releases
from pykittens.targets.architectures import TARGETS

needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")


def one(found) -> Diagnosis:
    (finding,) = list(found)
    return finding


def named(found, name: str) -> Diagnosis:
    return one(f for f in found if f.name == name)


@pytest.mark.parametrize(
    ("version", "mark", "text"),
    [
        ("2.1.0", Status.OK, "2.1.0 (2 or newer is needed)"),
        ("2.0.0rc1", Status.OK, "2.0.0rc1 (2 or newer is needed)"),
        ("1.26.4", Status.WRONG, "1.26.4 is older than 2"),
    ],
)
def test_an_old_numpy_is_wrong(version, mark, text, monkeypatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: version if n == "numpy" else real(n))
    found = named(doctor.packages(), "numpy")
    assert (found.status, found.text) == (mark, text)
    assert found.help == ("" if mark is Status.OK else "pip install 'numpy>=2'")


def absent(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_missing_package_is_wrong(monkeypatch) -> None:
    monkeypatch.setattr(metadata, "version", absent)
    assert {(f.status, f.text) for f in doctor.packages()} == {(Status.WRONG, "not installed")}


def test_an_old_python_is_wrong(monkeypatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    found = named(doctor.python(), "Python")
    assert (found.status, found.help) == (Status.WRONG, "install Python 3.11 or newer")
    assert found.text.endswith("is older than 3.11")


@pytest.mark.parametrize(
    ("has_wheels", "status", "help"),
    [(True, Status.WRONG, "install it"), (False, Status.OPTIONAL, "")],
)
def test_a_missing_compiler_is_wrong_where_it_has_wheels_and_optional_elsewhere(
    has_wheels, status, help, monkeypatch
) -> None:
    def missing() -> releases.Release:
        raise BackendError("the NVRTC library was not found", help="install it")

    monkeypatch.setattr(releases, "chosen", missing)
    monkeypatch.setattr(doctor, "HAS_COMPILER", has_wheels)
    assert one(doctor.compiler()) == Diagnosis(
        "NVRTC", status, "the NVRTC library was not found", help
    )


def of(major: int, minor: int, fault: str = "") -> releases.Release:
    return releases.Release(f"/lib/libnvrtc.so.{major}.{minor}", (major, minor), fault)


@pytest.mark.parametrize(
    ("cuda", "chosen", "mark", "lines"),
    [
        (
            (13, 0),
            (13, 5),
            Status.OK,
            [
                "13.5 (12.8 or newer is needed), /lib/libnvrtc.so.13.5",
                "not used: 12.9, /lib/libnvrtc.so.12.9: 13.5 is newer",
                "not used: /lib/libnvrtc.so.12.4 is older than 12.8",
            ],
        ),
        (
            (12, 8),
            (12, 9),
            Status.OK,
            [
                "12.9 (12.8 or newer is needed), /lib/libnvrtc.so.12.9",
                "not used: 13.5, /lib/libnvrtc.so.13.5: the driver is for CUDA 12.8 and does not load what it compiles",
                "not used: /lib/libnvrtc.so.12.4 is older than 12.8",
            ],
        ),
        (
            (11, 8),
            (13, 5),
            Status.WRONG,
            [
                "13.5 (12.8 or newer is needed), /lib/libnvrtc.so.13.5: "
                "the driver is for CUDA 11.8 and does not load what it compiles",
                "not used: 12.9, /lib/libnvrtc.so.12.9: the driver is for CUDA 11.8 and does not load what it compiles",
                "not used: /lib/libnvrtc.so.12.4 is older than 12.8",
            ],
        ),
    ],
)
def test_the_libraries_that_do_not_compile_are_named_with_the_reason(
    cuda, chosen, mark, lines, monkeypatch
) -> None:
    monkeypatch.setattr(driver, "version", lambda: cuda)
    found = (of(13, 5), of(12, 9), of(12, 4, "is older than 12.8"))
    monkeypatch.setattr(releases, "releases", lambda: found)
    (here,) = [r for r in found if r.version == chosen]
    monkeypatch.setattr(releases, "chosen", lambda: here)
    monkeypatch.setattr(doctor, "TARGETS", {})
    diagnosis = one(doctor.compiler())
    assert diagnosis.text.splitlines() == lines
    assert diagnosis.status is mark
    assert bool(diagnosis.help) == (mark is Status.WRONG)


@needs_nvrtc
def test_a_kernel_is_compiled_for_every_target(monkeypatch) -> None:
    compiled = []
    real = nvrtc.compile
    monkeypatch.setattr(
        nvrtc, "compile", lambda text, arch, *rest: compiled.append(arch) or real(text, arch, *rest)
    )
    found = list(doctor.compiler())
    assert [f.name for f in found] == ["NVRTC", *(f"compile {name}" for name in TARGETS)]
    assert {f.status for f in found} == {Status.OK}
    assert compiled == list(TARGETS)


@needs_nvrtc
def test_a_target_that_does_not_compile_is_wrong(monkeypatch) -> None:
    def refuse(text: str, arch: str, *rest: object) -> None:
        raise BackendError(f"NVRTC 13.0 does not know the architecture {arch}", help="update it")

    monkeypatch.setattr(nvrtc, "compile", refuse)
    found = list(doctor.compiler())[1:]
    assert {f.status for f in found} == {Status.WRONG}
    assert found[0].help == "update it"


def test_a_missing_disassembler_is_no_fault(monkeypatch) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    assert one(doctor.disassembler()).status is Status.OPTIONAL
    monkeypatch.setattr(cubin, "disassembler", lambda: sys.executable)  # it states no release
    text = f"unknown release, {sys.executable}"
    assert one(doctor.disassembler()) == Diagnosis("nvdisasm", Status.OK, text)


def test_the_emulator_runs_a_kernel_and_a_wrong_result_shows(monkeypatch) -> None:
    assert one(doctor.emulator()).status is Status.OK

    def nearly(x, y) -> None:
        y[:] = x - x.max(axis=1, keepdims=True)
        y[-1, -1] = np.nextafter(y[-1, -1], np.float32(np.inf))

    monkeypatch.setattr(doctor, "centred", nearly)
    assert one(doctor.emulator()).status is Status.WRONG
    monkeypatch.setattr(doctor, "centred", lambda x, y: None)
    assert one(doctor.emulator()).status is Status.WRONG


def test_the_cache_is_told_with_its_size(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(settings.NO_CACHE.variable, raising=False)
    monkeypatch.setenv(settings.CACHE_DIR.variable, str(tmp_path / "new"))
    assert one(doctor.cache()).text == f"{tmp_path / 'new'}, 0 kernels, 0.0 MiB"
    (tmp_path / "new" / "a.kernel").write_bytes(bytes(3 * 2**20))
    (tmp_path / "new" / "other").write_bytes(bytes(2**20))
    assert one(doctor.cache()).text.endswith("1 kernel, 3.0 MiB")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.kernel", "other"]


def test_a_cache_that_cannot_be_written_is_wrong(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(settings.NO_CACHE.variable, raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(settings.CACHE_DIR.variable, str(tmp_path / "file" / "below"))
    found = one(doctor.cache())
    assert found.status is Status.WRONG
    assert "PYKITTENS_CACHE_DIR=" in found.help
    monkeypatch.setenv(settings.NO_CACHE.variable, "1")
    assert one(doctor.cache()).status is Status.OPTIONAL


def test_variables_that_are_set_misspelt_or_no_number_are_told(monkeypatch) -> None:
    for setting in settings.SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    assert one(doctor.variables()).text == "none set"
    monkeypatch.setenv("PYKITTENS_SEED", "3")
    assert one(doctor.variables()) == Diagnosis("variables", Status.OK, "PYKITTENS_SEED=3")
    monkeypatch.setenv("PYKITTENS_SEEDS", "3")
    found = list(doctor.variables())[1]
    assert (found.status, found.help) == (Status.OPTIONAL, "unset PYKITTENS_SEEDS")
    monkeypatch.setenv("PYKITTENS_SEED", "three")
    assert next(iter(doctor.variables())).status is Status.WRONG


# -- the report --------------------------------------------------------------------------------


def findings(*found: Diagnosis):
    def check() -> Iterator[Diagnosis]:
        yield from found

    return check


FINE = Diagnosis("emulator", Status.OK, "ran")
COMPILED = Diagnosis("compile sm_90a", Status.OK, "compiled")
RAN = Diagnosis("launch", Status.OK, "a kernel ran")
ABSENT = Diagnosis("nvdisasm", Status.OPTIONAL, "none", "pip install nvidia-cuda-nvdisasm")
BROKEN = Diagnosis("NVRTC", Status.WRONG, "not found", "pip install 'nvidia-cuda-nvrtc>=13,<14'")


@pytest.mark.parametrize(
    ("found", "code", "end"),
    [
        ([FINE], 0, "Kernels can be emulated here."),
        ([FINE, COMPILED], 0, "Kernels can be emulated here and compiled."),
        ([FINE, COMPILED, RAN, ABSENT], 0, "emulated here, compiled and run on a GPU."),
        ([FINE, BROKEN, ABSENT], 1, "1 of 3 checks found a fault."),
    ],
)
def test_the_last_line_says_what_works_here(found, code, end, monkeypatch, capsys) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (findings(*found),))
    assert main(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(end)
    for f in found:
        (line,) = [line for line in lines if f.name in line and "help" not in line]
        assert f.text in line
        assert line[0] == {Status.OK: "✓", Status.OPTIONAL: "–", Status.WRONG: "✗"}[f.status]


def test_what_would_help_stands_below_its_finding(monkeypatch, capsys) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (findings(BROKEN, FINE),))
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert f"what would help: {BROKEN.help}" in lines[1]


def test_brackets_in_a_finding_are_printed_as_they_are(monkeypatch, capsys) -> None:
    odd = Diagnosis("x", Status.OK, "[red]not markup[/] [0]")
    monkeypatch.setattr(doctor, "CHECKS", (findings(odd),))
    main(["doctor"])
    assert odd.text in capsys.readouterr().out


def test_the_report_for_programs_has_every_finding(monkeypatch, capsys) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (findings(FINE, BROKEN),))
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "version": pykittens.__version__,
        "ok": False,
        "findings": [
            {"name": "emulator", "mark": "ok", "text": "ran", "help": ""},
            {"name": "NVRTC", "mark": "wrong", "text": "not found", "help": BROKEN.help},
        ],
    }


def test_a_check_that_stumbles_is_a_finding(monkeypatch, capsys) -> None:
    def of_the_moon() -> Iterator[Diagnosis]:
        yield FINE
        raise OSError("no moon")

    monkeypatch.setattr(doctor, "CHECKS", (of_the_moon, findings(COMPILED)))
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "of the moon" in text
    assert "OSError: no moon" in text
    assert "compile sm_90a" in text
