"""A kernel, and reports on it that are written by hand."""

from __future__ import annotations

import inspect

import pykittens as pk
from pykittens.checker.report.report import CheckReport, KernelText, Row, Table
from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Moment, Scope, TileMoment
from pykittens.errors import Loc
from tests.timelines import two_blocks


@pk.kernel
def early(x, y):
    """y = x, a tile that is read before <it> has landed."""
    tile = pk.shared(pk.st(pk.f32, 64, 64))
    full = pk.semaphore(1)
    (block,) = pk.grid(1)
    with pk.producer():
        full.expect(tile)
        pk.load_async(tile, x[0, 0], signal=full)
    with pk.warpgroups(1):
        pk.store(y[0, 0], pk.load(tile))


def place(text: str) -> Loc:
    """The first line of `early` with this text, and the columns of the text."""
    function = early.function
    lines, first = inspect.getsourcelines(function)
    line = next(n for n, shown in enumerate(lines, first) if text in shown)
    start = lines[line - first].index(text)
    wanted = (line, line, start, start + len(text))
    instruction = 2 * [*function.__code__.co_positions()].index(wanted)
    return Loc(
        function.__code__.co_filename, line, function.__name__, function.__code__, instruction
    )


COPY, READ = "pk.load_async(tile, x[0, 0], signal=full)", "pk.load(tile)"


def unlanded() -> Finding:
    """The tile of `early` is read too early, in 3 schedules, first in that of seed 17."""
    return Finding(
        Kind.UNLANDED_COPY,
        "`tile` is read while a copy into it is under way",
        (
            FindingStep("producer", "copies x[0, 0] into `tile`", place(COPY)),
            FindingStep("warpgroups", "reads `tile`", place(READ)),
        ),
        missing="a wait for `full` between them",
        help="say full.wait(0) before line 23",
        seed=17,
        schedules=3,
        operands={"tile": "st<f32, 64x64>", "x": "gl<f32, 2>"},
    )


def moments(tile: str) -> tuple[Moment, ...]:
    """What led from a copy into a tile to a read of it."""
    landing = (TileMoment(tile, "x[0, 0]", landing=True),)
    return (
        Moment(
            "producer",
            f"starts a copy of x[0, 0] into {tile}",
            place(COPY),
            landing,
            is_access=True,
        ),
        Moment("producer", "arrives on full", place(COPY), landing),
        Moment("warpgroups", f"reads {tile}", place(READ), landing, is_access=True),
    )


def many_threads() -> Finding:
    """A note that holds always, without a line and without advice."""
    return Finding(
        Kind.RESOURCES, "a block has 160 threads", level=Level.NOTE, scope=Scope.ALWAYS
    )  # fmt: skip


def unwritten() -> Finding:
    """A warning."""
    step = FindingStep("", "", place("pk.store(y[0, 0], pk.load(tile))"))
    return Finding(
        Kind.UNWRITTEN_MEMORY,
        "36 of 4,132 elements of `y` are not written",
        (step,),
        help="let the grid cover `y`",
        level=Level.WARNING,
        scope=Scope.EVERY_SCHEDULE,
    )


def tables() -> tuple[Table, ...]:
    """One table whose rows have locations that no cell shows, and one without."""
    conflicts = Table(
        "Bank conflicts",
        ("operation", "wavefronts", "least"),
        (Row(("load tile", "1,024", "512"), place(READ)), Row(("store y", "64", "64"))),
        note="least is what the bytes need",
    )
    return conflicts, Table(
        "Memory of a block",
        ("name", "bytes"),
        (
            Row(
                ("tile", "16384"),
            ),
        ),
    )


def report(*findings: Finding, **others) -> CheckReport:
    """A report on `early` with these findings."""
    fields = {
        "arguments": {"x": "f32[64, 64]", "y": "f32[64, 64]"},
        "constants": {"to": "bf16"},
        "seeds": tuple(range(20)),
        "holds": "nothing else was found in the 20 schedules tried with these arguments, seeds 0 to 19",
        **others,
    }
    return CheckReport("early", KernelText.of(early.function), findings=findings, **fields)


def full_report() -> CheckReport:
    """A report with everything."""
    return report(
        many_threads(),
        unlanded(),
        unwritten(),
        tables=tables(),
        proved=("every semaphore has <one> arrival a phase",),
        ignored={"race": 2},
        timeline=two_blocks(),
    )
