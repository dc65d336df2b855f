"""States at the starts of segments that blocks of outputs find themselves: those of a scan, and when they do so."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.kernels.limits import limits_of
from pykittens.kernels.linear import (
    based_attention,
    gated_linear_attention,
    gated_linear_attention_backward,
    hedgehog_attention,
    linear_attention,
    linear_attention_backward,
    mamba2,
)
from pykittens.kernels.linear import config as rates
from pykittens.kernels.linear.based.function import inputs as based_inputs
from pykittens.kernels.linear.based.reference import reference as based_reference
from pykittens.kernels.linear.config import Cut, LinearConfig, config_for, cut_of, work_of_heads
from pykittens.kernels.linear.function import inputs as attention_inputs
from pykittens.kernels.linear.gated import inputs as gated_inputs
from pykittens.kernels.linear.hedgehog.function import inputs as hedgehog_inputs
from pykittens.kernels.linear.hedgehog.reference import reference as hedgehog_reference
from pykittens.kernels.linear.mamba2 import inputs as mamba2_inputs
from pykittens.kernels.linear.mamba2 import reference as mamba2_reference
from pykittens.kernels.linear.reference import reference
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.tiers import halved

SIZES = {"batch": 1, "heads": 2, "length": 10 * 64 + 17, "d": 32, "width": 40}
DECAYS = "none", "head", "position"


def of_attention(decay, **sizes):
    found = attention_inputs(np.random.default_rng(0), **SIZES | sizes, decay=decay)
    return linear_attention, reference, found | {n: found[n][:, :1] for n in "qk"}


def of_channels(**sizes):
    found = gated_inputs(np.random.default_rng(0), **SIZES | sizes)
    found |= {n: found[n][:, :1] for n in ("q", "k", "decay")}
    return gated_linear_attention, reference, found


def of_steps(**sizes):
    return mamba2, mamba2_reference, mamba2_inputs(np.random.default_rng(0), **SIZES | sizes)


def of_based(normalize, **sizes):
    arrays = based_inputs(np.random.default_rng(0), **SIZES | sizes | {"d": 8})
    return based_attention, based_reference, arrays | {"normalize": normalize}


def of_hedgehog(**sizes):
    arrays = hedgehog_inputs(np.random.default_rng(0), **SIZES | sizes, features=24)
    return hedgehog_attention, hedgehog_reference, arrays


FORMS = {f"decay of {x}": (lambda x=x, **sizes: of_attention(x, **sizes)) for x in DECAYS}
FORMS |= {"gates of channels": of_channels, "steps": of_steps}
FEATURES = {f"based, {x}": (lambda x=x, **sizes: of_based(x, **sizes)) for x in (False, True)}
FEATURES |= {"hedgehog": of_hedgehog}
OF_FORMS = pytest.mark.parametrize("form", FORMS)


def state_of(arrays):
    values, keys = arrays.get("v", arrays.get("x")), arrays.get("k", arrays.get("B"))
    shape = (*values.shape[:2], keys.shape[3], values.shape[3])
    if "key_map" in arrays or "normalize" in arrays:
        return state_of_features(arrays)
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def state_of_features(arrays):
    """That after some positions before, because sums of features are not 0."""
    function = hedgehog_attention if "key_map" in arrays else based_attention
    earlier = {n: x[:, :, :130] if n in ("q", "k", "v") else x for n, x in arrays.items()}
    return function(**earlier, segments=1, return_state=True)[1]


def names_of(plan):
    return [step.kernel.__name__ for step in plan.steps]


@pytest.fixture
def choose(monkeypatch):
    """Let a launch cost so much that blocks find states themselves; or nothing, and reads much."""

    def rated(inside):
        monkeypatch.setattr(rates, "LAUNCH", 1e9 if inside else 0.0)
        monkeypatch.setattr(rates, "ROUND", 0.0 if inside else 1e9)

    return rated


@pytest.mark.parametrize(
    ("form", "segments", "has_state"), halved([*FORMS, *FEATURES], [3, 10], [False, True])
)
def test_states_are_those_of_a_scan(form, segments, has_state, choose):
    function, wanted_of, arrays = (FORMS | FEATURES)[form]()
    words = {"initial_state": state_of(arrays) if has_state else None, "return_state": True}
    results = []
    for inside in (True, False):
        choose(inside)
        plan = function.plan(**arrays, **words, segments=segments)
        assert ("scan_states" in names_of(plan)) is not inside
        results.append(plan.run())
    for found, other in zip(*results, strict=True):
        np.testing.assert_array_equal(found, other)
    wanted = wanted_of(**arrays, **words)
    for x, y in zip(results[0], wanted, strict=True):
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 4 * tolerance.unit(results[0][0].dtype) * np.abs(y).max()


@pytest.mark.parametrize("d", [130, 256])
@OF_FORMS
def test_states_of_many_rows(form, d, choose):
    """Each in several parts, of which a block loads some segments at a time."""
    choose(True)
    function, wanted_of, arrays = FORMS[form](heads=1, d=d, length=9 * 64)
    words = {"initial_state": state_of(arrays), "return_state": True}
    found = function(**arrays, **words, segments=9)
    for x, y in zip(found, wanted_of(**arrays, **words), strict=True):
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 4 * tolerance.unit(found[0].dtype) * np.abs(y).max()


@pytest.mark.parametrize(
    ("form", "segments", "length"),
    halved([*FORMS, *FEATURES], [(20, 20 * 64), (4, 12 * 64 - 5)]),
)
def test_no_launch_has_a_fault(form, segments, length, choose):
    """With three chunks of a segment, and three rounds of segments before the last one."""
    choose(True)
    function, _, arrays = (FORMS | FEATURES)[form](heads=1, length=length, d=16, width=16)
    words = {"initial_state": state_of(arrays), "return_state": True}
    plan = function.plan(**arrays, **words, segments=segments)
    assert "scan_states" not in names_of(plan)
    check_plan(plan, 2)


@pytest.mark.parametrize("has_state", [False, True])
def test_gradients_of_gates(has_state, choose):
    """Their passes keep the states of chunks; the one in reverse has multiples of states, which are scanned."""
    arrays = gated_inputs(np.random.default_rng(0), **SIZES | {"heads": 1, "length": 400})
    words = dict.fromkeys(("initial_state", "state_gradient"), state_of(arrays))
    results = []
    for inside in (True, False):
        choose(inside)
        given = arrays | (words if has_state else {}) | {"gradient": arrays["v"], "segments": 5}
        plan = gated_linear_attention_backward.plan(**given)
        assert names_of(plan).count("scan_states") == (1 if inside else 2)
        results.append(plan.run())
    for found, other in zip(*results, strict=True):
        error = np.abs(found.astype(np.float64) - other).max()
        assert error <= (2**-8 if found.itemsize == 2 else 1e-5) * np.abs(other).max()


def test_no_launch_of_gradients_has_a_fault(choose):
    choose(True)
    arrays = gated_inputs(np.random.default_rng(0), 1, 1, 4 * 64, 16, 16)
    words = dict.fromkeys(("initial_state", "state_gradient"), state_of(arrays))
    plan = gated_linear_attention_backward.plan(**arrays, **words, gradient=arrays["v"], segments=4)
    assert names_of(plan).count("scan_states") == 1
    check_plan(plan, 2)


def cut(heads, chunks, d=64, width=64, is_fixed=False):
    limits = limits_of(np.zeros(1))
    config = config_for(d, width, limits)
    work = work_of_heads((heads, heads), chunks, (d, width), config)
    return cut_of(work, limits, is_fixed=is_fixed)[1]


@pytest.mark.parametrize("d", [64, 128])
def test_short_sequences_of_few_heads_have_no_scan(d):
    found = cut(16, 16, d, d)
    assert found.inside
    assert found.segments > 1


def test_many_segments_have_a_scan():
    for heads, chunks, sizes in ((1, 1000, (128, 128)), (2, 211, (256, 32)), (1, 342, (64, 64))):
        found = cut(heads, chunks, *sizes)
        assert found.segments > 16
        assert not found.inside


def test_one_chunk_or_many_heads_have_one_launch():
    assert cut(16, 1) == cut(2048, 16) == Cut()


def test_few_heads_have_blocks_with_fewer_columns():
    """Whose results are those of the recurrence; many heads keep the columns that registers hold."""
    sizes = {"heads": 1, "length": 300, "d": 128, "width": 128}
    for function, wanted_of, arrays in (of_attention("position", **sizes), of_channels(**sizes)):
        words = {"initial_state": state_of(arrays), "return_state": True}
        plan = function.plan(**arrays, **words)
        columns = [x.columns * x.groups for x in configs_of(plan)]
        assert columns
        assert max(columns) < 128
        for x, y in zip(plan.run(), wanted_of(**arrays, **words), strict=True):
            error = np.abs(x.astype(np.float64) - y).max()
            assert error <= 4 * tolerance.unit(arrays["v"].dtype) * np.abs(y).max()
    _, _, many = of_attention("position", **sizes | {"heads": 300})
    assert [x.columns * x.groups for x in configs_of(linear_attention.plan(**many))] == [128]
    own = LinearConfig(64, 2, 2)
    assert configs_of(linear_attention.plan(**arrays | {"decay": None}, config=own))[-1] == own


def configs_of(plan):
    return [step.constants["config"] for step in plan.steps if "config" in step.constants]


def test_states_that_several_passes_take_are_those_of_a_scan():
    """So are those of packed sequences."""
    arrays = attention_inputs(np.random.default_rng(0), 1, 16, 1024, 64, 64, "position")
    plan = linear_attention.plan(**arrays)
    assert names_of(plan) == ["segment_states", "chunk_outputs"]
    back = linear_attention_backward.plan(**arrays, gradient=arrays["v"])
    assert names_of(back).count("scan_states") == 2
    packed = linear_attention.plan(**arrays, ends=np.int32([0, 1024]))
    assert "scan_states" in names_of(packed)
    assert cut(16, 16, is_fixed=True).inside is False
