"""Host functions for tests, and the launches of their calls with tensors that say they were on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import pykittens as pk
from pykittens.ir.nodes import written
from pykittens.kernels.arrays import FLOATS, Arrays
from pykittens.kernels.library import host_function, load_all
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.runtime.arguments import Arguments
from pykittens.runtime.arrays import describe, torch_dtype
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.launch import Launch
from tests.runtime.c_programs import Log
from tests.runtime.calling import launches, scaled
from tests.runtime.fake_gpu import STREAM

OUTSIDE = 1.5


@pk.kernel
def summed(x, y, *terms, then):
    """y = then(x + all terms)."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    total = pk.load(x[row, col], rows=64, cols=64)
    for term in terms:
        is_tensor = hasattr(term, "shape")
        total = total + (pk.load(term[row, col], rows=64, cols=64) if is_tensor else term)
    pk.store(y[row, col], then(total))


def same(t):
    return t


def raised(t):
    return t + OUTSIDE


def times_plan(x: Any, factor: Any = 2.0, out: Any = None) -> Plan:
    """x * factor."""
    arrays = Arrays("times", x=x, factor=float(factor), out=out)
    arrays.shapes(x="rows cols")
    arrays.result("rows cols", "f32", among=FLOATS)
    arrays.lines("x", "out")
    return Plan(arrays, [PlanStep(scaled, ("x", "out", "factor"))])


def sums_plan(
    x: Any,
    y: Any = None,
    out: Any = None,
    *,
    shift: Any = None,
    then: Callable[..., Any] = same,
    operands: Any = (),
) -> Plan:
    """then(x + y + shift + all operands)."""
    terms = {"y": y, "shift": shift} | {f"operand{i}": each for i, each in enumerate(operands)}
    arrays = Arrays("sums", x=x, out=out, **terms)
    arrays.shapes(x="rows cols")
    arrays.result("rows cols", "f32", among=FLOATS)
    arrays.lines(*arrays.found)
    names = [name for name in terms if name in arrays]
    return Plan(arrays, [PlanStep(summed, ("x", "out", *names), {"then": then})])


def rows_plan(kernel: Any) -> Callable[..., Plan]:
    def rows(x: Any, out: Any, count: int = 64) -> Plan:
        return Plan(
            Arrays("rows", x=x, out=out, count=count), [PlanStep(kernel, ("x", "out", "count"))]
        )

    return rows


class Host:
    """A host function that counts its plans."""

    def __init__(self, function: Callable[..., Plan], **numbers: Any) -> None:
        self.function, self.plans = host_function(function, numbers), 0
        self.forget, self._plan = self.function.forget, self.function.plan
        self.function.plan = self.plan

    def __call__(self, *args: Any, **words: Any) -> Any:
        return self.function(*args, **words)

    def plan(self, *args: Any, **words: Any) -> Plan:
        self.plans += 1
        return self._plan(*args, **words)

    @property
    def kept(self) -> int:
        """How many forms something is prepared for."""
        return len(self.function.calls)


@pytest.fixture
def times() -> Host:
    return Host(times_plan, factor=None)


@pytest.fixture
def sums() -> Host:
    return Host(sums_plan, shift=0.0, operands=())


@pytest.fixture
def launched(
    gpu_tensors: None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """`launched(function, *args)` are the launches of a call that reach the driver, with their parameters."""
    monkeypatch.setenv("FAKE_CUDA_LOG", str(tmp_path / "log"))
    log = Log(tmp_path / "log")
    return lambda call, *args, **words: launches(log, lambda: call(*args, **words))


class Emulated:
    """In place of the launches of a kernel on a GPU: the emulator runs it on the memory at the addresses."""

    by_value = False

    def __init__(self, kernel: KernelFunction, arguments: Arguments) -> None:
        self.kernel, self.arguments = kernel, arguments.at(arguments.values)
        self.recording = kernel.recording(arguments)
        order = [p.name for p in self.recording.kernel.params]
        self.outputs = tuple(order.index(name) for name in written(self.recording.kernel))

    def call(self, args: tuple[Any, ...], values: list[Any], stream: int) -> bool:
        """Run with these addresses and numbers if the recording is valid; autograd sees no change of other tensors."""
        if valid := self.recording.holds():
            self.launch((*values, stream))
        return valid

    @property
    def guard(self) -> Any:
        return self.recording.guard

    def launch(self, values: tuple[Any, ...]) -> None:
        """Run with these addresses and numbers, and after them the stream."""
        assert values[-1] == STREAM
        given = self.arguments.at(values[:-1])
        tensors = {name: replace(x, device="cpu") for name, x in given.tensors.items()}
        self.kernel.emulate(replace(given, tensors=tensors, device="cpu"))


@pytest.fixture
def emulated(gpu_tensors: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Emulated]]:
    """Tensors pretend to be on a GPU whose launches are emulated; the calls that are prepared from here on."""
    made: list[Emulated] = []
    called: set[KernelFunction] = set()
    call = KernelFunction.__call__

    def launch_of(kernel: KernelFunction, arguments: Arguments, *_: Any) -> Emulated:
        made.append(Emulated(kernel, arguments))
        return made[-1]

    def call_anew(kernel: KernelFunction, *args: Any, **constants: Any) -> None:
        if kernel not in called:
            called.add(kernel)
            kernel._calls.forget()
        call(kernel, *args, **constants)

    monkeypatch.setattr(KernelFunction, "launch_of", launch_of)
    monkeypatch.setattr(KernelFunction, "__call__", call_anew)
    functions = [entry.function for entry in load_all().values()]
    for function in functions:
        function.forget()
    yield made
    for kept in (*functions, *(kernel._calls for kernel in called)):
        kept.forget()


def tensor_of(x: Any) -> Any:
    """A tensor with the numbers of an array, in the memory of the array."""
    torch = pytest.importorskip("torch")
    dtype = torch_dtype(describe(x).dtype)  # type: ignore[union-attr]
    return torch.from_numpy(x.view(f"i{x.itemsize}")).view(dtype)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are launched from here on."""
    found: list[str] = []
    launch = Launch.launch

    def noted(self: Launch, values: Any) -> None:
        found.append(self.loaded.source.program)
        launch(self, values)

    monkeypatch.setattr(Launch, "launch", noted)
    return found


def word_of(x: Any) -> str:
    """The address of a tensor as the driver writes it down."""
    return str(x.data_ptr().to_bytes(8, "little").hex())
