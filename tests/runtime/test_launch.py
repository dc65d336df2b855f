"""What a launch is refused for before it starts, and whether it may start before others have ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import settings
from pykittens.aot.launcher import c_files
from pykittens.errors import ArgumentError
from pykittens.ir.evaluate import host_value
from pykittens.runtime.arguments import check, known_values
from pykittens.runtime.compiled import Compiled, compile_kernel
from pykittens.runtime.launch import grid_size, most_blocks
from tests.kernels_cluster import cluster_matmul, meeting
from tests.running import recorded
from tests.runtime.c_programs import Log, fake_driver, needs_compiler, python_launch


@pk.kernel
def neighbours(y, flags):
    (block,) = pk.grid(y.rows)
    pk.signal(flags[block], 1)
    pk.wait(flags[0], 1)
    pk.store(y[block], pk.zeros(y.dtype, 8))


@pk.kernel
def alone(y, flags):
    (block,) = pk.grid(y.rows)
    pk.signal(flags[block], 1)
    pk.store(y[block], pk.zeros(y.dtype, 8))


@pk.kernel
def early(y, flags):
    pk.overlap()
    (block,) = pk.grid(y.rows)
    pk.signal(flags[block], 1)
    pk.store(y[block], pk.zeros(y.dtype, 8))


@pk.kernel
def early_of_a_producer(x, y):
    pk.overlap()
    (block,) = pk.grid(y.rows // 64)
    ring = pk.pipeline(1, pk.st(y.dtype, 64, 64))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[block, 0])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y[block, 0], t)


@pk.kernel
def shared_out(y, flags):
    tasks = pk.persistent((y.rows,))
    with pk.warps(1):
        for (task,) in tasks:
            pk.wait(flags[0], 0)
            pk.store(y[task], pk.zeros(y.dtype, 8))


def size(kernel, rows, at_once):
    args = (np.zeros((rows, 8), np.float32), np.zeros(rows, np.int32))
    made = recorded(kernel, *args)
    known = known_values(made, check(kernel.parameters, args, {}))
    loaded = SimpleNamespace(
        kernel=made, blocks_at_once=at_once, most_blocks=most_blocks(made, at_once)
    )
    most = host_value(getattr(made.launch, "most", None), known)
    return grid_size(loaded, [host_value(d, known) for d in made.launch.dims], most)


def test_blocks_that_wait_for_one_another_are_refused_where_they_cannot_run_at_once():
    assert size(neighbours, 264, 264) == 264
    with pytest.raises(ArgumentError, match="all 265 must run at once, but this GPU runs 264"):
        size(neighbours, 265, 264)


def test_blocks_that_wait_for_nobody_may_be_any_number():
    assert size(alone, 1000, 264) == 1000
    assert size(shared_out, 1000, 264) == 264


@pk.kernel(cluster=2)
def pairs(y, flags):
    for (task,) in pk.persistent((y.rows,), blocks=pk.cdiv(y.rows, 10)):
        pk.store(y[task], pk.zeros(y.dtype, 8))


@pytest.mark.parametrize(
    ("rows", "at_once", "blocks"), [(1000, 264, 100), (1000, 64, 64), (990, 264, 98), (20, 264, 2)]
)
def test_a_limit_of_blocks_holds_beside_that_of_the_device(rows, at_once, blocks):
    assert size(pairs, rows, at_once) == blocks


def launched(
    kernel, args, fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch, debug: bool = False
) -> str:
    """The launch that reaches the driver."""
    made: Compiled = compile_kernel(recorded(kernel, *args), "sm_90a", debug)
    log.take()
    with fake_driver(monkeypatch, fake):
        python_launch(kernel, made, *args)
    (line,) = log.take("launch")
    return line


ROWS = np.zeros((8, 8), np.float32), np.zeros(8, np.int32)


@needs_compiler
def test_a_launch_may_overlap_those_before_where_its_kernel_asks_for_it(
    fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles = tuple(np.zeros((128, 64), np.float32) for _ in range(2))
    for kernel, args in ((early, ROWS), (early_of_a_producer, tiles)):
        for debug in (False, True):
            line = launched(kernel, args, fake, log, monkeypatch, debug)
            assert line.endswith(" overlapping")


@needs_compiler
def test_no_launch_overlaps_others_where_its_kernel_does_not_ask_for_it(
    fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = tuple(np.zeros((256, 256), ml_dtypes.bfloat16) for _ in range(3))
    for kernel, args in ((alone, ROWS), (cluster_matmul, clusters)):
        assert "overlapping" not in launched(kernel, args, fake, log, monkeypatch)


@needs_compiler
def test_a_launch_whose_blocks_wait_for_one_another_is_cooperative(
    fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kernel in (neighbours, shared_out):
        for debug in (False, True):
            line = launched(kernel, ROWS, fake, log, monkeypatch, debug)
            assert line.endswith(" cooperative")
        made = compile_kernel(recorded(kernel, *ROWS), "sm_90a")
        program = c_files(made.kernel, made.source, made.arch, made.cubin)[f"{made.kernel.name}.c"]
        assert "WAITS_FOR_BLOCKS = 1," in program
    assert "cooperative" not in launched(alone, ROWS, fake, log, monkeypatch)


clusters_meet = meeting(cluster=4)


@pk.kernel(cluster=4)
def clusters_share(y, flags):
    tasks = pk.persistent((y.rows,), cluster_axis=0)
    with pk.warps(1):
        for (task,) in tasks:
            pk.wait(flags[0], 0)
            pk.store(y[task], pk.zeros(y.dtype, 8))


def rows(count: int, *numbers: int) -> tuple[object, ...]:
    return np.zeros((count, 8), np.float32), np.zeros(1, np.int32), *numbers


@needs_compiler
def test_clusters_whose_blocks_wait_are_no_more_than_run_at_once(
    fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CUDA_CLUSTERS", "31")  # 132 multiprocessors could hold 33
    line = launched(clusters_meet, rows(124, 124), fake, log, monkeypatch)
    assert "grid 124 1 1" in line
    assert line.endswith(" cooperative")
    message = "all 128 must run at once, but this GPU runs 124 in clusters of 4\n"
    with pytest.raises(ArgumentError, match=message):
        launched(clusters_meet, rows(128, 128), fake, log, monkeypatch)
    assert "grid 124 1 1" in launched(clusters_share, rows(1000), fake, log, monkeypatch)


@needs_compiler
def test_the_driver_is_asked_for_clusters_of_the_kernels_size(
    fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Compiled = compile_kernel(recorded(clusters_meet, *rows(8, 8)), "sm_90a")
    log.take()
    with fake_driver(monkeypatch, fake):
        python_launch(clusters_meet, made, *rows(8, 8))
    threads, shared = made.source.threads, made.source.shared_bytes
    assert log.take("clusters") == [f"clusters 0xf0 of 4: {threads} {shared}"]


@needs_compiler
@pytest.mark.parametrize("setting", ["overlap", "target"])
def test_no_launch_overlaps_others_where_that_is_off_or_its_program_does_not_wait(
    fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    value = {"overlap": False, "target": "sm_80"}[setting]
    monkeypatch.setattr(settings, setting, lambda: value)
    assert "overlapping" not in launched(early, ROWS, fake, log, monkeypatch)


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "overlap", "expected"), [(early, True, 1), (early, False, 0), (alone, True, 0)]
)
def test_a_launcher_in_c_overlaps_as_its_kernel_and_the_setting_say(
    monkeypatch: pytest.MonkeyPatch, kernel, overlap: bool, expected: int
) -> None:
    monkeypatch.setattr(settings, "overlap", lambda: overlap)
    made = compile_kernel(recorded(kernel, *ROWS), "sm_90a")
    program = c_files(made.kernel, made.source, made.arch, made.cubin)[f"{made.kernel.name}.c"]
    assert f"OVERLAPS = {expected}," in program
