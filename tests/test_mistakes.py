"""Every operation called with each kind of wrong operand: what is refused, what is not, and the texts.

The golden files of tests/golden/errors/matrix have the good call first and what its operands may be; then the wrong
calls, those with one sentence together, with the text of the first.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pykittens as pk
from pykittens.ir.op import Op
from pykittens.ops.core import OPS
from tests.mistakes import calls
from tests.mistakes.calls import Fault, Mistake, good_call, in_eight_warps, outside_roles, run
from tests.mistakes.table import TABLE, Row
from tests.mistakes.things import THINGS

MATRIX = Path(__file__).parent / "golden" / "errors" / "matrix"
# What a user never sees: addresses, classes and modules of the package, names of NumPy's and Python's classes.
INTERNAL = re.compile(
    r"object at 0x|<class|pykittens\.|\b_\w*Context|NoneType|ndarray|"
    r"\b(Reg(Tile|Vector)|Shared(Tiles?|Vector)|TileRef|Global|Scalar|NamedTiles|Ring|Several|Undefined|Value|DType)\b"
)
ROWS = [pytest.param(row, id=name) for name, row in TABLE.items()]


def check_form(row: Row, mistake: Mistake, fault: Fault) -> None:
    """A text begins with the name, says what must be and what is, and shows the operands and the line."""
    text, sentence = fault.text, fault.error.message
    assert sentence.startswith(f"{row.shown}: "), text
    assert not INTERNAL.search(text), text
    assert mistake.call in text, text
    assert re.search(r"^ +\^+$", text, re.MULTILINE), text
    if not mistake.operand:
        assert fault.error.help is not None, text
        return
    blamed = {mistake.operand, row.blames.get(mistake.operand, mistake.operand)} - {""}
    assert (
        any(f"`{name}" in sentence for name in blamed) or row.blames.get(mistake.operand) == ""
    ), text
    assert re.search(r" (must|takes) .*, not ", sentence), text
    assert fault.error.operands or row.word, text
    assert calls.described(mistake.thing) in "\n".join(
        [sentence, *map(str, fault.error.operands.values())]
    ), text


def mistakes(row: Row) -> list[tuple[Mistake, Fault]]:
    """What is refused of a row, with its texts. What must pass passes, and what must not does not."""
    found = []
    for mistake, passes in calls.replaced(row):
        fault = run(mistake.call)
        assert (fault is None) == passes, f"{mistake.call}\n{fault and fault.text}"
        if fault is not None:
            check_form(row, mistake, fault)
            found.append((mistake, fault))
    for mistake in calls.wrong_arguments(row):
        fault = run(mistake.call)
        assert fault is not None, mistake.call
        check_form(row, mistake, fault)
        found.append((mistake, fault))
    return found


def form(fault: Fault) -> tuple[str, ...]:
    """A text without what differs from operand to operand."""
    help = re.sub(r"\.to\([\w.]+\)", ".to(...)", fault.error.help or "")
    help = re.sub(r"`\w+\[i\]`", "`several[i]`", help)
    wanted = re.split(", not ", fault.error.message)[0]
    return type(fault.error).__name__, re.sub(r"\d+", "n", wanted), re.sub(r"\d+", "n", help)


def written(row: Row, found: list[tuple[Mistake, Fault]]) -> str:
    lines = [good_call(row)]
    for operand, rule in row.takes.items():
        can_stand = row.of.get(operand, lambda thing: True)
        legal = [t.name for t in THINGS.values() if can_stand(t) and rule(t)]
        lines.append(
            f"    {operand}: {', '.join([row.good[operand], *(n for n in legal if n != row.good[operand])])}"
        )
    groups: dict[tuple[str, ...], list[tuple[Mistake, Fault]]] = {}
    for mistake, fault in found:
        groups.setdefault((mistake.operand, *form(fault)), []).append((mistake, fault))
    for (operand, *_), same in groups.items():
        lines += ["", f"---- {same[0][0].call}"]
        if " " in operand:
            lines.append(f"---- {operand}")
        if len(same) > 1:
            others = [m.thing or m.call for m, _ in same[1:]]
            lines.append(f"---- {operand or 'also'}: {', '.join(others)}")
        lines.append(same[0][1].text)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("row", ROWS)
def test_a_wrong_call_is_told_and_a_good_one_passes(row, golden):
    assert run(good_call(row)) is None
    found = mistakes(row)
    for where, (fault, possible), expected in (
        ("in a group of 8 warps", in_eight_warps(row), row.rows),
        ("outside roles", outside_roles(row), not row.scalars),
    ):
        if possible:
            assert (fault is not None) == expected, (
                f"{where}: {good_call(row)}\n{fault and fault.text}"
            )
        if fault is not None and possible:
            assert fault.error.message.startswith(f"{row.shown}: "), fault.text
            assert not INTERNAL.search(fault.text), fault.text
            found.append((Mistake(good_call(row), where), fault))
    assert found
    golden(f"errors/matrix/{row.name}.txt", written(row, found))


# What may be said of Python's numbers, or before there is a kernel.
ANYWHERE = {"st", "sv", "supergroup", "longest_first", "static", "range"}


@pytest.mark.parametrize("row", [p for p in ROWS if "pk." in p.values[0].call.partition("(")[0]])
def test_a_word_is_refused_outside_a_kernel(row):
    """With an array in place of what only a kernel has, as who forgets `@pk.kernel` calls it."""
    known = {n: g for n, g in row.good.items() if not calls.things_in(g)}
    call = row.call.format(**{**dict.fromkeys(row.good, "np.ones(4)"), **known})
    names = {"pk": pk, "np": np}
    if row.name in ANYWHERE:
        exec(call, names)
        return
    with pytest.raises(pk.KernelError, match="^[a-zA-Z_.0-9]+: only inside a kernel"):
        exec(call, names)


def test_every_operation_and_every_word_has_a_row():
    own = {name for name, op in OPS.items() if op.function.__module__.startswith("pykittens.")}
    assert own <= TABLE.keys()
    others = {"Effects", "KernelError", "Mismatch", "ScalarMeaning"}
    others |= {"check", "function", "kernel", "op", "in_turn"}
    exported = {w for w in pk.__all__ if callable(getattr(pk, w)) and w not in others}
    assert {w for w in exported if not isinstance(getattr(pk, w), Op)} <= TABLE.keys()


def test_no_golden_text_is_left_over():
    assert {p.stem for p in MATRIX.glob("*.txt")} == TABLE.keys()
