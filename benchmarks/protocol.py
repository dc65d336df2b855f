"""How times are measured: all contenders in each round of one run, so that ratios hold even if the clocks drift.

burst: rest 0.4 s, 5 warm-ups, 10 launches between two events, rotating buffers. graphs: the same with the launches in
a CUDA graph, which excludes host time. isolated: one launch after a flush of the L2 cache. A figure is the median over
the rounds.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Call = Callable[[int], Any]  # launches once; the number picks the buffers

WARM_UPS, LAUNCHES, REST = 5, 10, 0.4


@dataclass(frozen=True)
class Figure:
    """Times of one contender over the rounds, in milliseconds per launch."""

    name: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def burst(
    contenders: dict[str, Call], buffers: int, rounds: int = 5, rest: float = REST
) -> list[Figure]:
    """Ten launches back to back after a rest, for each contender in turn."""

    def launches(call: Call, count: int) -> None:
        for i in range(count):
            call(i % buffers)

    return _rounds(
        contenders,
        rounds,
        lambda call: _after_a_rest(
            rest, lambda: launches(call, WARM_UPS), lambda: launches(call, LAUNCHES)
        ),
    )


def graphs(
    contenders: dict[str, Call], buffers: int, rounds: int = 5, rest: float = REST
) -> list[Figure]:
    """Ten launches in a CUDA graph, run once to warm up and once to measure, after a rest, for each in turn."""
    captured = {name: _captured(call, buffers) for name, call in contenders.items()}
    return _rounds(captured, rounds, lambda call: _after_a_rest(rest, call, call))


def _captured(call: Call, buffers: int) -> Callable[[], None]:
    for i in range(buffers):  # compilation cannot be captured
        call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(LAUNCHES):
            call(i % buffers)
    return graph.replay  # type: ignore[no-any-return]


def isolated(contenders: dict[str, Call], buffers: int, rounds: int = 15) -> list[Figure]:
    """One launch on a cold L2 cache, for each contender in turn."""
    flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    for call in contenders.values():
        for _ in range(3):
            call(0)

    def once(call: Call) -> float:
        flush.zero_()
        return _timed(lambda: call(0))

    return _rounds(contenders, rounds, once)


def _rounds(
    contenders: dict[str, Any], rounds: int, measure: Callable[[Any], float]
) -> list[Figure]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders)
        for name in names if number % 2 == 0 else reversed(names):
            times[name].append(measure(contenders[name]))
    return [Figure(name, tuple(t)) for name, t in times.items()]


def _after_a_rest(rest: float, warm_up: Callable[[], Any], launches: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    time.sleep(rest)
    warm_up()
    return _timed(launches) / LAUNCHES


def _timed(launches: Callable[[], Any]) -> float:
    """Milliseconds between the events before and after the launches."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    launches()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def call_cost(call: Callable[[], Any], calls: int = 2000, rounds: int = 7) -> float:
    """Microseconds of host time per call while the GPU keeps up: median over rounds."""
    for _ in range(100):
        call()
    costs = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(calls):
            call()
            if i % 500 == 499:
                # A full queue would make the host wait for the GPU.
                pause = time.perf_counter()
                torch.cuda.synchronize()
                begin += time.perf_counter() - pause
        costs.append((time.perf_counter() - begin) / calls * 1e6)
    return statistics.median(costs)


def buffer_count(tensors: Sequence[torch.Tensor]) -> int:
    """The number of sets of these tensors that fill four times the L2 cache, at least 2 and at most 8."""
    size = sum(t.numel() * t.element_size() for t in tensors)
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, min(8, -(-4 * cache // size)))


def driver_version() -> str:
    """The version of the GPU's driver, from nvidia-smi."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0]


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> torch.Tensor:
    """Random normal numbers."""
    return torch.randn(*shape, device=device).to(dtype)


@dataclass(frozen=True)
class Bench:
    """How figures are measured. count: gives the number of sets of tensors that the launches rotate through."""

    protocol: str = "burst"
    measure: Callable[[dict[str, Call], int], list[Figure]] = burst
    device: str = "cuda"
    count: Callable[[Sequence[torch.Tensor]], int] = buffer_count


PROTOCOLS = {"burst": burst, "graphs": graphs, "isolated": isolated}
ROUNDS = {"burst": 5, "graphs": 3, "isolated": 15}


def bench_of(protocol: str, rounds: int | None = None, rest: float = REST) -> Bench:
    """The figures of a protocol on this machine's GPU."""
    words = {"rounds": rounds or ROUNDS[protocol], "rest": rest}
    if protocol == "isolated":
        del words["rest"]
    return Bench(protocol, functools.partial(PROTOCOLS[protocol], **words))
