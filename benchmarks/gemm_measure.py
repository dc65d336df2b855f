"""One product measured: checked against float64, then pykittens and the vendor's library in turn."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import record
import torch
from gemm_library import libraries, library_allowed
from gemm_problems import BLOCK, Data, Expected, Problem, allowed, call_of, calls, made
from protocol import Bench, Figure
from record import Row

from pykittens.errors import KernelError
from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.choose import pick
from pykittens.kernels.gemm.config import FEW, Config, GemmShape
from pykittens.kernels.gemm.tune import found_before, tuned
from pykittens.kernels.limits import Limits, limits_of

Contender = Callable[[int], Any]
OURS, TUNED = "pykittens", "pykittens, tuned"
ALIGNED = 16  # elements of 8 bits that the copy engine moves at least


class Wrong(Exception):
    """A wrong result."""


@dataclass(frozen=True)
class GemmBench(Bench):
    """How figures are measured. tune: also measure the configuration that tuning chooses."""

    tune: bool = False


def set_in(config: Config) -> dict[str, Any]:
    """The fields of a configuration that differ from their defaults."""
    defaults = {f.name: f.default for f in dataclasses.fields(Config)}
    return {name: x for name, x in dataclasses.asdict(config).items() if x != defaults[name]}


def name_of(config: Config) -> str:
    """A configuration in a few words: its tile, its stages, and what else is set in it."""
    named = {"rows", "cols", "stages", "out_cols"}
    words = [f"{config.rows}x{config.cols}", f"{config.stages} stages", f"out {config.out_cols}"]
    for name, value in set_in(config).items():
        if name not in named:
            words.append(name if value is True else f"{name} {value}".lower())
    return ", ".join(words)


def measured(problem: Problem, bench: GemmBench) -> Row:
    """The row of a problem; raises Wrong if a result is wrong."""
    empty = made(problem, "meta").tensors
    sets = [made(problem, bench.device) for _ in range(bench.count(empty))]
    expected, call = Expected(problem, sets[0]), call_of(problem, sets[0])
    picked = pick(call.shape, limits_of(call.arrays.like))
    chosen = {OURS: picked} | (_tuned(problem, call) if bench.tune else {})
    # gemm is faster on the host if it is not given the configuration that it would choose.
    default = found_before(call) or picked
    contenders, errors = {}, {}
    for name, config in chosen.items():
        if config in (chosen[x] for x in contenders):
            continue
        contender = calls(problem, sets, None if config == default else config)
        error = _error(contender, sets[0], expected)
        errors[name] = _refuse(error, allowed(problem), f"{name}, {name_of(config)}: ")
        contenders[name] = contender
    theirs = _libraries(problem, sets, expected)
    del expected
    for call in (*contenders.values(), *theirs.values()):
        for number in 2 * [*range(len(sets))]:  # a second call prepares the later ones
            call(number)
    figures = {f.name: f for f in bench.measure({**contenders, **theirs}, len(sets))}
    return row(problem, bench.protocol, figures, chosen, errors[OURS], next(iter(theirs)))


def compared(
    bench: Bench, problem: Problem, ways: dict[str, Callable[[Data], Any]], title: str
) -> tuple[list[Figure], dict[str, float], dict[str, str]]:
    """The figures of the right variants and then of the library, the errors, and the faults of wrong variants."""
    empty = made(problem, "meta").tensors
    sets = [made(problem, bench.device) for _ in range(bench.count(empty))]
    expected = Expected(problem, sets[0])
    errors: dict[str, float] = {}
    faults: dict[str, str] = {}
    for name, way in ways.items():
        try:
            sets[0].out.fill_(torch.nan)
            way(sets[0])
            errors[name] = _refuse(expected.error(sets[0].out), allowed(problem))
        except (KernelError, RuntimeError, Wrong) as fault:
            faults[name] = f"{type(fault).__name__}: {fault}"
            # Reported at once, since a fault may end the use of the GPU.
            print(f"{title}, {name}: {faults[name]}", file=sys.stderr, flush=True)
    contenders = {name: lambda i, way=ways[name]: way(sets[i]) for name in errors}
    library, contender = next(iter(_libraries(problem, sets, expected).items()))
    contenders[library] = contender
    return bench.measure(contenders, len(sets)), errors, faults


def _tuned(problem: Problem, call: GemmCall) -> dict[str, Config]:
    try:
        return {TUNED: tuned(call)}
    except KernelError as fault:
        print(f"gemm: {problem.name} is not tuned: {fault}", file=sys.stderr, flush=True)
        return {}


def _libraries(problem: Problem, sets: Sequence[Data], expected: Expected) -> dict[str, Contender]:
    """The library's variants with right results. The first is required for the ratio; the others may fail."""
    found: dict[str, Contender] = {}
    for name, way in libraries(problem).items():
        contender = lambda i, way=way: way(sets[i])  # noqa: E731
        try:
            _refuse(_error(contender, sets[0], expected), library_allowed(problem), f"{name}: ")
        except (RuntimeError, Wrong) as fault:
            if not found:
                raise
            print(f"gemm: {problem.name}: {name}: {fault}", file=sys.stderr, flush=True)
        else:
            found[name] = contender
    return found


def _error(contender: Contender, data: Data, expected: Expected) -> float:
    data.out.fill_(torch.nan)
    return expected.error(contender(0))


def _refuse(error: float, bound: float, title: str = "") -> float:
    if not error <= bound:
        raise Wrong(f"{title}error {error:.2e}, and {bound:.2e} is allowed")
    return error


def row(
    problem: Problem,
    protocol: str,
    figures: dict[str, Figure],
    chosen: dict[str, Config],
    error: float,
    library: str,
) -> Row:
    """The row of a table, with its panel in the picture, the configuration, and times in microseconds."""
    p, ours, theirs = problem, figures[OURS], figures[library]
    found = {
        **record.row(
            f"gemm {p.fused or p.layout} {p.section}",
            p.shape,
            protocol,
            ours,
            theirs,
            p.work,
            error,
        ),
        "section": p.section,
        "kind": p.kind,
        "panel": p.panel,
        "at": p.at,
        "layout": p.layout,
        "us": ours.median * 1e3,
        "library_us": theirs.median * 1e3,
        "config": name_of(chosen[OURS]),
        "others": {
            n: p.work / f.median * record.SCALES["TFLOP/s"]
            for n, f in figures.items()
            if n not in (OURS, TUNED, library)
        },
        "rounds": {n: f.rounds for n, f in figures.items()},
    }
    if TUNED in chosen:
        figure = figures.get(TUNED, ours)  # the same configuration is not measured twice
        found["tuned"] = theirs.median / figure.median
        found["tuned_config"] = name_of(chosen[TUNED])
    return found


# -- compiling -------------------------------------------------------------------------------------


def compile_ahead(
    problems: Sequence[Problem],
    limits: Limits,
    arch: str,
    processes: int | None = None,
    seconds: float = 240.0,
) -> list[str]:
    """Compile what gemm picks for the problems into the cache, in parallel; returns the errors as text.

    The processes do not touch the GPU. Programs that are not compiled after `seconds` are compiled by the launches.
    """
    wanted = ((problem, pick(shape_of(problem), limits)) for problem in problems)
    return compile_all(wanted, arch, processes, seconds)


def compile_all(
    wanted: Iterable[tuple[Problem, Config]],
    arch: str,
    processes: int | None = None,
    seconds: float = 240.0,
) -> list[str]:
    """The same for problems in given configurations.

    Programs do not depend on extents above those of few rows, but on what divides them, and their blocks with scales.
    """
    jobs = {}
    for problem, config in wanted:
        unit = 4 * BLOCK if problem.section == "blocks" else ALIGNED  # 16 bytes of scales
        m, n, k = (x if x <= FEW else 512 + x % unit for x in (problem.m, problem.n, problem.k))
        small = dataclasses.replace(problem, m=m, n=n, k=k, kind="", panel="", at="")
        jobs[small, config, arch] = None
    count = processes or min(16, os.cpu_count() or 1, len(jobs) or 1)
    with multiprocessing.get_context("fork").Pool(count, torch.set_num_threads, (1,)) as pool:
        try:
            faults = pool.starmap_async(_compiled, jobs, chunksize=1).get(seconds)
        except multiprocessing.TimeoutError:
            return [f"not all {len(jobs)} programs were compiled within {seconds:g} s"]
    return [fault for fault in faults if fault]


def _compiled(problem: Problem, config: Config, arch: str) -> str:
    try:
        call_of(problem, made(problem, "cpu")).plan(config).compile(arch)
    except Exception as fault:  # the launch fails, too, and the product is left out
        return f"{problem.section}, {name_of(config)}: {type(fault).__name__}: {fault}"
    return ""


def shape_of(problem: Problem) -> GemmShape:
    """The inputs to the choice of a configuration, from memory that is allocated and never touched."""
    data = made(problem, "meta")

    def empty(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)

    extras = {name: empty(x) for name, x in data.extras.items()}
    weights = empty(data.weights)
    own = Data(empty(data.a), empty(data.b), empty(data.out), extras, weights)
    return call_of(problem, own).shape
