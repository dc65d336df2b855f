"""The settings of launches are read from the environment once, and refused if they are meaningless."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pykittens import settings
from pykittens.errors import ArgumentError

PROGRAM = """
import os
from pykittens import settings
before = settings.debug(), settings.debug_seconds(), settings.overlap(), settings.target()
for setting in (settings.DEBUG, settings.DEBUG_SECONDS, settings.TARGET):
    os.environ[setting.variable] = "7"
os.environ[settings.OVERLAP.variable] = "0" if settings.overlap() else "1"
assert before == (settings.debug(), settings.debug_seconds(), settings.overlap(), settings.target())
print(*before)
"""


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, "False 5.0 True "),
        ({"PYKITTENS_DEBUG": "0", "PYKITTENS_TARGET": "sm_80"}, "False 5.0 True sm_80"),
        ({"PYKITTENS_DEBUG": "1", "PYKITTENS_DEBUG_SECONDS": "0.5"}, "True 0.5 True "),
        ({"PYKITTENS_OVERLAP": "1"}, "False 5.0 True "),
        ({"PYKITTENS_OVERLAP": "0"}, "False 5.0 False "),
    ],
)
def test_a_launch_depends_on_the_environment_as_it_was_first(given, read):
    own = {n: v for n, v in os.environ.items() if not n.startswith("PYKITTENS_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**own, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{read}\n"


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "five", ""])
def test_seconds_that_are_no_time_are_refused(monkeypatch, text):
    monkeypatch.setenv("PYKITTENS_DEBUG_SECONDS", text)
    with pytest.raises(ArgumentError, match="must be a number of seconds above 0"):
        settings.debug_seconds.__wrapped__()
