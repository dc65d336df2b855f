"""The page of the operations: their meanings and the targets that support them, from OPS and TARGETS."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pykittens
from pykittens.errors import UnsupportedError
from pykittens.ir.op import Op
from pykittens.lang.std import complex_tile
from pykittens.ops.core import OPS
from pykittens.targets.architectures import TARGETS
from pykittens.targets.target import Target
from tests.cases import CASES
from tests.cases.core import Case
from tools.reference import markdown

HEAD = """# Operations

All operations of the language by family, and the targets that support them. A test writes this page from the tables of
operations and lowerings (`make golden`). Functions composed of operations, such as `pk.online_softmax`, are in
[language.md](language.md); those of complex tiles are in the table at the end.

*Cases* are small kernels for the dtypes and some sizes of an operation (tests/cases). They run in the emulator and on a
GPU and are compiled for every target. *Yes* means that the target supports all of them, by its own lowering or that of
its parent; the parents are {chain}.
Unsupported operations are listed below with the reason. Operations with 0 cases have separate tests.
"""


def exported() -> dict[str, str]:
    """The name under which the package exports an operation, by the operation's own."""
    names = {}
    for word in pykittens.__all__:
        thing = getattr(pykittens, word)
        if isinstance(thing, Op):
            names[thing.name] = f"pk.{word}"
    return names


def page() -> str:
    """The text of docs/ops.md."""
    chain = "; ".join(" → ".join(p.name for p in t.lineage()) for t in TARGETS.values())
    by_module: dict[str, list[Op[Any]]] = {}
    for op in OPS.values():
        by_module.setdefault(op.function.__module__, []).append(op)
    ours = sorted(m for m in by_module if m.startswith("pykittens."))
    names = exported()
    families = (_family(m, by_module[m], names) for m in ours)
    return "\n".join([HEAD.format(chain=chain), *families, _complex()])


def _family(module: str, ops: list[Op[Any]], names: dict[str, str]) -> str:
    """The section of a family: the module's docstring, the table, the reasons, and each operation."""
    about = (importlib.import_module(module).__doc__ or "").strip()
    lines = [f"## {module.rpartition('.')[2]}", "", markdown(about), ""]
    lines += [f"| operation | cases | {' | '.join(TARGETS)} |", "|---" * (len(TARGETS) + 2) + "|"]
    reasons: dict[str, None] = {}
    for op in ops:
        cases = [c for c in CASES.values() if op.name in c.ops]
        cells = []
        for arch, target in TARGETS.items():
            refused = refusals(op, target, cases)
            cells.append(
                "yes" if not refused else "no" if len(refused) == len(cases) else "in part"
            )
            told = (r.rpartition("cannot do it: ")[2] for r in refused.values())
            reasons |= dict.fromkeys(f"`{op.name}` on {arch}: {r}." for r in told)
        lines.append(f"| `{op.name}` | {len(cases)} | {' | '.join(cells)} |")
    lines += ["", *(f"- {reason}" for reason in reasons), *([""] if reasons else [])]
    for op in ops:
        word = names.get(op.name)
        lines += [
            f"**`{word or op.name}{_signature(op)}`**{'' if word else ', by its operator or method'}",
            "",
            markdown(inspect.getdoc(op.function) or ""),
            "",
        ]
    return "\n".join(lines)


def _complex() -> str:
    """The section of what is composed for complex tiles: by cases, whose names begin with what they show."""
    lines = ["## complex", "", markdown((complex_tile.__doc__ or "").strip()), ""]
    lines += [f"| function | cases | {' | '.join(TARGETS)} |", "|---" * (len(TARGETS) + 2) + "|"]
    cases = [c for c in CASES.values() if c.name.startswith("complex-")]
    for word in dict.fromkeys(case.name.split("-")[1] for case in cases):
        mine = [case for case in cases if case.name.split("-")[1] == word]
        failed = [_refused(mine, arch) for arch in TARGETS]
        cells = ("no" if len(x) == len(mine) else "in part" if x else "yes" for x in failed)
        lines.append(f"| `{word}` | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def refusals(op: Op[Any], target: Target, cases: list[Case]) -> dict[str, str]:
    """The cases of an operation that a target cannot do, with the reason of each."""
    if (reason := refusal(op, target)) is not None:
        return {case.name: reason for case in cases} or {op.name: reason}
    if not _may_decline(op, target):
        return {}
    return _refused(cases, target.name)


def _refused(cases: list[Case], arch: str) -> dict[str, str]:
    """The cases for which a target has no program, with the reason of each."""
    found = {}
    for case in cases:
        inputs, outputs = case.arrays()
        arguments = (*inputs, *outputs, *case.scalars)
        try:
            case.kernel.emitted(*arguments, arch=arch, **case.constants)
        except UnsupportedError as fault:
            found[case.name] = fault.message
    return found


def _may_decline(op: Op[Any], target: Target) -> bool:
    """Whether all lowerings of an operation decline some calls, so that some may have none."""
    keys = (op.name, op.family.name if op.family else "")
    found = [t.lowerings[key] for t in target.lineage() for key in keys if key in t.lowerings]
    return all(lowering.declines is not None for lowering in found)


def refusal(op: Op[Any], target: Target) -> str | None:
    """Why a target cannot do an operation; None if it can."""
    try:
        target.find(op)
    except UnsupportedError as fault:
        return fault.message
    return None


def _signature(op: Op[Any]) -> str:
    bare = [p.replace(annotation=p.empty) for p in op.__signature__.parameters.values()]
    return str(inspect.Signature(bare))
