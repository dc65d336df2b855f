"""The gradients of long convolutions beside those in float64, which are beside finite differences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.long_conv import filter_spectrum, long_conv_backward
from pykittens.kernels.long_conv.config import ConvConfig
from pykittens.kernels.long_conv.reference import reference
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.kernels.host_functions import tensor_of
from tests.kernels.test_long_conv import given
from tests.runtime.c_programs import needs_compiler

BF16 = ml_dtypes.bfloat16


def gradients(u, filter, gradient, gate_before=None, gate_after=None, circular=False):
    """Those of u, of the filter, and of the gates that are given, in float64."""
    u, filter, gradient = (x.astype(np.float64) for x in (u, filter, gradient))
    n, taps = u.shape[2], filter.shape[1]
    length = n if circular else 2 * n
    before, after = (1.0 if g is None else g.astype(np.float64) for g in (gate_before, gate_after))
    of_filter, of_u, of_gradient = (
        np.fft.fft(x, length) for x in (filter, u * before, gradient * after)
    )
    dx, y = (
        np.fft.ifft(x).real[..., :n] for x in (of_gradient * of_filter.conj(), of_u * of_filter)
    )
    found = [dx * before, np.fft.ifft((of_gradient * of_u.conj()).sum(0)).real[:, :taps]]
    found += [] if gate_before is None else [dx * u]
    return found + ([] if gate_after is None else [y * gradient])


def problem(batch=2, channels=3, length=100, **words):
    arrays = given(batch, channels, length, **words)
    rng = np.random.default_rng(7)
    return arrays | {"gradient": rng.standard_normal(arrays["u"].shape).astype(arrays["u"].dtype)}


def check(arrays, **words):
    """All gradients are those in float64, but for roundings; returns them.

    Errors of few taps are to the largest of a filter without end, whose transform is rounded.
    """
    found, wanted = long_conv_backward(**arrays, **words), gradients(**arrays)
    filters = arrays["filter"]
    rest = np.zeros((len(filters), arrays["u"].shape[2] - filters.shape[1]), np.float32)
    whole = gradients(**arrays | {"filter": np.concatenate([filters, rest], axis=1)})
    for x, y, z in zip(found, wanted, whole, strict=True):
        assert x.shape == y.shape
        error, largest = np.abs(x.astype(np.float64) - y).max(), np.abs(z).max()
        assert error <= (tolerance.unit(x.dtype) + 4 * 2.0**-11) * largest
    return found


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("length", [1, 17, 64, 100, 256, 1000, 3000, 4096])
def test_any_length(length, circular):
    channels = 3 if length <= 1000 else 1
    check(problem(3, channels, length, circular=circular, gates=length % 2 == 0))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(("length", "taps"), [(100, 7), (128, 65), (1000, 1), (5000, 4000)])
def test_partial_filters(length, taps, circular):
    check(problem(1, 2, length, taps=taps, circular=circular))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(("batch", "length"), [(3, 8192), (1, 5000)])
def test_long_sequences(batch, length, circular):
    check(problem(batch, 1, length, circular=circular, gates=True))


@pytest.mark.units
def test_two_outer_levels():
    check(problem(1, 1, 2**19, taps=1000))


@pytest.mark.parametrize("circular", [False, True])
def test_many_channels_and_parts_of_a_batch(circular):
    arrays = problem(7, 70, 128, circular=circular)
    one = check(arrays, config=ConvConfig(2, 1, 1, parts=1))
    for config in (ConvConfig(2, 2, 1, parts=3), ConvConfig(1, 2, 2)):
        for x, y in zip(check(arrays, config=config), one, strict=True):
            x, y = x.astype(np.float64), y.astype(np.float64)
            assert np.abs(x - y).max() <= 2.0**-8 * np.abs(y).max()


def test_a_gate_alone_a_spectrum_and_float16():
    arrays = problem(2, 2, 128, gates=True)
    for name in ("gate_before", "gate_after"):
        check({n: x for n, x in arrays.items() if n != name})
    spectrum = filter_spectrum(arrays["filter"], n=128)
    for x, y in zip(check(arrays, spectrum=spectrum), check(arrays), strict=True):
        np.testing.assert_array_equal(x, y)
    check({n: x.astype(np.float16) if np.ndim(x) == 3 else x for n, x in arrays.items()})


def test_the_reference_is_beside_finite_differences():
    rng = np.random.default_rng(0)
    names = ("u", "filter", "gate_before", "gate_after")
    arrays = {n: rng.standard_normal((2, 9) if n == "filter" else (3, 2, 11)) for n in names}
    gradient = rng.standard_normal((3, 2, 11))
    for circular in (False, True):
        found = gradients(**arrays, gradient=gradient, circular=circular)
        for name, wanted in zip(names, found, strict=True):
            way = rng.standard_normal(arrays[name].shape)
            ends = [
                (
                    reference(**arrays | {name: arrays[name] + step * way}, circular=circular)
                    * gradient
                )
                for step in (1e-5, -1e-5)
            ]
            slope = (ends[0].sum() - ends[1].sum()) / 2e-5
            np.testing.assert_allclose(slope, (wanted * way).sum(), rtol=1e-6)


def test_what_does_not_fit_is_refused():
    arrays = problem()
    for words, message in (
        ({"gradient": arrays["u"][:, :, :99]}, "`gradient` must have the shape"),
        ({"gradient": arrays["u"].astype(np.float16)}, "`gradient` must have the dtype"),
        ({"filter": np.zeros((3, 101), np.float32)}, "`filter` must have from 1 to 100 taps"),
        ({"spectrum": (arrays["u"],)}, "the 2 arrays that filter_spectrum returns, not 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            long_conv_backward(**arrays | words)


@needs_compiler
@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("length", [100, 128, 8192])
def test_calls_of_a_form_compute_with_their_own_arrays(length, circular, emulated):
    pytest.importorskip("torch")
    for seed in range(2):
        arrays = problem(2, 1, length, taps=50, circular=circular, gates=True, seed=seed)
        tensors = {n: tensor_of(x) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
        found, wanted = long_conv_backward(**tensors), long_conv_backward(**arrays)
        for x, y in zip(found, wanted, strict=True):
            assert x.tolist() == tensor_of(y).tolist()


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("length", [1024, 1000])
def test_no_launch_has_a_fault(length, circular):
    """Of several tasks a block and steps a task, so that memory is written again."""
    arrays = problem(7, 5, length, circular=circular, gates=True)
    check_plan(long_conv_backward.plan(**arrays, config=ConvConfig(1, 1, 1, parts=2)), 2)


@pytest.mark.parametrize(
    ("length", "circular"), [(5000, True), pytest.param(8192, False, marks=pytest.mark.units)]
)
def test_no_launch_of_outer_levels_has_a_fault(length, circular):
    arrays = problem(3, 1, length, taps=100, circular=circular)
    check_plan(long_conv_backward.plan(**arrays), 1)
