"""Kernels without one instruction that the compiler placed, and the findings of the checker; docs/mutants.md.

One block does all tasks of a launch, since what the compiler inserts orders the work of one block or cluster. A wait
for a stage is needed if no other wait has seen the release of the stage. This depends on the number of steps of a task,
so a kernel has several launches, all with more tasks than its rings have stages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pykittens.checker.copies import Copies
from pykittens.checker.runs import run_schedules, scalars
from pykittens.cli.arguments import load
from pykittens.emulate import machine
from pykittens.emulate.finding import Finding, Level
from pykittens.emulate.inserted import Inserted, inserted
from pykittens.emulate.watch import Watcher
from pykittens.ir.nodes import written
from pykittens.kernels.attention import attention_blocks
from pykittens.kernels.attention.config import CONFIGS
from pykittens.runtime.arguments import Arguments
from pykittens.runtime.arguments import check as check_arguments
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.dtypes import f32
from tests import kernels_pipeline
from tests.attention_operands import operands
from tests.conftest import EXAMPLES
from tests.kernels_cluster import cluster_matmul
from tests.launches import moved, product
from tests.races import left_out

SEEDS = range(4)
MORE_SEEDS = range(10)  # for mutants that are said to be redundant
BLOCKS = 1
BY_THE_NEXT = "the first product of the next task finds two stages held, and releases this one"
# Without these nothing changes, for the reason given.
REDUNDANT = {
    "until all stores of the role have been written": (
        "an earlier wait has seen that their tiles are read, and the end of a launch waits for the writes"
    ),
    "until a stage of `q_ring` is free": (
        "keys of the task are loaded before its queries, into a stage that is free after the last product of queries"
        " two tasks before"
    ),
    "up to a stage of `inputs` released": BY_THE_NEXT,
    "up to a stage of `ring` released": "a block has one task: no group fills the stage again",
}

Make = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Subject:
    """A kernel and its launches."""

    name: str
    kernel: KernelFunction
    makes: tuple[Make, ...]
    constants: Mapping[str, Any]

    def launches(self) -> list[Arguments]:
        """The arguments of the launches, which one recorded kernel serves."""
        made = [
            check_arguments(self.kernel.parameters, make(), self.constants) for make in self.makes
        ]
        assert len({id(self.kernel.record(arguments)) for arguments in made}) == 1
        return made


@dataclass(frozen=True)
class Mutant:
    """The result of omitting one instruction: the kinds of the findings, none if there are none."""

    kernel: str
    inserted: Inserted
    kinds: tuple[str, ...]

    @property
    def told(self) -> str:
        """The omitted instruction and its line."""
        p = self.inserted
        return f"{p.what} of {p.role.kind} at {p.loc}: {p.description}"


# -- the kernels -------------------------------------------------------------------------------


@functools.cache
def subjects() -> dict[str, Subject]:
    """Every configuration of the library, the examples with pipelines, and kernels with other inserted things."""
    return {s.name: s for s in (*_products(), *_attentions(), *_examples(), *_others())}


def _products() -> Iterator[Subject]:
    for name in ("ABt", "AB", "swap", "turns", "sm_80", "sm_89"):
        launch = product(name, BLOCKS, steps=2)
        yield Subject(launch.name, launch.kernel, (launch.make,), launch.constants)


def _attentions() -> Iterator[Subject]:
    for config in CONFIGS:
        d = min(config.widest, 2 * config.out_cols)
        for causal in (False, True):
            ending = f"{config.stages}{'-causal' * causal}"
            more, form = operands(causal, 70)  # several blocks of keys need the mask
            yield Subject(
                f"attention-{config.rows}x{config.keys}-{config.widest}-{ending}",
                attention_blocks,
                _heads(config.rows, config.keys, config.stages, d, more),
                {"form": form, "config": config},
            )


def _heads(
    rows: int, keys: int, stages: int, d: int, more: tuple[Any, ...] = ()
) -> tuple[Make, ...]:
    """Attention over one block of keys, as many as stages, and more."""
    makes = []
    for blocks, tasks in ((1, stages + 2), (stages, stages + 2), (stages + 2, 2 * stages + 2)):
        length = blocks * keys
        heads = -(-tasks // -(-length // rows))
        tensors = moved(*((1, heads, length, d),) * 4)
        makes.append(lambda tensors=tensors: (*tensors(), *more))
    return tuple(makes)


def _examples() -> Iterator[Subject]:
    matrices = moved((128, 128), (1280, 128), (128, 1280))
    for stem, name, makes in (
        ("05_matmul_pipeline", "matmul_pipeline", (moved((64, 384), (128, 384), (64, 128)),)),
        ("06_matmul", "matmul", (matrices,)),
        ("08_lcsf", "lcsf_matmul", (matrices,)),
    ):
        yield Subject(name, getattr(load(EXAMPLES / f"{stem}.py"), name), makes, {})
    kernel = load(EXAMPLES / "07_attention.py").attention
    for causal in (False, True):
        name = f"attention{'-causal' * causal}"
        yield Subject(name, kernel, _heads(128, 128, 2, 32), {"causal": causal})


def _others() -> Iterator[Subject]:
    multicast = moved((256, 128), (1280, 128), (256, 1280))
    yield Subject("cluster", cluster_matmul, (multicast,), {})
    stored = moved((256, 64), (256, 128), dtype=f32)
    yield Subject("two_fillers", kernels_pipeline.two_fillers, (stored,), {})
    mixed = moved((256, 16), (256, 32))
    yield Subject("mixed_fill", kernels_pipeline.mixed_fill, (mixed,), {})


# -- leaving things out ------------------------------------------------------------------------


@functools.cache
def mutants(name: str) -> list[Mutant]:
    """What is found in each mutant of a kernel, in the first launch and schedule that shows something."""
    assert machine.BLOCKS == BLOCKS, "the launches are made for so many blocks"
    subject = subjects()[name]
    launches = subject.launches()
    recorded = subject.kernel.record(launches[0])
    found = []
    for p in inserted(recorded):
        with left_out(p.node, p.what):
            faults = _first_faults(subject.kernel, launches)
        kinds = tuple(sorted({f.kind.value for f in faults}))
        found.append(Mutant(recorded.name, p, kinds))
    return found


def _first_faults(kernel: KernelFunction, launches: list[Arguments]) -> list[Finding]:
    for seed in SEEDS:
        for arguments in launches:
            if faults := faults_in(run_schedules(kernel, arguments, [seed])):
                return faults
    return []


def faults_in(found: list[Finding]) -> list[Finding]:
    """Errors and warnings."""
    return [f for f in found if f.level is not Level.NOTE]


class _Quiet(Watcher):
    """Completes the unfinished work of a mutant at the end of the launch."""

    reports_unfinished = True


def output(subject: Subject, arguments: Arguments) -> list[bytes]:
    """What a launch writes, in the first schedule."""
    kernel = subject.kernel.record(arguments)
    copied = arguments.holding(Copies(arguments).make())
    tensors = {name: array.numpy() for name, array in copied.tensors.items()}
    machine.run(kernel, tensors, scalars(copied), SEEDS[0], _Quiet())
    return [tensors[name].tobytes() for name in written(kernel)]


# -- the page ----------------------------------------------------------------------------------

HEAD = """# What the compiler inserts, and what the checker reports without it

A kernel names copies, products and stages; the compiler inserts the waits, arrivals, fences and releases between them.
Here each of them is left out in the emulator, one at a time, and the checker looks at the rest: {count} mutants of
{kernels} kernels, every configuration of the library among them. A test writes this page (`make golden`) and compares
it with the findings.

A row is a line of the kernel and what the compiler inserted there, with the kinds of findings of `pk.check` in the
schedules of seeds {first} to {last}, for each configuration in the first that shows something. If something is not
needed, the row says why: without it there is no finding, and the bits are the same, in {schedules} schedules of each
launch.
"""


def page() -> str:
    """The text of docs/mutants.md."""
    every = [m for name in subjects() for m in mutants(name)]
    head = HEAD.format(
        kernels=len(subjects()),
        count=len(every),
        first=SEEDS[0],
        last=SEEDS[-1],
        schedules=len(MORE_SEEDS),
    )
    files: dict[tuple[str, str], list[Mutant]] = {}
    for m in every:
        files.setdefault((m.kernel, _file(m.inserted)), []).append(m)
    return "\n".join([head, *(_section(kernel, file, ms) for (kernel, file), ms in files.items())])


def _file(p: Inserted) -> str:
    assert p.loc is not None
    return str(p.loc).rpartition(":")[0]


def _section(kernel: str, file: str, found: list[Mutant]) -> str:
    lines = [f"## {kernel}", "", f"`{file}`", "", "| line | role | inserted | found without it |"]
    lines += ["|---|---|---|---|"]
    rows: dict[tuple[int, str, str, str], list[Mutant]] = {}
    for m in found:
        assert m.inserted.loc is not None
        p = m.inserted
        key = (p.loc.line, p.role.kind, p.what, p.description)
        rows.setdefault(key, []).append(m)
    for (line, role, what, description), same in sorted(rows.items()):
        lines.append(f"| {line} | {role} | {what}: {description} | {_verdict(same)} |")
    return "\n".join([*lines, ""])


def _verdict(same: list[Mutant]) -> str:
    """The kinds found in some configuration, and the reason if none is."""
    kinds = sorted({k for m in same for k in m.kinds})
    missed = [m for m in same if not m.kinds]
    if not missed:
        return ", ".join(kinds)
    reason = REDUNDANT.get(missed[0].inserted.description, "")
    share = f"{len(missed)} of {len(same)} " if kinds else ""
    return ", ".join([*kinds, f"{share}not needed: {reason}"])
