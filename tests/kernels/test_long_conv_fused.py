"""Long convolutions of 2, 4 or 8 times 4096 points in one launch, beside float64 and beside passes through memory."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import settings
from pykittens.kernels.limits import limits_of
from pykittens.kernels.long_conv import filter_spectrum, long_conv, long_conv_backward
from pykittens.kernels.long_conv.config import (
    FUSED,
    ConvConfig,
    FusedConfig,
    fused_cycles,
    fused_for,
    passes_cycles,
)
from pykittens.kernels.long_conv.points import from_points, points_of
from pykittens.kernels.long_conv.reference import reference
from pykittens.kernels.long_conv.tables import Fourier
from pykittens.lang.std.complex_tile import ComplexTile
from tests.kernels.checked import check_plan
from tests.kernels.test_long_conv import BF16, check, given
from tests.kernels.test_long_conv_gradient import check as check_gradients
from tests.kernels.test_long_conv_gradient import problem

EIGHT = FusedConfig(2, 1, shared_factors=True)
ONE = {2: FusedConfig(2, 2), 4: FusedConfig(2, 2, True), 8: EIGHT}  # that fit Hopper


def config_of(n):
    return ONE[Fourier(n, False).outer[0].rows]


def kernels_of(plan):
    return [step.kernel.__name__ for step in plan.steps]


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "n"),
    [
        *((1, 2, 4097), (2, 1, 5000), (3, 1, 8191), (3, 2, 8192), (1, 1, 12288)),
        *((2, 1, 16384), (1, 1, 20001), (3, 1, 32768)),
    ],
)
def test_lengths_of_one_launch(batch, channels, n, circular):
    arrays = given(batch, channels, n, circular=circular, gates=True)
    check(arrays, config=config_of(n))
    spectrum = filter_spectrum(arrays.pop("filter"), n=n, circular=circular)
    plan = long_conv.plan(**arrays, spectrum=spectrum, config=config_of(n))
    assert kernels_of(plan) == ["fused_tiles"]


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(("batch", "n"), [(3, 8192), (1, 5000), (1, 16384), (2, 30000)])
def test_gradients(batch, n, circular):
    check_gradients(problem(batch, 1, n, circular=circular, gates=True), config=config_of(n))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("n", [5000, 8192])
def test_it_computes_what_passes_through_memory_do(n, circular):
    """But for roundings of what passes, and of matrices of the outer level."""
    arrays = given(3, 2, n, taps=70, circular=circular, gates=True)
    fused, passed = (long_conv(**arrays, config=c) for c in (FusedConfig(2, 2), ConvConfig(1, 1)))
    largest = np.abs(passed.astype(np.float64)).max()
    assert np.abs(fused.astype(np.float64) - passed).max() <= 2.0**-7 * largest


@pytest.mark.parametrize("config", FUSED)
@pytest.mark.parametrize("circular", [False, True])
def test_configurations_compute_the_same(config, circular):
    arrays = given(3, 2, 8192, circular=circular, gates=True)
    wanted = long_conv(**arrays, config=FUSED[0])
    np.testing.assert_array_equal(long_conv(**arrays, config=config), wanted)


@pytest.mark.parametrize("circular", [False, True])
def test_sequences_of_any_size(circular):
    """Each of a pair by itself."""
    arrays = given(3, 1, 8192, circular=circular)
    sizes = np.array([1, 1e30, 1e-30])[:, None, None]
    arrays["u"] = (arrays["u"].astype(np.float64) * sizes).astype(BF16)
    found, wanted = long_conv(**arrays, config=EIGHT).astype(np.float64), reference(**arrays)
    largest = np.abs(wanted).max(axis=2, keepdims=True)
    assert (np.abs(found - wanted) <= 2.0**-7 * largest).all()


def test_sequences_that_add_up_do_not_overflow():
    u, filters = np.full((2, 1, 32768), 3.9, BF16), np.full((1, 32768), 2.0**-15, np.float32)
    for circular in (False, True):
        check({"u": u, "filter": filters, "circular": circular}, config=EIGHT)


def test_any_strides():
    arrays = given(2, 3, 8192, gates=True)
    wanted = long_conv(**arrays, config=FUSED[0])
    wide = {
        n: np.ascontiguousarray(arrays[n].transpose(1, 0, 2)).transpose(1, 0, 2)
        for n in ("u", "gate_before", "gate_after")
    }
    out = np.zeros((3, 2, 8192), BF16).transpose(1, 0, 2)
    assert long_conv(**arrays | wide, out=out, config=FUSED[0]) is out
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(
    ("batch", "channels", "n", "config"),
    [
        *((5, 1, 8192, FUSED[0]), (3, 2, 5000, FUSED[0]), (3, 1, 8192, EIGHT)),
        *((3, 1, 4097, FusedConfig(2, 1)), (3, 1, 8192, FusedConfig(1, 1))),
    ],
)
def test_no_launch_has_a_fault(batch, channels, n, config):
    """Of several sequences a team, so that memory is written again."""
    for circular in (False, True):
        arrays = given(batch, channels, n, taps=9, circular=circular, gates=True)
        spectrum = filter_spectrum(arrays.pop("filter"), n=n, circular=circular)
        plan = long_conv.plan(**arrays, spectrum=spectrum, config=config)
        check_plan(plan, schedules=2)


@pytest.mark.units
@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("n", [16384, 32768])
def test_no_launch_of_more_points_has_a_fault(n, circular):
    arrays = problem(5, 1, n, taps=9, circular=circular)
    check_plan(long_conv_backward.plan(**arrays, config=config_of(n)), schedules=1)


@pk.kernel(warps=1)
def points_of_tiles(x, y, *, shift, is_real, is_back):
    """The points of tiles, (2, count, 16, 16), real and imaginary parts, or what has these points."""
    count = pk.static(x.shape[1])
    pk.grid(1)
    given = [[pk.load(x[i, a, 0, 0], rows=16, cols=16) for i in range(2)] for a in range(count)]
    tiles = [re if is_real else ComplexTile(re, im) for re, im in given]
    for j, z in enumerate((from_points if is_back else points_of)(tiles, shift)):
        pk.store(y[0, j, 0, 0], z.re)
        pk.store(y[1, j, 0, 0], z.im)


@pytest.mark.parametrize(("shift", "is_real"), [(0.0, False), (-0.25, True), (0.4, False)])
@pytest.mark.parametrize("points", [2, 4, 8, 16])
def test_points_are_those_of_fourier_transforms(points, shift, is_real):
    rng, a = np.random.default_rng(points), np.arange(points)
    matrix = np.exp(-2j * np.pi * np.outer(a + shift, a) / points)
    x = rng.standard_normal((2, points, 16, 16)).astype(np.float32)
    x[1] *= not is_real
    found, back = np.empty_like(x), np.empty_like(x)
    points_of_tiles(x, found, shift=shift, is_real=is_real, is_back=False)
    wanted = np.einsum("ja,arc->jrc", matrix, x[0] + 1j * x[1])
    np.testing.assert_allclose(found[0] + 1j * found[1], wanted, atol=1e-5)
    points_of_tiles(found, back, shift=shift, is_real=False, is_back=True)
    np.testing.assert_allclose(back, points * x, atol=1e-4)


def test_the_way_is_chosen_by_what_fits_and_by_an_estimate():
    limits = limits_of(np.zeros(1))
    for n in (5000, 8192, 16384, 30000, 32768):
        fourier = Fourier(n, False)
        points = fourier.outer[0].rows
        for sequences in (1, 100, 132, 133, 5000):
            found = fused_for(fourier, sequences, limits)
            through_memory = passes_cycles(fourier, sequences, limits)
            if found is None:
                cycles = [fused_cycles(c, points, sequences, limits) for c in FUSED]
                assert min(cycles) > through_memory
            else:
                assert fused_cycles(found, points, sequences, limits) <= through_memory
                assert found.shared_bytes(points) <= limits.shared_bytes
    assert fused_for(Fourier(32768, False), 16384, limits) == EIGHT
    assert fused_for(Fourier(32768, False), 1, limits) is None
    # A sequence for each multiprocessor is better than two for half of them.
    assert fused_for(Fourier(8192, False), 132, limits).teams == 1
    assert fused_for(Fourier(8192, False), 2 * 132, limits).teams == 2
    for n in (100, 4096, 32769, 65536, 2**20):
        assert fused_for(Fourier(n, False), 5000, limits) is None


@pytest.mark.parametrize("n", [100, 40_000])
def test_other_lengths_are_not_asked_for_in_one_launch(n):
    arrays = given(1, 1, n, taps=5)
    assert "fused_tiles" not in kernels_of(long_conv.plan(**arrays, config=EIGHT))


@pytest.mark.parametrize(("target", "most"), [("sm_80", 16384), ("sm_89", 8192)])
def test_other_targets_take_what_fits_them(target, most, monkeypatch):
    monkeypatch.setattr(settings, "target", lambda: target)
    limits = limits_of(np.zeros(1))
    for n in (8192, 16384, 32768):
        assert (fused_for(Fourier(n, True), 5000, limits) is not None) == (n <= most)
