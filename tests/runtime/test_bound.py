"""A bound launch is the launch of a call, wherever its memory lies; a host function finds it for calls like it."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.runtime import bound, nvrtc
from pykittens.runtime import kernel as kernel_module
from pykittens.runtime.bound import PreparedCalls
from pykittens.runtime.kernel import KernelFunction
from tests.aot.cases import MATMUL
from tests.runtime.c_programs import Log, needs_compiler, parameter_sizes
from tests.runtime.fake_gpu import STREAM

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available())),
]
WIDTH = 64


@pk.kernel
def scaled(x, y, factor):
    """y = x * factor."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)


@pk.kernel(inplace=True)
def doubled(x, y):
    """y = 2 x, which may be x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * 2.0)


@pk.kernel
def some_rows(x, y, count):
    """The first rows of x, a block each."""
    pk.require(count <= x.rows, "x has not so many rows")
    (row,) = pk.grid(count)
    pk.store(y[row], pk.load(x[row], cols=64))


@pk.kernel
def as_wide_as_outside(x, y):
    """As many columns of x as a number outside the kernel says."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, WIDTH))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=WIDTH))


def fresh(kernel: KernelFunction) -> KernelFunction:
    """The kernel as it was before its first call."""
    return KernelFunction(kernel.function, kernel.options)


@pytest.fixture
def launched(
    gpu_tensors: None, log: Log, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """`launched(call)` are the launches that reach the driver meanwhile, with their parameters."""

    def lines(call: Callable[[], object]) -> list[str]:
        log.take()
        call()
        return log.take("launch")

    return lines


def addresses(*values: Any) -> list[Any]:
    return [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values]


def matrix(rows: int = 100, cols: int = 72, dtype: Any = None) -> Any:
    return torch.zeros(rows, cols, dtype=dtype)


def shifted(like: Any) -> Any:
    """A tensor of the same form that does not start at a multiple of 16 bytes."""
    return torch.zeros(like.numel() + 1, dtype=like.dtype)[1:].view(like.shape)


def show_parameters(kernel: KernelFunction, args: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [np.zeros(tuple(a.shape), np.float32) if hasattr(a, "shape") else a for a in args]
    parameter_sizes(kernel.compile(*arrays), monkeypatch)


# -- bound launches ------------------------------------------------------------------------------


def test_a_bound_launch_is_the_launch_of_a_call(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(scaled)
    sets = [(matrix(), matrix(), factor) for factor in (2.0, -0.5, 3.0)]
    show_parameters(kernel, sets[0], monkeypatch)
    launch = kernel.bind(*sets[0])
    for args in (*sets, sets[0], sets[0]):
        from_call = launched(lambda args=args: kernel(*args))
        assert len(from_call) == 1
        assert launched(lambda args=args: launch(addresses(*args), STREAM)) == from_call


def test_tensor_maps_of_a_bound_launch_are_pointed_elsewhere(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(MATMUL)
    sets = [[matrix(128, 128, torch.bfloat16) for _ in range(3)] for _ in range(2)]
    monkeypatch.setenv("FAKE_CUDA_SIZES", "128,128,128,4,4,4")
    launch = kernel.bind(*sets[0])
    for args in (*sets, sets[0]):
        from_call = launched(lambda args=args: kernel(*args))
        assert launched(lambda args=args: launch(addresses(*args), STREAM)) == from_call


def test_to_bind_is_not_to_launch(launched: Callable[..., list[str]]) -> None:
    assert launched(lambda: fresh(scaled).bind(matrix(), matrix(), 2.0)) == []


def test_a_bound_launch_goes_to_the_stream_it_is_given(launched: Callable[..., list[str]]) -> None:
    x, y = matrix(), matrix()
    launch = fresh(scaled).bind(x, y, 2.0)
    for stream in (0xABC, 0xDEF, 0xABC):
        (line,) = launched(lambda stream=stream: launch(addresses(x, y, 2.0), stream))
        assert f"stream {stream:#x}" in line


def test_a_bound_launch_checks_no_argument_again(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = fresh(scaled).bind(matrix(), matrix(), 2.0)
    for module, name in ((kernel_module, "check"), (kernel_module, "make_plan")):
        monkeypatch.setattr(module, name, lambda *a: pytest.fail("checked again"))
    assert len(launched(lambda: launch(addresses(matrix(), matrix(), 3.0), STREAM))) == 1


def test_an_output_over_an_input_is_refused_at_every_bound_launch(
    launched: Callable[..., list[str]],
) -> None:
    whole = matrix(200, 72)
    launch = fresh(scaled).bind(whole[:100], matrix(), 2.0)

    def refused() -> None:
        with pytest.raises(ArgumentError, match="the output `y` shares memory with `x`"):
            launch(addresses(whole[:100], whole[50:150], 2.0), STREAM)

    for _ in range(2):
        assert launched(refused) == []
        assert len(launched(lambda: launch(addresses(whole[:100], whole[100:], 2.0), STREAM))) == 1


def test_views_that_interleave_are_no_overlap_of_a_bound_launch(
    launched: Callable[..., list[str]],
) -> None:
    whole = matrix(100, 144)
    left, right = whole[:, :72], whole[:, 72:]
    launch = fresh(scaled).bind(left, right, 2.0)
    for args in ((left, right, 2.0), (right, left, 2.0)):
        assert len(launched(lambda args=args: launch(addresses(*args), STREAM))) == 1


def test_a_kernel_in_place_takes_the_same_tensor_for_both_when_bound(
    launched: Callable[..., list[str]],
) -> None:
    whole = matrix(200, 72)
    launch = fresh(doubled).bind(whole[:100], whole[100:])
    assert len(launched(lambda: launch(addresses(whole[:100], whole[:100]), STREAM))) == 1
    with pytest.raises(ArgumentError, match="shares memory"):
        launch(addresses(whole[:100], whole[1:101]), STREAM)


def test_another_alignment_is_planned_anew(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(scaled)
    args = matrix(), matrix(), 2.0
    odd = shifted(args[0]), matrix(), 2.0
    show_parameters(kernel, args, monkeypatch)
    launch = kernel.bind(*args)
    programs = []
    for each in (args, odd, args):
        from_call = launched(lambda each=each: kernel(*each))
        assert launched(lambda each=each: launch(addresses(*each), STREAM)) == from_call
        programs.append(launch._planned.plan.loaded.source.program)
    assert programs[0] != programs[1]


def test_numbers_that_decide_something_are_planned_anew(
    launched: Callable[..., list[str]],
) -> None:
    x, y = matrix(100, 64), matrix(100, 64)
    launch = fresh(some_rows).bind(x, y, 5)
    for count in (5, 7, 7, 5):
        (line,) = launched(lambda count=count: launch(addresses(x, y, count), STREAM))
        assert f"grid {count} 1 1" in line
    with pytest.raises(ArgumentError, match="x has not so many rows"):
        launch(addresses(x, y, 101), STREAM)


def test_constants_outside_the_kernel_are_those_of_the_launch(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = matrix(64, 128), matrix(64, 128)
    launch = fresh(as_wide_as_outside).bind(x, y)
    for width, blocks in ((64, 2), (128, 1), (64, 2)):
        monkeypatch.setitem(globals(), "WIDTH", width)
        (line,) = launched(lambda: launch(addresses(x, y), STREAM))
        assert f"grid {blocks} 1 1" in line


def test_a_list_that_the_caller_changes_is_not_what_the_launch_remembers(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(scaled)
    x, y, other = matrix(), matrix(), matrix()
    show_parameters(kernel, (x, y, 2.0), monkeypatch)
    launch = kernel.bind(x, y, 2.0)
    values = addresses(x, y, 2.0)
    launch(values, STREAM)
    values[0] = other.data_ptr()
    from_call = launched(lambda: kernel(other, y, 2.0))
    assert launched(lambda: launch(values, STREAM)) == from_call


def test_values_that_are_too_few_or_too_many_are_refused(gpu_tensors: None) -> None:
    x, y = matrix(), matrix()
    launch = fresh(scaled).bind(x, y, 2.0)
    for values in ([], addresses(x, y), addresses(x, y, 2.0, 3)):
        message = f"scaled: {len(values)} values for a bound launch of 3 arguments"
        with pytest.raises(ArgumentError, match=message):
            launch(values, STREAM)


def test_arrays_of_the_cpu_are_not_bound() -> None:
    x = np.zeros((64, 64), np.float32)
    with pytest.raises(ArgumentError, match="launches are bound to a GPU"):
        scaled.bind(x, x.copy(), 2.0)


def test_what_a_call_refuses_is_not_bound(gpu_tensors: None) -> None:
    x = matrix(64, 64)
    with pytest.raises(ArgumentError, match="x has not so many rows"):
        fresh(some_rows).bind(x, matrix(64, 64), 65)
    with pytest.raises(ArgumentError, match="shares memory"):
        fresh(scaled).bind(x, x, 2.0)


def test_a_bound_launch_does_not_keep_the_memory_it_was_bound_with(
    launched: Callable[..., list[str]],
) -> None:
    x, y = matrix(), matrix()
    gone = weakref.ref(x)
    launch = fresh(scaled).bind(x, y, 2.0)
    launch(addresses(x, y, 2.0), STREAM)
    launch(addresses(shifted(x), y, 2.0), STREAM)
    del x
    gc.collect()
    assert gone() is None


def test_threads_share_a_bound_launch(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread launches with a number of its own on a stream of that number."""
    x, y = matrix(100, 64), matrix(100, 64)
    kernel = fresh(some_rows)
    launch = kernel.bind(x, y, 1)
    faults: list[BaseException] = []

    def work(count: int) -> None:
        try:
            for _ in range(50):
                launch(addresses(x, y, count), count)
        except BaseException as fault:
            faults.append(fault)

    def run() -> None:
        threads = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    lines = launched(run)
    assert faults == []
    found = [(line.split("grid ")[1].split()[0], line.split("stream 0x")[1][0]) for line in lines]
    assert len(found) == 150
    assert all(grid == stream for grid, stream in found)


# -- prepared calls ------------------------------------------------------------------------------


def key_of(calls: PreparedCalls[Any], *tensors: Any, constants: tuple[Any, ...] = ()) -> Any:
    return calls.find(tensors, *constants)[1]


def test_a_call_like_an_earlier_one_is_found(gpu_tensors: None) -> None:
    calls: PreparedCalls[str] = PreparedCalls()
    x, y = matrix(), matrix()
    found, key, values, stream = calls.find((x, None, y), True, 1.5)
    assert (found, values, stream) == (None, [x.data_ptr(), None, y.data_ptr()], STREAM)
    calls.keep(key, "this")
    other = matrix()
    found, again, values, stream = calls.find((other, None, y), True, 1.5)
    assert (found, again) == ("this", key)
    assert (values, stream) == ([other.data_ptr(), None, y.data_ptr()], STREAM)


def test_what_tells_two_calls_apart_is_in_the_key(gpu_tensors: None) -> None:
    calls: PreparedCalls[str] = PreparedCalls()
    x, y = matrix(), matrix()
    keys = [
        key_of(calls, x, y),
        key_of(calls, x, None),
        key_of(calls, None, x),
        key_of(calls, x),
        key_of(calls, x, matrix(101)),
        key_of(calls, x, matrix(100, 144)[:, :72]),
        key_of(calls, x, matrix(dtype=torch.bfloat16)),
        key_of(calls, x, shifted(y)),
        *(key_of(calls, x, y, constants=(c,)) for c in (1, 1.0, True, "1", None, (1,))),
        key_of(calls, x, y, constants=(1, 2)),
        key_of(calls, x, y, constants=(2, 1)),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_a_weight_is_a_tensor_and_other_subclasses_go_the_slow_way(gpu_tensors: None) -> None:
    class Wrapped(torch.Tensor):
        pass

    calls: PreparedCalls[str] = PreparedCalls()
    x = matrix()
    weight = torch.nn.Parameter(matrix())
    assert key_of(calls, x, weight) == key_of(calls, x, matrix())
    assert calls.find((x, matrix().as_subclass(Wrapped))) == (None, None, [], 0)


@pytest.mark.parametrize("other", [np.zeros((2, 2), np.float32), 1.0, [1]])
def test_arguments_of_other_libraries_go_the_slow_way(gpu_tensors: None, other: Any) -> None:
    calls: PreparedCalls[str] = PreparedCalls()
    assert calls.find((matrix(), other)) == (None, None, [], 0)
    assert calls.find(()) == calls.find((None,)) == (None, None, [], 0)


def test_tensors_of_the_cpu_or_of_two_gpus_go_the_slow_way(
    gpu_tensors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: PreparedCalls[str] = PreparedCalls()
    cpu, first, second = matrix(), matrix(), matrix()
    places = {cpu.data_ptr(): -1, first.data_ptr(): 0, second.data_ptr(): 1}
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: places[self.data_ptr()])
    for tensors in ((cpu,), (cpu, cpu), (cpu, first), (first, cpu), (first, second)):
        assert calls.find(tensors) == (None, None, [], 0)
    keys = {calls.find((tensor, tensor))[1] for tensor in (first, second)}
    assert len(keys) == 2
    assert None not in keys


def test_a_constant_that_is_not_hashable_goes_the_slow_way(gpu_tensors: None) -> None:
    calls: PreparedCalls[str] = PreparedCalls()
    found, key, _, _ = calls.find((matrix(),), [1])
    assert (found, key) == (None, None)
    calls.keep(key, "nothing")
    assert calls.find((matrix(),), [1])[0] is None


def test_calls_are_not_kept_without_end(gpu_tensors: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "MAX_CALLS", 3)
    calls: PreparedCalls[int] = PreparedCalls()
    x = matrix()
    for i in range(10):
        calls.keep(key_of(calls, x, constants=(i,)), i)
        assert calls.find((x,), i)[0] == i
    assert sum(calls.find((x,), i)[0] is not None for i in range(10)) <= 3


def test_a_host_function_on_both_does_its_checks_once(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, prepared = fresh(scaled), []
    calls: PreparedCalls[Any] = PreparedCalls()

    def host(x: Any, factor: float, out: Any = None) -> Any:
        found, key, values, stream = calls.find((x, out))
        if out is None:
            out = x.new_empty(x.shape)
            values[1:] = [out.data_ptr()]
        if found is None:
            found = kernel.bind(x, out, factor)
            prepared.append(found)
            calls.keep(key, found)
        found([*values, factor], stream)
        return out

    x = matrix()
    show_parameters(kernel, (x, x, 1.0), monkeypatch)
    for factor in (1.0, 2.0, 3.0):
        outs: list[Any] = []
        lines = launched(lambda factor=factor, outs=outs: outs.append(host(x, factor)))
        assert lines == launched(lambda factor=factor, outs=outs: kernel(x, outs[0], factor))
        lines = launched(lambda factor=factor, outs=outs: host(x, factor, outs[0]))
        assert lines == launched(lambda factor=factor, outs=outs: kernel(x, outs[0], factor))
    assert len(prepared) == 2


# -- the very tensors of an earlier call -----------------------------------------------------------


@needs_compiler
def test_a_fixed_launch_has_the_arguments_of_the_launch_it_comes_from(
    gpu_tensors: None, log: Log
) -> None:
    x, y, z = (torch.zeros(64, 64) for _ in range(3))
    kernel = fresh(scaled)
    launch = kernel.bind(x, y, 2.0)
    values = [x.data_ptr(), y.data_ptr(), 2.0]
    assert launch.fixed(values) is None  # it has not been made yet
    launch(values, STREAM)
    first = log.take()
    fixed = launch.fixed(values)
    assert fixed is not None
    launch([z.data_ptr(), y.data_ptr(), 3.0], STREAM)
    log.take()
    fixed(STREAM)
    again = log.take()
    assert again
    assert first[-len(again) :] == again  # what came before was loading it


def test_what_reads_constants_from_outside_is_not_fixed(gpu_tensors: None) -> None:
    x, y = torch.zeros(64, 64), torch.zeros(64, 64)
    launch = fresh(as_wide_as_outside).bind(x, y)
    values = [x.data_ptr(), y.data_ptr()]
    launch(values, STREAM)
    assert launch.fixed(values) is None
