"""The repaired twins of the planted bugs are right, and the planted bugs are described and located."""

from __future__ import annotations

import inspect

import pytest

from tests.planted.core import Planted, every

PLANTED = every()


@pytest.mark.parametrize("seed", ["0", "1", "2"])
@pytest.mark.parametrize("case", [p for p in PLANTED if p.repaired is not None], ids=str)
def test_a_mended_kernel_gives_the_right_numbers(
    case: Planted, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKITTENS_SEED", seed)
    case.run_repaired()


@pytest.mark.parametrize("case", PLANTED, ids=str)
def test_each_line_that_a_report_must_name_stands_once_in_its_kernel(case: Planted) -> None:
    assert case.lines
    source = inspect.getsource(case.kernel.function).splitlines()
    body = source[next(i for i, line in enumerate(source) if line.startswith("def ")) :]
    for text in case.lines:
        assert sum(text in line for line in body) == 1, text


@pytest.mark.parametrize("case", PLANTED, ids=str)
def test_a_planted_bug_says_in_one_sentence_what_is_wrong(case: Planted) -> None:
    text = inspect.getdoc(case.kernel.function)
    assert text is not None
    assert text.endswith(".")
    assert text.startswith("Broken: ")
