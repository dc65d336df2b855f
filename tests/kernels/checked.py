"""Plans of the library under the checker."""

from __future__ import annotations

from typing import Any

import pykittens as pk


def check_plan(plan: Any, schedules: int = 2) -> None:
    """Run the launches of a plan, none of which has a fault. tests/targets has what the compiler says of them."""
    memory = plan.memory()
    for step in plan.steps:
        args = [memory[name] for name in step.args]
        how = {"schedules": schedules, "costs": False, "compile": False}
        report = pk.check(step.kernel, *args, **how, **step.constants)
        assert report.ok, str(report)
        step.kernel(*args, **step.constants)
