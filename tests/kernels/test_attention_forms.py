"""Attention and its gradients against float64: masks, heads, lengths, layouts, functions of scores."""

from __future__ import annotations

import random

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError, LanguageError
from pykittens.kernels.attention import attention, attention_backward, gradient_blocks, scores
from pykittens.kernels.attention.config import GRADIENT_CONFIGS
from pykittens.kernels.attention.reference import exact, gradients, visible_of
from pykittens.kernels.attention.visible import Place, packed, turned
from tests.attention_operands import gradient_operands
from tests.attention_random import (
    BF16,
    assert_close,
    by_rows,
    check,
    check_problem,
    normal,
    problem,
)
from tests.kernels.host_functions import tensor_of
from tests.runtime.c_programs import needs_compiler
from tests.tiers import sampled


@pytest.mark.parametrize("seed", sampled(range(40), lambda seed: seed % 16, pytest.mark.soak))
def test_a_random_configuration_is_right(seed):
    check_problem(problem(random.Random(seed)))


@pytest.mark.parametrize(
    "config", GRADIENT_CONFIGS, ids=lambda c: f"{c.queries}x{c.keys}x{c.stages}"
)
@pytest.mark.parametrize("causal", [False, True])
def test_a_configuration_of_the_backward_pass_is_right(config, causal):
    rng = np.random.default_rng(0)
    arrays = [normal(rng, 1, 2, 200, config.widest) for _ in range(4)]
    known = {"visible": visible_of(causal, 200, 200)}
    check(*arrays, known, backward={"config": config}, causal=causal)


@pytest.mark.parametrize(
    "config", GRADIENT_CONFIGS, ids=lambda c: f"{c.queries}x{c.keys}x{c.stages}"
)
def test_a_configuration_of_the_backward_pass_knows_its_shared_memory(config):
    for d in (16, 48, config.widest // 2 + 16, config.widest):
        args, form = gradient_operands(config, (1, 2, 256, d), True, True)
        emitted = gradient_blocks.emitted(*args, form=form, config=config)
        assert emitted.shared_bytes == config.shared_bytes(d, d)


def test_gradients_of_the_reference_are_differences():
    rng = np.random.default_rng(0)
    q, k, v, gradient = (rng.standard_normal((1, 2, 5, 16)) for _ in range(4))
    k, v = k[:, :1], v[:, :1]

    def loss(*arrays):
        cap = exact(*arrays, score=lambda s: np.tanh(s / 2) * 2, visible=np.tri(5, dtype=bool))
        return (cap.out * gradient).sum()

    of = exact(q, k, v, score=lambda s: np.tanh(s / 2) * 2, visible=np.tri(5, dtype=bool))
    found = gradients(
        q, k, v, gradient, of, slope=1 - (np.where(np.isfinite(of.scores), of.scores, 0) / 2) ** 2
    )
    for which, x in enumerate((q, k, v)):
        for at in ((0, 0, 2, 3), (0, 0, 4, 0)):
            moved = [[y.copy() for y in (q, k, v)] for _ in range(2)]
            moved[0][which][at] += 1e-5
            moved[1][which][at] -= 1e-5
            difference = (loss(*moved[0]) - loss(*moved[1])) / 2e-5
            assert abs(found[which][at] - difference) < 1e-6, x.shape


def test_no_keys_give_zeros():
    q, k = np.ones((1, 2, 5, 32), BF16), np.zeros((1, 2, 0, 32), BF16)
    out, lse = attention(q, k, k.copy(), return_lse=True)
    assert not out.any()
    assert (lse == -np.inf).all()
    dq, dk, dv = attention_backward(q, k, k.copy(), out, lse, np.ones_like(out))
    assert not dq.any()
    assert dk.shape == dv.shape == (1, 2, 0, 32)


def test_sinks_take_weight_and_have_a_gradient():
    rng = np.random.default_rng(0)
    q, gradient = (normal(rng, 2, 4, 70, 64) for _ in range(2))
    k, v = (normal(rng, 2, 2, 90, 64) for _ in range(2))
    sinks = np.array([0.5, -3, 2, 6], np.float32)
    of, results = check(q, k, v, gradient, {"sinks": sinks}, sinks=sinks)
    delta = (gradient.astype(np.float64) * of.out).sum(-1)
    expected = -(np.exp(sinks[None, :, None] - of.lse) * delta).sum(axis=(0, 2))
    assert np.allclose(results[3], expected, rtol=0.02, atol=0.02)


class TestFunctionsOfScores:
    """Soft caps, biases, masks and documents, with their derivatives."""

    n = 150

    def arrays(self, heads=2):
        rng = np.random.default_rng(1)
        return [normal(rng, 1, heads, self.n, 64) for _ in range(4)]

    def test_soft_cap(self):
        known = {"score": lambda s: np.tanh(s / 3) * 3}
        how = {"score": scores.soft_cap, "tensors": (3.0,)}
        check(*self.arrays(), known, slope=lambda of: 1 - (of.scores / 3) ** 2, **how)

    def test_linear_bias(self):
        i, j = np.ogrid[: self.n, : self.n]
        slopes = np.array([0.1, 0.3], np.float32)
        known = {"score": lambda s: s - np.abs(i - j) * slopes[:, None, None]}
        check(*self.arrays(), known, score=scores.linear_bias, tensors=(slopes,))

    def test_bias(self):
        table = np.random.default_rng(2).standard_normal((1, 2, self.n, self.n)).astype(np.float32)
        check(*self.arrays(), {"score": lambda s: s + table}, score=scores.bias, tensors=(table,))

    def test_a_bias_for_all_heads(self):
        table = normal(np.random.default_rng(2), 1, 1, self.n, self.n)
        wide = table.astype(np.float64)
        tensors = (np.broadcast_to(table, (1, 2, self.n, self.n)),)
        check(*self.arrays(), {"score": lambda s: s + wide}, score=scores.bias, tensors=tensors)

    def test_a_mask_of_bools(self):
        table = (np.random.default_rng(2).random((1, 2, self.n, self.n)) < 0.4).astype(np.uint8)
        table[0, 1, 7] = 0  # a query that sees nothing
        check(*self.arrays(), {"visible": table != 0}, score=scores.allowed, tensors=(table,))

    def test_documents(self):
        documents = np.sort(np.random.default_rng(2).integers(0, 4, (1, self.n)).astype(np.int32))
        visible = documents[0][:, None] == documents[0]
        causal = np.tri(self.n, dtype=bool)
        how = {"score": scores.same_document, "tensors": (documents,)}
        check(*self.arrays(), {"visible": visible}, **how)
        check(*self.arrays(), {"visible": visible & causal}, causal=True, **how)

    def test_a_derivative_that_is_given(self):
        known = {"score": lambda s: s * np.abs(s)}

        @pk.function
        def signed_square(s, place):
            return s * pk.abs(s)

        @pk.function
        def slope(s, place):
            return pk.abs(s) * 2.0

        def exactly(of):
            return 2 * np.sqrt(np.abs(of.scores))

        how = {"score": signed_square, "backward": {"score_gradient": slope}}
        check(*self.arrays(), known, slope=exactly, **how)

    def test_a_derivative_that_is_not_known_is_refused(self):
        @pk.function
        def floored(s, place):
            return pk.row_cumsum(s)

        q, k, v, gradient = self.arrays()
        out, lse = attention(q, k, v, return_lse=True, score=floored)
        with pytest.raises(LanguageError, match="derivative of pk.row_cumsum is not known"):
            attention_backward(q, k, v, out, lse, gradient, score=floored)


def test_packed_sequences():
    rng = np.random.default_rng(0)
    q, gradient = (normal(rng, 1, 2, 150, 64) for _ in range(2))
    k, v = (normal(rng, 1, 2, 170, 64) for _ in range(2))
    queries, keys = (
        [0, 40, 40, 149, 150],
        [0, 60, 70, 170, 170],
    )  # one without queries, one without keys
    for left, right in ((None, None), (None, 0), (20, 0)):
        low, high = packed(queries, keys, left, right)
        j = np.arange(170)
        visible = (j >= low[:, None]) & (j < high[:, None])
        first, stop = turned(low[None], high[None], 170)
        i = np.arange(150)
        assert ((i[:, None] >= first[0]) & (i[:, None] < stop[0]) == visible).all()
        bounds = {"key_start": low[None], "key_stop": high[None]}
        backward = {"query_start": first, "query_stop": stop}
        check(q, k, v, gradient, {"visible": visible}, backward=backward, **bounds)


def test_dropout_is_the_same_in_both_passes():
    rng = np.random.default_rng(0)
    arrays = [normal(rng, 2, 2, 150, 64) for _ in range(4)]
    rate, seed = 0.3, np.array([7], np.int32)

    @pk.kernel
    def draw(out, seed, rate):
        b, h, i, j = pk.grid(2, 2, 3, 3)
        kept = Place(b, h, i, j, 64, 64).kept(rate, seed)
        pk.store(out[b, h, i, j], pk.where(kept, pk.full(pk.f32, 1.0, 64, 64), 0.0))

    kept = np.empty((2, 2, 150, 150), np.float32)
    draw(kept, seed, rate)
    assert abs(kept.mean() - 0.7) < 0.01
    assert len(np.unique(kept.reshape(4, -1), axis=0)) == 4  # each head of each batch has its own
    check(*arrays, {"kept": kept / (1 - rate)}, dropout=rate, seed=seed)


@pytest.mark.parametrize("splits", [1, 2, 5])
def test_splits_take_sinks_functions_and_dropout(splits):
    rng = np.random.default_rng(0)
    arrays = [normal(rng, 1, 2, n, 64) for n in (20, 600, 600)]
    sinks, slopes = np.array([0.5, 3], np.float32), np.array([0.1, 0.01], np.float32)
    i, j = np.ogrid[:20, :600]
    known = {"sinks": sinks, "score": lambda s: s - np.abs(i - j) * slopes[:, None, None]}
    how = {"sinks": sinks, "score": scores.linear_bias, "tensors": (slopes,)}
    found, lse = attention(*arrays, return_lse=True, splits=splits, **how)
    of = exact(*arrays, **known)
    assert_close(found, of.out, exact(arrays[0], arrays[1], np.abs(arrays[2]), **known).out, 600)
    assert np.abs(lse - of.lse).max() < 1e-4
    how |= {"dropout": 0.4, "seed": np.array([3], np.int32)}
    together, apart = (attention(*arrays, splits=x, **how) for x in (1, splits))
    assert_close(apart, together.astype(np.float64), np.abs(together).astype(np.float64) + 0.1, 600)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"causal": "bottom_right"},
        {"causal": True},
        {"causal": "bottom_right", "window": (99, 0)},
    ],
)
@pytest.mark.parametrize("keys", [1, 130, 700])
def test_one_query_of_each_head_of_a_group(keys, how):
    rng = np.random.default_rng(0)
    q, (k, v) = normal(rng, 2, 6, 1, 64), (normal(rng, 2, 2, keys, 64) for _ in range(2))
    visible = visible_of(how.get("causal", False), 1, keys, how.get("window"))
    of = exact(q, k, v, visible=visible)
    for given in (q, by_rows(q), np.repeat(q, 2, axis=2)[:, :, :1]):
        plan = attention.plan(given, k, v, return_lse=True, **how)
        assert plan.memory()["q"].shape == (2, 2, 3, 64)
        found, lse = attention(given, k, v, return_lse=True, **how)
        assert_close(found, of.out, exact(q, k, np.abs(v), visible=visible).out, keys)
        assert np.abs(lse - of.lse).max() < 1e-4
        out = np.full_like(found, np.nan)
        assert attention(given, k, v, out, **how) is out
        assert (out == found).all()


def test_a_schedule_of_splits_does_not_change_a_bit(monkeypatch):
    rng = np.random.default_rng(0)
    arrays = [normal(rng, 1, 2, n, 64) for n in (100, 900, 900)]
    found = []
    for seed in (0, 1, 2):
        monkeypatch.setenv("PYKITTENS_SEED", str(seed))
        found.append(attention(*arrays, splits=3))
    assert all((x == found[0]).all() for x in found)


@pytest.mark.parametrize("causal", [False, True])
def test_the_order_of_roles_does_not_change_a_bit(causal, monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v, gradient = (normal(rng, 1, 2, 300, 64) for _ in range(4))
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    found = []
    for seed in (0, 1, 2):
        monkeypatch.setenv("PYKITTENS_SEED", str(seed))
        found.append(attention_backward(q, k, v, out, lse, gradient, causal=causal)[0])
    assert all((x == found[0]).all() for x in found)


def test_arguments_that_do_not_fit_are_refused():
    def zeros(*shape, dtype=BF16):
        return np.zeros(shape, dtype)

    q, k = zeros(1, 2, 16, 32), zeros(1, 2, 16, 32)
    bounds = zeros(1, 16, dtype=np.int32)
    for how, message in (
        ({"causal": "right"}, "`causal` must be one of"),
        ({"window": 3}, r"`window` must be \(left, right\)"),
        ({"window": (1.5, 0)}, r"`window` must be \(left, right\)"),
        ({"scale": 0.0}, "`scale` must be positive"),
        ({"dropout": 1.0, "seed": zeros(1, dtype=np.int32)}, "`dropout` must be from 0 to below 1"),
        ({"dropout": 0.5}, "`dropout` goes with `seed`"),
        ({"sinks": zeros(3, dtype=np.float32)}, r"`sinks` must have the shape \(2,\)"),
        ({"key_start": bounds, "causal": True}, "are part of `key_start` and `key_stop`"),
        ({"key_start": bounds.astype(np.int64)}, "`key_start` must be int32"),
    ):
        with pytest.raises(ArgumentError, match=message):
            attention(q, k, k.copy(), **how)


def have_the_same_bits(tensor, array):
    bits = f"int{8 * array.itemsize}"
    torch = pytest.importorskip("torch")
    return np.array_equal(tensor.view(getattr(torch, bits)).numpy(), array.view(bits))


@needs_compiler
def test_calls_of_a_form_compute_with_their_own_arrays(emulated):
    pytest.importorskip("torch")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        q, gradient = normal(rng, 1, 4, 70, 64), normal(rng, 1, 4, 70, 64)
        k, v = normal(rng, 1, 2, 90, 64), normal(rng, 1, 2, 90, 64)
        how = {"scale": (0.1, 0.1, 0.5)[seed], "sinks": rng.standard_normal(4).astype(np.float32)}
        how |= {"score": scores.linear_bias, "tensors": (rng.random(4).astype(np.float32),)}
        how |= {"dropout": (0.1, 0.1, 0.3)[seed], "seed": np.array([seed], np.int32)}
        low, high = packed([0, 30 + seed, 70], [0, 50, 90], None, 0)
        first, stop = turned(low[None], high[None], 90)
        how |= {"key_start": low[None], "key_stop": high[None]}
        on_gpu = {name: tensor_of(x) if isinstance(x, np.ndarray) else x for name, x in how.items()}
        on_gpu["tensors"] = tuple(map(tensor_of, how["tensors"]))
        expected = attention(q, k, v, return_lse=True, **how)
        found = attention(*map(tensor_of, (q, k, v)), return_lse=True, **on_gpu)
        assert all(have_the_same_bits(f, e) for f, e in zip(found, expected, strict=True))
        how |= {"query_start": first, "query_stop": stop}
        on_gpu |= {"query_start": tensor_of(first), "query_stop": tensor_of(stop)}
        expected = attention_backward(q, k, v, *expected, gradient, **how)
        found = attention_backward(
            *map(tensor_of, (q, k, v)), *found, tensor_of(gradient), **on_gpu
        )
        assert all(have_the_same_bits(f, e) for f, e in zip(found, expected, strict=True))
    assert len(emulated) == 2 * 5  # two forms of a launch forward and four backward
