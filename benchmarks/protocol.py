"""How times are taken: in turn within one run, so that ratios hold even where the card's clocks drift.

burst: rest 0.4 s, 5 warm-ups, 10 launches between two events, rotating buffers. graphs: the same with the launches in
a CUDA graph, so that the host's time is not in it. isolated: one launch after the L2 cache was flushed. Each contender
is measured in every round; a figure is the median over rounds.
"""

from __future__ import annotations

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
    """Times of one contender over the rounds, in milliseconds a launch."""

    name: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def burst(
    contenders: dict[str, Call], buffers: int, rounds: int = 5, rest: float = REST
) -> list[Figure]:
    """Ten launches back to back after a rest, for each contender in turn."""
    return _rounds(contenders, rounds, lambda call: _burst_once(call, buffers, rest))


def graphs(
    contenders: dict[str, Call], buffers: int, rounds: int = 5, rest: float = REST
) -> list[Figure]:
    """Ten launches in a CUDA graph, run once to warm up and once to measure, after a rest, for each in turn."""
    captured = {name: _captured(call, buffers) for name, call in contenders.items()}

    def once(graph: Call) -> float:
        torch.cuda.synchronize()
        time.sleep(rest)
        graph(0)
        start, end = _events()
        start.record()
        graph(0)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / LAUNCHES

    return _rounds(captured, rounds, once)


def _captured(call: Call, buffers: int) -> Call:
    for i in range(buffers):  # what is compiled or worked out once cannot be in a graph
        call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(LAUNCHES):
            call(i % buffers)
    return lambda _: graph.replay()


def isolated(contenders: dict[str, Call], buffers: int, rounds: int = 15) -> list[Figure]:
    """One launch on a cold L2 cache, for each contender in turn."""
    flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    for call in contenders.values():
        for _ in range(3):
            call(0)

    def once(call: Call) -> float:
        flush.zero_()
        start, end = _events()
        start.record()
        call(0)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))

    return _rounds(contenders, rounds, once)


def _rounds(
    contenders: dict[str, Call], rounds: int, measure: Callable[[Call], float]
) -> list[Figure]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds):
        names = list(contenders)
        for name in names if turn % 2 == 0 else reversed(names):
            times[name].append(measure(contenders[name]))
    return [Figure(name, tuple(t)) for name, t in times.items()]


def _burst_once(call: Call, buffers: int, rest: float) -> float:
    torch.cuda.synchronize()
    time.sleep(rest)
    for i in range(WARM_UPS):
        call(i % buffers)
    start, end = _events()
    start.record()
    for i in range(LAUNCHES):
        call(i % buffers)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / LAUNCHES


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def call_cost(call: Callable[[], Any], calls: int = 2000, rounds: int = 7) -> float:
    """Microseconds of host time a call takes while the GPU keeps up: median over rounds."""
    for _ in range(100):
        call()
    costs = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(calls):
            call()
            if i % 500 == 499:
                # The queue must not fill up: then the host would wait for the GPU.
                pause = time.perf_counter()
                torch.cuda.synchronize()
                begin += time.perf_counter() - pause
        costs.append((time.perf_counter() - begin) / calls * 1e6)
    return statistics.median(costs)


def buffer_count(tensors: Sequence[torch.Tensor]) -> int:
    """How many sets of these tensors make up four times the L2 cache, at least 2 and at most 8."""
    size = sum(t.numel() * t.element_size() for t in tensors)
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2, min(8, -(-4 * cache // size)))


def driver_version() -> str:
    """The version of the GPU's driver, as its own tool tells it."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0]
