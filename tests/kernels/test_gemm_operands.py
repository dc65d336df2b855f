"""Layouts of the arrays of a product, batches, and errors."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.gemm import gemm
from pykittens.kernels.gemm.config import Config
from pykittens.runtime.arrays import describe
from tests.gemm_problems import BLOCK_SCALES, Layout, Problem, centred
from tests.gemm_random import drawn, fault_of
from tests.tiers import halved

BF16 = np.dtype(ml_dtypes.bfloat16)
SMALL = Config(64, 32, stages=2, consumers=1, out_cols=32)
SWAP = replace(SMALL, swap=True)
WIDE = Config(128, 128, stages=3, out_cols=128)  # lanes store rows of two lines
GATED = {"gate": "bf16", "residual": "bf16", "bias": "f32", "row_scale": "f32"}

LAYOUTS = {
    "columns": Layout(columns=True),
    "padded": Layout(lines="padded"),
    "padded-columns": Layout(columns=True, lines="padded"),
    "unaligned": Layout(lines="odd"),
    "unaligned-columns": Layout(columns=True, lines="odd"),
    "every-second": Layout(step=2),
    "backwards": Layout(backwards=True),
    "repeated": Layout(repeated=True),
    "columns-backwards": Layout(columns=True, backwards=True),
}


def normal(*shape, dtype=BF16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# -- strides ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [SMALL, SWAP], ids=["plain", "swap"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("array", ["a", "b", "gate", "residual", "bias"])
def test_an_input_may_lie_in_any_way(array, layout, config):
    problem = Problem(70, 90, 75, layouts={array: LAYOUTS[layout]}, extras=GATED, config=config)
    assert fault_of(problem) == ""


@pytest.mark.parametrize("config", [SMALL, SWAP, WIDE], ids=["plain", "swap", "wide"])
@pytest.mark.parametrize("layout", [x for x in LAYOUTS if x != "repeated"])
def test_an_output_may_lie_in_any_way_and_nothing_round_it_is_written(layout, config):
    problem = Problem(70, 90, 75, out=True, layouts={"out": LAYOUTS[layout]}, config=config)
    assert fault_of(problem) == ""
    assert fault_of(replace(problem, numbers={"beta": 0.5}, out_dtype="f32")) == ""


@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_all_arrays_out_of_the_copy_engines_reach(dtype):
    odd = dict.fromkeys(("a", "b", "out"), LAYOUTS["unaligned"])
    problem = Problem(90, 100, 101, dtypes=(dtype, dtype), out=True, layouts=odd)
    assert fault_of(problem) == ""
    assert fault_of(replace(problem, transpose_b=False)) == ""


@pytest.mark.parametrize("layout", ["columns", "padded", "every-second", "unaligned"])
def test_scales_of_blocks_may_lie_in_any_way(layout):
    layouts = dict.fromkeys(BLOCK_SCALES, LAYOUTS[layout])
    problem = Problem(70, 200, 300, dtypes=("e4m3", "e4m3"), extras=BLOCK_SCALES, layouts=layouts)
    assert fault_of(problem) == ""


# -- batches ---------------------------------------------------------------------------------------

LEADS = {
    "alike": ((3,), (3,)),
    "one-b": ((3,), ()),
    "one-a": ((), (3,)),
    "one-a-of-three-axes": ((1,), (3,)),
    "two-axes": ((2, 3), (2, 3)),
    "two-axes-one-b": ((2, 3), ()),
    "broadcast": ((2, 1), (1, 3)),
    "three-axes": ((2, 1, 2), (1, 3, 1)),
    "empty": ((0,), (0,)),
}


@pytest.mark.parametrize("config", [SMALL, SWAP, replace(SMALL, splits=2)], ids=lambda c: c.swap)
@pytest.mark.parametrize("leads", LEADS)
def test_a_batch_is_so_many_products(leads, config):
    problem = Problem(40, 50, 70, leads=LEADS[leads], config=config)
    assert fault_of(problem) == ""
    given = {"extras": GATED, "out": True, "numbers": {"beta": 2.0, "alpha": 0.5}, "wide": True}
    assert fault_of(replace(problem, transpose_b=False, **given)) == ""


@pytest.mark.parametrize("array", ["a", "b", "out", "residual"])
@pytest.mark.parametrize(
    "layout",
    [
        Layout(columns=True),
        Layout(exchanged=True),
        Layout(exchanged=True, lines="padded", columns=True),
    ],
    ids=["transposed", "turned", "all"],
)
def test_a_batch_of_views(array, layout):
    problem = Problem(40, 50, 70, leads=((2, 3), (2, 3)), out=True, layouts={array: layout})
    assert fault_of(replace(problem, extras={"residual": "bf16"})) == ""


def test_rows_of_a_batch_that_one_b_serves_become_rows_of_one_product():
    shared = Problem(3, 40, 50, leads=((7,), ()), extras={"bias": "f32", "row_scale": "f32"})
    assert (shared.call().m, shared.call().lead) == (21, ())
    for own in (
        replace(shared, wide=True),
        replace(shared, row_sums=True),
        replace(shared, function="centred", config=SMALL),
        replace(shared, layouts={"a": Layout(columns=True)}),
        replace(shared, leads=((7,), (7,))),
    ):
        assert (own.call().m, own.call().lead) == (3, (7,))
        assert fault_of(own) == ""


def test_scales_of_blocks_are_those_of_every_product_of_a_batch():
    problem = Problem(70, 40, 300, leads=((3,), ()), dtypes=("e4m3", "e4m3"), extras=BLOCK_SCALES)
    assert fault_of(problem) == ""


def test_a_vector_is_no_matrix_and_out_comes_back_as_it_was_passed():
    a, b, out = normal(2, 3, 40, 50), normal(60, 50, seed=1), normal(2, 3, 40, 60)
    assert gemm(a, b, out) is out
    with pytest.raises(ArgumentError, match="`a` must have rank 2 or more, not 1"):
        gemm(a[0, 0, 0], b)


# -- what is refused -------------------------------------------------------------------------------

A, B, ONE = normal(16, 32), normal(48, 32), np.ones(1, np.float32)
FP8_A, FP8_B = (x.astype(ml_dtypes.float8_e4m3fn) for x in (A, B))
SCALES = {"row_blocks": np.ones((16, 1), np.float32), "column_blocks": ONE.reshape(1, 1)}
EXTRA = {
    "row_scale": r"\(16,\)",
    "bias": r"\(48,\)",
    "column_scale": r"\(48,\)",
    "residual": r"\(16, 48\)",
    "gate": r"\(48, 32\)",
}


@pytest.mark.parametrize(
    ("message", "a", "b", "given"),
    [
        ("`a` must be an array, not list", [[1.0]], B, {}),
        ("`a` must be bf16, f16, e4m3 or e5m2, not f32", A.astype(np.float32), B, {}),
        ("`b` must have the dtype of `a`", A, B.astype(np.float16), {}),
        ("`b` must have the dtype of `a`", A, FP8_B, {}),
        (r"`b` must have the shape \(..., n, 32\), not \(32, 16\)", A, normal(32, 16), {}),
        (r"`b` must have the shape \(..., 32, n\), not \(48, 32\)", A, B, {"transpose_b": False}),
        (r"the batches \(2,\) and \(3,\) do not fit", normal(2, 16, 32), normal(3, 48, 32), {}),
        (r"`out` must have the shape \(16, 48\)", A, B, {"out": normal(16, 40)}),
        (
            r"`out` must have the shape \(2, 16, 48\)",
            normal(2, 16, 32),
            B,
            {"out": normal(32, 48)},
        ),
        (
            "`out` is bf16, and `out_dtype` says f32",
            A,
            B,
            {"out": normal(16, 48), "out_dtype": pk.f32},
        ),
        ("e4m3 or e5m2, not float64", A, B, {"out": np.zeros((16, 48))}),
        ("`out` must be an array, not list", A, B, {"out": [[1.0]]}),
        ("can be bf16, f16, f32, e4m3 or e5m2, not int32", A, B, {"out_dtype": pk.int32}),
        ("`out_dtype` must be a dtype such as pk.f32", A, B, {"out_dtype": "f32"}),
        ("bf16 is summed in f32, f16 also in f16, not in f16", A, B, {"accumulate": pk.f16}),
        ("`accumulate` must be a dtype such as pk.f32", A, B, {"accumulate": np.float32}),
        ("`activation` must be one of '', 'relu', 'gelu'", A, B, {"activation": "tanh"}),
        ("`beta` goes with `out`, which is missing", A, B, {"beta": 1.0}),
        ("`beta` must be a number, not an array", A, B, {"out": normal(16, 48), "beta": ONE}),
        (
            r"`alpha` must have the shape \(\) or \(1,\)",
            A,
            B,
            {"alpha": np.ones(2, np.float32)},
        ),
        ("`bias` must be an array, not list", A, B, {"bias": [1.0]}),
        ("`row_blocks` goes with `column_blocks`", FP8_A, FP8_B, {"row_blocks": ONE}),
        ("`column_blocks` goes with `row_blocks`", FP8_A, FP8_B, {"column_blocks": ONE}),
        ("`row_blocks` scale blocks of fp8, and `a` is bf16", A, B, SCALES),
        ("`gate` goes with `gate_blocks`", FP8_A, FP8_B, {"gate": FP8_B, **SCALES}),
        ("`gate_bias` goes with `gate`", A, B, {"gate_bias": normal(48)}),
        ("`gate_alpha` goes with `gate`", A, B, {"gate_alpha": 2.0}),
        ("`gate` must have the dtype of `b`", A, B, {"gate": B.astype(np.float16)}),
        ("has no `row_sums`", A, B, {"row_sums": True, "config": SWAP}),
        ("has no `row_sums` and `column_sums`", A, B, {"column_sums": True, "config": SWAP}),
        (
            "tiles of 48 columns cannot be stored in parts of 32",
            A,
            B,
            {"config": replace(SMALL, cols=48)},
        ),
        (
            "a cluster of 4 blocks has no rows of 3",
            A,
            B,
            {"config": replace(SMALL, cluster=4, across=3)},
        ),
        ("takes no `epilogue`", A, B, {"epilogue": centred, "config": SWAP}),
        ("`config` must be a Config, not str", A, B, {"config": "fast"}),
        ("`rows` of `config` must be an int from 1 on, not 0", A, B, {"config": Config(0, 64)}),
        ("not 64.0", A, B, {"config": Config(64, 64.0)}),
        (
            "transposed tiles of 192 rows have scales of several blocks",
            FP8_A,
            FP8_B,
            {"config": replace(SWAP, rows=192, consumers=3), **SCALES},
        ),
        (
            "a step of 256 elements has scales of several blocks",
            FP8_A,
            FP8_B,
            {"config": replace(SMALL, depth=256), **SCALES},
        ),
        ("`row_blocks` must be f32", FP8_A, FP8_B, SCALES | {"row_blocks": normal(16, 1)}),
        ("`gate_blocks` goes with `row_blocks`", A, B, {"gate": B, "gate_blocks": ONE}),
        ("`activation` must be one of", A, B, {"activation": ["relu"]}),
        ("`accumulate` must be a dtype", A, B, {"accumulate": None}),
        ("`epilogue` must be a function, not int", A, B, {"epilogue": 3}),
        ("`operands` must be a tuple, not int", A, B, {"epilogue": centred, "operands": 3}),
        ("`operands` without `epilogue`", A, B, {"operands": (ONE,)}),
        ("`alpha` is more than an f32 holds", A, B, {"alpha": 10**400}),
        ("`bias` must be an array, not a number", A, B, {"bias": 1}),
        ("`transpose_b` must be True or False, not ndarray", A, B, {"transpose_b": ONE}),
        ("`out` shares memory with `a`", A, normal(32, 32), {"out": A}),
    ],
    ids=lambda x: x.replace("`", "") if isinstance(x, str) else "",
)
def test_what_does_not_fit_is_refused(message, a, b, given):
    with pytest.raises(ArgumentError, match=message):
        gemm(a, b, **given)


@pytest.mark.parametrize(
    ("message", "then", "operands"),
    [
        ("must return rt<f32, .*>, as x is, not NoneType", lambda x, at: None, ()),
        ("not tuple", lambda x, at: (x, x), ()),
        ("not rt<bf16", lambda x, at: x.to(pk.bf16), ()),
        ("other arguments than x, at and 1 operands", lambda x, at: x, (ONE,)),
        ("`operands` are arrays and numbers, and one", lambda x, at, v: x, (None,)),
    ],
    ids=["nothing", "two", "narrow", "too-few", "none"],
)
def test_a_function_that_is_no_epilogue_is_refused(message, then, operands):
    with pytest.raises(pk.KernelError, match=message):
        gemm(A, B, epilogue=then, operands=operands)


def test_numbers_of_numpy_are_numbers():
    twice = gemm(A, B, alpha=2.0, out_dtype=pk.f32)
    for number in (np.float32(2), np.float64(2), np.int64(2)):
        assert (gemm(A, B, alpha=number, out_dtype=pk.f32) == twice).all()


def test_an_operand_without_axes_is_one_of_one_element():
    found = gemm(
        A, B, epilogue=lambda x, at, v: x * pk.load(v), operands=(np.array(2, np.float32),)
    )
    assert (found == gemm(A, B, alpha=2.0)).all()


@pk.function
def noting(x, at, noted):
    """x, which is left in a tensor of the user's, too."""
    pk.store(noted[(*at.lead, at.row, at.col)], x)
    return x


@pytest.mark.parametrize("shape", [(16, 32), (2, 2, 3, 16, 32)], ids=["one", "batch"])
def test_what_an_epilogue_writes_to_an_operand_is_in_it(shape):
    """However it lies: what the kernel cannot take as it is, is copied, and copied back."""
    a, b = normal(*shape), np.broadcast_to(B, (*shape[:-2], *B.shape))
    wanted = gemm(a, b, out_dtype=pk.f32, config=SMALL)
    for noted in (
        np.zeros((*shape[:-1], 48), np.float32),
        np.zeros((*shape[:-2], 48, 16), np.float32).swapaxes(-1, -2),
        np.zeros((16, 48, *shape[:-2]), np.float32).transpose(*range(2, len(shape)), 0, 1),
    ):
        gemm(a, b, epilogue=noting, operands=(noted,), config=SMALL)
        assert (noted == wanted).all()


@pytest.mark.parametrize("name", EXTRA)
def test_an_operand_of_another_shape_is_refused(name):
    with pytest.raises(ArgumentError, match=f"`{name}` must have the shape {EXTRA[name]}"):
        gemm(A, B, **{name: normal(17, 5)})


def test_an_output_whose_batch_cannot_be_one_axis_is_refused():
    a, b = normal(2, 3, 4, 16, 32), normal(48, 32)
    out = normal(3, 2, 4, 16, 48).swapaxes(0, 1)
    with pytest.raises(ArgumentError, match="a batch of one or two axes, or lie in one piece"):
        gemm(a, np.stack([np.stack([np.stack([b] * 4)] * 3)] * 2), out)


def test_an_output_that_shares_memory_with_an_input_is_refused():
    whole = normal(64, 64)
    with pytest.raises(ArgumentError, match="shares memory"):
        gemm(whole[:32], whole[32:], whole[:32, :32])


def test_an_output_that_cannot_be_written_is_refused():
    out = normal(16, 48)
    out.flags.writeable = False
    for view in (out, normal(1, 48)[[0] * 16].T.copy().T):
        view.flags.writeable = False
        with pytest.raises(ArgumentError, match="read-only"):
            gemm(A, B, view)


@pytest.mark.parametrize("first", halved(range(0, 1500, 100)))
def test_what_is_not_called_copied_lies_where_the_caller_has_it(first):
    """Later calls launch with the addresses of what they are given."""
    for number in range(first, first + 100):
        arrays = drawn(number, numpy=False).call().arrays
        for name, x in arrays.views.items():
            if isinstance(x, np.ndarray) and x.size and name not in arrays.copies:
                assert describe(x).address == describe(arrays.given[name]).address, (number, name)
