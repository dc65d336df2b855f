"""`pykittens doctor` prints a line a finding and exits with 1 where one is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import pykittens
from pykittens.cli import checks, main
from pykittens.cli.findings import Finding, Mark


def findings(*found: Finding):
    def check() -> Iterator[Finding]:
        yield from found

    return check


FINE = Finding("emulator", Mark.OK, "ran")
COMPILED = Finding("compile sm_90a", Mark.OK, "compiled")
RAN = Finding("launch", Mark.OK, "a kernel ran")
ABSENT = Finding("nvdisasm", Mark.OPTIONAL, "none", "pip install nvidia-cuda-nvdisasm")
BROKEN = Finding("NVRTC", Mark.WRONG, "not found", "pip install 'nvidia-cuda-nvrtc>=13,<14'")


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
    monkeypatch.setattr(checks, "CHECKS", (findings(*found),))
    assert main(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(end)
    for f in found:
        (line,) = [line for line in lines if f.name in line and "help" not in line]
        assert f.text in line
        assert line[0] == {Mark.OK: "✓", Mark.OPTIONAL: "–", Mark.WRONG: "✗"}[f.mark]


def test_what_would_help_stands_below_its_finding(monkeypatch, capsys) -> None:
    monkeypatch.setattr(checks, "CHECKS", (findings(BROKEN, FINE),))
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert f"what would help: {BROKEN.help}" in lines[1]


def test_brackets_in_a_finding_are_printed_as_they_are(monkeypatch, capsys) -> None:
    odd = Finding("x", Mark.OK, "[red]not markup[/] [0]")
    monkeypatch.setattr(checks, "CHECKS", (findings(odd),))
    main(["doctor"])
    assert odd.text in capsys.readouterr().out


def test_the_report_for_programs_has_every_finding(monkeypatch, capsys) -> None:
    monkeypatch.setattr(checks, "CHECKS", (findings(FINE, BROKEN),))
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
    def of_the_moon() -> Iterator[Finding]:
        yield FINE
        raise OSError("no moon")

    monkeypatch.setattr(checks, "CHECKS", (of_the_moon, findings(COMPILED)))
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "of the moon" in text
    assert "OSError: no moon" in text
    assert "compile sm_90a" in text
