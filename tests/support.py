"""The page of the operations: what each is and which target can do it, from the tables OPS and TARGETS."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pykittens
from pykittens.errors import BackendError
from pykittens.ir.op import Op
from pykittens.ops.core import OPS
from pykittens.targets.target import TARGETS, Target

HEAD = """# Operations

Every operation of the language, by family, and the targets that can do it. A test writes this page from the tables of
operations and of lowerings (`make golden`). Functions that are made of operations, such as `pk.online_softmax`, are in
[language.md](language.md).

In the tables *yes* says that the target has a lowering of its own or its parent's; the parents are {chain}.
What a target cannot do stands below with the reason.
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
    chain = "; ".join(" → ".join(_parents(t)) for t in TARGETS.values() if t.parent is not None)
    parts = [HEAD.format(chain=chain)]
    by_module: dict[str, list[Op[..., Any]]] = {}
    for op in OPS.values():
        by_module.setdefault(op.function.__module__, []).append(op)
    names = exported()
    parts += [
        _family(module, ops, names)
        for module, ops in by_module.items()
        if module.startswith("pykittens.")
    ]
    return "\n".join(parts)


def _parents(target: Target) -> list[str]:
    return [target.name, *(_parents(target.parent) if target.parent is not None else [])]


def _family(module: str, ops: list[Op[..., Any]], names: dict[str, str]) -> str:
    about = (importlib.import_module(module).__doc__ or "").strip()
    lines = [f"## {module.rpartition('.')[2]}", "", _preformatted(about), ""]
    lines += ["| operation | " + " | ".join(TARGETS) + " |", "|---" * (len(TARGETS) + 1) + "|"]
    reasons = []
    for op in ops:
        cells = []
        for arch, target in TARGETS.items():
            reason = refusal(op, target)
            cells.append("yes" if reason is None else "no")
            if reason is not None:
                reasons.append(f"`{op.name}` on {arch}: {reason}.")
        lines.append(f"| `{op.name}` | " + " | ".join(cells) + " |")
    lines += ["", *reasons, *([""] if reasons else [])]
    for op in ops:
        word = names.get(op.name)
        called = (
            f"{word}{_signature(op)}"
            if word
            else f"{op.name}{_signature(op)}, by its operator or method"
        )
        lines += [
            f"**`{called}`**"
            if word
            else f"**`{op.name}{_signature(op)}`**, by its operator or method"
        ]
        lines += ["", _preformatted(inspect.getdoc(op.function) or ""), ""]
    return "\n".join(lines)


def refusal(op: Op[..., Any], target: Target) -> str | None:
    """Why a target cannot do an operation; None if it can."""
    try:
        target.find(op)
    except BackendError as fault:
        return str(fault.args[0]).partition("\n")[0]
    return None


def _signature(op: Op[..., Any]) -> str:
    bare = [p.replace(annotation=p.empty) for p in op.__signature__.parameters.values()]
    return str(inspect.Signature(bare))


def _preformatted(text: str) -> str:
    """A docstring as Markdown: what is indented stays a block, stars of powers are no emphasis."""
    lines = [
        line if line.startswith("    ") else re.sub(r"\*", r"\\*", line)
        for line in text.splitlines()
    ]
    return "\n".join(lines)
