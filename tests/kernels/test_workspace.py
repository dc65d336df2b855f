"""Launches of a stream share flags and scratch; those that are captured have their own."""

import numpy as np
import pytest

from pykittens.kernels import gemm as gemm_module
from pykittens.kernels import workspace
from pykittens.kernels.gemm import forget_calls, gemm
from pykittens.kernels.products.config import Config
from pykittens.kernels.workspace import flags, scratch
from pykittens.runtime import nvrtc
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
    for name in ("_flags", "_scratch", "_of_graphs"):
        monkeypatch.setattr(workspace, name, {})
    forget_calls()
    yield
    forget_calls()


@pytest.fixture
def like(gpu_tensors):
    return torch.zeros(1)


def place(array):
    return array.data_ptr()


def test_launches_of_a_stream_share_memory(like):
    first, again = flags(like, 10, STREAM), flags(like, 100, STREAM)
    assert place(first) == place(again)
    assert (len(first), len(again)) == (10, 100)
    first, again = scratch(like, (8, 32), STREAM), scratch(like, (4, 16), STREAM)
    assert place(first) == place(again)
    assert (first.shape, again.shape, again.dtype) == ((8, 32), (4, 16), torch.float32)


def test_more_is_made_where_there_is_too_little(like):
    few, many = flags(like, 10, STREAM), flags(like, 5000, STREAM)
    assert place(few) != place(many)
    assert len(many) == 5000
    assert not many.any()
    small, large = scratch(like, (8, 32), STREAM), scratch(like, (16, 32), STREAM)
    assert place(small) != place(large)
    assert place(scratch(like, (8, 32), STREAM)) == place(large)


def test_another_stream_has_other_memory(like):
    assert place(flags(like, 10, STREAM)) != place(flags(like, 10, STREAM + 1))
    assert place(scratch(like, (8,), STREAM)) != place(scratch(like, (8,), STREAM + 1))


def test_a_captured_launch_has_memory_of_its_own(like, monkeypatch):
    shared = [flags(like, 10, STREAM), scratch(like, (8,), STREAM)]
    monkeypatch.setenv(CAPTURES, "1")
    own = [flags(like, 10, STREAM) for _ in range(2)] + [scratch(like, (8,), STREAM)]
    assert len({place(x) for x in [*shared, *own]}) == 5
    assert not own[0].any()


def test_flags_of_captured_launches_are_aligned(like, monkeypatch):
    flags(like, 1, STREAM)
    monkeypatch.setenv(CAPTURES, "1")
    made = [flags(like, count, STREAM) for count in (14, 1, 6, 2)]
    assert [len(x) for x in made] == [14, 1, 6, 2]
    assert len({place(x) % 16 for x in made}) == 1


def test_flags_of_graphs_that_are_used_up_are_set_by_the_graph(like, monkeypatch):
    monkeypatch.setattr(workspace, "OF_GRAPHS", 15)
    flags(like, 1, STREAM)
    monkeypatch.setenv(CAPTURES, "1")
    made = [flags(like, 10, STREAM) for _ in range(3)]
    assert len({place(x) for x in made}) == 3
    assert not any(x.any() for x in made)


def test_arrays_of_the_host_are_made_each_time():
    x = np.zeros(1, np.float32)
    assert flags(x, 3, 0).tolist() == [0, 0, 0]
    assert scratch(x, (2, 3), 0).shape == (2, 3)
    assert scratch(x, (2,), 0) is not scratch(x, (2,), 0)


# -- products of which several blocks do a part ----------------------------------------------------


@pytest.fixture
def slow_calls(gpu_tensors, monkeypatch):
    """The calls of gemm that were not launched as before."""
    found, find = [], gemm_module.CALLS.find
    monkeypatch.setattr(gemm_module.CALLS, "find", lambda *a: (found.append(a), find(*a))[1])
    return found


def operands():
    return (torch.zeros(256, 512, dtype=torch.bfloat16) for _ in range(2))


def test_the_third_call_with_the_same_tensors_is_launched_as_before(slow_calls):
    a, b = operands()
    out = torch.zeros(256, 256, dtype=torch.bfloat16)
    for _ in range(5):
        assert gemm(a, b, out, config=SPLITS) is out
    assert len(slow_calls) == 2


def test_a_call_that_is_captured_is_not_launched_as_before(slow_calls, monkeypatch):
    a, b = operands()
    out = torch.zeros(256, 256, dtype=torch.bfloat16)
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    monkeypatch.setenv(CAPTURES, "1")
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    assert len(slow_calls) == 5
    monkeypatch.delenv(CAPTURES)
    gemm(a, b, out, config=SPLITS)
    assert len(slow_calls) == 5


def test_a_call_that_was_first_captured_keeps_nothing_of_the_graph(slow_calls, monkeypatch):
    a, b = operands()
    out = torch.zeros(256, 256, dtype=torch.bfloat16)
    monkeypatch.setenv(CAPTURES, "1")
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    monkeypatch.delenv(CAPTURES)
    for _ in range(3):
        gemm(a, b, out, config=SPLITS)
    assert len(slow_calls) == 4


def test_launches_with_odd_numbers_of_flags_are_captured_one_after_another(slow_calls, monkeypatch):
    a, b = (torch.zeros(n, 8192, dtype=torch.bfloat16) for n in (16, 448))
    out = torch.zeros(16, 448, dtype=torch.bfloat16)
    for _ in range(2):
        gemm(a, b, out)
    monkeypatch.setenv(CAPTURES, "1")
    for _ in range(3):
        gemm(a, b, out)


def test_a_call_with_sums_returns_them_each_time(slow_calls):
    a, b = operands()
    out = torch.zeros(256, 256, dtype=torch.bfloat16)
    made = [gemm(a, b, out, config=SPLITS, row_sums=True) for _ in range(4)]
    assert all(whole is out and sums.shape == (256,) for whole, sums in made)
    assert len({place(sums) for _, sums in made}) == 4
    assert len(slow_calls) == 4
