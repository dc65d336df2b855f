"""Packed sequences in all recurrences with a state: they are calls of each sequence, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import settings
from pykittens.errors import ArgumentError
from pykittens.kernels.delta import gated_delta_rule, gated_delta_rule_backward
from pykittens.kernels.delta.function import inputs as delta_inputs
from pykittens.kernels.delta.reference import reference as delta_reference
from pykittens.kernels.linear import (
    gated_linear_attention,
    gated_linear_attention_backward,
    linear_attention,
    linear_attention_backward,
    mamba2,
    mamba2_backward,
    sequences,
)
from pykittens.kernels.linear.function import inputs as attention_inputs
from pykittens.kernels.linear.gated import inputs as gated_inputs
from pykittens.kernels.linear.mamba2 import inputs as mamba2_inputs
from pykittens.kernels.linear.mamba2 import reference as mamba2_reference
from pykittens.kernels.linear.reference import reference as attention_reference
from pykittens.runtime import nvrtc
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.tiers import halved

BF16 = ml_dtypes.bfloat16
LENGTHS = (17, 0, 64, 1, 150, 65, 0)


@dataclass(frozen=True)
class Function:
    """A function with its gradients, its reference, and what makes its arguments."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[..., Any]
    decays: tuple[str, ...] = ("none", "head", "position")
    words: dict[str, Any] = field(default_factory=dict)

    def given(self, length, heads=2, d=32, width=48, decay="position", seed=0):
        """Arrays of a batch of 1; heads share those of queries and keys."""
        sizes = {"batch": 1, "heads": heads, "length": length, "d": d, "width": width}
        sizes |= {"decay": decay} if decay in ("none", "head", "position") else {}
        found = self.inputs(np.random.default_rng(seed), **sizes)
        return found | {n: found[n][:, :1] for n in ("q", "k") if n in found}


def steps(rng, **sizes):
    """Those of Mamba-2, with a bias and steps before a softplus."""
    found = mamba2_inputs(rng, **sizes)
    found["dt"] = found["dt"] - np.float32(2)
    return found | {"dt_bias": rng.standard_normal(sizes["heads"]).astype(np.float32)}


FUNCTIONS = {
    "linear_attention": Function(
        linear_attention, linear_attention_backward, attention_reference, attention_inputs
    ),
    "mamba2": Function(
        mamba2, mamba2_backward, mamba2_reference, steps, ("of steps",), {"softplus": True}
    ),
    "gated_linear_attention": Function(
        gated_linear_attention,
        gated_linear_attention_backward,
        attention_reference,
        gated_inputs,
        ("channel",),
    ),
    "gated_delta_rule": Function(
        gated_delta_rule, gated_delta_rule_backward, delta_reference, delta_inputs
    ),
}
DECAYS = [(name, decay) for name, f in FUNCTIONS.items() for decay in f.decays]
OF_DECAYS = pytest.mark.parametrize(("name", "decay"), DECAYS)
OF_ALL = pytest.mark.parametrize("name", FUNCTIONS)


def ends_of(lengths, first=0):
    return np.cumsum([first, *lengths]).astype(np.int32)


def states_of(arrays, count, seed=1):
    """States, and gradients of states."""
    values = arrays.get("v", arrays.get("x"))
    shape = (2, count, values.shape[1], arrays.get("k", arrays.get("B")).shape[3], values.shape[3])
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gradient_of(arrays, seed=2):
    values = arrays.get("v", arrays.get("x"))
    return np.random.default_rng(seed).standard_normal(values.shape).astype(values.dtype)


def part_of(arrays, first, stop):
    return {n: x[:, :, first:stop] if x.ndim > 1 else x for n, x in arrays.items()}


@pytest.mark.parametrize(("name", "decay", "segments"), halved(DECAYS, [1, 3]))
def test_results_are_those_of_each_sequence(name, decay, segments):
    f = FUNCTIONS[name]
    arrays, ends = f.given(sum(LENGTHS), decay=decay), ends_of(LENGTHS)
    states, _ = states_of(arrays, len(LENGTHS))
    words = f.words | {"return_state": True, "segments": segments}
    out, after = f.forward(**arrays, **words, initial_state=states, ends=ends)
    for i, (first, stop) in enumerate(zip(ends, ends[1:], strict=False)):
        if first == stop:
            # Segments of the delta rule multiply states in two parts of bf16.
            np.testing.assert_allclose(after[i], states[i], rtol=0, atol=2**-14 * (segments - 1))
            continue
        own = part_of(arrays, first, stop)
        alone, last = f.forward(**own, **words, initial_state=states[i : i + 1])
        np.testing.assert_array_equal(out[:, :, first:stop], alone)
        np.testing.assert_array_equal(after[i], last[0])


@OF_DECAYS
def test_results_are_those_of_the_recurrence(name, decay):
    """Without a state before, in as many segments as are chosen."""
    f, lengths = FUNCTIONS[name], (63, 300, 0, 129)
    arrays, ends = f.given(sum(lengths), d=24, width=40, decay=decay), ends_of(lengths)
    found = f.forward(**arrays, **f.words, ends=ends, return_state=True)
    wanted = f.reference(**arrays, **f.words, ends=ends, return_state=True)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        assert np.abs(x.astype(np.float64) - y).max() <= 4 * tolerance.unit(BF16) * np.abs(y).max()
    plain = f.forward(**arrays, **f.words, ends=ends).astype(np.float64)
    assert np.abs(plain - wanted[0]).max() <= 4 * tolerance.unit(BF16) * np.abs(wanted[0]).max()


# The gradients of the delta rule take whole sequences.
@pytest.mark.parametrize(
    ("name", "decay", "segments"),
    [
        *halved([x for x in DECAYS if x[0] != "gated_delta_rule"], [1, 2]),
        *((*x, 1) for x in DECAYS if x[0] == "gated_delta_rule"),
    ],
)
def test_gradients_are_those_of_each_sequence(name, decay, segments):
    """Those of arrays that sequences share are sums over all."""
    f = FUNCTIONS[name]
    lengths = (17, 0, 64, 1, 600, 65, 0) if name != "gated_delta_rule" else LENGTHS
    arrays, ends = f.given(sum(lengths), decay=decay), ends_of(lengths)
    (states, of_states), gradient = states_of(arrays, len(lengths)), gradient_of(arrays)
    words = f.words | ({} if name == "gated_delta_rule" else {"segments": segments})
    whole = {"initial_state": states, "state_gradient": of_states, "ends": ends}
    found = f.backward(**arrays, gradient=gradient, **words, **whole)
    totals = {i: np.zeros(x.shape) for i, x in enumerate(found) if x.ndim == 1}
    for i, (first, stop) in enumerate(zip(ends, ends[1:], strict=False)):
        if first == stop:
            np.testing.assert_allclose(found[-1][i], of_states[i], rtol=2**-22)
            continue
        own = part_of(arrays | {"gradient": gradient}, first, stop)
        at = slice(i, i + 1)
        alone = f.backward(**own, **words, initial_state=states[at], state_gradient=of_states[at])
        for j, (x, y) in enumerate(zip(found, alone, strict=True)):
            if j in totals:
                totals[j] += y
            else:
                same = x[at] if j == len(found) - 1 else x[:, :, first:stop]
                np.testing.assert_array_equal(same, y)
    for j, total in totals.items():
        np.testing.assert_allclose(found[j], total, rtol=1e-5, atol=1e-5 * np.abs(total).max())


@OF_ALL
def test_a_long_sequence_beside_a_short_one(name):
    f, lengths = FUNCTIONS[name], (1000, 63)
    decay = f.decays[-1]
    arrays, ends = f.given(sum(lengths), heads=1, d=16, width=16, decay=decay), ends_of(lengths)
    out = f.forward(**arrays, **f.words, ends=ends, segments=4)
    for first, stop in ((0, 1000), (1000, 1063)):
        alone = f.forward(**part_of(arrays, first, stop), **f.words, segments=4)
        np.testing.assert_array_equal(out[:, :, first:stop], alone)


@OF_ALL
def test_nothing_passes_from_one_sequence_to_another(name):
    """Not even NaN, in results, gradients and states; nor do positions outside of all sequences."""
    f, lengths = FUNCTIONS[name], (70, 33, 100)
    arrays, ends = f.given(220, decay=f.decays[-1]), ends_of(lengths, first=9)
    gradient, (states, of_states) = gradient_of(arrays), states_of(arrays, 3)
    other = {n: x.copy() for n, x in arrays.items()} | {"gradient": gradient.copy()}
    for x in other.values():
        if x.ndim > 1:
            for part in (slice(0, 9), slice(79, 112), slice(212, 220)):
                x[:, :, part] = np.nan
    words = f.words | {"initial_state": states, "ends": ends}
    results = []
    for some in (arrays | {"gradient": gradient}, other):
        given = {n: x for n, x in some.items() if n != "gradient"}
        out, after = f.forward(**given, **words, return_state=True)
        found = f.backward(**some, **words, state_gradient=of_states)
        results.append([x for x in (out, *found) if x.ndim > 1 and len(x) == 1])
        results[-1] += [x[[0, 2]] for x in (after, found[-1])]
    for x, y in zip(*results, strict=True):
        if len(x) == 2:
            np.testing.assert_array_equal(x, y)
        else:
            for part in (slice(9, 79), slice(112, 212)):
                np.testing.assert_array_equal(x[:, :, part], y[:, :, part])


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "gated_linear_attention"])
def test_gradients_that_sequences_share_are_sums_of_theirs_alone(name):
    """Positions outside of them, of which whole chunks and runs have slots, do not count."""
    f = FUNCTIONS[name]
    arrays = f.given(1300, 1, 16, 16, "head" if "head" in f.decays else f.decays[0])
    ends, gradient = np.int32([600, 670, 680]), gradient_of(arrays)
    for x in (*arrays.values(), gradient):
        if x.ndim > 1:
            x[:, :, :600] = x[:, :, 680:] = np.nan
    found = f.backward(**arrays, gradient=gradient, **f.words, ends=ends)
    whole = arrays | {"gradient": gradient}
    parts = [f.backward(**part_of(whole, *at), **f.words) for at in ((600, 670), (670, 680))]
    shared = [(x, *own) for x, *own in zip(found, *parts, strict=True) if x.ndim == 1]
    assert shared
    for x, *own in shared:
        np.testing.assert_allclose(x, sum(own), rtol=1e-5)


def test_positions_outside_are_not_written():
    arrays, out = FUNCTIONS["linear_attention"].given(150), np.full((1, 2, 150, 48), 7, BF16)
    linear_attention(**arrays, out=out, ends=np.int32([10, 80, 141]))
    assert (out[:, :, :10] == 7).all()
    assert (out[:, :, 141:] == 7).all()
    assert not (out[:, :, 10:141] == 7).all(axis=(0, 1, 3)).any()


@OF_ALL
def test_many_short_sequences(name):
    f, lengths = FUNCTIONS[name], np.random.default_rng(3).integers(0, 6, 40)
    arrays, ends = f.given(int(lengths.sum()), 1, 16, 16, f.decays[0]), ends_of(lengths)
    out = f.forward(**arrays, **f.words, ends=ends).astype(np.float64)
    wanted = f.reference(**arrays, **f.words, ends=ends)
    assert np.abs(out - wanted).max() <= 4 * tolerance.unit(BF16) * np.abs(wanted).max()


@pk.kernel
def find_units(ends, slots, found, n, *, size, more):
    """The number of the sequence of some slots, and which of its units they have."""
    (i,) = pk.grid(slots.shape[0])
    sequence, unit = sequences.unit_at(ends, 0, pk.load(slots[i]), n, size, more)
    pk.store(found[i, 0], sequence.number)
    pk.store(found[i, 1], unit)


@pytest.mark.parametrize(("size", "more"), [(64, 1), (512, 2)])
def test_slots_know_their_units(size, more):
    """Of more sequences than are looked through at a time."""
    rng = np.random.default_rng(size)
    lengths = rng.choice([0, 1, 63, 64, 65, 200, 1000], 2 * sequences.AT_ONCE + 50)
    ends, wanted, slots = ends_of(lengths), list[tuple[int, int]](), list[int]()
    for i in (0, 1, *rng.integers(0, len(lengths), 30), len(lengths) - 1):
        units = -(-lengths[i] // size) + more - 1
        if units:
            wanted.append((i, units - 1))
            slots.append(ends[i] // size + i * more + units - 1)
    found = np.empty((len(slots), 2), np.int32)
    find_units(ends, np.int32(slots), found, int(ends[-1]), size=size, more=more)
    np.testing.assert_array_equal(found, wanted)


def test_every_unit_of_every_sequence_has_a_slot_of_its_own():
    rng = np.random.default_rng(0)
    for size, more in ((64, 1), (512, 1), (512, 2)):
        for _ in range(50):
            lengths = rng.choice([0, 1, 63, 64, 65, 511, 512, 513, 1000], rng.integers(1, 20))
            ends, taken = ends_of(lengths), list[int]()
            for i, length in enumerate(lengths):
                first = ends[i] // size + i * more
                taken += range(first, first - (-length // size) + more - 1)
            assert taken == sorted(set(taken))
            assert max(taken, default=0) < max(
                sequences.slots_of(int(ends[-1]), ends, size, more), 1
            )


@OF_DECAYS
def test_no_launch_has_a_fault(name, decay):
    """Of several sequences and chunks, so that memory is written again; with all states, and heads that share."""
    f, ends = FUNCTIONS[name], np.int32([0, 70, 70, 235])
    # Vectors of many registers take the checker long.
    d, width = (24, 24) if decay == "channel" else (72, 40)
    arrays = f.given(235, d=d, width=width, decay=decay)
    states, of_states = states_of(arrays, 3)
    words = f.words | {"initial_state": states, "ends": ends}
    of_one = {} if name == "gated_delta_rule" else {"segments": 1}
    gradient = {"gradient": gradient_of(arrays), "state_gradient": of_states}
    check_plan(f.forward.plan(**arrays, **words, return_state=True, segments=2))
    check_plan(f.backward.plan(**arrays, **gradient, **words, **of_one))


@pytest.mark.units
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@OF_ALL
def test_the_launches_compile(name, arch, monkeypatch):
    monkeypatch.setattr(settings, "target", lambda: arch)
    f, ends = FUNCTIONS[name], np.int32([0, 150, 150, 350])
    arrays = f.given(350, d=64, width=64, decay=f.decays[-1])
    words = f.words | {"initial_state": states_of(arrays, 3)[0], "ends": ends}
    f.forward.plan(**arrays, **words, return_state=True, segments=2).compile(arch)
    f.backward.plan(**arrays, **words, gradient=gradient_of(arrays)).compile(arch)


@OF_ALL
def test_what_does_not_fit_is_refused(name):
    f = FUNCTIONS[name]
    arrays = f.given(20, decay=f.decays[-1])
    states, _ = states_of(arrays, 2)
    both = {n: np.concatenate([x, x]) if x.ndim > 1 else x for n, x in arrays.items()}
    for given, words, message in (
        (arrays, {"ends": np.zeros(3, np.int64)}, "`ends` must be int32, not int64"),
        (arrays, {"ends": np.zeros(1, np.int32)}, "`ends` must have where a sequence starts"),
        (arrays, {"ends": np.zeros((1, 3), np.int32)}, "`ends` must have rank 1"),
        (arrays, {"ends": np.zeros(4, np.int32), "initial_state": states}, "`initial_state` must"),
        (both, {"ends": np.zeros(3, np.int32)}, "with `ends` the batch of `.` must be 1, not 2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            f.forward(**given, **f.words, **words)
        with pytest.raises(ArgumentError, match=message):
            f.backward(**given, **f.words, **words, gradient=gradient_of(given))
