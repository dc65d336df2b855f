"""Steps of linear attention and of the gated delta rule, of random sizes, with every configuration of a warp's work."""

import random
from dataclasses import asdict, replace

import ml_dtypes
import numpy as np
import pytest

from pykittens.kernels.delta import gated_delta_rule_step
from pykittens.kernels.delta.step import reference as delta_reference
from pykittens.kernels.limits import Limits, limits_of
from pykittens.kernels.linear import linear_attention_step
from pykittens.kernels.linear.step import StepConfig, config_for, reference, rows_of
from pykittens.targets.architectures import TARGETS
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.targets.assignment import BEFORE_HOPPER
from tests.targets.clean import frame, shared_bytes, spills
from tests.tiers import sampled

BF16, SIDES = ml_dtypes.bfloat16, (1, 5, 7, 16, 17, 24, 40, 64, 96, 130, 256)
KINDS = ("position", "heads", "none", "channel", "delta", "delta of heads")


def given(kind, batch, heads, groups, d, width, seed=0, dtype=BF16):
    """The arguments of a call."""
    rng = np.random.default_rng(seed)
    shapes = {"q": (groups, d), "k": (groups, d), "v": (heads, width)}
    found = {n: rng.standard_normal((batch, *x)).astype(dtype) for n, x in shapes.items()}
    found["state"] = rng.standard_normal((batch, heads, d, width)).astype(np.float32)
    if kind.startswith("delta"):
        found["k"] = (found["k"].astype(np.float32) * d**-0.5).astype(dtype)
        found["beta"] = rng.random((batch, heads)).astype(np.float32)
    of_decay = {"heads": (heads,), "channel": (batch, groups, d), "delta of heads": (heads,)}
    if kind != "none":
        found["decay"] = -rng.random(of_decay.get(kind, (batch, heads)), np.float32)
        found["decay"][rng.random(found["decay"].shape) < 0.1] = -np.inf
    return found


def functions(kind):
    """The step of a kind, and the same in float64."""
    if kind.startswith("delta"):
        return gated_delta_rule_step, delta_reference
    return linear_attention_step, reference


def plan_with(config, step, **arrays):
    """The plan of a step with another configuration."""
    plan = step.plan(**arrays)
    (launch,) = plan.steps
    return replace(plan, steps=[replace(launch, constants=launch.constants | asdict(config))])


def next_of(kind, arrays):
    """The state after a step, in float64: a row is what the query that selects it finds."""
    _, exact = functions(kind)
    rows = []
    for i in range(arrays["q"].shape[2]):
        q = np.zeros(arrays["q"].shape)
        q[..., i] = 1
        rows.append(exact(**arrays | {"q": q}, scale=1.0))
    return np.stack(rows, axis=2)


def check(kind, config, arrays, scale=None):
    """A step into another state and one in place, beside float64."""
    step, exact = functions(kind)
    wanted, state = exact(**arrays, scale=scale), next_of(kind, arrays)
    kept, own = np.full_like(arrays["state"], np.nan), arrays["state"].copy()
    found = plan_with(config, step, **arrays, next_state=kept, scale=scale).run()
    again = plan_with(config, step, **arrays | {"state": own}, scale=scale).run()
    np.testing.assert_array_equal(found, again)
    np.testing.assert_array_equal(kept, own)
    assert np.abs(kept - state).max() <= 2**-18 * np.abs(state).max()
    bound = tolerance.unit(found.dtype) * np.abs(wanted).max() + 2**-18
    assert np.abs(found.astype(np.float64) - wanted).max() <= bound


def problems(count, seed=0):
    """Random kinds, configurations, sizes and seeds."""
    draw = random.Random(seed)
    for number in range(count):
        groups, shared = draw.choice((1, 2, 3)), draw.choice((1, 1, 2))
        d, width = draw.choice(SIDES), draw.choice(SIDES)
        config = StepConfig(draw.choice((16, 32, 64, 96)), draw.choice((1, 2, 8)))
        yield KINDS[number % 6], config, (draw.randint(1, 3), groups * shared, groups, d, width)


@pytest.mark.parametrize(("kind", "config", "sizes"), sampled(problems(60), lambda p: p[0]))
def test_random_steps(kind, config, sizes):
    check(kind, config, given(kind, *sizes, seed=sum(sizes)))


@pytest.mark.parametrize("kind", ["channel", "delta"])
def test_float16_and_a_scale(kind):
    check(kind, StepConfig(32, 2), given(kind, 2, 2, 1, 40, 48, dtype=np.float16), scale=0.3)


@pytest.mark.parametrize("kind", ["position", "delta"])
def test_any_strides(kind):
    """Parts of wider arrays, whose rows the copy engine does not reach."""
    arrays = given(kind, 2, 4, 2, 24, 40)
    step, _ = functions(kind)
    wanted, own = step(**arrays, next_state=np.empty_like(arrays["state"])), {}
    for name, x in arrays.items():
        wide = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
        wide[..., 1:-2] = x
        own[name] = wide[..., 1:-2]
    after = own["state"].base
    np.testing.assert_array_equal(step(**own), wanted)
    assert (after[..., [0, -2, -1]] == 0).all()
    step(**arrays)
    np.testing.assert_array_equal(own["state"], arrays["state"])


@pytest.mark.parametrize("kind", ["channel", "delta"])
@pytest.mark.parametrize("sizes", [(0, 2, 1, 16, 16), (2, 0, 1, 16, 16), (2, 2, 1, 16, 0)])
def test_no_elements(kind, sizes):
    arrays = given(kind, *sizes)
    assert functions(kind)[0](**arrays).shape == arrays["v"].shape


@pytest.mark.parametrize("kind", ["channel", "delta"])
@pytest.mark.parametrize("in_place", [False, True])
def test_no_launch_has_a_fault(kind, in_place):
    """Of several blocks, the last of which has warps without work, and with sides that are no multiples of 16."""
    arrays = given(kind, 3, 4, 2, 40, 70)
    other = {} if in_place else {"next_state": np.empty_like(arrays["state"])}
    check_plan(plan_with(StepConfig(32, 8), functions(kind)[0], **arrays, **other))


def test_warps_have_lines_and_few_heads_are_on_all_multiprocessors():
    limits = limits_of(np.zeros(1))
    assert config_for(2048, 128, 128, limits) == StepConfig(32, 1)
    assert config_for(4096, 64, 64, limits) == StepConfig(32, 2)
    assert config_for(30000, 16, 96, limits) == StepConfig(96, 2)
    assert config_for(30000, 16, 16, limits) == StepConfig(16, 8)
    assert config_for(600, 16, 16, limits) == StepConfig(16, 1)
    assert config_for(16, 128, 128, limits) == StepConfig(16, 1)


def launches(in_turn):
    """Kinds, heads of all sequences, d, width and targets: sides from 16 to 256, and some that are odd.

    The two targets before Hopper take turns, as their instructions are the same; the others are those out of turn.
    """
    sides = (16, 32, 48, 64, 96, 128, 192, 256)
    for arch in ("sm_90a", "sm_80", "sm_89"):
        for kind in ("channel", "delta"):
            for i, (heads, d) in enumerate((h, d) for h in (10**5, 4) for d in (*sides, 5)):
                width = sides[(3 * i + len(kind)) % 8] if d != 5 else 7
                if (arch in ("sm_90a", BEFORE_HOPPER[i % 2])) is in_turn:
                    yield kind, heads, d, width, arch


@pytest.mark.parametrize(
    ("kind", "heads", "d", "width", "arch"),
    [
        *sampled(launches(True), lambda p: (p[0], p[4]) if p[2] == 256 else None),
        *(pytest.param(*p, marks=pytest.mark.soak) for p in launches(False)),
    ],
)
def test_steps_compile_clean(kind, heads, d, width, arch):
    """Without local memory."""
    target = TARGETS[arch]
    config = config_for(heads, d, width, Limits(arch, target.shared_bytes, target.warpgroups))
    plan = plan_with(config, functions(kind)[0], **given(kind, 2, 4, 2, d, width))
    (launch,), memory = plan.steps, plan.memory()
    args = [memory[name] for name in launch.args]
    compiled = launch.kernel.compile(*args, arch=arch, **launch.constants)
    assert spills(compiled) == []
    assert frame(compiled) == 0
    assert shared_bytes(compiled) <= config.warps * (4 * rows_of(d) * config.cols + 16) + 64
