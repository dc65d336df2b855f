"""`pykittens check` finds what is wrong in a file, prints or writes it, and tells it by the exit code."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import pykittens as pk
from examples.catalog import EXAMPLES
from pykittens.checker.report.report import CheckReport
from pykittens.cli import arguments, main
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.dtypes import DTYPES
from tests.conftest import EXAMPLES as FOLDER

FILE = '''"""One kernel that is right, one that hangs, one with flags; the script calls the first and the second."""
import sys

import numpy as np
import pykittens as pk
import beside


@pk.kernel
def right(x, y, factor):
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)


@pk.kernel
def stuck(x, *, phases: int = 2):
    full = pk.semaphore(1)
    pk.grid(1)
    with pk.producer():
        full.arrive()
    with pk.warpgroups(1):
        for phase in range(phases):
            full.wait(phase)
        pk.store(x[0, 0], pk.zeros(pk.f32, 64, 64))


@pk.kernel
def chained(y, flags):
    (block,) = pk.grid(y.rows // 64)
    if block > 0:
        pk.wait(flags[block - 1], 1)
        pk.store(y[block, 0], pk.load(y[block - 1, 0], rows=64, cols=64))
    else:
        pk.store(y[block, 0], pk.zeros(pk.f32, 64, 64))
    pk.signal(flags[block], 1)


if __name__ == "__main__":
    assert len(sys.argv) == 1, sys.argv
    x = np.ones((64, 64), np.float32)
    y = np.empty_like(x)
    right(x, y, 2.0)
    assert (y == 2).all(), "calls run as ever"
    right(y, x, 0.5)
    print("a line of the script")
    stuck(x)
    right(x, "y", 1.0)
    right(x, y, 3.0)
    print("the last line")
'''
ARRAYS = ("--arg", "x=f32[64,64]", "--arg", "y=f32[64,64]", "--arg", "factor=2.0")


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "kernels.py").write_text(FILE)
    (tmp_path / "beside.py").write_text("")
    return str(tmp_path / "kernels.py")


@pytest.fixture
def calm(file: str, tmp_path: Path) -> str:
    """A file that does not call the kernel that hangs."""
    (tmp_path / "calm.py").write_text(FILE.partition("    stuck(x)")[0])
    return str(tmp_path / "calm.py")


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]):
    """Runs the command, and gives the exit code and what came out on both ways."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(["check", *words])
        except SystemExit as end:  # argparse's own refusals
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_every_call_that_a_file_makes_is_checked(check, file: str) -> None:
    words = list(sys.argv)
    code, out, err = check(file, "--schedules", "3")
    assert code == 1
    heads = [line for line in out.splitlines() if "kernels.py" in line and line[0] in "rs"]
    assert [h.partition(",")[0] for h in heads[:2]] == ["right", "right"]
    assert out.count("no fault found") == 3
    assert "stuck, " in out
    assert "error[deadlock]" in out
    assert f"replay: pykittens check {file} --seed 0" in out
    assert err == "a line of the script\nthe last line\n"
    assert sys.argv == words
    assert str(Path(file).parent) not in sys.path


def test_a_kernel_may_be_chosen_among_those_that_a_file_calls(check, calm: str, file: str) -> None:
    for words in ([f"{calm}:right"], [calm, "--kernel", "right"]):
        code, out, _ = check(*words, "--schedules", "2")
        assert code == 0
        assert out.count("no fault found") == 2
    code, out, _ = check(f"{file}:stuck", "--schedules", "2")
    assert code == 1
    assert "right, " not in out


def test_a_faulty_call_of_another_kernel_does_not_stop_the_file(check, file: str) -> None:
    code, out, err = check(f"{file}:right", "--schedules", "1")
    assert code == 1
    assert out.count("no fault found") == 3
    assert "stuck is not checked and fails: deadlock: every role that has not ended waits" in err
    assert err.endswith("the last line\n")


def test_a_kernel_that_is_never_called_is_the_error(check, file: str, tmp_path: Path) -> None:
    code, out, err = check(file, "--kernel", "chained", "--schedules", "1")
    assert (code, out) == (2, "")
    assert f"{file} calls no kernel `chained` when it is run" in err
    (tmp_path / "ends.py").write_text(FILE + "    raise OSError('no disk')\n")
    code, _, err = check(str(tmp_path / "ends.py"), "--kernel", "chained", "--schedules", "1")
    assert code == 2
    assert "calls no kernel `chained` when it is run\n    it stopped : " in err
    assert "OSError: no disk" in err
    code, out, err = check(str(tmp_path / "ends.py"), "--schedules", "1")
    assert code == 1
    assert "error[deadlock]" in out
    assert "does not run to its end: OSError: no disk" in err


def test_tables_can_be_left_out(check, file: str) -> None:
    words = (file, "--kernel", "right", *ARRAYS, "--schedules", "1")
    assert "Traffic of the launch" in check(*words)[1]
    code, out, _ = check(*words, "--no-costs")
    assert code == 0
    assert "Traffic of the launch" not in out
    assert "Shared memory" not in out
    code, _, err = check(*words, "--no-costs", "--format", "svg")
    assert code == 2
    assert "has no timeline: the check had costs=False or --no-costs" in err


@pytest.mark.parametrize("name", ["01_copy", "06_matmul"])
def test_an_example_is_checked_by_the_calls_it_makes(check, name: str) -> None:
    example = next(e for e in EXAMPLES if e.file == f"{name}.py")
    code, out, err = check(str(FOLDER / example.file), "--schedules", "2", "--format", "json")
    report = json.loads(out)["reports"][0]
    assert (report["kernel"], report["schedules"]) == (example.name, [0, 1])
    assert (code, report["ok"]) == (0, True)
    assert "error" in err, "what the example prints of itself"


def test_a_kernel_is_checked_with_the_arguments_given(check, file: str) -> None:
    code, out, err = check(file, "--kernel", "right", *ARRAYS, "--schedules", "2")
    assert (code, err) == (0, "")
    assert "    x      : f32[64, 64]\n" in out
    assert "    factor : f32 2.0\n" in out
    assert "in the 2 schedules tried, seeds 0 to 1" in out


def test_a_seed_that_is_printed_shows_the_same_finding_again(check, file: str) -> None:
    words = (f"{file}:stuck", "--arg", "x=f32[64,64]", "--constant", "phases=3")
    _, first, _ = check(*words, "--schedules", "3", "--format", "json")
    (finding,) = json.loads(first)["reports"][0]["findings"]
    program, command, *again = shlex.split(finding["replay"])
    assert (program, command) == ("pykittens", "check")
    _, second, _ = check(*again, "--format", "json")
    report = json.loads(second)["reports"][0]
    assert report["schedules"] == [finding["seed"]]
    assert report["constants"] == {"phases": "3"}
    (same,) = report["findings"]
    for key in ("kind", "message", "steps", "operands", "seed", "replay"):
        assert same[key] == finding[key]


@pytest.mark.parametrize(
    ("fail_on", "expected"), [("error", 1), ("warning", 1), ("note", 1), ("never", 0)]
)
def test_the_exit_code_is_1_for_findings_of_the_level_or_worse(
    check, file: str, fail_on: str, expected: int
) -> None:
    words = (file, "--kernel", "stuck", "--arg", "x=f32[64,64]", "--schedules", "1")
    assert check(*words, "--fail-on", fail_on)[0] == expected
    assert check(*words, "--constant", "phases=1", "--fail-on", fail_on)[0] == 0


def test_the_level_is_handed_to_the_report(check, file: str, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(CheckReport, "fails", lambda self, level: asked.append(level) or False)
    for name in ("error", "warning", "note", "never"):
        check(file, "--kernel", "right", *ARRAYS, "--schedules", "1", "--fail-on", name)
    assert [level.value if level else "never" for level in asked] == [
        "error", "warning", "note", "never",
    ]  # fmt: skip


def test_arguments_that_do_not_fit_are_findings_at_no_line_of_the_commands_caller(
    check, file: str
) -> None:
    words = ("--arg", "x=f32[1,1,1,1,64,64]", "--format", "json")
    code, out, _ = check(f"{file}:stuck", *words)
    assert code == 1
    (finding,) = json.loads(out)["reports"][0]["findings"]
    assert finding["message"] == "stuck: `x` has rank 6, kernels take rank 1 to 5"
    assert finding["steps"] == []


def test_a_kind_can_be_left_out(check, file: str) -> None:
    words = (file, "--kernel", "stuck", "--arg", "x=f32[64,64]", "--schedules", "2")
    code, out, _ = check(*words, "--ignore", "deadlock")
    assert code == 0
    assert "ignored: 1 of deadlock" in out
    code, out, err = check(*words, "--ignore", "deadlocks")
    assert (code, out) == (2, "")
    assert "unwritten-memory" in err


@pytest.mark.parametrize(
    ("name", "words", "start"),
    [
        ("r.html", (), "<!doctype html>"),
        ("r.json", (), '{\n  "schema": 1'),
        ("r.txt", (), "stuck, "),
        ("r.out", ("--format", "html"), "<!doctype html>"),
    ],
)
def test_a_report_is_written_as_the_name_or_the_format_says(
    check, file: str, tmp_path: Path, name: str, words: tuple[str, ...], start: str
) -> None:
    output = str(tmp_path / name)
    call = (file, "--kernel", "stuck", "--arg", "x=f32[64,64]", "--schedules", "1")
    code, out, err = check(*call, *words, "-o", output)
    assert (code, err) == (1, "")
    assert out.endswith(f": 1 error, in {output}\n")
    assert Path(output).read_text(encoding="utf-8").startswith(start)


def test_a_terminal_gets_colours_and_drawn_tables(
    check, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    code, out, _ = check(file, "--kernel", "stuck", "--arg", "x=f32[64,64]", "--schedules", "1")
    assert code == 1
    assert "\x1b[1;31merror[deadlock]: " in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (["{file}", "--arg", "x=f32[64,64]"], "has several kernels: right, stuck, chained"),
        (["{file}:right", "--arg", "x=f32[64,64]"], "`y` is missing"),
        (["{calm}:chained"], "calls no kernel `chained` when it is run"),
        (["{file}", "--constant", "phases=2"], "--constant needs --arg"),
        (["{file}", "--schedules", "0"], "0 is not a whole number of 1 or more"),
        (["{file}", "--schedules", "many"], "many is not a whole number of 1 or more"),
        (["{file}:stuck", "--arg", "x=f32[6 4,64]"], "invalid literal"),
        (["{file}:stuck", "--arg", "x=f32[64,64]", "--undefined", "z"], "takes such an argument"),
        (["{file}:stuck", "--arg", "x=f32[64,64]", "--kept", "z"], "takes such an argument"),
        (
            ["{file}:stuck", "--arg", "x=f32[64,64]", "-o", "r.pdf"],
            "has the ending of no report format",
        ),
        (["{file}", "--fail-on", "often"], "invalid choice"),
        (["{file}:stuck", "--arg", "x=f32[64,64]", "-o", "/nowhere/r.html"], "cannot be written"),
    ],
)
def test_a_wrong_command_is_a_sentence_and_exit_code_2(
    check, file: str, calm: str, words: list[str], message: str
) -> None:
    code, _, err = check(*(w.format(file=file, calm=calm) for w in words))
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{}['none']", "error[fault]: KeyError: 'none'"),
        ("1 / 0", "error[fault]: ZeroDivisionError"),
    ],
)
def test_an_exception_of_the_kernels_own_is_a_finding(
    check, tmp_path: Path, line: str, told: str
) -> None:
    text = f"import pykittens as pk\n\n@pk.kernel\ndef odd(x):\n    pk.grid(1)\n    {line}\n"
    (tmp_path / "odd.py").write_text(text)
    code, out, err = check(str(tmp_path / "odd.py"), "--arg", "x=f32[64,64]")
    assert code == 1
    assert told in out
    assert "Traceback" not in err


def test_a_check_that_is_interrupted_says_so(check, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")
    code, out, err = check(str(tmp_path / "slow.py"))
    assert (code, out, err) == (130, "", "stopped\n")


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ("raise ValueError('no number')", 2, "does not run to its end: ValueError: no number"),
        ("import sys; sys.exit(3)", 2, "ends with the exit code 3"),
        ("import sys; sys.exit()", 0, ""),
        ("right(x, x, 1.0)", 1, "shares memory"),
    ],
)
def test_a_file_that_stops_is_told_unless_its_kernel_is_why(
    check, tmp_path: Path, file: str, end: str, code: int, message: str
) -> None:
    start = FILE.partition("    stuck(x)")[0]
    (tmp_path / "stops.py").write_text(f"{start}    {end}\n")
    found, out, err = check(str(tmp_path / "stops.py"), "--schedules", "1")
    assert found == code
    assert message in (out if code == 1 else err)
    assert ("stops.py:" in err) == (end.startswith("raise")), "the line of the file"
    assert "no fault found" in out


def test_a_file_without_a_call_says_what_to_write(check, tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text(FILE.partition("if __name__")[0])
    (tmp_path / "beside.py").write_text("")
    code, out, err = check(str(tmp_path / "quiet.py"))
    assert (code, out) == (2, "")
    assert "calls no kernel when it is run" in err
    assert "it has right, stuck, chained" in err
    assert "--kernel K --arg A=bf16[512,512]" in err
    code, _, err = check(str(tmp_path / "quiet.py"), "--kernel", "stuc")
    assert (code, "it has right, stuck, chained" in err) == (2, True)
    code, _, err = check(str(tmp_path / "quiet.py"), "--kernel", "right")
    assert code == 2
    assert (
        "--kernel right --arg x=DTYPE[SHAPE] --arg y=DTYPE[SHAPE] --arg factor=DTYPE[SHAPE]" in err
    )
    (tmp_path / "quiet.py").write_text("from beside import *\n")
    code, _, err = check(str(tmp_path / "quiet.py"))
    assert (code, "a kernel is a function marked @pk.kernel" in err) == (2, True)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, check):
    """The arguments that a kernel of the file is checked with, by name."""

    def arrays(*words: str) -> dict[str, np.ndarray]:
        found: list[tuple] = []

        def examine(kernel: KernelFunction, args, constants, options) -> CheckReport:
            found.append((kernel.parameters.names(len(args)), args))
            return pk.check(kernel, *args, schedules=1, **constants)

        monkeypatch.setattr("pykittens.cli.check.examine", examine)
        check(*words)
        ((names, args),) = found
        return dict(zip(names, args, strict=True))

    return arrays


def test_arrays_hold_random_numbers_and_always_the_same(seen, file: str) -> None:
    first = seen(file, "--kernel", "right", *ARRAYS)
    assert len(np.unique(first["x"])) > 4000
    assert len(np.unique(first["y"])) > 4000, "what is written is no zero before"
    assert not np.array_equal(first["x"], first["y"])
    again = seen(file, "--kernel", "right", *reversed_pairs(ARRAYS))
    assert np.array_equal(first["x"], again["x"])


def reversed_pairs(words: tuple[str, ...]) -> list[str]:
    pairs = [words[i : i + 2] for i in range(0, len(words), 2)]
    return [word for pair in reversed(pairs) for word in pair]


def test_flags_are_zero_as_their_kernels_ask(seen, check, file: str) -> None:
    words = (f"{file}:chained", "--arg", "y=f32[192,64]", "--arg", "flags=int32[3]")
    assert not seen(*words)["flags"].any()
    assert check(*words, "--schedules", "3")[0] == 0


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_random_numbers_are_of_the_dtype_and_small(dtype) -> None:
    made = arguments.argument("a", f"{dtype}[40,50]", arguments.random_numbers)
    assert (made.dtype, made.shape) == (dtype.numpy, (40, 50))
    values = made.astype(np.float64)
    assert len(np.unique(values)) > 1
    assert np.abs(values).max() < 8


def test_an_array_can_be_full_of_a_number() -> None:
    made = arguments.argument("flags", "int32[4]=3", arguments.random_numbers)
    assert (made.dtype, [*made]) == (np.int32, [3, 3, 3, 3])
    assert (
        arguments.argument("x", "bf16[2, 3] = -1.5").astype(np.float32).tolist() == [[-1.5] * 3] * 2
    )
    with pytest.raises(pk.KernelError, match="`many` is neither an array nor a number"):
        arguments.argument("x", "f32[4]=many")
    with pytest.raises(pk.KernelError, match="--arg x=int8"):
        arguments.argument("x", "int8[4]=1000")
