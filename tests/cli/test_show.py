"""`pykittens show` prints or writes what a kernel becomes, and draws layouts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pykittens.cli import main
from pykittens.cli.arguments import load
from pykittens.pictures.picture import picture
from pykittens.runtime import cubin, nvrtc
from pykittens.types.dtypes import bf16
from pykittens.types.tiles import RT

ROOT = Path(__file__).resolve().parents[2]
ADD = str(ROOT / "examples" / "02_add.py")
ARGS = [w for n in ("a", "b", "out") for w in ("--arg", f"{n}=bf16[100,130]")]
needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")
needs_nvdisasm = pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm was not found")


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["show", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.endswith("\n")
    return out


@pytest.mark.parametrize(
    ("words", "listed"), [([], ["doctor", "check", "show"]), (["show"], ["ir", "layout"])]
)
def test_without_a_command_the_commands_are_listed(
    words: list[str], listed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for word in listed:
        assert f"\n    {word} " in err


def test_the_ir_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "ir", ADD, *ARGS)
    assert text.startswith("kernel add(a: gl<bf16, 2>, b: gl<bf16, 2>, out: gl<bf16, 2>)\n")


def test_the_cuda_text_is_that_of_the_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "source", ADD, "--kernel", "add", *ARGS, "--arch", "sm_90a")
    arrays = [np.zeros((100, 130), bf16.numpy) for _ in range(3)]
    assert text == load(ROOT / "examples" / "02_add.py").add.source(*arrays, arch="sm_90a")


@needs_nvrtc
def test_ptx_and_resources_are_those_of_the_compiled_kernel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ".target sm_90a" in shown(capsys, "ptx", ADD, *ARGS)
    text = shown(capsys, "resources", ADD, *ARGS)
    assert text.startswith("128 threads, ")
    assert "0 bytes of shared memory, 0 bytes of local memory per thread" in text


@needs_nvrtc
@needs_nvdisasm
def test_machine_code_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert "EXIT" in shown(capsys, "sass", ADD, *ARGS)


def test_a_layout_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    svg = shown(capsys, "layout", "rt<bf16, 64x64>", "--warps", "2")
    assert svg == picture(RT(bf16, 64, 64), 2)
    assert shown(capsys, "layout", "rt<bf16, 64x64>") == picture(RT(bf16, 64, 64), 4)


def test_what_is_shown_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in {
        "tile.svg": ["layout", "st<bf16, 64x64>"],
        "add.cu": ["source", ADD, *ARGS],
    }.items():
        printed = shown(capsys, *words)
        assert main(["show", *words, "-o", str(tmp_path / name)]) == 0
        assert capsys.readouterr().out == ""
        assert (tmp_path / name).read_text(encoding="utf-8") == printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["layout", "rt<bf16>"], "is not a type"),
        (["layout", "rt<bf16, 16x16>"], "must be a multiple of 64"),
        (["layout", "st<bf16, 64x64>", "-o", "/nowhere/a/tile.svg"], "cannot be written"),
        (["source", ADD, *ARGS, "--arch", "sm_12"], "no target for the architecture"),
        (["source", ADD], "`a` is missing"),
    ],
)
def test_a_fault_is_a_sentence_and_exit_code_1(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert "test_show.py" not in err, "the caller of the command line is no line of a kernel"


def test_a_reader_that_stops_early_is_no_fault_to_speak_of() -> None:
    command = f"{sys.executable} -m pykittens.cli show layout 'rt<bf16, 64x64>' | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("<svg ")
    assert done.stderr == ""
