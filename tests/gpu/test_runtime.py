"""Launching: streams, graphs, caches of plans, arrays of other libraries, and calls that are refused."""

import subprocess
import sys

import numpy as np
import pytest

import pykittens as pk

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pk.kernel
def scaled(x, y, factor):
    """y = x * factor."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)


@pk.kernel
def powers(x, y, count):
    """y = x * 2**count by a run-time loop with a branch, in place of a closed form."""
    pk.require(count >= 0, "count must not be negative")
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    for i in pk.range(count):
        if i % 2 == 0:
            t = t + t
        else:
            t = t * 2.0
    pk.store(y[row, col], t)


@pk.kernel(warps=8)
def row_sums(x, y):
    """Each row of x divided by its sum, a row a block of eight warps."""
    (row,) = pk.grid(x.rows)
    t = pk.load(x[row], cols=pk.static(x.cols))
    pk.store(y[row], t / pk.sum(t))


def test_scalars_change_without_a_new_plan():
    x, y = torch.randn(100, 100, device="cuda"), torch.empty(100, 100, device="cuda")
    for factor in (2.0, -0.5, 3.25):
        scaled(x, y, factor)
        assert torch.equal(y, x * factor)
    assert len(scaled._calls) == 1


def test_a_scalar_in_a_requirement_is_checked_at_each_call():
    x, y = torch.randn(65, 65, device="cuda"), torch.empty(65, 65, device="cuda")
    for count in (0, 1, 5):
        powers(x, y, count)
        assert torch.equal(y, x * 2**count)
    with pytest.raises(pk.KernelError, match="count must not be negative"):
        powers(x, y, -1)
    powers(x, y, 3)
    assert torch.equal(y, x * 8)


def test_warps_join_their_parts_of_a_vector():
    for width in (1, 100, 2048, 5000):
        x = torch.rand(33, width, device="cuda") + 0.5
        y = torch.full_like(x, torch.nan)
        row_sums(x, y)
        assert torch.allclose(y, x / x.sum(1, keepdim=True), rtol=1e-5)


def test_launches_go_to_the_current_stream():
    x, y = torch.randn(4096, 4096, device="cuda"), torch.empty(4096, 4096, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        scaled(x, y, 2.0)
        assert not side.query()
    side.synchronize()
    assert torch.equal(y, x * 2)


def test_a_graph_replays_a_warm_kernel():
    x, y = torch.randn(300, 300, device="cuda"), torch.empty(300, 300, device="cuda")
    scaled(x, y, 2.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scaled(x, y, 3.0)
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x * 3)


def test_compiling_while_a_graph_is_captured_is_refused():
    @pk.kernel
    def cold(x, y):
        row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64))

    x, y = torch.randn(64, 64, device="cuda"), torch.empty(64, 64, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.zero_()  # a graph of nothing is a warning
        with pytest.raises(pk.KernelError, match="captured"):
            cold(x, y)


def test_arrays_of_other_libraries_through_dlpack():
    class Foreign:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x, y = torch.randn(100, 50, device="cuda"), torch.empty(100, 50, device="cuda")
    scaled(Foreign(x), Foreign(y), 2.0)
    torch.cuda.synchronize()
    assert torch.equal(y, x * 2)


def test_arrays_on_two_devices_are_refused():
    x = torch.randn(64, 64)
    with pytest.raises(pk.KernelError, match="one device"):
        scaled(x, x.cuda(), 2.0)
    with pytest.raises(pk.KernelError, match="one device"):
        scaled(x.cuda(), np.zeros((64, 64), np.float32), 2.0)


def test_an_output_over_an_input_is_refused_at_every_call():
    x, y = torch.randn(128, 64, device="cuda"), torch.empty(64, 64, device="cuda")
    scaled(x[:64], y, 2.0)
    with pytest.raises(pk.KernelError, match="shares memory"):
        scaled(x[:64], x[32:96], 2.0)
    scaled(x[:64], x[64:], 2.0)
    assert torch.equal(x[64:], x[:64] * 2)


def test_a_second_process_finds_the_compiled_kernel(tmp_path, monkeypatch):
    from pykittens.runtime import nvrtc

    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path))
    x, y = torch.randn(64, 64, device="cuda"), torch.empty(64, 64, device="cuda")
    type(scaled)(scaled.function, scaled.options)(x, y, 2.0)
    monkeypatch.setattr(nvrtc, "compile", lambda *a, **k: pytest.fail("compiled again"))
    type(scaled)(scaled.function, scaled.options)(x, y, 5.0)
    assert torch.equal(y, x * 5)


def test_a_call_with_further_arguments_takes_the_fast_way_and_plans_of_its_own():
    @pk.kernel
    def total(y, *terms, scale):
        row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
        acc = pk.zeros(y.dtype, 64, 64)
        for term in terms:
            tensor = hasattr(term, "shape")
            acc = acc + (pk.load(term[row, col], rows=64, cols=64) if tensor else term)
        pk.store(y[row, col], acc * scale)

    x, y = torch.randn(100, 100, device="cuda"), torch.empty(100, 100, device="cuda")
    for terms in ((), (x,), (x, 3.0), (x, x, x), (2.0, x, 5.0)):
        for _ in range(2):
            y.fill_(torch.nan)
            total(y, *terms, scale=2.0)
            assert torch.allclose(y, 2 * sum(terms, torch.zeros_like(y)))
    assert len(total._calls) == 5
    with pytest.raises(pk.KernelError, match="shares memory"):
        total(y, x, y, scale=2.0)


FORKS = """
import os, sys, torch
from tests.gpu.test_runtime import scaled
x, y = torch.ones(64, 64, device="cuda"), torch.empty(64, 64, device="cuda")
if sys.argv[1] == "both":
    scaled(x, y, 2.0)
torch.cuda.synchronize()
child = os.fork()
if child == 0:
    try:
        scaled(x, y, 3.0)
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("used_by", ["torch", "both"])
def test_a_call_in_a_fork_says_that_the_process_was_forked(used_by):
    command = [sys.executable, "-c", FORKS, used_by]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "BackendError" in done.stdout
    assert "this process was forked from one that used CUDA" in done.stdout
