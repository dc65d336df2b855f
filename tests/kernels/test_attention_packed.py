"""Few queries of grouped heads, which share tiles, against float64 and against heads with tiles of their own."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import LanguageError
from pykittens.kernels.attention import attention, scores
from pykittens.kernels.attention.config import CONFIGS
from pykittens.kernels.attention.packed import part_of
from pykittens.kernels.attention.reference import exact, visible_of
from tests.attention_random import assert_close, by_rows, check, normal
from tests.kernels.host_functions import tensor_of
from tests.kernels.test_attention_forms import have_the_same_bits
from tests.runtime.c_programs import needs_compiler
from tests.tiers import paired


def arrays_of(group, kv_heads, queries, keys, d=64, width=None, seed=0):
    """q, k and v."""
    rng = np.random.default_rng(seed)
    shapes = (group * kv_heads, queries, d), (kv_heads, keys, d), (kv_heads, keys, width or d)
    return [normal(rng, 2, *shape) for shape in shapes]


def packed(plan):
    """The rows of a tile that each head has."""
    return plan.steps[0].constants["form"].packed


def assert_right(arrays, known, size=None, **how):
    """A call shares tiles, and its results are those in float64."""
    q, k, v = arrays
    found_size = packed(attention.plan(q, k, v, return_lse=True, **how))
    assert found_size == size if size else found_size >= q.shape[2]
    found, lse = attention(q, k, v, return_lse=True, **how)
    of = exact(q, k, v, **known)
    assert_close(found, of.out, exact(q, k, np.abs(v), **known).out, k.shape[2])
    seen = np.isfinite(of.lse)
    assert (np.isfinite(lse) == seen).all()
    assert np.abs(lse[seen] - of.lse[seen]).max(initial=0) < 1e-4
    out = np.full_like(found, np.nan)
    assert attention(q, k, v, out, **how) is out
    assert (out == found).all()


FORMS = [
    {},
    {"causal": True},
    {"causal": "bottom_right"},
    {"causal": "bottom_right", "window": (99, 0)},
    {"window": (3, 200)},
]


@pytest.mark.parametrize(
    ("group", "queries", "keys", "d", "width", "splits", "how"),
    paired(
        [(2, 64, 130, 64, 64), (3, 5, 300, 64, 48), (4, 2, 129, 128, 128), (8, 16, 257, 32, 256)],
        [1, 3, None],
        FORMS,
    ),
)
def test_few_queries_of_a_group_share_a_tile(group, queries, keys, d, width, splits, how):
    arrays = arrays_of(group, 2, queries, keys, d, width)
    visible = visible_of(how.get("causal", False), queries, keys, how.get("window"))
    for given in (arrays, list(map(by_rows, arrays))):
        assert_right(given, {"visible": visible}, splits=splits, **how)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.rows}x{c.keys}x{c.stages}")
def test_each_configuration_packs_what_fits_it(config):
    arrays = arrays_of(4, 1, 5, 200, 64)
    known = {"visible": visible_of("bottom_right", 5, 200)}
    if config.rows == 192:  # parts of 48 rows lie in two warpgroups
        assert packed(attention.plan(*arrays, config=config)) == 0
    else:
        assert_right(arrays, known, config.rows // 4, config=config, causal="bottom_right")


@pytest.mark.parametrize("splits", [1, 4])
def test_sinks_and_bounds_are_those_of_heads_and_queries(splits):
    arrays, rng = arrays_of(4, 2, 7, 600), np.random.default_rng(1)
    sinks = rng.standard_normal(8).astype(np.float32)
    assert_right(arrays, {"sinks": sinks}, splits=splits, sinks=sinks)
    low, high = (np.sort(rng.integers(a, a + 300, (2, 7)).astype(np.int32)) for a in (0, 290))
    high[:, 0] = low[:, 0]  # a query that sees nothing
    j = np.arange(600)
    visible = ((j >= low[..., None]) & (j < high[..., None]))[:, None]
    assert_right(arrays, {"visible": visible}, splits=splits, key_start=low, key_stop=high)
    how = {"splits": splits, "sinks": sinks, "key_stop": high}
    assert_right(arrays, {"visible": (j < high[..., None])[:, None], "sinks": sinks}, **how)


@pytest.mark.parametrize("splits", [1, 3])
class TestFunctionsOfScores:
    """Each element of a tile gets the head and the query of its row."""

    n, m = 6, 300

    def arrays(self):
        return arrays_of(4, 2, self.n, self.m)

    def test_functions_of_the_library(self, splits):
        rng, shape = np.random.default_rng(2), (2, 8, self.n, self.m)
        i, j = np.ogrid[: self.n, : self.m]
        slopes, table = rng.random(8).astype(np.float32), normal(rng, *shape)
        allowed = (rng.random(shape) < 0.4).astype(np.uint8)
        wide = table.astype(np.float64)
        for score, tensors, known in (
            (scores.soft_cap, (3.0,), {"score": lambda s: np.tanh(s / 3) * 3}),
            (
                scores.linear_bias,
                (slopes,),
                {"score": lambda s: s - np.abs(i - j) * slopes[:, None, None]},
            ),
            (scores.bias, (table,), {"score": lambda s: s + wide}),
            (scores.allowed, (allowed,), {"visible": allowed != 0}),
        ):
            assert_right(self.arrays(), known, score=score, tensors=tensors, splits=splits)

    def test_documents(self, splits):
        rng = np.random.default_rng(3)
        documents = np.sort(rng.integers(0, 2, (2, self.m)).astype(np.int32))
        visible = documents[:, None, : self.n, None] == documents[:, None, None]
        how = {"score": scores.same_document, "tensors": (documents,), "splits": splits}
        assert_right(self.arrays(), {"visible": visible}, **how)

    def test_a_function_of_numbers(self, splits):
        @scores.by_row
        @pk.function
        def mixed(s, place):
            far = (place.j - place.i).to(pk.f32)
            return (
                s + far * 0.01 + (place.h * 2 + place.b).to(pk.f32) * 0.1 * (place.j % 3).to(pk.f32)
            )

        b, h, i, j = np.ogrid[:2, :8, : self.n, : self.m]
        known = {"score": lambda s: s + (j - i) * 0.01 + (h * 2 + b) * 0.1 * (j % 3)}
        assert_right(self.arrays(), known, score=mixed, splits=splits)

    def test_others_have_a_head_a_tile(self, splits):
        @pk.function
        def by_tile(s, place, bonus):
            return s + pk.load(bonus[place.b, place.row], cols=place.rows, spread=pk.per_row)

        bonus = np.random.default_rng(0).random((2, self.n)).astype(np.float32)
        how = {"tensors": (bonus,), "splits": splits}
        q, k, v = self.arrays()
        assert packed(attention.plan(q, k, v, score=by_tile, **how)) == 0
        known = {"score": lambda s: s + bonus[:, None, :, None]}
        assert_close(
            attention(q, k, v, score=by_tile, **how),
            exact(q, k, v, **known).out,
            exact(q, k, np.abs(v), **known).out,
            self.m,
        )
        with pytest.raises(LanguageError, match="the tile has queries of several heads"):
            attention(q, k, v, score=scores.by_row(by_tile), **how)


@pytest.mark.parametrize(("group", "queries", "splits"), [(4, 3, 1), (8, 1, 2), (3, 8, 3)])
def test_dropout_is_that_of_heads_with_tiles_of_their_own(group, queries, splits):
    @pk.function
    def same(s, place):
        return s

    arrays = arrays_of(group, 2, queries, 300)
    how = {"dropout": 0.4, "seed": np.array([3], np.int32), "splits": splits}
    found, expected = (attention(*arrays, score=score, **how) for score in (None, same))
    assert packed(attention.plan(*arrays, **how)) >= queries
    assert np.abs(found.astype(np.float64) - expected.astype(np.float64)).max() < 0.01


def test_gradients_take_the_log_sum_exp_of_packed_heads():
    q, k, v = arrays_of(4, 2, 6, 150)
    visible = visible_of("bottom_right", 6, 150)
    check(
        q,
        k,
        v,
        normal(np.random.default_rng(9), *q.shape),
        {"visible": visible},
        causal="bottom_right",
    )


def test_many_queries_or_single_heads_have_tiles_of_their_own():
    for group, queries in ((1, 4), (2, 65), (4, 33), (16, 9), (32, 2)):
        assert packed(attention.plan(*arrays_of(group, 1, queries, 64))) == 0
    assert packed(attention.plan(*arrays_of(16, 1, 8, 64))) == 8


def test_a_part_is_a_multiple_of_8_rows_of_whole_warpgroups():
    assert [part_of(128, 64, heads) for heads in (2, 3, 4, 8, 9, 16, 17)] == [
        64,
        32,
        32,
        16,
        8,
        8,
        0,
    ]
    assert [part_of(192, 64, heads) for heads in (2, 4, 8, 16, 1000)] == [0, 0, 0, 0, 0]


@needs_compiler
@pytest.mark.parametrize("splits", [1, 2])
def test_prepared_calls_compute_with_their_own_arrays(emulated, splits):
    pytest.importorskip("torch")
    for seed in range(3):
        rng, arrays = np.random.default_rng(seed), arrays_of(4, 2, 3, 200, seed=seed)
        how = {"causal": "bottom_right", "return_lse": True, "splits": splits}
        how |= {"sinks": rng.standard_normal(8).astype(np.float32), "score": scores.linear_bias}
        slopes = rng.random(8).astype(np.float32)
        expected = attention(*arrays, **how, tensors=(slopes,))
        how["sinks"] = tensor_of(how["sinks"])
        found = attention(*map(tensor_of, arrays), **how, tensors=(tensor_of(slopes),))
        assert all(map(have_the_same_bits, found, expected))
    assert len(emulated) == 1
