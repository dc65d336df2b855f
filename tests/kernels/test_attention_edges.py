"""Attention at the edges: blocks that nothing sees, scores out of range, numbers and layouts of any kind."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.attention import attention, attention_backward, scores
from pykittens.kernels.attention.reference import visible_of
from pykittens.kernels.attention.visible import Interval, packed, turned
from tests.attention_random import BF16, check, normal
from tests.kernels.host_functions import tensor_of
from tests.kernels.test_attention_forms import have_the_same_bits
from tests.runtime.c_programs import needs_compiler


def four(queries, keys=None, heads=1, d=64):
    """q, k, v and a gradient."""
    rng, keys = np.random.default_rng(0), queries if keys is None else keys
    return [normal(rng, 1, heads, n, d) for n in (queries, keys, keys, queries)]


def both(arrays, **how):
    """The results of both passes."""
    q, k, v, gradient = arrays
    out, lse = attention(q, k, v, return_lse=True, **how)
    return out, lse, *attention_backward(q, k, v, out, lse, gradient, **how)


def all_finite(arrays):
    return all(np.isfinite(x.astype(np.float32)).all() for x in arrays)


@pytest.mark.parametrize("d", [64, 192])
@pytest.mark.parametrize(
    "window",
    [
        (None, -2),
        (None, -6),
        (None, -500),
        (-5, None),
        (-500, None),
        (-100, 150),
        (-5, 2),
        (2**62,) * 2,
    ],
    ids=str,
)
def test_windows_may_leave_out_the_own_key(window, d):
    n, m = (130, 200) if window == (None, -2) else (70, 200)
    check(*four(n, m, d=d), {"visible": visible_of(False, n, m, window)}, window=window)


@pytest.mark.parametrize("seed", range(6))
def test_a_block_sees_exactly_the_blocks_that_see_it(seed, monkeypatch):
    """So the turns that blocks of keys wait for all come."""
    monkeypatch.setattr(pk, "where", lambda condition, a, b: a if condition else b)  # of ints
    rng = np.random.default_rng(seed)
    lengths, sizes = rng.integers(1, 300, (80, 2)), ((64, 128), (64, 64), (32, 64))
    for n, m in lengths.tolist():
        low, high = (None if rng.random() < 0.3 else int(x) for x in rng.integers(-300, 300, 2))
        of_queries = Interval(low, high)
        for rows, keys in sizes:
            ahead, back = set(), set()
            for i in range(-(-n // rows)):
                at = of_queries.blocks(0, i * rows, min((i + 1) * rows, n) - 1, keys, m)
                ahead |= {(i, j) for j in range(at.first, at.stop)}
            for j in range(-(-m // keys)):
                at = of_queries.turned().blocks(0, j * keys, min((j + 1) * keys, m) - 1, rows, n)
                back |= {(i, j) for i in range(at.first, at.stop)}
            assert ahead == back, (n, m, low, high)


def test_packed_keys_of_no_query():
    low, high = packed([0, 100, 100], [0, 128, 200], None, None)
    first, stop = turned(low[None], high[None], 200)
    visible = np.broadcast_to(np.arange(200) < 128, (100, 200))
    backward = {"query_start": first, "query_stop": stop}
    bounds = {"key_start": low[None], "key_stop": high[None]}
    check(*four(100, 200), {"visible": visible}, backward=backward, **bounds)


def test_bounds_of_the_backward_pass_come_together():
    q, k, v, gradient = four(50)
    out, lse = attention(q, k, v, return_lse=True)
    bound = np.zeros((1, 50), np.int32)
    for name in ("key_start", "key_stop", "query_start", "query_stop"):
        with pytest.raises(ArgumentError, match=f"`{name}` goes with `(key|query)_"):
            attention_backward(q, k, v, out, lse, gradient, **{name: bound})


def test_scores_that_grow_past_the_last_query_are_not_seen():
    slopes, (i, j) = np.array([-1.0], np.float32), np.ogrid[:300, :300]
    known = {"score": lambda s: s + np.abs(i - j)}
    check(*four(300), known, score=scores.linear_bias, tensors=(slopes,))


def test_scores_of_pairs_that_are_not_seen_may_be_anything():
    n = 100
    i, j = np.ogrid[:n, :n]
    distance = np.where(j <= i, i - j + 1.0, 1.0)

    @pk.function
    def by_distance(s, place):
        return s / (
            (place.i - place.j).to(pk.f32) + 1.0
        )  # 0 / 0 and infinite slopes above the diagonal

    known = {"score": lambda s: s / distance, "visible": np.tri(n, dtype=bool)}
    slope = np.tri(n) / distance
    check(*four(n), known, slope=slope, score=by_distance, causal=True)


def test_scores_of_padding_may_be_anything():
    heat = np.linspace(0.5, 2, 100, dtype=np.float32)[None]

    @pk.function
    def cooled(s, place, heat):
        row = pk.load(heat[place.b, place.row], cols=place.rows, spread=_along(place))
        return s / row  # past the last query 0 / 0

    def _along(place):
        return pk.per_column if place.transposed else pk.per_row

    wide = heat[0].astype(np.float64)[:, None]
    known = {"score": lambda s: s / wide}
    check(*four(100), known, slope=1 / wide, score=cooled, tensors=(heat,))


@pytest.mark.parametrize("lowest", [np.finfo(np.float32).min, -np.inf], ids=str)
def test_a_bias_hides_keys_by_the_lowest_number(lowest):
    table = np.zeros((1, 1, 200, 300), np.float32)
    table[0, 0][np.triu_indices(200, 1, 300)] = lowest
    table[0, 0, 7] = lowest  # a query that sees nothing
    visible = np.tri(200, 300, dtype=bool)
    visible[7] = False
    how = {"score": scores.bias, "tensors": (table,)}
    _, results = check(*four(200, 300), {"visible": visible}, **how)
    assert not results[0][0, 0, 7].any()


def test_a_sink_of_minus_infinity_has_no_gradient():
    sinks = np.array([-np.inf, 1], np.float32)
    found = both(
        four(70, 90, heads=2), sinks=sinks, window=(None, -2)
    )  # the first query sees nothing
    assert found[1][0, :, 0].tolist() == [-np.inf, 1]
    assert all_finite(found[2:])
    assert found[-1][0] == 0
    assert found[-1][1] != 0


def test_queries_without_keys_have_their_sink():
    q, k, *_ = four(5, 0, heads=2)
    sinks = np.array([1.5, -np.inf], np.float32)
    out, lse = attention(q, k, k.copy(), sinks=sinks, return_lse=True)
    assert not out.any()
    assert (lse == sinks[:, None]).all()
    assert not attention(q, k, k.copy(), sinks=sinks).any()


def test_no_query_heads_give_gradients_of_zero():
    q, k = np.zeros((1, 0, 70, 64), BF16), four(90)[0]
    out, lse, dq, dk, dv = both([q, k, k.copy(), q.copy()])
    assert out.shape == dq.shape == (1, 0, 70, 64)
    assert not dk.any()
    assert not dv.any()


def test_a_condition_of_scores_has_a_derivative():
    @pk.function
    def leaky(s, place):
        return pk.where((s > 0.0) | (s < -3.0), s, s * 0.1)

    def chosen(s):
        return (s > 0) | (s < -3)

    known = {"score": lambda s: np.where(chosen(s), s, 0.1 * s)}
    check(*four(50), known, slope=lambda of: np.where(chosen(of.scores), 1, 0.1), score=leaky)


@pytest.mark.parametrize("one", [1, np.float32(1), np.int64(1), Fraction(1)], ids=repr)
def test_a_scale_is_any_real_number(one):
    arrays = four(50)
    for f, e in zip(both(arrays, scale=one), both(arrays, scale=1.0), strict=True):
        assert (f == e).all()


@pytest.mark.parametrize("none", [0, 0.0, np.float32(0)], ids=repr)
def test_a_dropout_of_zero_drops_nothing(none):
    arrays, seed = four(50), np.zeros(1, np.int32)
    for f, e in zip(both(arrays, dropout=none, seed=seed), both(arrays), strict=True):
        assert (f == e).all()


def test_operands_have_any_strides():
    arrays, seed = four(50, heads=2), np.zeros(1, np.int32)
    sinks, bounds = np.array([1.0, 1.0], np.float32), np.full((1, 50), 40, np.int32)
    known = {"sinks": sinks, "dropout": 0.5, "seed": seed, "score": scores.linear_bias}
    one = np.broadcast_to(np.float32(1), 2)
    known |= {"sinks": one, "seed": np.zeros((2, 1), np.int32)[:, 0][::2]}
    arrays[3] = np.broadcast_to(arrays[3][..., :1], arrays[3].shape)  # as of a sum
    found = both(arrays, **known, tensors=(one,))
    arrays[3] = arrays[3].copy()
    expected = both(arrays, **known, tensors=(sinks,))
    assert all((f == e).all() for f, e in zip(found, expected, strict=True))
    reversed_twice = np.repeat(bounds, 2, axis=1)[:, ::-2]
    e, f = (attention(*arrays[:3], key_stop=x) for x in (bounds, reversed_twice))
    assert (e == f).all()


def test_numbers_and_functions_that_do_not_fit_are_refused():
    q, k, v, _ = four(50)
    seed = np.zeros(1, np.int32)
    for how, message in (
        ({"scale": True}, "`scale` must be positive, from .* not True"),
        ({"scale": "a"}, "`scale` must be positive, from .* not 'a'"),
        ({"scale": 1e39}, "`scale` must be positive, from"),
        ({"scale": 1e-50}, "`scale` must be positive, from"),
        ({"scale": np.array(0.5)}, "`scale` must be positive, from"),
        ({"dropout": "a", "seed": seed}, "`dropout` must be from 0 to below 1, not 'a'"),
        ({"splits": 0}, "`splits` must be a positive int or None, not 0"),
        ({"splits": 1.5}, "`splits` must be a positive int or None"),
        ({"score": "soft_cap"}, "`score` must be a @pk.function, not 'soft_cap'"),
        ({"score": scores.soft_cap, "tensors": 3.0}, "`tensors` must be a tuple"),
        ({"score": scores.soft_cap, "tensors": (None,)}, "`tensors` must be a tuple"),
    ):
        with pytest.raises(ArgumentError, match=message):
            attention(q, k, v, **how)


@needs_compiler
def test_prepared_calls_of_one_query_start_at_the_first_key_of_a_window(emulated):
    pytest.importorskip("torch")
    how = {"causal": "bottom_right", "window": (99, 0), "return_lse": True}
    for seed in range(2):
        rng = np.random.default_rng(seed)
        arrays = [normal(rng, 1, h, n, 64) for h, n in ((4, 1), (2, 300), (2, 300))]
        found = attention(*map(tensor_of, arrays), **how)
        assert all(map(have_the_same_bits, found, attention(*arrays, **how)))
    assert len(emulated) == 1
