"""What a conflict is called, what is said to be missing, and that its sentences read well."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import pytest

from pykittens.emulate.finding import Finding, Kind, Level
from pykittens.emulate.memory import Area
from pykittens.emulate.races.conflicts import conflict, does, past, who
from pykittens.emulate.races.shadow import AccessRecord, LaneMapping
from pykittens.emulate.watch import Access
from pykittens.ir.op import Engine
from pykittens.types.dtypes import DType, bf16, f32, int32, int64
from tests.conftest import GOLDEN

ACCESSES: list[tuple[Engine | None, Access]] = [
    (None, Access.READ),
    (None, Access.WRITE),
    (None, Access.COMBINE),
    (Engine.COPY_IN, Access.READ),
    (Engine.COPY_IN, Access.WRITE),
    (Engine.COPY_OUT, Access.READ),
    (Engine.COPY_OUT, Access.WRITE),
    (Engine.COPY_OUT, Access.COMBINE),
    (Engine.PRODUCT, Access.READ),
]
# A word twice is a slip.
DOUBLED = re.compile(r"(?<![\w`])([A-Za-z]+) \1\b(?!`)")


def group(name: str, block: int = 0) -> Any:
    return SimpleNamespace(name=name, block=SimpleNamespace(name=f"block {block}"))


PRODUCER, CONSUMER = group("producer"), group("consumer 0")
CONSUMER.block = PRODUCER.block


def record(
    engine: Engine | None,
    access: Access,
    who: Any,
    op: str = "add",
    dtype: DType = f32,
    **others: Any,
) -> AccessRecord:
    call: Any = SimpleNamespace(loc=None, args={"dst": SimpleNamespace(dtype=dtype), "op": op})
    return AccessRecord(who, call, access, engine, Area(0, 8, 0, 8), None, 0, 1, **others)


def found(
    old: tuple[Engine | None, Access], new: tuple[Engine | None, Access], **others: Any
) -> Finding:
    """The finding for two groups of one block that meet in a shared tile."""
    finding = conflict(
        others.pop("memory", "`t`"),
        others.pop("is_tensor", False),
        record(*old, others.pop("first", PRODUCER)),
        record(*new, others.pop("second", CONSUMER)),
        others.pop("ordered", False),
    )
    assert finding is not None
    return finding


READ, WRITE = (None, Access.READ), (None, Access.WRITE)
BROUGHT, FETCHED = (Engine.COPY_IN, Access.WRITE), (Engine.COPY_IN, Access.READ)
MULTIPLIED, SENT = (Engine.PRODUCT, Access.READ), (Engine.COPY_OUT, Access.READ)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (READ, WRITE, Kind.RACE),
        (WRITE, READ, Kind.RACE),
        (WRITE, WRITE, Kind.RACE),
        (WRITE, MULTIPLIED, Kind.RACE),
        (BROUGHT, READ, Kind.UNLANDED_COPY),
        (BROUGHT, MULTIPLIED, Kind.UNLANDED_COPY),
        (BROUGHT, SENT, Kind.UNLANDED_COPY),
        (BROUGHT, WRITE, Kind.OVERWRITTEN_IN_USE),
        (BROUGHT, BROUGHT, Kind.OVERWRITTEN_IN_USE),
        (MULTIPLIED, WRITE, Kind.OVERWRITTEN_IN_USE),
        (MULTIPLIED, BROUGHT, Kind.OVERWRITTEN_IN_USE),
        (SENT, WRITE, Kind.OVERWRITTEN_IN_USE),
        (SENT, BROUGHT, Kind.OVERWRITTEN_IN_USE),
        (READ, BROUGHT, Kind.RACE),
        (FETCHED, WRITE, Kind.RACE),
    ],
)
def test_a_conflict_has_the_name_of_what_goes_wrong(old, new, kind):
    finding = found(old, new)
    assert finding.kind is kind
    assert finding.level is Level.ERROR
    assert [s.who for s in finding.steps] == ["producer", "consumer 0"]
    assert "consumer 0" in finding.missing
    assert finding.help


def test_what_is_in_order_lacks_a_fence():
    assert found(WRITE, MULTIPLIED, ordered=True).kind is Kind.MISSING_FENCE


def test_a_group_alone_lacks_a_sync():
    finding = found(READ, WRITE, second=PRODUCER)
    assert finding.missing == (
        "after its access, producer must call pk.sync(), so that all its warps are done"
    )
    assert finding.help.startswith("call pk.sync()")


@pytest.mark.parametrize("access", [WRITE, (Engine.COPY_OUT, Access.WRITE)])
def test_two_blocks_that_write_are_told_from_one_that_reads(access):
    others = {"is_tensor": True, "first": group("block", 3), "second": group("storer", 5)}
    twice, once = found(WRITE, access, **others), found(access, READ, **others)
    assert {twice.kind, once.kind} == {Kind.BLOCK_CONFLICT}
    assert twice.message == "`t` is written by two blocks"
    assert once.message == "`t` is written by one block and read by another"
    assert [s.who for s in twice.steps] == ["block 3", "block 5, storer"]


@pytest.mark.parametrize("old", [READ, WRITE, (Engine.COPY_OUT, Access.READ)])
def test_blocks_of_a_cluster_are_told_to_order_accesses_by_stages(old):
    copy = (Engine.COPY_IN, Access.WRITE)
    finding = found(old, copy, first=group("storer", 0), second=group("producer", 1))
    assert finding.missing == (
        "after its access, block 0, storer must release a stage that block 1, producer waits for"
    )
    assert "in a cluster only stages of pipelines order" in finding.help
    assert "semaphore" not in finding.help


@pytest.mark.parametrize("dtype", [f32, bf16, int32, int64])
@pytest.mark.parametrize("op", ["add", "max", "min"])
def test_only_sums_of_floats_depend_on_the_order_of_their_terms(dtype, op):
    combined = (
        record(None, Access.COMBINE, g, op, dtype) for g in (group("block", 0), group("block", 1))
    )
    finding = conflict("`t`", True, *combined, False)
    if op == "add" and dtype.is_float:
        assert finding is not None
        assert finding.kind is Kind.SCHEDULE_DEPENDENT
        assert finding.level is Level.WARNING
    else:
        assert finding is None


def test_two_rows_of_one_scatter_are_a_warning_and_of_two_are_a_race():
    first = record(None, Access.WRITE, PRODUCER, lanes=LaneMapping("tile", 0), by_row=True)
    second = record(None, Access.WRITE, PRODUCER, lanes=LaneMapping("tile", 1), by_row=True)
    finding = conflict("`t`", True, first, second, False)
    assert finding is not None
    assert finding.kind is Kind.RACE
    second.call = first.call
    finding = conflict("`t`", True, first, second, False)
    assert finding is not None
    assert (finding.kind, finding.level) == (Kind.SCHEDULE_DEPENDENT, Level.WARNING)


def test_a_group_is_told_with_its_block_where_there_are_several():
    assert who(group("block")) == "the block"
    assert who(group("producer")) == "producer"
    assert who(group("block", 2), several=True) == "block 2"
    assert who(group("producer", 2), several=True) == "block 2, producer"


@pytest.mark.parametrize(("engine", "access"), ACCESSES)
def test_every_access_has_its_words(engine, access):
    made = record(engine, access, PRODUCER)
    assert does(made)
    assert past(made) in ("read", "written", "combined with")


def sentences(finding: Finding) -> list[str]:
    return [finding.message, finding.missing, finding.help, *map(str, finding.steps)]


@pytest.mark.parametrize(("old", "new"), [*itertools.product(ACCESSES, ACCESSES)])
def test_no_sentence_has_a_word_twice(old, new):
    if Access.READ is old[1] is new[1]:
        return
    for first, second, ordered, is_tensor in itertools.product(
        (PRODUCER, group("block", 0)),
        (PRODUCER, CONSUMER, group("block", 1)),
        (False, True),
        (False, True),
    ):
        finding = conflict("`t`", is_tensor, record(*old, first), record(*new, second), ordered)
        for sentence in sentences(finding) if finding is not None else ():
            assert not DOUBLED.search(sentence), sentence
            assert "  " not in sentence


def test_no_report_on_a_planted_bug_has_a_word_twice():
    reports = sorted((GOLDEN / "planted").glob("*.txt"))
    assert reports
    for report in reports:
        # What is quoted of the kernel is the user's.
        told = [line for line in report.read_text().splitlines() if "    " not in line]
        slips = [line for line in told if DOUBLED.search(line)]
        assert not slips, (report.name, slips)
