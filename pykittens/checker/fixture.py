"""The pytest fixture `check_kernel`, which pytest finds wherever the package is installed.

def test_add(check_kernel):
    check_kernel(add, a, b, out)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

import pykittens as pk

if TYPE_CHECKING:
    from pykittens.checker.report.report import CheckReport
    from pykittens.runtime.kernel import KernelFunction


class CheckKernel(Protocol):
    """Checks a call of a kernel; the test fails with the report if there is an error."""

    def __call__(self, kernel: KernelFunction, *args: Any, **options: Any) -> CheckReport: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --kernel-schedules."""
    parser.getgroup("pykittens").addoption(
        "--kernel-schedules",
        type=int,
        metavar="N",
        help="number of schedules of the fixture check_kernel in tests that do not give it",
    )


@pytest.fixture
def check_kernel(request: pytest.FixtureRequest) -> CheckKernel:
    """`check_kernel(kernel, *args, **constants)` returns the report of pk.check; an error fails the test.

    It has the options of pk.check, here with costs=False.
    """
    schedules: int | None = request.config.getoption("--kernel-schedules")

    def checked(kernel: KernelFunction, *args: Any, **options: Any) -> CheckReport:
        __tracebackhide__ = True
        if schedules is not None:
            options.setdefault("schedules", schedules)
        options.setdefault("costs", False)
        report = pk.check(kernel, *args, **options)
        if report.fails():
            pytest.fail(str(report))
        return report

    return checked
