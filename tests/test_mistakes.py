"""Every operation called with each kind of wrong operand: which calls are refused, and the error texts.

tests/mistakes/texts.py says what the golden file of the texts holds.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import pykittens as pk
from pykittens.ir.op import Op
from pykittens.ops.core import OPS
from tests.mistakes import calls, texts
from tests.mistakes.calls import Fault, Mistake, good_call, in_eight_warps, outside_roles, run
from tests.mistakes.table import TABLE, Row

RECORDED = Path(__file__).parent / "golden" / "errors" / "mistakes.txt"
# What a user never sees: addresses, classes and modules of the package, names of NumPy's and Python's classes.
INTERNAL = re.compile(
    r"object at 0x|<class|pykittens\.|\b_\w*Context|NoneType|ndarray|"
    r"\b(Reg(Tile|Vector)|Shared(Tiles?|Row|Vector)|TileRef|Global|Scalar|NamedTiles|PipelineHandle|SharedArray|Undefined|Value|DType)\b"
)
ROWS = [pytest.param(row, id=name) for name, row in TABLE.items()]


def check_form(row: Row, mistake: Mistake, fault: Fault) -> None:
    """A text begins with the name, states what was expected and given, and shows the operands and the line."""
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
    assert calls.described(mistake.wrong) in "\n".join(
        [sentence, *map(str, fault.error.operands.values())]
    ), text


def mistakes(row: Row) -> list[tuple[Mistake, Fault]]:
    """The refused calls of a row, with their texts; the calls that must pass do, and the others do not."""
    found = []
    for mistake, passes in calls.replaced(row):
        fault = run(mistake.call, warps=row.warps)
        assert (fault is None) == passes, f"{mistake.call}\n{fault and fault.text}"
        if fault is not None:
            check_form(row, mistake, fault)
            found.append((mistake, fault))
    for mistake in calls.wrong_arguments(row):
        fault = run(mistake.call, warps=row.warps)
        assert fault is not None, mistake.call
        check_form(row, mistake, fault)
        found.append((mistake, fault))
    for wrong, (fault, possible), expected in (
        ("in a group of 8 warps", in_eight_warps(row), row.rows),
        ("outside roles", outside_roles(row), not row.scalars),
    ):
        if possible:
            assert (fault is not None) == expected, (
                f"{wrong}: {good_call(row)}\n{fault and fault.text}"
            )
        if fault is not None and possible:
            assert fault.error.message.startswith(f"{row.shown}: "), fault.text
            assert not INTERNAL.search(fault.text), fault.text
            found.append((Mistake(good_call(row), "", wrong), fault))
    return found


@pytest.fixture(scope="module")
def recorded():
    """What the golden file says of each row."""
    by_row = defaultdict(set)
    for entry in texts.read(RECORDED.read_text(encoding="utf-8")):
        by_row[entry.where.partition(".")[0]].add(entry)
    return by_row


@pytest.mark.parametrize("row", ROWS)
def test_a_wrong_call_is_refused_with_its_text_and_a_good_one_passes(row, recorded, request):
    assert run(good_call(row), warps=row.warps) is None
    found = texts.entries(row, mistakes(row))
    assert found
    if not request.config.getoption("--update-golden"):
        assert compared(found) == compared(recorded[row.name]), "`make golden` writes other texts"


def compared(entries: Iterable[texts.Entry]) -> set[texts.Entry]:
    """The entries that are the same for each Python: from 3.13 on a `with` is marked by its call."""
    newer = sys.version_info >= (3, 13)
    return {e for e in entries if not (newer and e.heading.startswith("marked: "))}


def test_each_text_is_recorded_once(golden, request):
    if request.config.getoption("--update-golden"):
        entries = [e for row in TABLE.values() for e in texts.entries(row, mistakes(row))]
    else:
        entries = texts.read(RECORDED.read_text(encoding="utf-8"))
    golden("errors/mistakes.txt", texts.written(entries))
    assert {entry.where.partition(".")[0] for entry in entries} == TABLE.keys()


# What may be said of Python's numbers, or before there is a kernel.
ANYWHERE = {"st", "sv", "peers", "supergroup", "longest_first", "static", "range"}


@pytest.mark.parametrize("row", [p for p in ROWS if "pk." in p.values[0].call.partition("(")[0]])
def test_a_word_is_refused_outside_a_kernel(row):
    """With an array in place of a kernel's value, as without `@pk.kernel`."""
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
    exported = {name: getattr(pk, name) for name in pk.__all__}
    words = {w for w, x in exported.items() if callable(x) and not isinstance(x, type | Op)}
    # Operands of the last are complex tiles: tests/lang/test_complex_tile.py.
    others = {"autotune", "check", "function", "kernel", "op", "complex_mma_AB"}
    assert words - others <= TABLE.keys()
