"""Long convolutions beside those in float64: lengths, filters, gates, strides, and transforms that are given."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.limits import limits_of
from pykittens.kernels.long_conv import filter_spectrum, long_conv
from pykittens.kernels.long_conv.config import ConvConfig, config_for, parts_for
from pykittens.kernels.long_conv.function import inputs
from pykittens.kernels.long_conv.reference import reference
from pykittens.kernels.long_conv.tables import Fourier
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.kernels.host_functions import tensor_of
from tests.runtime.c_programs import needs_compiler

BF16, F16 = ml_dtypes.bfloat16, np.float16
LENGTHS = (1, 17, 63, 64, 100, 256, 1000, 1024, 2048, 3000, 4096)


def given(batch=2, channels=3, length=100, taps=None, circular=False, gates=False, seed=0):
    rng = np.random.default_rng(seed)
    taps = length if taps is None else taps
    found = inputs(rng, batch, channels, length, taps, circular)
    if gates:
        for name in ("gate_before", "gate_after"):
            found[name] = rng.standard_normal(found["u"].shape).astype(BF16)
    return found


def check(arrays, **words):
    """The result is that in float64, but for a rounding of its dtype and some of f16; returns it."""
    found = long_conv(**arrays, **words)
    wanted = reference(**arrays)
    assert found.shape == wanted.shape
    assert found.dtype == arrays["u"].dtype
    error, largest = np.abs(found.astype(np.float64) - wanted), np.abs(wanted).max()
    # Eight roundings of operands in f16, each of which is spread over a transform.
    assert error.max() <= (tolerance.unit(found.dtype) + 4 * 2.0**-11) * largest
    return found


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_any_length(length, circular):
    channels = 3 if length <= 1024 else 1
    check(given(length=length, channels=channels, circular=circular))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(
    ("length", "taps"), [(100, 1), (100, 7), (128, 65), (1000, 130), (4096, 3)]
)
def test_partial_filters(length, taps, circular):
    check(given(length=length, taps=taps, channels=2, circular=circular))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "length", "taps"),
    [(3, 1, 8192, 8192), (1, 2, 4097, 4097), (1, 1, 30000, 100), (2, 1, 32768, 32768)],
)
def test_long_sequences(batch, channels, length, taps, circular):
    check(given(batch, channels, length, taps, circular, gates=batch != 2))


@pytest.mark.units
def test_two_outer_levels():
    check(given(1, 1, 2**19, circular=True))
    check(given(1, 1, 2**18 + 7, taps=1000, circular=True))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_batches_of_pairs_and_of_one_more(batch, circular):
    check(given(batch=batch, length=128, channels=40, circular=circular))


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("length", [65, 128, 2048])
def test_gates(length, circular):
    arrays = given(batch=3, length=length, channels=2, circular=circular, gates=True)
    check(arrays)
    for name in ("gate_before", "gate_after"):
        check({n: x for n, x in arrays.items() if n != name})


@pytest.mark.parametrize("length", [100, 256])
def test_float16(length):
    arrays = given(length=length, circular=length == 256)
    check(arrays | {"u": arrays["u"].astype(F16)})


@pytest.mark.parametrize("length", [60, 128])
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1e4, 1e30])
def test_sequences_of_any_size(length, scale):
    """Each of a pair by itself; results may be subnormal where a filter is small, too."""
    for circular in (False, True):
        arrays = given(batch=3, length=length, channels=1, circular=circular)
        sizes = np.array([1, scale, 1 / scale])[:, None, None]
        arrays["u"] = (arrays["u"].astype(np.float64) * sizes).astype(BF16)
        found, wanted = long_conv(**arrays).astype(np.float64), reference(**arrays)
        largest = np.abs(wanted).max(axis=2, keepdims=True)
        assert (np.abs(found - wanted) <= 2**-7 * largest).all()
        arrays["filter"] *= np.float32(1e-5)
        found, wanted = long_conv(**arrays).astype(np.float64), reference(**arrays)
        largest = np.abs(wanted).max(axis=2, keepdims=True)
        assert (np.abs(found - wanted) <= 2**-7 * largest).all()


def test_sequences_that_add_up_do_not_overflow():
    """Of one sign, the first element of a transform is the largest that it can be."""
    for dtype in (BF16, F16):
        u, filters = np.full((2, 1, 4096), 3.9, dtype), np.full((1, 4096), 2.0**-12, np.float32)
        check({"u": u, "filter": filters, "circular": True})
        check({"u": u, "filter": filters, "circular": False})


def test_zeros():
    arrays = given()
    zeros = np.zeros_like(arrays["u"])
    assert (long_conv(**arrays | {"u": zeros}) == 0).all()
    none = np.zeros_like(arrays["filter"])
    assert (long_conv(**arrays | {"filter": none}) == 0).all()


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("length", [100, 128, 5000])
def test_a_spectrum_in_place_of_a_filter(length, circular):
    arrays = given(length=length, circular=circular)
    wanted = long_conv(**arrays)
    spectrum = filter_spectrum(arrays["filter"], n=length, circular=circular)
    found = long_conv(arrays["u"], spectrum=spectrum, circular=circular)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("length", [1, 100, 128, 4100, 8192])
def test_any_strides(length):
    arrays = given(batch=3, length=length, channels=5, gates=True)
    wanted = long_conv(**arrays)
    names = ("u", "gate_before", "gate_after")
    wide = {n: np.ascontiguousarray(arrays[n].transpose(1, 0, 2)).transpose(1, 0, 2) for n in names}
    out = np.zeros((5, 3, length), BF16).transpose(1, 0, 2)
    assert long_conv(**arrays | wide, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    among = np.repeat(arrays["u"], 2, axis=1).repeat(2, axis=2)[:, ::2, ::2]
    np.testing.assert_array_equal(long_conv(**arrays | {"u": among}), wanted)


@pytest.mark.parametrize("config", [ConvConfig(1, 1), ConvConfig(2, 1), ConvConfig(1, 2, 2, 3)])
@pytest.mark.parametrize("length", [100, 128])
def test_configurations_compute_the_same(length, config):
    arrays = given(batch=5, length=length, channels=70, circular=True)
    np.testing.assert_array_equal(long_conv(**arrays, config=config), long_conv(**arrays))


def test_errors_are_those_of_the_result():
    """The largest is at most 1.5 times that of a convolution in f32 whose result is rounded."""
    for circular in (False, True):
        for seed in range(3):
            arrays = given(batch=2, channels=1, length=4096, circular=circular, seed=seed)
            wanted = reference(**arrays)
            rounded = wanted.astype(np.float32).astype(BF16).astype(np.float64)
            error = np.abs(long_conv(**arrays).astype(np.float64) - wanted).max()
            assert error <= 1.5 * np.abs(rounded - wanted).max()


def test_lengths_of_transforms():
    for n in (*range(1, 4097), *(2**i + j for i in range(13, 20) for j in (-1, 0, 1))):
        fourier = Fourier(n, False)
        assert n <= fourier.length < max(2 * n, 65)
        left = fourier.length
        for level in (*fourier.outer, fourier.inner):
            assert level.rows * level.sequences == 64
            assert level.rows * level.columns == left
            left = level.columns
        assert left == 64


def test_few_channels_share_their_batches():
    limits = limits_of(np.zeros(1))
    assert parts_for(1024, 8, ConvConfig(2, 2), limits) == 1
    assert parts_for(2 * 140, 8, ConvConfig(2, 2), limits) == 4
    assert parts_for(264, 1, ConvConfig(2, 2), limits) == 1
    assert parts_for(4, 64, ConvConfig(2, 2), limits) == 64
    assert parts_for(1, 1, ConvConfig(1, 1), limits) == 1
    for tiles, results in ((2, 2), (1, 1), (6, 2), (3, 1), (8, 4), (0, 0)):
        config = config_for(tiles, results, limits)
        assert config.shared_bytes(tiles, results) <= limits.shared_bytes


def test_what_does_not_fit_is_refused():
    arrays = given()
    spectrum = filter_spectrum(arrays["filter"], n=100)
    for words, message in (
        ({"u": arrays["u"].astype(np.float32)}, "`u` must be bf16 or f16"),
        ({"gate_after": arrays["u"][:, :, :50]}, "`gate_after` must have the shape"),
        ({"gate_before": arrays["u"].astype(F16)}, "`gate_before` must have the dtype"),
        ({"filter": arrays["filter"].astype(np.float64)}, "`filter` must be f32"),
        ({"filter": arrays["filter"][:2]}, "`filter` must have the shape"),
        ({"filter": np.zeros((3, 101), np.float32)}, "`filter` must have from 1 to 100 taps"),
        ({"spectrum": spectrum}, "either `filter` or `spectrum`"),
        ({"filter": None}, "either `filter` or `spectrum`"),
        ({"filter": None, "spectrum": spectrum[:1]}, "the 2 arrays that filter_spectrum"),
        ({"filter": None, "spectrum": spectrum[::-1]}, "`spectrum0` must have"),
        ({"u": arrays["u"][:0]}, "batch must be at least 1, not 0"),
        ({"u": np.zeros((1, 3, 2**20 + 1), BF16)}, "n must be from 1 to 1048576, not 1048577"),
    ):
        with pytest.raises(ArgumentError, match=message):
            long_conv(**arrays | words)
    with pytest.raises(ArgumentError, match="n must be from 1 to 1048576, not 0"):
        filter_spectrum(arrays["filter"], n=0)


@needs_compiler
@pytest.mark.parametrize("length", [100, 128, 4100, 8192])
def test_calls_of_a_form_compute_with_their_own_arrays(length, emulated):
    pytest.importorskip("torch")
    for seed in range(2):
        arrays = given(2, 1, length, taps=50, circular=True, gates=True, seed=seed)
        tensors = {n: tensor_of(x) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
        wanted = tensor_of(long_conv(**arrays))
        assert torch_equal(long_conv(**tensors), wanted)
        filters = tensors.pop("filter")
        spectrum = filter_spectrum(filters, n=length, circular=True)
        assert torch_equal(long_conv(**tensors, spectrum=spectrum), wanted)


def torch_equal(x, y):
    return x.tolist() == y.tolist()


@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize(("length", "circular"), [(1024, True), (1024, False), (1000, True)])
def test_no_launch_has_a_fault(length, circular, gates):
    """Of several tasks a block and steps a task, so that memory is written again."""
    batch = 11 if circular and length == 1024 else 7
    arrays = given(batch=batch, channels=9, length=length, circular=circular, gates=gates)
    check_plan(long_conv.plan(**arrays, config=ConvConfig(2, 1, 1, parts=2)))


@pytest.mark.parametrize(("length", "circular"), [(8192, True), (5000, True), (8192, False)])
def test_no_launch_of_outer_levels_has_a_fault(length, circular):
    arrays = given(3, 1, length, taps=100, circular=circular, gates=True)
    check_plan(long_conv.plan(**arrays), schedules=2)
