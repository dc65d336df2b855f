"""The checks of the arrays of a call, the sentences of their errors, and the layout of arrays for kernels."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import (
    FLOATS,
    FP8,
    NARROW,
    RESULTS,
    Arrays,
    Made,
    contiguous,
    has_lines,
    reshaped,
    spread_to,
)
from pykittens.kernels.rms_norm import rms_norm
from pykittens.ops.arguments import either
from pykittens.runtime.arrays import empty

BF16, E4M3 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def refused(call: Callable[[], object], message: str) -> ArgumentError:
    with pytest.raises(ArgumentError, match=re.escape(message)) as fault:
        call()
    return fault.value


# -- what is given ---------------------------------------------------------------------------------


def test_what_is_none_is_absent_and_numbers_are_no_arrays():
    x = zeros(3)
    a = Arrays("f", x=x, y=None, alpha=2.0, count=3, flag=True)
    assert [name in a for name in ("x", "y", "alpha", "count", "flag", "z")] == (
        [True, False, True, True, True, False]
    )
    assert set(a.found) == {"x"}
    assert a.views == a.given == {"x": x, "alpha": 2.0, "count": 3, "flag": True}
    assert a.like is x


@pytest.mark.parametrize("x", [[1.0], "word", (1,), object(), 1j])
def test_what_is_neither_an_array_nor_a_number_is_refused(x):
    refused(lambda: Arrays("f", x=x), f"f: `x` must be an array, not {type(x).__name__}")


def test_an_error_names_the_function_and_shows_all_arrays():
    a = Arrays("f", x=zeros(3, 4), y=zeros(5), alpha=2.0)
    fault = a.fail("it is wrong", "make it right")
    assert str(fault).startswith("f: it is wrong")
    for part in ("x : f32 (3, 4)", "y : f32 (5)", "help: make it right"):
        assert part in str(fault)


# -- shapes ----------------------------------------------------------------------------------------


def test_names_of_axes_are_the_extents_of_all_arrays():
    a = Arrays("f", x=zeros(3, 4), y=zeros(4, 5), z=None)
    assert a.shapes(x="m k", y="k n", z="z z z") == {"m": 3, "k": 4, "n": 5}
    assert a.dims == {"m": 3, "k": 4, "n": 5}
    assert a.shapes(y="k n")["n"] == 5


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3,), "`x` must have rank 2, not 1"),
        ((3, 4, 5), "`x` must have rank 2, not 3"),
        ((), "`x` must have rank 2, not 0"),
    ],
)
def test_another_rank_is_refused(shape, message):
    refused(lambda: Arrays("f", x=zeros(*shape)).shapes(x="m n"), message)


def test_axes_of_a_number_and_fewer_than_there_must_be_are_refused():
    refused(lambda: Arrays("f", x=zeros(1)).shapes(x=""), "`x` must have rank 0, not 1")
    refused(
        lambda: Arrays("f", x=zeros(3)).shapes(x="*lead m n"),
        "`x` must have rank 2 or more, not 1",
    )


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ("k n", (5, 6), "(4, n), not (5, 6)"),
        ("k n", (4,), "(4, n), not (4,)"),
        ("n k", (6, 5), "(n, 4), not (6, 5)"),
        ("k", (5,), "(4,), not (5,)"),
        ("1", (2,), "(1,), not (2,)"),
        ("| 1", (2,), "() or (1,), not (2,)"),
        ("m | k m", (5, 3), "(3,) or (4, 3), not (5, 3)"),
        ("m | m", (5,), "(3,), not (5,)"),
        ("*lead n k", (2, 6, 5), "(..., n, 4), not (2, 6, 5)"),
        ("n | *lead n", (), "(n,) or (..., n), not ()"),
        ("m k/3", (3, 1), "(3, 2), not (3, 1)"),
        ("n/3 k", (3, 5), "(n/3, 4), not (3, 5)"),
    ],
)
def test_another_shape_is_refused(spec, shape, message):
    a = Arrays("f", x=zeros(3, 4), y=zeros(*shape))
    a.shapes(x="m k")
    refused(lambda: a.shapes(y=spec), f"f: `y` must have the shape {message}")


@pytest.mark.parametrize(
    ("spec", "shape", "dims"),
    [
        ("m k", (3, 4), {}),
        ("", (), {}),
        ("| 1", (), {}),
        ("| 1", (1,), {}),
        ("n | *lead n", (7,), {"n": 7}),
        ("n | *lead n", (2, 3, 7), {"n": 7, "lead": (2, 3)}),
        ("*lead m", (3,), {"lead": ()}),
        ("*lead m k", (9, 8, 3, 4), {"lead": (9, 8)}),
        ("m k/3", (3, 2), {}),
        ("m k/2", (3, 2), {}),
        ("m k/128", (3, 1), {}),
        ("k 4", (4, 4), {}),
    ],
)
def test_a_shape_that_fits_gives_the_extents_that_were_not_known(spec, shape, dims):
    a = Arrays("f", x=zeros(3, 4), y=zeros(*shape))
    a.shapes(x="m k")
    assert a.shapes(y=spec) == {"m": 3, "k": 4} | dims


def test_leading_axes_are_those_of_the_first_that_has_them():
    a = Arrays("f", x=zeros(2, 3, 4), y=zeros(2, 5), z=zeros(3, 5))
    a.shapes(x="*lead m n", y="*lead k")
    refused(lambda: a.shapes(z="*lead k"), "`z` must have the shape (2, 5), not (3, 5)")


def test_a_number_is_refused_where_an_array_must_be():
    refused(lambda: Arrays("f", x=2.0).shapes(x="m"), "f: `x` must be an array, not a number")


def test_an_operand_without_another_that_it_needs_is_refused():
    a = Arrays("f", x=zeros(2), alpha=2.0, gate=None)
    a.needs("gate", "bias")
    a.needs("alpha", "x")
    refused(lambda: a.needs("x", "alpha", "bias"), "f: `x` goes with `bias`, which is missing")
    refused(lambda: a.needs("alpha", "gate"), "f: `alpha` goes with `gate`, which is missing")


def test_batches_are_broadcast_and_refused_where_they_do_not_fit():
    a = Arrays("f", x=zeros(2, 1, 3), y=zeros(5, 3), z=zeros(4, 3), w=zeros(3))
    a.shapes(x="*left n", y="*right n", z="*other n", w="*none n")
    assert a.broadcast("left", "right") == (2, 5)
    assert a.broadcast("left", "none") == (2, 1)
    assert a.broadcast("none", "none") == ()
    refused(
        lambda: a.broadcast("left", "right", "other"),
        "f: the batches (2, 1) and (5,) and (4,) do not fit each other",
    )


# -- dtypes ----------------------------------------------------------------------------------------


def test_dtypes_are_among_those_that_fit_and_the_same():
    a = Arrays("f", x=zeros(2, dtype=BF16), y=zeros(2, dtype=BF16), z=zeros(2), w=None)
    assert a.dtypes("x", "y", "w", among=NARROW) == "bf16"
    assert a.dtypes("w", "z", "x", among=FLOATS, same=False) == "f32"
    assert a.dtypes("w", among=NARROW) == ""
    refused(lambda: a.dtypes("x", "z", among=NARROW), "`z` must be bf16 or f16, not f32")
    refused(lambda: a.dtypes("z", among=FP8), "`z` must be e4m3 or e5m2, not f32")
    refused(lambda: a.dtypes("z", among=("int32",)), "`z` must be int32, not f32")
    refused(
        lambda: a.dtypes("x", "z", among=FLOATS), "`z` must have the dtype of `x`, bf16, not f32"
    )


def test_a_choice_is_said_as_one():
    assert either(["f32"]) == "f32"
    assert either(NARROW) == "bf16 or f16"
    assert either(RESULTS) == "bf16, f16, f32, e4m3 or e5m2"


# -- the result ------------------------------------------------------------------------------------


def given(out=None):
    a = Arrays("f", x=zeros(3, 4, dtype=BF16), out=out)
    a.shapes(x="m n")
    return a


def test_a_result_is_made_unless_it_is_passed():
    a = given()
    assert a.result("m n", "bf16") == "bf16"
    assert a.made == {"out": Made((3, 4), "bf16", (3, 4))}
    a = given()
    assert a.result("n m", "bf16", pk.f32) == "f32"
    assert a.made == {"out": Made((4, 3), "f32", (4, 3))}
    a = given(zeros(3, 4))
    assert a.result("m n", "bf16") == "f32"
    assert a.made == {}
    assert given(zeros(3, 4)).result("m n", "bf16", pk.f32) == "f32"


def test_a_result_of_leading_axes_has_all_of_them():
    a = Arrays("f", x=zeros(2, 3, 4, 5))
    a.shapes(x="*lead m n")
    a.result("*lead n", "f32")
    assert a.made["out"].shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("out", "asked", "message"),
    [
        (zeros(3, 5), None, "`out` must have the shape (3, 4), not (3, 5)"),
        (zeros(4), None, "`out` must have the shape (3, 4), not (4,)"),
        (zeros(3, 4), pk.bf16, "`out` is f32, and `out_dtype` says bf16"),
        (zeros(3, 4), "f32", "`out_dtype` must be a dtype such as pk.f32, not 'f32'"),
        (None, np.float32, "`out_dtype` must be a dtype such as pk.f32, not <class"),
        (None, pk.int32, "the result can be bf16, f16, f32, e4m3 or e5m2, not int32"),
        (zeros(3, 4, dtype=np.int32), None, "the result can be bf16, f16, f32, e4m3 or e5m2, not"),
        (zeros(3, 4, dtype=np.float64), None, "e4m3 or e5m2, not float64"),
    ],
)
def test_a_result_that_does_not_fit_is_refused(out, asked, message):
    refused(lambda: given(out).result("m n", "bf16", asked), f"{message}")


def test_a_result_that_its_function_does_not_give_is_refused():
    out = zeros(3, 4, dtype=E4M3)
    refused(
        lambda: given(out).result("m n", "bf16", among=FLOATS),
        "the result can be bf16, f16 or f32, not e4m3",
    )


def test_a_result_is_not_written_to_memory_that_is_read_only_or_that_of_another_array():
    out = zeros(3, 4)
    out.flags.writeable = False
    refused(lambda: given(out).result("m n", "bf16"), "`out` is written and is read-only")
    whole = zeros(6, 8)
    a = Arrays("f", x=whole[:3, :4], y=whole[3:, :4], out=whole[2:5, 3:7])
    a.shapes(x="m n")
    fault = refused(lambda: a.result("m n", "f32"), "f: `out` shares memory with `x`")
    assert "pass a copy of one of them" in str(fault)
    beside = Arrays("f", x=whole[:3, :4], y=whole[3:, :4], out=whole[:3, 4:])
    beside.shapes(x="m n")
    assert beside.result("m n", "f32") == "f32"


# -- layout ----------------------------------------------------------------------------------------


def test_arrays_whose_rows_do_not_lie_in_one_piece_are_copied():
    x = zeros(4, 6)
    ways = {
        "plain": x,
        "columns": x.T,
        "steps": x[:, ::2],
        "backwards": x[::-1],
        "part": x[1:, 2:5],
    }
    a = Arrays("f", **ways, alpha=2.0)
    a.lines(*ways, "alpha", "absent")
    assert a.copies == {"columns": (6, 4), "steps": (4, 3), "backwards": (4, 6)}
    assert all(a.views[name] is ways[name] for name in ways)


def test_an_array_is_seen_in_another_shape_and_copied_where_it_does_not_lie_so():
    x, apart = zeros(4, 6), zeros(4, 8)[:, :6]
    a = Arrays("f", x=x, apart=apart)
    a.shapes(x="m n")
    a.result("m n", "f32")
    for name in ("x", "apart", "out"):
        a.reshape(name, (24,))
    assert a.views["x"].shape == (24,)
    assert np.shares_memory(a.views["x"], x)
    assert a.views["apart"] is apart
    assert a.copies == {"apart": (24,)}
    assert a.made["out"] == Made((4, 6), "f32", (24,))
    a.reshape("apart", (2, 12))  # what is copied is copied to any shape
    assert a.copies == {"apart": (2, 12)}


def test_the_copy_engine_reaches_arrays_as_kernels_take_them():
    a = Arrays("f", x=zeros(4, 8), odd=zeros(4, 7), far=zeros(4, 9)[:, 1:], none=zeros(0, 8))
    a.shapes(x="m n")
    a.result("m n", "f32")
    a.make("more", "n m", "bf16")
    reach = {name: a.reachable(name) for name in ("x", "odd", "far", "none", "out", "more")}
    assert reach == dict.fromkeys(("x", "out"), True) | dict.fromkeys(
        ("odd", "far", "none", "more"), False
    )
    a.view("odd", a.views["odd"].reshape(28))
    a.reshape("more", (32,))
    assert a.reachable("odd")
    assert a.reachable("more")
    transposed = Arrays("f", x=zeros(8, 4).T, odd=zeros(7, 4)[:, :3].T)
    transposed.lines("x", "odd")
    assert [transposed.reachable(name) for name in ("x", "odd")] == [True, False]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_both_libraries_are_handled_alike(library):
    if library == "torch":
        torch = pytest.importorskip("torch")
        x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    else:
        x = np.arange(24, dtype=np.float32).reshape(4, 6)
    made = empty(x, (2, 3), "bf16")
    assert type(made) is type(x)
    assert tuple(made.shape) == (2, 3)
    assert "bfloat16" in str(made.dtype)
    assert has_lines(x)
    assert not has_lines(x.T)
    assert has_lines(x.reshape(24)[:1].reshape(()))
    assert has_lines(x[:1].T)
    dense = contiguous(x.T)
    assert has_lines(dense)
    assert (dense == x.T).all()
    assert tuple(reshaped(x, (3, 8)).shape) == (3, 8)
    assert reshaped(x.T, (24,)) is None
    assert spread_to(x, (4, 6)) is x
    spread = spread_to(x[:1], (4, 6))
    assert tuple(spread.shape) == (4, 6)
    assert (spread == x[:1]).all()


# -- rms_norm --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "weight", "out", "message"),
    [
        (zeros(2, 3, 4), zeros(4), None, "rms_norm: `x` must have rank 2, not 3"),
        (zeros(4), zeros(4), None, "rms_norm: `x` must have rank 2, not 1"),
        (zeros(3, 4, dtype=np.int32), zeros(4), None, "`x` must be bf16, f16 or f32, not int32"),
        (zeros(3, 4), zeros(4, dtype=np.int32), None, "`weight` must be bf16, f16 or f32, not"),
        (zeros(3, 4), zeros(5), None, "`weight` must have the shape (4,), not (5,)"),
        (zeros(3, 4), zeros(1, 4), None, "`weight` must have the shape (4,), not (1, 4)"),
        (zeros(3, 4), 1.0, None, "`weight` must be an array, not a number"),
        (zeros(3, 4), zeros(4), zeros(4, 3), "`out` must have the shape (3, 4), not (4, 3)"),
        (zeros(3, 4), zeros(4), zeros(3, 4, dtype=np.int32), "bf16, f16 or f32, not int32"),
        (zeros(3, 4), None, None, "rms_norm: `weight` must be an array, not NoneType"),
    ],
)
def test_rms_norm_refuses_what_its_kernel_does_not_take(x, weight, out, message):
    refused(lambda: rms_norm(x, weight, out=out), message)


def test_rms_norm_takes_arrays_that_lie_in_any_way():
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((40, 30)).astype(np.float32), np.ones(60, np.float32)
    expected = rms_norm(np.ascontiguousarray(x.T), weight[:40])
    out = np.zeros((40, 30), np.float32).T
    assert rms_norm(x.T, weight[::-1][:40], out=out) is out
    assert (out == expected).all()
