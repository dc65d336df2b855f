"""torch.compile leaves kernels and host functions out of its graphs, and traces no frame of the package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pykittens as pk
from pykittens.kernels.rms_norm import rms_norm
from pykittens.runtime import dynamo
from tests.runtime.calling import scaled

torch = pytest.importorskip("torch")

PACKAGE = str(Path(pk.__file__).parent)

# Of PyTorch's compiler; one about the caches of functions that it traces is an error, like any other warning.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def visited() -> list[str]:
    """The files and names of the code that Dynamo was given since its last reset."""
    from torch._dynamo.convert_frame import input_codes

    codes = [code for reference in input_codes.seen if (code := reference()) is not None]
    return [f"{code.co_filename}:{code.co_name}" for code in codes]


def twice(x: Any, y: Any) -> Any:
    scaled(x + 1, y, 2.0)
    return y + 1


@pk.autotune([{"rows": 64}, {"rows": 128}])
@pk.kernel
def tuned(x, y, *, rows):
    row, col = pk.grid(pk.cdiv(y.rows, rows), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=rows, cols=64) * 2.0)


def test_a_compiled_function_calls_a_kernel_outside_its_graphs() -> None:
    x, y = torch.zeros(64, 64), torch.zeros(64, 64)
    compiled = torch.compile(twice, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x, y), torch.full((64, 64), 3.0))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="with pykittens.torch.op"):
        torch.compile(twice, backend="eager", fullgraph=True)(x, y)


def test_no_frame_of_a_call_of_a_kernel_is_traced() -> None:
    @pk.kernel
    def negated(x, y):  # recorded while the function that calls it is compiled
        row, col = pk.grid(*x.tiles(64, 64))
        pk.store(y[row, col], -pk.load(x[row, col], rows=64, cols=64))

    def minus_one(x: Any, y: Any) -> Any:
        negated(x + 1, y)
        return y + 0

    x, y = torch.zeros(64, 64), torch.zeros(64, 64)
    found = torch.compile(minus_one, backend="eager")(x, y)
    assert torch.equal(found, torch.full((64, 64), -1.0))
    assert any(code.endswith(":minus_one") for code in visited())
    assert [code for code in visited() if code.startswith(PACKAGE) or ":negated" in code] == []


def test_a_kernel_that_is_tuned_is_left_out_as_well() -> None:
    def doubled_twice(x: Any, y: Any) -> Any:
        rows = tuned.best(x, y)["rows"]
        tuned(x + 1, y)
        return y + y + rows

    x, y = torch.zeros(64, 64), torch.zeros(64, 64)
    found = torch.compile(doubled_twice, backend="eager")(x, y)
    assert torch.equal(found, torch.full((64, 64), 68.0))
    assert [code for code in visited() if code.startswith(PACKAGE)] == []


def test_no_frame_of_a_call_of_the_library_is_traced() -> None:
    def shifted(x: Any) -> Any:
        return rms_norm(x + 1, torch.ones(64)) + 1

    x = torch.randn(4, 64)
    found = torch.compile(shifted, backend="eager")(x)
    assert torch.equal(found, shifted(x))
    assert [code for code in visited() if code.startswith(PACKAGE)] == []
    torch._dynamo.reset()
    with pytest.raises(Exception, match="pykittens.torch has operators"):
        torch.compile(shifted, backend="eager", fullgraph=True)(x)


def test_a_function_is_left_out_also_if_dynamo_is_imported_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def added(x: Any) -> Any:
        return x + 1

    def through(x: Any) -> Any:
        return added(x)

    def compiled(x: Any) -> Any:
        return through(x) * 2

    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch._dynamo")
        dynamo.leave_out(through, "a reason")
        assert dynamo._waiting == [through.__code__]
        assert importlib.util.find_spec("torch._dynamo") is not None
        assert dynamo._waiting == []
    assert torch.equal(
        torch.compile(compiled, backend="eager")(torch.ones(2)), torch.full((2,), 4.0)
    )
    assert [c for c in visited() if c.endswith((":through", ":added"))] == []


def test_a_release_of_pytorch_that_cannot_skip_frames_still_breaks_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch._C._dynamo.eval_frame, "set_code_exec_strategy")

    def through(x: Any) -> Any:
        return x + 1

    dynamo.leave_out(through, "a reason")
    assert dynamo._waiting == []
    with pytest.raises(Exception, match="a reason"):
        torch.compile(lambda x: through(x), backend="eager", fullgraph=True)(torch.ones(2))
