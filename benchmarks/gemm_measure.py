"""One product measured: checked against float64, then pykittens and the vendor's library in turn."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gemm_library import libraries, library_allowed
from gemm_problems import Data, Expected, Problem, allowed, call_of, calls, made
from protocol import Figure, buffer_count, burst

from pykittens.errors import KernelError
from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.choose import pick
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.tune import found_before, tuned
from pykittens.kernels.limits import Limits, limits_of

Row = dict[str, Any]
Contender = Callable[[int], Any]
OURS, TUNED = "pykittens", "pykittens, tuned"


class Wrong(Exception):
    """A result that is not what it should be."""


@dataclass(frozen=True)
class Way:
    """How figures are taken. count: how many sets of such tensors take turns."""

    protocol: str = "burst"
    measure: Callable[[dict[str, Contender], int], list[Figure]] = burst
    tune: bool = False
    device: str = "cuda"
    count: Callable[[Sequence[torch.Tensor]], int] = buffer_count


def name_of(config: Config) -> str:
    """A configuration in a few words: its tile, its stages, and what is not as in most others."""
    usual = {f.name: f.default for f in dataclasses.fields(Config)}
    said = {"rows", "cols", "stages", "out_cols"}
    words = [f"{config.rows}x{config.cols}", f"{config.stages} stages", f"out {config.out_cols}"]
    for name, value in dataclasses.asdict(config).items():
        if name not in said and value != usual[name]:
            words.append(name if value is True else f"{name} {value}".lower())
    return ", ".join(words)


def measured(problem: Problem, way: Way) -> Row:
    """The row of a problem; Wrong where a result is."""
    empty = made(problem, "meta").tensors
    sets = [made(problem, way.device) for _ in range(way.count(empty))]
    expected, call = Expected(problem, sets[0]), call_of(problem, sets[0])
    picked = pick(call.shape, limits_of(call.arrays.like))
    chosen = {OURS: picked} | (_tuned(problem, call) if way.tune else {})
    # What gemm chooses itself it is not told, which saves the host some time.
    itself = found_before(call) or picked
    contenders, errors = {}, {}
    for name, config in chosen.items():
        if config in (chosen[x] for x in contenders):
            continue
        contender = calls(problem, sets, None if config == itself else config)
        errors[name] = _error(contender, sets[0], expected)
        _refuse(f"{name}, {name_of(config)}", errors[name], allowed(problem))
        contenders[name] = contender
    theirs = _libraries(problem, sets, expected)
    del expected
    for call in (*contenders.values(), *theirs.values()):
        for number in 2 * [*range(len(sets))]:  # what is kept from a second call on is not measured
            call(number)
    figures = {f.name: f for f in way.measure({**contenders, **theirs}, len(sets))}
    return row(problem, way.protocol, figures, chosen, errors[OURS], next(iter(theirs)))


def _tuned(problem: Problem, call: GemmCall) -> dict[str, Config]:
    try:
        return {TUNED: tuned(call)}
    except KernelError as fault:
        print(f"gemm: {problem.name} is not tuned: {fault}", file=sys.stderr, flush=True)
        return {}


def _libraries(problem: Problem, sets: Sequence[Data], expected: Expected) -> dict[str, Contender]:
    """The library's ways that are right. Without the first there is nothing to compare with; others may fail."""
    found: dict[str, Contender] = {}
    for name, way in libraries(problem).items():
        contender = lambda i, way=way: way(sets[i])  # noqa: E731
        try:
            _refuse(name, _error(contender, sets[0], expected), library_allowed(problem))
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


def _refuse(name: str, error: float, bound: float) -> None:
    if not error <= bound:
        raise Wrong(f"{name}: error {error:.2e} where {bound:.2e} is allowed")


def row(
    problem: Problem,
    protocol: str,
    figures: dict[str, Figure],
    chosen: dict[str, Config],
    error: float,
    library: str,
) -> Row:
    """A row in the form of benchmarks/run.py, and more: where it stands, the configuration, times in microseconds."""
    p, ours, theirs = problem, figures[OURS], figures[library]

    def rate(figure: Figure) -> float:
        return p.work / figure.median * 1e-9  # ms to TFLOP/s

    found = {
        "kernel": f"gemm {p.fused or p.layout} {p.section}",
        "section": p.section,
        "kind": p.kind,
        "panel": p.panel,
        "at": p.at,
        "layout": p.layout,
        "shape": p.shape,
        "protocol": protocol,
        "ours": rate(ours),
        "library": rate(theirs),
        "against": library,
        "unit": "TFLOP/s",
        "ratio": theirs.median / ours.median,
        "us": ours.median * 1e3,
        "library_us": theirs.median * 1e3,
        "error": error,
        "config": name_of(chosen[OURS]),
        "others": {n: rate(f) for n, f in figures.items() if n not in (OURS, TUNED, library)},
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
    """Compile what the problems are going to launch, side by side, into the cache; what failed, in words.

    In processes of their own, which do not touch the GPU; after `seconds` the rest is left to the launches.
    """
    jobs = {}
    for problem in problems:
        config = pick(_on_cpu(problem).shape, limits)
        small = dataclasses.replace(problem, m=256, n=256, k=256, kind="", panel="", at="")
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
    except Exception as fault:  # the launch will tell, where the product is then left out
        return f"{problem.section}, {name_of(config)}: {type(fault).__name__}: {fault}"
    return ""


def _on_cpu(problem: Problem) -> GemmCall:
    """The call of a problem, with memory that is asked for and never touched."""
    data = made(problem, "meta")

    def asked(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)

    extras = {name: asked(x) for name, x in data.extras.items()}
    weights = asked(data.weights)
    return call_of(problem, Data(asked(data.a), asked(data.b), asked(data.out), extras, weights))
