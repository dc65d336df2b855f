"""Calls of a host function on a GPU: for other memory, on the current stream, in graphs, from threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import host_function
from pykittens.kernels.plan import Plan, PlanStep

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pk.kernel
def scaled(x, y, factor):
    """y = x * factor."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)


def plan_of(x: Any, factor: float, out: Any = None) -> Plan:
    """x * factor."""
    arrays = Arrays("times", x=x, factor=float(factor), out=out)
    arrays.shapes(x="rows cols")
    arrays.result("rows cols", arrays.dtypes("x", among=("f32",)))
    return Plan(arrays, [PlanStep(scaled, ("x", "out", "factor"))])


times = host_function(plan_of, {})


def test_a_host_function_is_right_for_all_memory_it_meets():
    for rows, cols in ((64, 64), (100, 72), (33, 1000)):
        for i in range(5):
            x = torch.randn(rows, cols + i, device="cuda")[:, i:]
            factor = 1.5 + i
            assert torch.equal(times(x, factor), x * factor)
            y = torch.full((rows, cols), torch.nan, device="cuda")
            assert times(x, factor, y) is y
            assert torch.equal(y, x * factor)


def test_an_output_over_an_input_is_refused():
    x = torch.randn(128, 64, device="cuda")
    times(x[:64], 2.0, x[64:])
    with pytest.raises(pk.KernelError, match="shares memory"):
        times(x[:64], 2.0, x[32:96])
    torch.cuda.synchronize()
    assert torch.equal(x[64:], x[:64] * 2)


def test_a_call_goes_to_the_current_stream():
    x, y = torch.randn(4096, 4096, device="cuda"), torch.empty(4096, 4096, device="cuda")
    times(x, 3.0, y)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        times(x, 2.0, y)
        assert not side.query()
    side.synchronize()
    assert torch.equal(y, x * 2)


def test_a_graph_replays_calls():
    x = torch.randn(300, 300, device="cuda")
    times(x, 2.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = times(times(x, 3.0), 0.5)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, x * 3 * 0.5)


def test_threads_call_a_host_function_at_once():
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(100):
                    x = torch.full((64 + number, 64), float(i), device="cuda")
                    assert torch.equal(times(x, number + 0.5), x * (number + 0.5))
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_the_same_memory_is_launched_with_the_numbers_of_each_call():
    x, y = torch.randn(100, 72, device="cuda"), torch.empty(100, 72, device="cuda")
    for factor in (2.0, 3.0, 2.0, 2.0, 3.0, -0.5, 0.0, -0.0, 0.0, -0.0, 2.0):
        x.normal_()
        exact = x * factor
        assert times(x, factor, y) is y
        assert torch.equal(y, exact)
        assert torch.equal(y.signbit(), exact.signbit())
        scaled(x, y, factor + 1)
        assert torch.equal(y, x * (factor + 1))
