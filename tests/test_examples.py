"""The examples in the emulator against their float64 references, whatever the sizes and the memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from examples.catalog import EXAMPLES, arrays, error
from tests import tolerance, views
from tests.conftest import EXAMPLES as FOLDER
from tests.tolerance import assert_within

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
LAYOUTS = [views.contiguous, views.sliced, views.wide]
STEMS = sorted(p.stem for p in FOLDER.glob("[0-9]*.py"))
SHAPES = [(1, 1), (15, 17), (63, 65), (64, 128), (129, 127), (1000, 15), (1, 1000)]


def normal(seed, shape, dtype):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def named(value):
    return getattr(value, "__name__", None) or (
        "x".join(map(str, value)) if isinstance(value, tuple) else None
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_copy_is_exact_on_any_shape_and_layout(example, shape, dtype, layout):
    x = views.filled(layout, normal(0, shape, dtype))
    y, whole = layout(shape, dtype)
    example("01_copy").copy(x, y)
    assert np.array_equal(views.result_of(y, whole), x)


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize("dtype", [F32, BF16, np.dtype(np.float16)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_add_is_right_on_any_shape_and_layout(example, shape, dtype, layout):
    module = example("02_add")
    a, b = (views.filled(layout, normal(seed, shape, dtype)) for seed in (0, 1))
    out, whole = layout(shape, dtype)
    module.add(a, b, out)
    exact = module.reference(a, b)
    assert_within(views.result_of(out, whole), exact, tolerance.rounding(dtype, exact))


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_softmax_is_right_on_any_shape_and_layout(example, shape, dtype, layout):
    module = example("03_softmax")
    x = views.filled(layout, normal(0, shape, dtype))
    y, whole = layout(shape, dtype)
    module.softmax(x, y)
    exact = module.reference(x)
    spread = float(np.ptp(x.astype(np.float64)))
    assert_within(views.result_of(y, whole), exact, tolerance.softmax(dtype, exact, spread))


MATMULS = [
    (1, 1, 1),
    (15, 17, 63),
    (63, 65, 64),
    (127, 129, 65),
    (128, 256, 64),
    (129, 1000, 17),
    (1000, 63, 127),
    (256, 512, 192),
    (300, 15, 1000),
]


def check_matmul(module, A, B, C, whole, name="matmul"):
    getattr(module, name)(A, B, C)
    exact = module.reference(A, B)
    magnitude = module.reference(np.abs(A), np.abs(B))
    bound = tolerance.product(BF16, exact, magnitude, A.shape[1])
    assert_within(views.result_of(C, whole), exact, bound)


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize("size", MATMULS, ids=named)
def test_matmul_is_right_on_any_shape_and_layout(example, size, layout):
    m, n, k = size
    A, B = (views.filled(layout, normal(i, (r, k), BF16)) for i, r in enumerate((m, n)))
    check_matmul(example("06_matmul"), A, B, *layout((m, n), BF16))


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize(
    "size", [(1, 1, 1), (63, 129, 65), (64, 128, 192), (300, 15, 0)], ids=named
)
@pytest.mark.parametrize("stem", ["04_matmul_tile", "05_matmul_pipeline"])
def test_a_simpler_matmul_is_right_on_any_shape_and_layout(example, stem, size, layout):
    m, n, k = size
    A, B = (views.filled(layout, normal(i, (r, k), BF16)) for i, r in enumerate((m, n)))
    check_matmul(example(stem), A, B, *layout((m, n), BF16), name=stem[3:])


def test_a_matmul_of_inner_length_zero_stores_zeros(example):
    C = np.full((130, 20), np.nan, BF16)
    example("06_matmul").matmul(np.empty((130, 0), BF16), np.empty((20, 0), BF16), C)
    assert (C == 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_matmul_is_the_same_under_any_schedule(example, monkeypatch, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    A, B = normal(0, (200, 300), BF16), normal(1, (300, 300), BF16)
    check_matmul(example("06_matmul"), A, B, *views.contiguous((200, 300), BF16))


def test_without_rows_there_are_no_tasks_and_nothing_happens(example):
    for shape in ((0, 64), (0, 0)):
        example("02_add").add(*(np.empty(shape, F32) for _ in range(3)))
        example("03_softmax").softmax(*(np.empty(shape, F32) for _ in range(2)))
    A, B = np.empty((0, 64), BF16), normal(0, (32, 64), BF16)
    example("06_matmul").matmul(A, B, np.empty((0, 32), BF16))
    empty = [np.empty((1, 2, 0, 64), BF16) for _ in range(4)]
    example("07_attention").attention(*empty, causal=True)


def test_a_softmax_over_no_columns_writes_nothing(example):
    example("03_softmax").softmax(np.empty((5, 0), F32), np.empty((5, 0), F32))


def check_attention(module, Q, K, V, O, whole, causal):
    module.attention(Q, K, V, O, causal=causal)
    exact = module.reference(Q, K, V, causal)
    magnitude = module.reference(Q, K, np.abs(V), causal)
    n, d = Q.shape[-2:]
    products = np.abs(Q).astype(np.float64) @ np.abs(K).astype(np.float64).swapaxes(-1, -2)
    bound = tolerance.attention(BF16, exact, magnitude, float(products.max()) / d**0.5, n, d)
    assert_within(views.result_of(O, whole), exact, bound)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("n", [1, 15, 65, 127, 128, 129, 384, 1000])
def test_attention_is_right_at_any_length(example, n, d, causal):
    shape = (1, 2, n, d)
    Q, K, V = (normal(seed, shape, BF16) for seed in range(3))
    check_attention(example("07_attention"), Q, K, V, *views.contiguous(shape, BF16), causal=causal)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("layout", [views.sliced, views.wide, views.heads_inside], ids=named)
def test_attention_is_right_in_any_layout(example, layout, causal):
    shape = (2, 3, 150, 64)
    Q, K, V = (views.filled(layout, normal(seed, shape, BF16)) for seed in range(3))
    check_attention(example("07_attention"), Q, K, V, *layout(shape, BF16), causal=causal)


@pytest.mark.parametrize("seed", range(6))
def test_attention_is_the_same_under_any_schedule(example, monkeypatch, seed):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    shape = (1, 1, 400, 64)
    Q, K, V = (normal(s, shape, BF16) for s in range(3))
    check_attention(example("07_attention"), Q, K, V, *views.contiguous(shape, BF16), causal=True)


HEADS = [(1, 1, 32), (3, 100, 96), (2, 64, 128), (5, 65, 64)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize("shape", HEADS, ids=named)
def test_heads_are_normalised_and_rotated_on_any_shape_and_layout(example, shape, layout):
    module, (_, tokens, d) = example("09_own_kernel"), shape
    x, weight = views.filled(layout, normal(0, shape, BF16)), normal(1, (d,), BF16)
    cos, sin = module.tables(1000, d)
    positions = np.random.default_rng(2).integers(0, 1000, tokens).astype(np.int32)
    y, whole = layout(shape, BF16)
    module.norm_rotary(x, weight, cos, sin, positions, y)
    exact = module.reference(x, weight, cos, sin, positions)
    turning = np.abs(sin) * np.where(
        np.arange(d) < d // 2, -1, 1
    )  # so that no term takes from another
    magnitude = module.reference(np.abs(x), np.abs(weight), np.abs(cos), turning, positions)
    bound = tolerance.rounding(BF16, exact) + 2 * (d + 8) * tolerance.unit(F32) * magnitude
    assert_within(views.result_of(y, whole), exact, bound)


@pytest.mark.parametrize("layout", LAYOUTS, ids=named)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_two_of_each_four_neighbours_are_kept_on_any_shape_and_layout(
    example, shape, dtype, layout
):
    module = example("10_own_operation")
    # Small integers: many of the four are equal, or equal except for the sign.
    x = views.filled(layout, np.random.default_rng(0).integers(-2, 3, shape).astype(dtype))
    y, whole = layout(shape, dtype)
    module.prune(x, y)
    found = views.result_of(y, whole).astype(np.float64)
    assert np.array_equal(found, module.reference(x))
    padded = np.pad(found, ((0, 0), (0, -shape[1] % 4))).reshape(shape[0], -1, 4)
    assert (np.count_nonzero(padded, axis=-1) <= 2).all()


def test_nan_in_a_row_stays_in_its_row(example):
    x = normal(0, (20, 100), F32)
    x[7, 31] = np.nan
    y = np.full_like(x, -1)
    example("03_softmax").softmax(x, y)
    assert np.isnan(y[7]).all()
    assert np.isfinite(np.delete(y, 7, axis=0)).all()


@pytest.mark.parametrize("stem", STEMS)
def test_an_example_runs_and_says_how_far_it_is_off(example, stem, capsys):
    example(stem).main()
    errors = [float(line.split(":")[1]) for line in capsys.readouterr().out.splitlines()]
    assert errors
    assert all(e < tolerance.unit(BF16) for e in errors)


@pytest.mark.parametrize("listed", EXAMPLES, ids=lambda e: e.title)
def test_an_example_is_within_the_bound_that_the_table_gives(example, listed):
    module = example(listed.file.removesuffix(".py"))
    given = arrays(listed, listed.small)
    getattr(module, listed.name)(*given, **listed.constants)
    exact = module.reference(*given[:-1], **listed.constants)
    assert error(given[-1], exact) <= listed.bound


def test_the_arrays_may_be_tensors_of_pytorch(example):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    generator = torch.Generator().manual_seed(0)
    whole = torch.full((100, 300), torch.nan)
    a, b = (torch.randn(65, 130, generator=generator) for _ in range(2))
    out = whole[20:85, 7:137]
    example("02_add").add(a, b, out)
    assert torch.equal(out.clone(), a + b)
    out.fill_(torch.nan)
    assert whole.isnan().all()
    A, B = (torch.randn(r, 130, generator=generator).bfloat16() for r in (100, 90))
    C = torch.full((100, 90), torch.nan, dtype=torch.bfloat16)
    example("06_matmul").matmul(A, B, C)
    exact = (A.double() @ B.double().T).numpy()
    magnitude = (A.double().abs() @ B.double().abs().T).numpy()
    found = C.float().numpy()
    assert_within(found, exact, tolerance.product(BF16, exact, magnitude, 130))
