"""Type checkers report every mistake of `wrong.py`, and nothing else there; `make types` runs them on right uses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
WRONG = Path(__file__).with_name("wrong.py")
LINES = WRONG.read_text(encoding="utf-8").splitlines()
RULES = {
    number: found.groups()
    for number, line in enumerate(LINES, 1)
    if (found := re.search(r"# (report\w+) / ([a-z-]+)$", line))
}

pytestmark = pytest.mark.types


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words, str(WRONG)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    return done.stdout


def test_pyright_reports_the_mistakes() -> None:
    reported = json.loads(run("basedpyright", "--outputjson", "--level", "error"))
    found: dict[int, set[str]] = defaultdict(set)
    for each in reported["generalDiagnostics"]:
        found[each["range"]["start"]["line"] + 1].add(each["rule"])
    assert found.keys() == RULES.keys()
    for line, (rule, _) in RULES.items():
        assert rule in found[line], LINES[line - 1]


def test_mypy_reports_the_mistakes() -> None:
    found: dict[int, set[str]] = defaultdict(set)
    for line, rule in re.findall(r"wrong\.py:(\d+): error: .*\[([a-z-]+)\]", run("mypy")):
        found[int(line)].add(rule)
    known = {line: rule for line, (_, rule) in RULES.items() if rule != "-"}  # not a condition
    assert found.keys() == known.keys()
    for number, rule in known.items():
        assert rule in found[number], LINES[number - 1]
