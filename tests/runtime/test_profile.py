"""`kernel.profile` launches a program with clock reads, waits for its end and decodes what the GPU wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.timeline.clocks import HEAD
from pykittens.errors import ArgumentError, BackendError
from pykittens.runtime import driver, nvrtc
from pykittens.runtime.profile import CLOCK_READS, MOST_BLOCKS
from tests.clocked import emitted, place, records, ring, ring_arrays, ring_reads
from tests.mega.programs import Cell, added, cells
from tests.runtime.c_programs import Log, needs_compiler

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available())),
]
MOST = 32


@pytest.fixture
def written(gpu_tensors: None, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`written(words)`: the GPU writes these records."""

    def write(words: np.ndarray[Any, Any]) -> None:
        words.tofile(tmp_path / "records")
        monkeypatch.setenv("FAKE_CUDA_MEMORY_FILE", str(tmp_path / "records"))

    return write


def tensors() -> list[Any]:
    return [torch.from_numpy(a) for a in ring_arrays()]


def ring_records(most: int = MOST) -> np.ndarray[Any, Any]:
    return records([ring_reads(emitted(ring, *ring_arrays()))] * 2, most)


def test_a_profile_has_what_the_gpu_wrote(written: Any, log: Log) -> None:
    written(ring_records())
    x, y = tensors()
    version = y._version
    profile = ring.profile(x, y, clock_reads=MOST)
    assert profile.timeline.title == "ring"
    assert profile.timeline.note.startswith("a GPU. Clock reads")
    assert len(profile.timeline.tracks) == 2 * (2 + 2)
    assert [(s.group, s.count) for s in profile.spent] == [("producer", 2), ("warps", 2)]
    assert y._version > version
    lines = log.take()
    size = 2 * 2 * (HEAD + MOST) * 8
    kinds = [line.split()[0] for line in lines]
    assert (
        kinds.index("alloc") < kinds.index("memset") < kinds.index("launch") < kinds.index("copy")
    )
    assert kinds[-1] == "free"
    assert f"alloc {size}" in lines
    assert f"copy b000 {size}" in lines


def test_the_parameters_are_the_records_and_their_bounds(
    written: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(ring_records())
    monkeypatch.setenv("FAKE_CUDA_SIZES", "128,8,8,4,4,8,4,4")
    ring.profile(*tensors(), clock_reads=MOST)
    (line,) = log.take("launch")
    pointer, most, blocks = line.split()[-3:]
    assert int.from_bytes(bytes.fromhex(pointer), "little") == 0xB000
    assert int.from_bytes(bytes.fromhex(most), "little") == MOST
    assert int.from_bytes(bytes.fromhex(blocks), "little") == 2
    assert "grid 2 1 1" in line


def test_a_call_after_a_profile_launches_the_usual_program(written: Any, log: Log) -> None:
    x, y = tensors()
    ring(x, y)
    plain = log.take("load")
    written(ring_records())
    ring.profile(x, y, clock_reads=MOST)
    assert log.take("load") != plain
    ring.profile(x, y, clock_reads=MOST)
    ring(x, y)
    assert log.take("load") == []


def test_of_a_large_grid_the_first_blocks_are_recorded(written: Any) -> None:
    @pk.kernel
    def filled(y):
        (block,) = pk.grid(y.rows // 64)
        pk.store(y[block, 0], pk.zeros(pk.f32, 64, 64))

    source = emitted(filled, np.zeros((64, 64), np.float32))
    reads = [(place(source, "compute"), 0), (place(source, "end"), 100)]
    written(records([[reads]] * MOST_BLOCKS, CLOCK_READS))
    profile = filled.profile(torch.zeros(64 * 1000, 64))
    assert profile.timeline.title == "filled, the first 256 of 1,000 blocks"
    assert len(profile.timeline.processes) == MOST_BLOCKS
    assert {t.name for t in profile.timeline.tracks} == {"block"}


def test_a_profile_of_a_program_names_its_instructions(written: Any) -> None:
    program = added(cells(1), [Cell("add", 2, 0, 1), Cell("double", 3, 2)])
    x = torch.zeros(4, 64)
    schedule = program.scheduled(x=x)
    source = emitted(
        program.kernel(), *program.arguments(schedule, x=np.zeros((4, 64), np.float32))
    )
    end = place(source, "end")
    begins, ends = (place(source, "compute", seen, subject="double") for seen in ("begins", "ends"))
    idle = [(end, 50)]
    written(records([[idle, idle, [(begins, 10), (ends, 30), (end, 40)], idle]], MOST))
    profile = program.profile(x=x, clock_reads=MOST)
    (found,) = (s for s in profile.timeline.spans if s.kind)
    assert (found.kind, found.args["instruction"]) == ("double", "double(a=2, out=3)")


def test_arrays_of_the_cpu_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match="ring: a profile times a run on a GPU, and the arrays"
    ) as fault:
        ring.profile(*ring_arrays())
    assert "`pykittens check FILE -o timeline.svg`" in str(fault.value.help)


@pytest.mark.parametrize("reads", [1, 0, -3, 1 << 21, 2.5, "many"])
def test_the_number_of_reads_has_bounds(reads: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"`clock_reads` must be an int from 2 to 262,144, not "
    ):
        ring.profile(*ring_arrays(), clock_reads=reads)


def test_a_launch_without_blocks_is_refused(written: Any) -> None:
    with pytest.raises(ArgumentError, match="no blocks, so there is nothing to time"):
        some.profile(torch.zeros(0, 64))


@pk.kernel
def some(y):
    (block,) = pk.grid(y.rows // 64)
    pk.store(y[block, 0], pk.zeros(pk.f32, 64, 64))


def test_a_captured_stream_is_refused(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written(ring_records())
    ring.profile(*tensors(), clock_reads=MOST)
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    with pytest.raises(BackendError, match="ring: a launch with clock reads waits for its end"):
        ring.profile(*tensors(), clock_reads=MOST)


def test_too_little_memory_is_said(written: Any, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_MEMORY", "1000")
    with pytest.raises(BackendError, match="the GPU lacks 1,184 bytes of free memory"):
        ring.profile(*tensors(), clock_reads=MOST)
    assert log.take("launch") == []


def test_a_gpu_that_stops_is_an_error(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written(ring_records())
    monkeypatch.setattr(driver, "wait_for_stream", lambda ordinal, stream: "it stopped")
    with pytest.raises(BackendError, match="ring: the GPU stopped: it stopped"):
        ring.profile(*tensors(), clock_reads=MOST)
