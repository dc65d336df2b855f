"""Launches of a stream share scratch memory; those that are captured have their own."""

import numpy as np
import pytest

from pykittens.kernels import workspace
from pykittens.kernels.gemm import gemm
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.workspace import Scratch, memory
from pykittens.runtime import nvrtc
from pykittens.runtime.launch import Launch
from tests.runtime.c_programs import needs_compiler
from tests.runtime.fake_gpu import STREAM

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available())),
]
SPLITS = Config(128, 128, stages=4, out_cols=32, splits=3)
CAPTURES = "FAKE_CUDA_CAPTURING"


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    for name in ("_kept", "_of_graphs"):
        monkeypatch.setattr(workspace, name, {})
    gemm.forget()
    yield
    gemm.forget()


@pytest.fixture
def like(gpu_tensors):
    return torch.zeros(1)


@pytest.fixture
def on_stream(monkeypatch):
    """`on_stream(s)` makes a stream the current one."""
    return lambda stream: monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda i: stream
    )


def place(array):
    return array.data_ptr()


def flags(like, count, **words):
    return memory({"flags": Scratch((count,), flags=True)}, like, **words)["flags"]


def scratch(like, *shape, **words):
    return memory({"parts": Scratch(shape)}, like, **words)["parts"]


def test_memory_of_a_narrow_dtype_takes_its_bytes_in_whole_lines(like):
    asked = {"narrow": Scratch((5, 3), dtype="bf16"), "wide": Scratch((3,))}
    for some in (like, np.zeros(1)):
        found = memory(asked, some)
        assert str(found["narrow"].dtype).endswith("bfloat16")
        assert tuple(found["narrow"].shape) == (5, 3)
        assert found["wide"].nbytes == 12
    first, second = (place(memory(asked, like)[name]) for name in asked)
    assert second - first == 128


def test_rows_in_lines_start_at_them(like):
    asked = {"first": Scratch((2, 3, 5), dtype="bf16", in_lines=True), "next": Scratch((3,))}
    for some in (like, np.zeros(1)):
        found = memory(asked, some)["first"]
        assert tuple(found.shape) == (2, 3, 5)
        assert found[0, 1:].flatten().shape == (10,)
    first, second = (place(memory(asked, like)[name]) for name in asked)
    assert second - first == 6 * 128


def spans(arrays):
    """The first and the last byte but one of arrays, in order."""
    return sorted((place(x), place(x) + x.numel() * x.itemsize) for x in arrays)


def are_disjoint(arrays):
    found = spans(arrays)
    return all(end <= begin for (_, end), (begin, _) in zip(found, found[1:], strict=False))


def test_launches_of_a_stream_share_memory(like):
    first, again = flags(like, 10), flags(like, 100)
    assert place(first) == place(again)
    assert (len(first), len(again)) == (10, 100)
    assert first.dtype == torch.int32
    assert not again.any()
    first, again = scratch(like, 8, 32), scratch(like, 4, 16)
    assert place(first) == place(again)
    assert (first.shape, again.shape, again.dtype) == ((8, 32), (4, 16), torch.float32)
    assert place(flags(like, 10)) != place(first)


def test_more_is_made_where_there_is_too_little(like):
    few, many = flags(like, 10), flags(like, 5000)
    assert place(few) != place(many)
    assert len(many) == 5000
    assert not many.any()
    small, large = scratch(like, 8, 32), scratch(like, 16, 32)
    assert place(small) != place(large)
    assert place(scratch(like, 8, 32)) == place(large)


def test_another_stream_has_other_memory(like, on_stream):
    first = flags(like, 10), scratch(like, 8)
    on_stream(STREAM + 1)
    second = flags(like, 10), scratch(like, 8)
    assert len({place(x) for x in (*first, *second)}) == 4
    on_stream(STREAM)
    assert [place(flags(like, 10)), place(scratch(like, 8))] == [place(x) for x in first]


def test_another_gpu_has_other_memory(like, monkeypatch):
    first = flags(like, 10), scratch(like, 8)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 1)
    monkeypatch.setattr(workspace.driver, "wait_for_stream", lambda ordinal, stream: None)
    assert len({place(x) for x in (*first, flags(like, 10), scratch(like, 8))}) == 4


@pytest.mark.parametrize("captures", ["0", "1"])
def test_arrays_of_one_launch_do_not_touch(like, monkeypatch, captures):
    flags(like, 1)
    monkeypatch.setenv(CAPTURES, captures)
    shapes = {"partials": (7, 9), "row_sums": (3,), "column_sums": (2, 5, 1), "none": (0, 4)}
    asked = {name: Scratch(shape) for name, shape in shapes.items()}
    asked |= {name: Scratch((count,), flags=True) for name, count in (("own", 14), ("more", 1))}
    for alone in (False, True):
        found = memory(asked, like, alone)
        assert {name: tuple(x.shape) for name, x in found.items()} == (
            shapes | {"own": (14,), "more": (1,)}
        )
        assert are_disjoint([x for x in found.values() if x.numel()])
        assert {place(x) % 16 for x in found.values() if x.numel()} == {0}
        assert [name for name, x in found.items() if x.dtype == torch.int32] == ["own", "more"]


def test_a_launch_alone_shares_nothing(like):
    shared = [flags(like, 10), scratch(like, 8)]
    own = [x for _ in range(2) for x in (flags(like, 10, alone=True), scratch(like, 8, alone=True))]
    assert len({place(x) for x in [*shared, *own]}) == 6
    assert not own[0].any()
    own[0][:] = 1
    assert not flags(like, 10).any()


def test_a_captured_launch_has_memory_of_its_own(like, monkeypatch):
    shared = [flags(like, 10), scratch(like, 8)]
    monkeypatch.setenv(CAPTURES, "1")
    own = [flags(like, 10) for _ in range(2)] + [scratch(like, 8)]
    assert len({place(x) for x in [*shared, *own]}) == 5
    assert are_disjoint(own)
    assert not own[0].any()


def test_flags_of_captured_launches_are_aligned(like, monkeypatch):
    flags(like, 1)
    monkeypatch.setenv(CAPTURES, "1")
    made = [flags(like, count) for count in (14, 1, 6, 2)]
    assert [len(x) for x in made] == [14, 1, 6, 2]
    assert len({place(x) % 16 for x in made}) == 1
    assert are_disjoint(made)


def test_flags_of_graphs_that_are_used_up_are_set_by_the_graph(like, monkeypatch):
    monkeypatch.setattr(workspace, "OF_GRAPHS", 15)
    flags(like, 1)
    monkeypatch.setenv(CAPTURES, "1")
    made = [flags(like, 10) for _ in range(3)]
    assert len({place(x) for x in made}) == 3
    assert are_disjoint(made)
    assert not any(x.any() for x in made)


def test_arrays_of_the_host_are_made_each_time():
    x = np.zeros(1, np.float32)
    assert flags(x, 3).tolist() == [0, 0, 0]
    assert scratch(x, 2, 3).shape == (2, 3)
    assert not np.shares_memory(scratch(x, 2), scratch(x, 2))
    cpu = torch.zeros(1)
    first, again = flags(cpu, 3), flags(cpu, 3)
    assert place(first) != place(again)


# -- products of which several blocks do a part ----------------------------------------------------


@pytest.fixture
def plans(gpu_tensors, monkeypatch):
    """The calls of gemm for which a plan was made."""
    found, plan = [], gemm.plan
    monkeypatch.setattr(gemm, "plan", lambda *a, **w: (found.append(w), plan(*a, **w))[1])
    return found


@pytest.fixture
def made(gpu_tensors, monkeypatch):
    """Memory that is made for scratch."""
    found, make = [], workspace._made
    monkeypatch.setattr(workspace, "_made", lambda *a: (found.append(make(*a)), found[-1])[1])
    return found


def operands():
    return [torch.zeros(256, 512, dtype=torch.bfloat16) for _ in range(2)]


def result():
    return torch.zeros(256, 256, dtype=torch.bfloat16)


def test_calls_of_a_form_share_the_memory_of_their_stream(plans, made, on_stream, monkeypatch):
    a, b = operands()
    for out in (result(), result()):
        for _ in range(3):
            assert gemm(a, b, out, config=SPLITS) is out
            assert gemm(*operands(), out, config=SPLITS) is out
    assert len(plans) == 1
    assert len(made) == 3  # partials, flags, and the flags of graphs
    for stream in (STREAM + 1, STREAM, STREAM + 1):
        on_stream(stream)
        gemm(a, b, out, config=SPLITS)
    assert len(plans) == 1
    assert len(made) == 5
    monkeypatch.setattr(workspace, "memory", lambda *a: pytest.fail("looked up again"))
    for stream in (STREAM + 1, STREAM):
        on_stream(stream)
        gemm(a, b, out, config=SPLITS)


@pytest.fixture
def partials(monkeypatch):
    """The addresses of the partial sums and the flags of each launch."""
    found, launch = [], Launch.launch

    def noted(self, values):
        found.append(values[3:5])
        launch(self, values)

    monkeypatch.setattr(Launch, "launch", noted)
    return found


def test_a_call_that_is_captured_does_not_share_memory(plans, partials, made, monkeypatch):
    a, b = operands()
    out = result()
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    monkeypatch.setenv(CAPTURES, "1")
    before = len(made)
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    assert len(made) == before + 3  # partials; the flags are of those of graphs
    monkeypatch.delenv(CAPTURES)
    gemm(a, b, out, config=SPLITS)
    assert len(made) == before + 3
    assert len(plans) == 1
    captured = partials[3:6]
    assert set(partials[:3]) == set(partials[6:])
    assert len({flags for _, flags in [partials[0], *captured]}) == 4
    assert partials[0][0] not in {sums for sums, _ in captured}


def test_a_call_that_was_first_captured_keeps_nothing_of_the_graph(plans, partials, monkeypatch):
    a, b = operands()
    out = result()
    gemm(a, b, config=SPLITS)  # compiled before the capture, in another form
    gemm.forget()
    monkeypatch.setenv(CAPTURES, "1")
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    monkeypatch.delenv(CAPTURES)
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    first, *captured = partials[:4]
    assert set(partials[4:]) == {first}
    assert len({flags for _, flags in (first, *captured)}) == 4
    assert first[0] not in {sums for sums, _ in captured}
    assert len(plans) == 2


def test_the_first_call_of_a_form_takes_memory_once_also_in_a_capture(made, monkeypatch):
    a, b = operands()
    out = result()
    gemm(a, b, config=SPLITS)
    monkeypatch.setenv(CAPTURES, "1")
    gemm.forget()
    before, flags = len(made), len(workspace._of_graphs[0])
    gemm(a, b, out, config=SPLITS)
    assert len(made) == before + 1  # the partial sums
    once = flags - len(workspace._of_graphs[0])
    gemm(a, b, out, config=SPLITS)
    assert flags - len(workspace._of_graphs[0]) == 2 * once


def test_launches_with_odd_numbers_of_flags_are_captured_one_after_another(plans, monkeypatch):
    a, b = (torch.zeros(n, 8192, dtype=torch.bfloat16) for n in (16, 448))
    out = torch.zeros(16, 448, dtype=torch.bfloat16)
    for _ in range(2):
        gemm(a, b, out)
    monkeypatch.setenv(CAPTURES, "1")
    for _ in range(3):
        gemm(a, b, out)
    assert len(plans) == 1


def test_a_call_with_sums_returns_them_each_time(plans):
    a, b = operands()
    out = result()
    made = [gemm(a, b, out, config=SPLITS, row_sums=True) for _ in range(4)]
    assert all(whole is out and sums.shape == (256,) for whole, sums in made)
    assert len({place(sums) for _, sums in made}) == 4
    assert len(plans) == 1
