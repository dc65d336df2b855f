"""A launch from C is the same as from Python, and refuses the same arguments."""

from __future__ import annotations

import re
from ctypes import CDLL, byref, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from tests.aot.cases import (
    ADD,
    BF16,
    CASES,
    F32,
    MATMUL,
    SOFTMAX,
    Array,
    arithmetic,
    doubled,
    padded,
    scaled,
    zeros,
)
from tests.aot.programs import (
    PK_ALIGNMENT,
    PK_AT_ONCE,
    PK_CLUSTER,
    PK_OK,
    PK_OVERLAP,
    PK_RANGE,
    PK_REQUIRE,
    PK_STATIC,
    PK_TENSOR,
    SANITIZED,
    CLauncher,
    Tensor,
    tensor,
)
from tests.kernels_cluster import cluster_matmul, meeting
from tests.runtime.c_programs import (
    Log,
    build,
    fake_driver,
    needs_compiler,
    parameter_sizes,
    python_launch,
)

pytestmark = needs_compiler


# -- launches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("occupancy", [1, 2, 0])
@pytest.mark.parametrize("name", CASES)
def test_a_launch_from_c_is_the_launch_from_python(
    launchers: Any, fake: Path, log: Log, monkeypatch: pytest.MonkeyPatch, name: str, occupancy: int
) -> None:
    case = CASES[name]
    launcher = launchers(case.kernel, *case.compiled_for, **case.constants)
    monkeypatch.setenv("FAKE_CUDA_OCCUPANCY", str(occupancy))
    parameter_sizes(launcher.made, monkeypatch)
    launcher.unload()
    for args in case.launched_with:
        log.take()
        assert launcher.launch(*args, stream=0x5EA) == PK_OK, launcher.error
        from_c = log.take("launch")
        with fake_driver(monkeypatch, fake):
            python_launch(case.kernel, launcher.made, *args, stream=0x5EA, **case.constants)
        from_python = log.take("launch")
        assert len(from_c) == 1
        assert [_without_context(line) for line in from_c] == [
            _without_context(line) for line in from_python
        ]


def _without_context(line: str) -> str:
    """Python launches in the current context; C makes the kernel's own current."""
    return re.sub(r" in 0x\w+:", "", line)


def test_a_launch_has_the_sizes_that_the_shapes_say(
    launchers: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = launchers(MATMUL, *CASES["matmul"].compiled_for)
    a, b, c = zeros(300, 512), zeros(1000, 512), zeros(300, 1000)
    monkeypatch.setenv("FAKE_CUDA_SIZES", "128,128,128,4,4,4")
    launcher.unload()
    log.take()
    assert launcher.launch(a, b, c, stream=0xABC) == PK_OK
    lines = log.take()
    shared = launcher.made.source.shared_bytes
    assert [line.split()[0] for line in lines] == "load function attribute occupancy launch".split()
    assert lines[1:4] == [
        "function matmul",
        f"attribute 0xf0 8 {shared}",
        f"occupancy 0xf0 384 {shared}",
    ]
    head, *parameters = lines[4].rsplit(" ", 6)
    # 3 x 4 tiles of 128 x 256 are fewer than 132 blocks.
    assert head == (f"launch 0xf0 in 0xc0: grid 12 1 1 block 384 1 1 shared {shared} stream 0xabc")
    numbers = [int.from_bytes(bytes.fromhex(p), "little") for p in parameters[3:]]
    assert numbers == [300, 1000, 512]
    for array, box, text in zip(
        (a, b, c), ((64, 128), (64, 256), (64, 128)), parameters, strict=False
    ):
        words = np.frombuffer(bytes.fromhex(text), np.uint64)
        assert words[:3].tolist() == [array.ctypes.data, array.shape[1], array.shape[0]]
        assert words[6] == array.shape[1] * 2
        assert np.frombuffer(bytes.fromhex(text), np.uint32)[20:22].tolist() == list(box)
        # element strides 1 1, then bf16, rank 2, no interleave, 128-byte swizzle, 128-byte promotion, zeros
        assert list(bytes.fromhex(text)[100:111]) == [1, 1, 0, 0, 0, 9, 2, 0, 3, 2, 0]


def test_the_rows_of_a_view_are_the_second_axis_of_its_map(
    launchers: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = launchers(CASES["heads"].kernel, *CASES["heads"].compiled_for)
    x, y, sums = CASES["heads"].launched_with[0]
    parameter_sizes(launcher.made, monkeypatch)
    launcher.unload()
    log.take()
    assert launcher.launch(x, y, sums) == PK_OK
    (line,) = log.take("launch")
    parameters = line.split()[-len(launcher.made.source.maps) - len(launcher.made.source.slots) :]
    for array, text in zip((x, y), parameters, strict=False):
        words = np.frombuffer(bytes.fromhex(text), np.uint64)
        assert words[0] == array.ctypes.data
        assert words[1:5].tolist() == [72, 70, 3, 2]  # columns, rows, heads, batch
        assert words[6:9].tolist() == [array.strides[axis] for axis in (1, 2, 0)]
        assert np.frombuffer(bytes.fromhex(text), np.uint32)[20:24].tolist() == [32, 64, 1, 1]


def test_blocks_are_no_more_than_run_at_once(
    launchers: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = tuple(zeros(128, 128, 1 * 64).reshape(16384, 64) for _ in range(2))
    c = zeros(16384, 16384)
    for kernel, occupancy, blocks in ((MATMUL, 1, 132), (MATMUL, 3, 396), (cluster_matmul, 1, 132)):
        monkeypatch.setenv("FAKE_CUDA_OCCUPANCY", str(occupancy))
        launcher = launchers(kernel, *CASES["matmul"].compiled_for)
        launcher.unload()
        assert launcher.launch(*args, c) == PK_OK
        assert f"grid {blocks} 1 1" in log.take("launch")[0]


def test_no_work_is_no_launch(launchers: Any, log: Log) -> None:
    launcher = launchers(MATMUL, *CASES["matmul"].compiled_for)
    assert launcher.launch(zeros(0, 64), zeros(256, 64), zeros(0, 256)) == PK_OK
    assert log.take("launch") == []


def test_a_scalar_is_passed_with_its_type(
    launchers: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["scaled"]
    launcher = launchers(case.kernel, *case.compiled_for)
    kinds = [s.dtype.kind for s in launcher.made.source.slots if s.kind == "scalar"]
    parameter_sizes(launcher.made, monkeypatch)
    x = zeros(64, 64, dtype=F32)
    assert launcher.launch(x, zeros(64, 64, dtype=F32), 0.3, -0 + 5, True) == PK_OK
    words = log.take("launch")[0].split()[-len(launcher.made.source.slots) :]
    found = [
        w for w, s in zip(words, launcher.made.source.slots, strict=True) if s.kind == "scalar"
    ]
    expected = {"float": F32(0.3).tobytes().hex(), "int": "05000000", "bool": "01"}
    assert found == [expected[kind] for kind in kinds]
    assert sorted(kinds) == ["bool", "float", "int"]


def test_a_launch_is_made_in_the_kernels_context(launchers: Any, log: Log, fake: Path) -> None:
    launcher = launchers(MATMUL, *CASES["matmul"].compiled_for)
    args = (zeros(64, 64), zeros(64, 64), zeros(64, 64))
    assert launcher.launch(*args) == PK_OK
    driver, current = CDLL(str(fake)), c_void_p()
    driver.cuCtxPushCurrent_v2(c_void_p(0xC1))
    try:
        assert launcher.launch(*args) == PK_OK
        launcher.unload()
    finally:
        driver.cuCtxPopCurrent_v2(byref(current))
    assert current.value == 0xC1
    assert all("in 0xc0:" in line for line in log.take("launch"))


# -- what is refused -----------------------------------------------------------------------------


def refused(launcher: CLauncher, log: Log, code: int, message: str, *args: Any) -> None:
    assert launcher.launch(*args) == code, launcher.error
    assert re.search(message, launcher.error), launcher.error
    assert log.take("launch") == []


def test_a_requirement_that_does_not_hold(launchers: Any, log: Log) -> None:
    launcher = launchers(MATMUL, *CASES["matmul"].compiled_for)
    a, c = zeros(256, 256), zeros(256, 256)
    message = "^matmul: A is m x k, B n x k, C m x n$"
    refused(launcher, log, PK_REQUIRE, message, a, zeros(256, 128), c)
    refused(launcher, log, PK_REQUIRE, message, a, zeros(264, 256), c)
    launcher = launchers(scaled, *CASES["scaled"].compiled_for)
    x, y = zeros(64, 64, dtype=F32), zeros(64, 64, dtype=F32)
    text = re.escape('scaled: a "count" below 0? 100% wrong\\')
    refused(launcher, log, PK_REQUIRE, f"^{text}$", x, y, 1.0, -1, True)
    refused(launcher, log, PK_REQUIRE, "a small factor must be flagged", x, y, 0.1, 1, False)
    assert launcher.launch(x, y, 0.1, 1, True) == PK_OK
    assert launcher.launch(x, y, 0.25, 1, False) == PK_OK


def test_another_extent_than_the_kernel_was_compiled_for(launchers: Any, log: Log) -> None:
    launcher = launchers(SOFTMAX, *CASES["softmax"].compiled_for)
    x, y = zeros(8, 1008), zeros(8, 1008)
    message = r"^softmax: x\.shape\[1\] is 1008, and the kernel was compiled for 1000$"
    refused(launcher, log, PK_STATIC, message, x, y)


def test_tensors_that_the_copy_engine_does_not_reach(launchers: Any, log: Log) -> None:
    launcher = launchers(MATMUL, *CASES["matmul"].compiled_for)
    a, b, c = zeros(64, 64), zeros(64, 64), zeros(64, 64)
    shifted = zeros(64, 72)[:, 1:65]
    refused(launcher, log, PK_ALIGNMENT, "`A` must start at a multiple of 16 bytes", shifted, b, c)
    odd = padded(64, 64, by=1)
    message = "`B` has a stride of 65 elements of 2 bytes along axis 0"
    refused(launcher, log, PK_ALIGNMENT, message, a, odd, c)
    once = np.broadcast_to(zeros(1, 64), (64, 64))
    refused(launcher, log, PK_ALIGNMENT, "`A` has a stride of 0 elements", once, b, c)
    empty = (zeros(64, 0), zeros(64, 0), c)
    refused(launcher, log, PK_ALIGNMENT, "`A` is empty", *empty)
    message = "`C` has rows of 60 elements of 2 bytes: they must be multiples of 16 bytes"
    args = (a, zeros(60, 64), padded(64, 60, by=4))
    refused(launcher, log, PK_ALIGNMENT, message, *args)
    ordinary = launchers(ADD, *CASES["add"].compiled_for)
    assert ordinary.launch(*(padded(64, 63, dtype=F32, by=1) for _ in range(3))) == PK_OK


def test_tensors_that_no_kernel_takes(launchers: Any, log: Log) -> None:
    launcher = launchers(ADD, *CASES["add-unaligned"].compiled_for)
    a, b, out = (zeros(64, 64) for _ in range(3))

    def changed(array: Array, **values: Any) -> Tensor:
        made = tensor(array)
        for name, (axis, value) in values.items():
            getattr(made, name)[axis] = value
        return made

    refused(launcher, log, PK_TENSOR, "^add: `a` is NULL$", None, b, out)
    message = "`a` has an extent of 2147483648"
    refused(launcher, log, PK_TENSOR, message, changed(a, shape=(0, 2**31)), b, out)
    refused(launcher, log, PK_TENSOR, "`b` has an extent of -1", a, changed(b, shape=(1, -1)), out)
    message = "`b` has a stride of 2 along axis 1: the last must be 1"
    refused(launcher, log, PK_TENSOR, message, a, zeros(64, 128)[:, ::2], out)
    message = "`a` has a stride of -64 along axis 0: none may be negative"
    refused(launcher, log, PK_TENSOR, message, a[::-1], b, out)
    nowhere = tensor(a)
    nowhere.data = None
    refused(launcher, log, PK_TENSOR, "`a` has no memory", nowhere, b, out)
    once = np.broadcast_to(zeros(1, 64), (64, 64))
    refused(
        launcher, log, PK_TENSOR, "`out` is written and has a stride of 0 along axis 0", a, b, once
    )
    assert launcher.launch(once, b, out) == PK_OK


def test_a_tensor_whose_address_is_no_multiple_of_its_elements(launchers: Any, log: Log) -> None:
    for dtype, offsets in ((BF16, (1, 3)), (F32, (1, 2))):
        args = [zeros(64, 64, dtype=dtype) for _ in range(3)]
        launcher = launchers(ADD, *(zeros(3, 3, dtype=dtype) for _ in range(3)))
        for at, name in enumerate(("a", "b", "out")):
            for offset in offsets:
                shifted: list[Any] = [tensor(x) for x in args]
                shifted[at].data += offset
                message = f"`{name}` starts .*, which is no multiple of its {args[0].itemsize}-byte"
                refused(launcher, log, PK_TENSOR, message, *shifted)
                shifted[at].data += args[at].itemsize - offset
                assert launcher.launch(*shifted) == PK_OK, launcher.error
                log.take()


@pk.kernel
def ones(y):
    """y = 1, of three axes."""
    i, row, col = pk.grid(*y.tiles(64, 16))
    pk.store(y[i, row, col], pk.zeros(y.dtype, 64, 16) + 1.0)


def test_an_output_that_overlaps_itself_is_what_python_finds(launchers: Any, log: Log) -> None:
    launcher, found = launchers(ones, zeros(1, 5, 5, dtype=F32)), {True: 0, False: 0}
    rng = np.random.default_rng(0)
    for _ in range(400):
        y = tensor(zeros(1, 1, 1, dtype=F32))
        y.shape[:3] = shape = rng.integers(1, 6, 3).tolist()
        y.strides[:3] = strides = [*rng.integers(1, 30, 2).tolist(), 1]
        repeats = len({np.dot(i, strides) for i in np.ndindex(*shape)}) < np.prod(shape)
        found[repeats] += 1
        code = launcher.launch(y)
        assert code == (PK_TENSOR if repeats else PK_OK), (shape, strides, launcher.error)
        assert not repeats or "elements that share an address" in launcher.error
    assert min(found.values()) > 50


def test_strides_beyond_the_address_space(launchers: Any, log: Log) -> None:
    launcher = launchers(ADD, *CASES["add-unaligned"].compiled_for)
    a, b, out = (zeros(64, 64) for _ in range(3))
    message = "strides that lead beyond the address space"
    for stride in (2**63 - 1, 2**62, 2**58):
        for at in range(3):
            args: list[Any] = [tensor(x) for x in (a, b, out)]
            args[at].strides[0] = stride
            refused(launcher, log, PK_TENSOR, message, *args)
            args[at].shape[0] = 0  # no elements
            refused(launcher, log, PK_REQUIRE, "one shape", *args)
    row, one, two = (tensor(x[:1]) for x in (a, b, out))
    row.strides[0] = 2**63 - 1  # an axis of extent 1 has no steps
    assert launcher.launch(row, one, two) == PK_OK
    log.take()
    for address in (2**63, 2**64 - 2):
        far = tensor(a)
        far.data = address
        launcher.launch(far, b, out)
        launcher.launch(a, b, far)
    log.take()
    packed = launchers(MATMUL, *CASES["matmul"].compiled_for)
    args = [tensor(x) for x in (a, b, out)]
    args[1].strides[0] = 2**63 - 1
    refused(packed, log, PK_TENSOR, message, *args)


def test_a_packed_tensor_beyond_the_address_space_has_strides_that_are_refused(
    launchers: Any, log: Log, tmp_path: Path
) -> None:
    launcher = launchers(ones, zeros(1, 5, 5, dtype=F32))
    (tmp_path / "packed.c").write_text(
        f'#include "{launcher.folder}/ones.h"\n'
        "void packed(void *data, const int64_t *shape, pk_tensor *made) {\n"
        "    *made = pk_packed(data, 3, shape);\n}\n"
    )
    library = tmp_path / "packed.so"
    build(*SANITIZED, "-shared", "-fPIC", "-o", library, tmp_path / "packed.c")
    made, shape = Tensor(), (c_int64 * 3)(*[2**31 - 1] * 3)
    CDLL(str(library)).packed(c_void_p(4096), shape, byref(made))
    refused(launcher, log, PK_TENSOR, "beyond the address space", made)


def test_more_work_than_an_int32_counts(launchers: Any, log: Log) -> None:
    launcher = launchers(ADD, *CASES["add-unaligned"].compiled_for)
    huge = []
    for step in range(3):
        made = tensor(zeros(64, 64))
        made.data = 1 << (48 + step)
        made.shape[:2], made.strides[:2] = (2**31 - 1, 2**13), (2**13, 1)
        huge.append(made)
    refused(launcher, log, PK_RANGE, "more tiles of work than an int32 counts", *huge)


def test_arithmetic_that_has_no_result(launchers: Any, log: Log) -> None:
    launcher = launchers(arithmetic, *CASES["arithmetic"].compiled_for)
    x, y = zeros(64, 8, dtype=F32), zeros(64, 8, dtype=F32)
    refused(launcher, log, PK_RANGE, "a number is divided by `d`, which is 0", x, y, 3, 0)
    refused(launcher, log, PK_RANGE, "is outside the range of int64", x, y, 2**31 - 1, 3)
    refused(launcher, log, PK_REQUIRE, "never seven", zeros(0, 8, dtype=F32), y, 7, 7)


def test_a_grid_that_clusters_cannot_share(launchers: Any, log: Log) -> None:
    @pk.kernel(cluster=2)
    def pairs(x, y):
        (i,) = pk.grid(x.rows)
        pk.store(y[i], pk.load(x[i], cols=8))

    x, y = zeros(64, 8, dtype=F32), zeros(64, 8, dtype=F32)
    launcher = launchers(pairs, x, y)
    assert launcher.launch(x, y) == PK_OK
    assert "grid 64 1 1" in log.take("launch")[0]
    refused(launcher, log, PK_CLUSTER, "cannot be divided into clusters of 2", x[:63], y[:63])


def test_blocks_that_wait_for_one_another_run_at_once(launchers: Any, log: Log) -> None:
    @pk.kernel
    def in_turn(x, y, flags):
        (block,) = pk.grid(x.rows)
        if block > 0:
            pk.wait(flags[0], block)
        pk.store(y[block], pk.load(x[block], cols=8))
        pk.signal(flags[0], 1, op="add")

    x, y, flags = zeros(133, 8, dtype=F32), zeros(133, 8, dtype=F32), zeros(1, dtype=np.int32)
    launcher = launchers(in_turn, x, y, flags)
    launcher.unload()
    assert launcher.launch(x[:132], y[:132], flags) == PK_OK
    assert "grid 132 1 1" in log.take("launch")[0]
    refused(launcher, log, PK_AT_ONCE, "its blocks wait for one another", x, y, flags)


def test_clusters_whose_blocks_wait_are_no_more_than_run_at_once(
    launchers: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CUDA_CLUSTERS", "31")  # 132 multiprocessors could hold 33
    flags = zeros(1, dtype=np.int32)
    y, more = zeros(124, 8, dtype=F32), zeros(128, 8, dtype=F32)
    launcher = launchers(meeting(cluster=4), y, flags, 124)
    launcher.unload()
    assert launcher.launch(y, flags, 124) == PK_OK
    assert "grid 124 1 1" in log.take("launch")[0]
    refused(launcher, log, PK_AT_ONCE, "its blocks wait for one another", more, flags, 128)


def test_an_output_over_an_input(launchers: Any, log: Log) -> None:
    launcher = launchers(ADD, *CASES["add-unaligned"].compiled_for)
    whole = zeros(128, 128)
    a, b = zeros(64, 64), zeros(64, 64)
    message = "^add: the output `out` shares memory with `a`$"
    refused(launcher, log, PK_OVERLAP, message, whole[:64, :64], b, whole[63:127, 63:127])
    refused(launcher, log, PK_OVERLAP, message, a, b, a)
    assert launcher.launch(whole[:64, :64], whole[64:, :64], whole[:64, 64:]) == PK_OK
    assert launcher.launch(a, a, b) == PK_OK
    inplace = launchers(doubled, a, b)
    assert inplace.launch(a, a) == PK_OK
    assert inplace.launch(a, b) == PK_OK
    log.take()
    refused(inplace, log, PK_OVERLAP, "shares memory", whole[:64, :64], whole[1:65, :64])


def test_an_overlap_is_what_numpy_finds(launchers: Any, log: Log) -> None:
    launcher = launchers(ADD, *CASES["add-unaligned"].compiled_for)
    rng = np.random.default_rng(0)
    memory = np.zeros(4096, BF16)
    other, found = zeros(5, 5), {True: 0, False: 0}
    for _ in range(400):
        rows, cols = rng.integers(1, 9, 2)
        views = []
        for _ in range(2):
            stride = int(rng.integers(cols, 3 * cols + 1))
            start = int(rng.integers(0, 40))
            views.append(
                np.lib.stride_tricks.as_strided(memory[start:], (rows, cols), (2 * stride, 2))
            )
        other = zeros(rows, cols)
        shares = bool(np.shares_memory(*views))
        found[shares] += 1
        code = launcher.launch(views[0], other, views[1])
        assert code == (PK_OVERLAP if shares else PK_OK), (launcher.error, views[0].strides)
    assert min(found.values()) > 50
