"""The fixture `check_kernel` in a repository of the user's, without configuration."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
TESTS = """
import numpy as np
import pykittens as pk

@pk.kernel
def copied(x, y, *, stuck: bool = False):
    full = pk.semaphore(1)
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    with pk.producer():
        full.arrive()
    with pk.warpgroups(1):
        full.wait(0)
        if stuck:
            full.wait(1)
        pk.store(y[block, 0], pk.load(x[block, 0], rows=64, cols=64))

x, y = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Runs a test of a kernel with the plugin as pytest finds it, whether the package is installed here or not."""

    def ran(body: str, *words: str) -> pytest.RunResult:
        pytester.makepyfile(f"{TESTS}\n\ndef test_it(check_kernel):\n    {body}\n")
        plugin = ("-p", "no:pykittens", "-p", "pykittens.checker.fixture")
        return pytester.runpytest(*plugin, *words)

    return ran


def test_a_kernel_without_faults_passes_and_gives_its_report(run) -> None:
    run("assert check_kernel(copied, x, y).seeds == tuple(range(20))").assert_outcomes(passed=1)


def test_an_error_fails_the_test_with_the_report(run) -> None:
    result = run("check_kernel(copied, x, y, stuck=True)")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*check_kernel(copied, x, y, stuck=True)",
            "E *copied, *.py:*: 1 error",
            "E *error[[]deadlock[]]: deadlock: every role that has not ended waits",
            "E *full.wait(1)",
            "E *^^^^^^^^^^^^",
            "E *help: *",
            "E *replay: pk.check(copied, x, y, stuck=True, seed=0)",
        ]
    )


def test_the_number_of_schedules_is_an_option_and_a_test_may_say_another(run) -> None:
    counts = (
        "tried = lambda **said: check_kernel(copied, x, y, **said).seeds\n"
        "    assert tried() == (0, 1, 2)\n"
        "    assert tried(schedules=2) == (0, 1)\n"
        "    assert tried(seed=17) == (17,)"
    )
    run(counts, "--kernel-schedules", "3").assert_outcomes(passed=1)


def test_pytest_is_told_where_the_fixture_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"pykittens": "pykittens.checker.fixture"}
    assert (ROOT / "pykittens" / "checker" / "fixture.py").is_file()


def test_the_plugin_loads_no_part_of_the_checker_that_a_run_does_not_use(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        "import sys\n\n\ndef test_it():\n    assert 'pykittens.checker.fixture' in sys.modules\n"
        "    assert 'pykittens.checker.check' not in sys.modules\n    assert 'rich' not in sys.modules\n"
    )
    pytester.makeini("[pytest]\npythonpath = " + str(ROOT))
    result = pytester.runpytest_subprocess("-p", "no:pykittens", "-p", "pykittens.checker.fixture")
    result.assert_outcomes(passed=1)
