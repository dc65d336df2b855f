"""`pykittens profile` times a call on a GPU and writes its timeline; without a GPU it says what there is instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pykittens.analysis.timeline.profile import Profile
from pykittens.cli import main
from pykittens.cli import profile as command
from pykittens.runtime import driver
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.profile import CLOCK_READS
from tests.checker.report.test_profile import PROFILE

FILE = """
import numpy as np
import pykittens as pk


@pk.kernel
def halved(x, y, *, times: int = 1):
    row, col = pk.grid(*x.tiles(64, 64))
    pk.store(y[row, col], 0.5 * pk.load(x[row, col], rows=64, cols=64))


@pk.kernel
def counted(y, flags):
    (block,) = pk.grid(2)
    pk.signal(flags[block], 1)
    pk.store(y[block, 0], pk.zeros(pk.f32, 64, 64))


if __name__ == "__main__":
    x, y = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    for times in range(3):
        halved(x, y, times=times)
    counted(np.zeros((128, 64), np.float32), np.zeros(2, np.int32))
    print("done")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(FILE)
    return str(tmp_path / "program.py")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls that are profiled, on a GPU that there is not."""
    calls: list[tuple[Any, ...]] = []

    def profile(kernel: KernelFunction, *args: Any, **constants: Any) -> Profile:
        calls.append((kernel.parameters.name, args, constants))
        return PROFILE

    monkeypatch.setattr(KernelFunction, "profile", profile)
    monkeypatch.setattr(driver, "available", lambda: None)
    monkeypatch.setattr(command, "_on_gpu", lambda array: array)
    return calls


def test_without_a_gpu_one_sentence_says_so(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "available", lambda: "there is no driver")
    assert main(["profile", file]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "a profile needs a GPU: there is no driver\n"
        f"help: `pykittens check {file} -o timeline.svg` shows the order of events in the emulator, with the least "
        "cycles of the work\n"
    )


def test_the_first_call_of_a_file_is_timed(
    file: str, timed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", file]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("a <program>\n")
    assert err == "done\n"
    ((name, args, constants),) = timed
    assert (name, constants) == ("halved", {"times": 0, "clock_reads": CLOCK_READS})
    assert [a.shape for a in args] == [(64, 64)] * 2


@pytest.mark.parametrize(
    ("words", "name", "times"),
    [
        (["--call", "3"], "halved", 2),
        (["--call", "4"], "counted", None),
        (["--kernel", "counted"], "counted", None),
        (["--kernel", "halved", "--call", "2"], "halved", 1),
    ],
)
def test_a_call_is_chosen(
    file: str, timed: list[Any], words: list[str], name: str, times: int | None
) -> None:
    assert main(["profile", file, *words]) == 0
    ((found, _, constants),) = timed
    assert (found, constants.get("times")) == (name, times)


def test_a_call_that_is_not_made_is_an_error(
    file: str, timed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", f"{file}:halved", "--call", "4"]) == 1
    err = capsys.readouterr().err
    assert f"{file} calls the kernel `halved` 3 times when it is run, and --call is 4\n" in err
    assert "--arg A=bf16[512,512]" in err


def test_arguments_are_made_as_for_a_check(file: str, timed: list[Any]) -> None:
    words = ["--kernel", "counted", "--arg", "y=f32[128,64]", "--arg", "flags=int32[2]"]
    assert main(["profile", file, *words, "--clock-reads", "100"]) == 0
    ((name, (y, flags), constants),) = timed
    assert (name, constants) == ("counted", {"clock_reads": 100})
    assert (flags == 0).all()
    assert y.any()


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("a.svg", "<svg"),
        ("a.html", "<!doctype html>"),
        ("a.trace.json", "{"),
        ("a.txt", "a <program>"),
    ],
)
def test_the_ending_chooses_the_form(
    file: str,
    timed: list[Any],
    tmp_path: Path,
    name: str,
    starts: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profile", file, "-o", str(tmp_path / name)]) == 0
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text.startswith(starts)
    if starts == "{":
        assert json.loads(text)["otherData"]["unit"] == "ns"
    assert capsys.readouterr().out == f"a <program>: 5 spans, in {tmp_path / name}\n"


def test_another_ending_is_refused(
    file: str, timed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", file, "-o", "a.png"]) == 1
    assert "let the name end in .svg, .html, .json, .txt" in capsys.readouterr().err
    assert timed == []


def test_constants_need_arguments(
    file: str, timed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", file, "--constant", "times=2"]) == 1
    assert "--constant needs --arg" in capsys.readouterr().err


def test_arrays_of_the_cpu_are_refused_with_the_line_of_the_call(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "available", lambda: None)
    assert main(["profile", file]) == 1
    err = capsys.readouterr().err
    assert "halved: a profile times a run on a GPU, and the arrays are on the CPU" in err


def test_arrays_of_every_dtype_become_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from pykittens.types.dtypes import DTYPES

    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    for dtype in DTYPES.values():
        array = np.ones((2, 3)).astype(dtype.numpy)
        tensor = command._on_gpu(array)
        assert tensor.shape == (2, 3)
        assert (tensor.float().numpy() == 1).all(), dtype
