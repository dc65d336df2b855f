"""The host functions of long convolutions, and their cases."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import Arrays, Made
from pykittens.kernels.library import entry, host_function
from pykittens.kernels.long_conv.call import (
    OF_SEQUENCES,
    check_filter,
    check_length,
    check_sequences,
    check_spectrum,
    fourier_of,
    given_spectrum,
    spectrum_shapes,
)
from pykittens.kernels.long_conv.config import ConvConfig, FusedConfig
from pykittens.kernels.long_conv.passes import ConvPasses
from pykittens.kernels.long_conv.reference import reference
from pykittens.kernels.long_conv.tables import Fourier
from pykittens.kernels.plan import Plan

CASES = (
    {"batch": 16, "channels": 1024, "length": 4096, "taps": 4096, "circular": True},
    {"batch": 16, "channels": 1024, "length": 4096, "taps": 4096, "circular": False},
    {"batch": 16, "channels": 1024, "length": 1000, "taps": 100, "circular": False},
    {"batch": 3, "channels": 1, "length": 128, "taps": 128, "circular": True},
    {"batch": 2, "channels": 3, "length": 100, "taps": 7, "circular": True},
    {"batch": 1, "channels": 2, "length": 65, "taps": 65, "circular": False},
    {"batch": 1, "channels": 1, "length": 8192, "taps": 7, "circular": True},
    {"batch": 2, "channels": 1, "length": 5001, "taps": 7, "circular": False},
)


def inputs(
    rng: np.random.Generator, batch: int, channels: int, length: int, taps: int, circular: bool
) -> dict[str, Any]:
    """Random normal u in bf16, and filters of a sum of squares of about 1."""
    u = rng.standard_normal((batch, channels, length)).astype(ml_dtypes.bfloat16)
    filters = rng.standard_normal((channels, taps)).astype(np.float32) / np.float32(taps**0.5)
    return {"u": u, "filter": filters, "circular": circular}


@entry(reference=reference, cases=CASES, inputs=inputs, numbers={"spectrum": ()})
def long_conv(
    u: Any,
    filter: Any = None,
    out: Any = None,
    *,
    gate_before: Any = None,
    gate_after: Any = None,
    circular: bool = False,
    spectrum: tuple[Any, ...] = (),
    config: ConvConfig | FusedConfig | None = None,
) -> Plan:
    """gate_after * (the convolution of gate_before * u with the filter of each channel), by Fourier transforms.

        y_i = sum over j of filter_j u_(i - j)

    u, gate_before, gate_after: (batch, channels, n), all bf16 or all f16, NumPy or PyTorch; n is at most 2^20. filter:
    f32 (channels, taps) of 1 to n taps. Without `circular`, u is 0 before its first position; with it, i - j is taken
    modulo n. The result has the shape and dtype of u; it is written to `out` if that is given. spectrum: what
    filter_spectrum makes of the filter, in place of it. Arrays whose last axes are not contiguous are copied.

    Sequences and transforms are rounded to f16 where they are multiplied, after a power of two is taken out; sums are
    in f32. Sequences that are computed together, up to 128, share it, and a NaN or an infinity in one of them spreads
    to the others. config: how the work of a block is cut; a FusedConfig for one launch of 4097 to 32768 positions, a
    ConvConfig for passes through memory. An ArgumentError for other arguments.

        >>> u, filter = np.ones((1, 1, 8), np.float16), np.array([[1, 2, 3]], np.float32)
        >>> long_conv(u, filter)[0, 0].round(1).tolist()
        [1.0, 3.0, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0]
    """
    given = {"u": u, "filter": filter, "gate_before": gate_before, "gate_after": gate_after}
    given |= {f"spectrum{i}": x for i, x in enumerate(spectrum)}
    arrays = Arrays("long_conv", **given, out=out)
    check_sequences(arrays, "u", "gate_before", "gate_after")
    arrays.result(OF_SEQUENCES, arrays.found["u"].dtype)
    fourier = fourier_of(arrays.dims["n"], circular)
    if ("filter" in arrays) == bool(spectrum):
        raise arrays.fail("either `filter` or `spectrum`, what filter_spectrum returns, is needed")
    if spectrum:
        check_spectrum(arrays, fourier, len(spectrum))
    else:
        check_filter(arrays, fourier.n)
    if not arrays.have_memory:
        return Plan(arrays, [])
    passes = ConvPasses(arrays, fourier, circular, config)
    before, after = arrays.present("gate_before", "gate_after")
    passes.lay_out(*(name for name in ("u", before, after, "out") if name is not None))
    names = given_spectrum(arrays, fourier) if spectrum else passes.add_spectrum()
    passes.convolve(names, "u", before, (after, "out"))
    return Plan(arrays, passes.steps, passes.scratch)


@functools.partial(host_function, numbers={})
def filter_spectrum(filter: Any, *, n: int, circular: bool = False) -> Plan:
    """The transforms of filters for convolutions of sequences of n elements, which long_conv takes as `spectrum`.

    filter: f32 (channels, taps). The result is (values, scales): f16 (2, channels r, 64), the real and the imaginary
    parts in the order of the products that find them, and f32 (channels r,), by which rows are multiplied; if n is more
    than 4096 it has a third array, the scales of what outer levels find. They serve this n, with or without `circular`
    as given here. An ArgumentError for other arguments.

        >>> values, scales = filter_spectrum(np.ones((3, 5), np.float32), n=100)
        >>> values.shape, scales.shape
        ((2, 6, 64), (6,))
    """
    arrays = Arrays("filter_spectrum", filter=filter)
    check_length(arrays, n)
    check_filter(arrays, n)
    fourier = fourier_of(n, circular)
    shapes = spectrum_shapes(arrays.dims["channels"], fourier)
    if not arrays.have_memory:
        arrays.made |= {name: Made(shape, dtype, shape) for name, (shape, dtype) in shapes.items()}
        return Plan(arrays, [], result=tuple(shapes))
    passes = ConvPasses(arrays, fourier, circular)
    names = passes.add_spectrum()
    return Plan(arrays, passes.steps, passes.scratch, names)


@functools.partial(host_function, numbers={"spectrum": ()})
def long_conv_backward(
    u: Any,
    filter: Any,
    gradient: Any,
    *,
    gate_before: Any = None,
    gate_after: Any = None,
    circular: bool = False,
    spectrum: tuple[Any, ...] = (),
    config: ConvConfig | FusedConfig | None = None,
) -> Plan:
    """The gradients of u and filter, and then those of gate_before and gate_after if these are given.

    gradient: that of the result, (batch, channels, n). The other arguments are those of long_conv; spectrum saves to
    find the transforms of the filter again. The gradient of the filter is f32, those of sequences have their dtype. An
    ArgumentError for other arguments.

        >>> u, filter = np.ones((2, 1, 8), np.float16), np.ones((1, 3), np.float32)
        >>> [x.shape for x in long_conv_backward(u, filter, u)]
        [(2, 1, 8), (1, 3)]
    """
    given = {"u": u, "filter": filter, "gate_before": gate_before, "gate_after": gate_after}
    given |= {f"spectrum{i}": x for i, x in enumerate(spectrum)}
    arrays = Arrays("long_conv_backward", **given, gradient=gradient)
    names = ("u", "gate_before", "gate_after", "gradient")
    check_sequences(arrays, *names)
    fourier = fourier_of(arrays.dims["n"], circular)
    check_filter(arrays, fourier.n)
    if spectrum:
        check_spectrum(arrays, fourier, len(spectrum))
    before, after = arrays.present("gate_before", "gate_after")
    result = arrays.gradients("u", "filter", "gate_before", "gate_after")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    passes = ConvPasses(arrays, fourier, circular, config)
    passes.lay_out(
        *(x for x in (*names, "du", *result[2:]) if x in arrays.found or x in arrays.made)
    )
    own = given_spectrum(arrays, fourier) if spectrum else passes.add_spectrum()
    of_u = [(before, "du")] + ([("u", "d_gate_before")] if before else [])
    passes.convolve(own, "gradient", after, *of_u, is_adjoint=True)
    if after:
        passes.convolve(own, "u", before, ("gradient", "d_gate_after"))
    # Sums of pairs would need one scale for both of a pair.
    sums = passes
    if fourier.is_cyclic:
        sums = ConvPasses(arrays, Fourier(fourier.n, False), circular, config, "_shifted")
    sums.correlate("u", before, "gradient", after, "d_filter", arrays.dims["taps"])
    more = [] if sums is passes else sums.steps
    return Plan(arrays, passes.steps + more, passes.scratch | sums.scratch, result)
