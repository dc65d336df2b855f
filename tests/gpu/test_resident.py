"""Launches whose blocks exchange data end and are right, whatever else the GPU runs: no hang depends on other work."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import pykittens as pk
from pykittens import int32
from pykittens.errors import ArgumentError
from pykittens.kernels.gemm import gemm, kernel
from pykittens.kernels.gemm.config import Config
from tests.gemm_problems import Problem
from tests.gpu.test_gemm import assert_product, needs, normal
from tests.kernels_cluster import meeting

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

SPLITS = {
    "parts": Config(64, 64, stages=3, consumers=1, out_cols=16, splits=6),
    "one-part": Config(64, 32, stages=3, consumers=1, out_cols=32, splits=6),
    "large": Config(128, 256, stages=3, out_cols=32, splits=3),
}
LAUNCHES = 30


def streams() -> list[Any]:
    """Streams of the lowest and of the highest priority."""
    low, high = torch.cuda.Stream.priority_range()
    return [torch.cuda.Stream(priority=low), torch.cuda.Stream(priority=high)]


def together(launch: Callable[[int], Any]) -> list[list[Any]]:
    """The results of launches on two streams of different priority, by stream."""
    found: list[list[Any]] = [[], []]
    both = streams()
    torch.cuda.synchronize()
    for _ in range(LAUNCHES):
        for i, stream in enumerate(both):
            with torch.cuda.stream(stream):
                found[i].append(launch(i))
    torch.cuda.synchronize()
    return found


@pytest.mark.parametrize("name", SPLITS)
def test_a_product_may_have_more_splits_than_the_gpu_holds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(SPLITS[name], Problem(1, 1, 1))
    monkeypatch.setattr(kernel, "together", lambda config, shape, multiprocessors: config)
    a, b = normal(1990, 3001), normal(2010, 3001)
    first = gemm(a, b, config=SPLITS[name])
    assert_product(first, a, b)
    for _ in range(LAUNCHES):
        assert torch.equal(gemm(a, b, config=SPLITS[name]), first)


@pytest.mark.parametrize("name", SPLITS)
def test_split_products_of_two_priorities_end(name: str) -> None:
    needs(SPLITS[name], Problem(1, 1, 1))
    pairs = [(normal(250, 20000), normal(500, 20000)), (normal(380, 9000), normal(600, 9000))]
    wanted = [gemm(a, b, config=SPLITS[name]) for a, b in pairs]
    for i, found in enumerate(together(lambda i: gemm(*pairs[i], config=SPLITS[name]))):
        assert all(torch.equal(x, wanted[i]) for x in found)


def test_split_products_beside_large_ones_end() -> None:
    config = SPLITS["parts"]
    needs(config, Problem(1, 1, 1))
    pairs = [(normal(8192, 2048), normal(8192, 2048)), (normal(380, 9000), normal(600, 9000))]
    wanted = gemm(*pairs[1], config=config)
    _, found = together(lambda i: gemm(*pairs[i], config=config if i else None))
    assert all(torch.equal(x, wanted) for x in found)


@pk.kernel
def hold(y, flag):
    """Each block keeps a multiprocessor's shared memory until the flag is set."""
    room = pk.shared(pk.st(pk.f32, 64, 256), count=3)
    (block,) = pk.grid(y.rows)
    pk.store(room[0], pk.zeros(pk.f32, 64, 256))
    pk.wait(flag[0], 1)
    pk.store(y[block], pk.zeros(int32, 8) + block)


@pytest.mark.parametrize("name", SPLITS)
def test_split_products_end_while_half_of_the_gpu_is_held_until_then(name: str) -> None:
    held = torch.cuda.get_device_properties(0).multi_processor_count // 2
    a, b, flag = (
        normal(380, 20000),
        normal(600, 20000),
        torch.ones(1, device="cuda", dtype=torch.int32),
    )
    y = torch.zeros(held, 8, device="cuda", dtype=torch.int32)
    hold(y, flag)  # compiled before the flag is cleared
    wanted = gemm(a, b, config=SPLITS[name])
    holding, working = streams()
    for _ in range(LAUNCHES):
        flag.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(holding):
            hold(y, flag)
        with torch.cuda.stream(working):
            found = gemm(a, b, config=SPLITS[name])
            flag.fill_(1)
        torch.cuda.synchronize()
        assert torch.equal(found, wanted)


@pk.kernel
def meet(y, counter, blocks):
    """Each block waits for all others, and half of a multiprocessor's shared memory is not enough for it."""
    room = pk.shared(pk.st(pk.f32, 64, 256), count=2)
    (block,) = pk.grid(y.rows)
    pk.store(room[0], pk.zeros(pk.f32, 64, 256))
    pk.signal(counter[0], 1, op="add")
    pk.wait(counter[0], blocks)
    pk.store(y[block], pk.zeros(int32, 8) + block)


def met(count: int) -> Any:
    y = torch.zeros(count, 8, device="cuda", dtype=torch.int32)
    meet(y, torch.zeros(1, device="cuda", dtype=torch.int32), count)
    return y


def test_kernels_that_wait_for_flags_run_beside_one_another_and_beside_other_work() -> None:
    count = torch.cuda.get_device_properties(0).multi_processor_count
    wanted = met(count)
    assert (wanted[:, 0] == torch.arange(count, device="cuda")).all()
    for found in together(lambda i: met(count)):
        assert all(torch.equal(x, wanted) for x in found)
    a, b = normal(8192, 2048), normal(8192, 2048)
    _, found = together(lambda i: met(count) if i else gemm(a, b))
    assert all(torch.equal(x, wanted) for x in found)


@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_as_many_clusters_that_wait_for_flags_run_as_the_driver_says(cluster: int) -> None:
    kernel, counter = meeting(cluster), torch.zeros(1, device="cuda", dtype=torch.int32)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    with pytest.raises(ArgumentError, match=rf"runs \d+ in clusters of {cluster}") as caught:
        kernel(torch.zeros(8 * processors, 8, device="cuda"), counter, 8 * processors)
    (most,) = map(int, re.findall(r"runs (\d+) in", str(caught.value)))
    assert processors // 2 < most <= processors
    assert most % cluster == 0
    for _ in range(LAUNCHES):
        y = torch.zeros(most, 8, device="cuda")
        counter.zero_()
        kernel(y, counter, most)
        torch.cuda.synchronize()
        assert (y == 1).all()
    with pytest.raises(ArgumentError, match=f"all {most + cluster} must run at once"):
        kernel(torch.zeros(most + cluster, 8, device="cuda"), counter, most + cluster)


def test_a_kernel_that_waits_for_flags_is_captured() -> None:
    count = torch.cuda.get_device_properties(0).multi_processor_count
    wanted, graph = met(count), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = met(count)
    for _ in range(3):
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, wanted)
