"""Bound launches on a GPU: for other memory, on the stream they are given, in graphs, from threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import pykittens as pk
from pykittens.runtime.bound import BoundLaunch, PreparedCalls

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pk.kernel
def scaled(x, y, factor):
    """y = x * factor."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)


CALLS: PreparedCalls[BoundLaunch] = PreparedCalls()


def times(x: Any, factor: float, out: Any = None) -> Any:
    """x * factor, as a host function of the library is written."""
    found, key, values, stream = CALLS.find((x, out))
    if out is None:
        out = x.new_empty(x.shape)
        values[1:] = [out.data_ptr()]
    if found is None:
        if key is None:
            scaled(x, out, factor)
            return out
        found = scaled.bind(x, out, factor)
        CALLS.keep(key, found)
    found([*values, factor], stream)
    return out


def test_a_host_function_is_right_for_all_memory_it_meets():
    for rows, cols in ((64, 64), (100, 72), (33, 1000)):
        for i in range(5):
            x = torch.randn(rows, cols + i, device="cuda")[:, i:]
            factor = 1.5 + i
            assert torch.equal(times(x, factor), x * factor)
            y = torch.full((rows, cols), torch.nan, device="cuda")
            assert times(x, factor, y) is y
            assert torch.equal(y, x * factor)


def test_an_output_over_an_input_is_refused_when_bound():
    x = torch.randn(128, 64, device="cuda")
    times(x[:64], 2.0, x[64:])
    with pytest.raises(pk.KernelError, match="shares memory"):
        times(x[:64], 2.0, x[32:96])
    torch.cuda.synchronize()
    assert torch.equal(x[64:], x[:64] * 2)


def test_a_bound_launch_goes_to_the_current_stream():
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


def test_a_graph_replays_a_bound_launch():
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
