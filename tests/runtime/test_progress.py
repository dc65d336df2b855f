"""The line of a terminal follows the steps; where there is no terminal it is quiet."""

from __future__ import annotations

import io

import pytest

from pykittens.runtime import progress
from pykittens.runtime.progress import Step, shown


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


STEP = Step("gemm", "measured", 3, 30, best=0.1734)


def test_a_step_is_one_line() -> None:
    assert str(STEP) == "tuning gemm: measured 3 of 30, best 0.1734 ms"
    assert str(Step("gemm", "compiled", 1, 2, note="without Rows(1): too large")) == (
        "tuning gemm: compiled 1 of 2, without Rows(1): too large"
    )
    assert str(Step("gemm", "done", best=2.0, note="Rows(2)")) == "tuning gemm: best 2 ms, Rows(2)"


def test_a_terminal_shows_the_steps_in_one_line_that_ends() -> None:
    terminal = Terminal()
    with shown(None, terminal) as show:
        show(STEP)
        show(Step("gemm", "done", best=0.17, note="Rows(2)"))
    assert terminal.getvalue() == (
        "\rtuning gemm: measured 3 of 30, best 0.1734 ms\x1b[K"
        "\rtuning gemm: best 0.17 ms, Rows(2)\x1b[K\n"
    )


def test_a_line_ends_where_an_error_comes() -> None:
    terminal = Terminal()

    def stops() -> None:
        with shown(None, terminal) as show:
            show(STEP)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stops()
    assert terminal.getvalue().endswith("\n")


def test_a_terminal_without_steps_shows_nothing() -> None:
    terminal = Terminal()
    with shown(None, terminal):
        pass
    assert terminal.getvalue() == ""


def test_a_long_line_is_cut_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    with shown(None, terminal) as show:
        show(Step("gemm", "measured", 1, 2, note="without Rows(1): a log\nof two lines"))
    assert terminal.getvalue() == "\rtuning gemm: measur\x1b[K\n"


def test_a_file_is_left_alone() -> None:
    stream = io.StringIO()
    with shown(None, stream) as show:
        show(STEP)
    assert stream.getvalue() == ""


def test_without_standard_error_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.sys, "stderr", None)
    with shown(None) as show:
        show(STEP)


def test_a_callable_gets_the_steps_and_the_terminal_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, steps = Terminal(), []
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    with shown(steps.append) as show:
        show(STEP)
    assert steps == [STEP]
    assert terminal.getvalue() == ""
