"""Calls with tensors that have no memory are checked and launch nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._dynamo.source import ConstantSource  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.symbolic_shapes import (  # noqa: E402
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

import pykittens as pk  # noqa: E402
from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.kernels.attention import attention  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.kernels.grouped_gemm import grouped_gemm  # noqa: E402
from pykittens.kernels.grouped_gemm_k import grouped_gemm_k  # noqa: E402
from pykittens.kernels.rms_norm import rms_norm  # noqa: E402
from pykittens.runtime.fakes import is_equal, known  # noqa: E402
from tests.runtime.calling import filled, scaled  # noqa: E402


class Pair(NamedTuple):
    x: Any
    y: Any


@pk.kernel
def summed(pair, out, count, *, rows):
    row, col = pk.grid(*out.tiles(rows, 64))
    x, y = (pk.load(t[row, col], rows=rows, cols=64) for t in (pair.x, pair.y))
    pk.store(out[row, col], x + y + count.to(pk.f32))


class Fakes:
    """Tensors without memory, in which every extent is a symbol if `symbols`."""

    def __init__(self, symbols: bool) -> None:
        self.env, self.symbols, self.count = ShapeEnv(), symbols, 0
        self.mode = FakeTensorMode(shape_env=self.env)

    def __call__(self, *shape: int, dtype: Any = torch.bfloat16) -> Any:
        self.count += 1
        kind = DimDynamic.DYNAMIC if self.symbols else DimDynamic.STATIC
        context = StatelessSymbolicContext(dynamic_sizes=[kind] * len(shape))
        return self.mode.from_tensor(
            torch.zeros(shape, dtype=dtype),
            source=ConstantSource(f"t{self.count}"),
            symbolic_context=context,
        )

    @property
    def restrictions(self) -> list[str]:
        """What a compiled program would be restricted to, besides equal extents."""
        return [str(g.expr) for g in self.env.guards if not str(g.expr).startswith("Eq(s")]


@pytest.fixture(params=[False, True], ids=["sizes", "symbols"])
def fake(request: pytest.FixtureRequest) -> Any:
    made = Fakes(request.param)
    with made.mode:
        yield made
    assert made.restrictions == []


def test_a_kernel_launches_nothing(fake: Fakes) -> None:
    x, y = fake(50, 40), fake(50, 40)
    scaled(x, y, 2.0)
    scaled(x, y, factor=x.shape[0])
    summed(Pair(x, y), fake(50, 40), x.shape[1], rows=x.shape[0])
    filled(torch.empty_like(x), 1.0)
    assert y._version == 0


def test_a_kernel_with_tensors_of_the_device_meta_launches_nothing() -> None:
    x = torch.zeros(50, 40, device="meta")
    scaled(x, torch.empty_like(x), 2.0)


def test_a_kernel_that_is_tuned_takes_the_first_candidate_and_asks_no_function(fake: Fakes) -> None:
    tuned = pk.autotune(
        [{"rows": 64}, {"rows": 128}],
        key=lambda *given: pytest.fail("is asked"),
        prune=lambda *given: pytest.fail("is asked"),
    )(summed)
    x, y = fake(50, 40), fake(50, 40)
    tuned(Pair(x, y), fake(50, 40), x.shape[1])
    assert tuned.best(Pair(x, y), fake(50, 40), x.shape[1]) == {"rows": 64}
    assert tuned.best(Pair(x, y), fake(50, 40), 3, rows=128) == {"rows": 128}


def test_functions_of_the_library_have_results_of_the_right_shape(fake: Fakes) -> None:
    def shape(*given: Any) -> Any:
        return [tuple(map(known, x.shape)) for x in given]

    x, w, offsets = fake(50, 40), fake(30, 40), fake(4, dtype=torch.int32)
    out = fake(50, 30)
    assert gemm(x, w, out) is out
    assert shape(gemm(x, w)) == [(50, 30)]
    assert shape(*gemm(fake(2, 50, 40), w, row_sums=True, column_sums=True)) == [
        *((2, 50, 30), (2, 50), (2, 30))
    ]
    assert gemm(x, w, out_dtype=pk.f32, tune=True).dtype == torch.float32
    assert shape(grouped_gemm(x, fake(4, 30, 40), offsets)) == [(50, 30)]
    assert shape(grouped_gemm_k(x, fake(40, 30), offsets)) == [(4, 50, 30)]
    assert shape(rms_norm(x, fake(40))) == [(50, 40)]
    assert shape(attention(*(fake(2, 3, 100, 64) for _ in range(3)))) == [(2, 3, 100, 64)]


def test_what_is_known_is_checked(fake: Fakes) -> None:
    x, y = fake(50, 40), fake(50, 40)
    for call, message in (
        (lambda: scaled(x, y), "scaled: `factor` is missing"),
        (lambda: scaled(x, y.to(torch.complex64), 1.0), "`y` is complex64"),
        (lambda: scaled(x, fake(), 1.0), "`y` has rank 0"),
        (lambda: scaled(x.t(), y, 1.0), "`x` has a last stride of 40"),
        (lambda: scaled(x, y.to("meta"), 1.0), "all arrays must be on one device"),
        (lambda: gemm(x, y.to("meta")), "gemm: all arrays must be on one device"),
        (lambda: gemm(x, y, transpose_b=False), "gemm: `b` must have the shape"),
        (lambda: gemm(x, y.float()), "gemm: `b` must be bf16"),
        (lambda: attention(*[fake(2, 3, 100, 50)] * 3), "multiple of 16 from 16 to 256, not"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_what_needs_memory_refuses_a_tensor_without_it(fake: Fakes) -> None:
    with pytest.raises(ArgumentError, match="no memory|are traced"):
        scaled.compile(fake(50, 40), fake(50, 40), 1.0)
    with pytest.raises(ArgumentError, match="no memory|are traced"):
        scaled.debug(fake(50, 40), fake(50, 40), 1.0)


def test_sizes_that_depend_on_data_are_taken_as_they_come() -> None:
    env = ShapeEnv()
    some = env.create_unbacked_symint()
    with FakeTensorMode(shape_env=env):
        x = torch.empty(some, 40, dtype=torch.bfloat16)
        scaled(x, torch.empty_like(x), 2.0)
        assert gemm(x, torch.empty(30, 40, dtype=torch.bfloat16)).shape == (some, 30)
        assert is_equal(some, env.create_unbacked_symint())
    assert known((some, 3, [some])) == (1, 3, [1])
