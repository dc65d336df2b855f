"""All cases, one file per family; each file has a list CASES."""

from __future__ import annotations

import importlib
import pkgutil

from tests.cases.core import Case

CASES: dict[str, Case] = {}
for _module in pkgutil.iter_modules(__path__):
    for _case in getattr(importlib.import_module(f"{__name__}.{_module.name}"), "CASES", ()):
        assert _case.name not in CASES, f"two cases are named {_case.name}"
        CASES[_case.name] = _case
