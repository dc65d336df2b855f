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
    ConvPasses,
    check_filter,
    check_sequences,
    check_spectrum,
    fourier_of,
    given_spectrum,
    spectrum_shapes,
)
from pykittens.kernels.long_conv.config import ConvConfig
from pykittens.kernels.long_conv.reference import reference
from pykittens.kernels.plan import Plan

CASES = (
    {"batch": 16, "channels": 1024, "length": 4096, "taps": 4096, "circular": True},
    {"batch": 16, "channels": 1024, "length": 4096, "taps": 4096, "circular": False},
    {"batch": 16, "channels": 1024, "length": 1000, "taps": 100, "circular": False},
    {"batch": 3, "channels": 2, "length": 256, "taps": 256, "circular": True},
    {"batch": 2, "channels": 3, "length": 100, "taps": 7, "circular": True},
    {"batch": 1, "channels": 2, "length": 65, "taps": 65, "circular": False},
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
    config: ConvConfig | None = None,
) -> Plan:
    """gate_after * (the convolution of gate_before * u with the filter of each channel), by Fourier transforms.

        y_i = sum over j of filter_j u_(i - j)

    u, gate_before, gate_after: (batch, channels, n), all bf16 or all f16, NumPy or PyTorch; n is at most 2^20. filter:
    f32 (channels, taps) of 1 to n taps. Without `circular`, u is 0 before its first position; with it, i - j is taken
    modulo n. The result has the shape and dtype of u; it is written to `out` if that is given. spectrum: what
    filter_spectrum makes of the filter, in place of it. Arrays whose last axes are not contiguous are copied.

    Sequences and transforms are rounded to f16 where they are multiplied, after a power of two is taken out; sums are
    in f32. Sequences that are computed together, up to 128, share it, and a NaN or an infinity in one of them spreads
    to the others. config: how the work of a block is cut. An ArgumentError for other arguments.

        >>> u, filter = np.ones((1, 1, 8), np.float16), np.array([[1, 2, 3]], np.float32)
        >>> long_conv(u, filter)[0, 0].round(1).tolist()
        [1.0, 3.0, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0]
    """
    given = {"u": u, "filter": filter, "gate_before": gate_before, "gate_after": gate_after}
    given |= {f"spectrum{i}": x for i, x in enumerate(spectrum)}
    arrays = Arrays("long_conv", **given, out=out)
    fourier = check_sequences(arrays, "u", "gate_before", "gate_after", circular=circular)
    arrays.result(OF_SEQUENCES, arrays.found["u"].dtype)
    check_spectrum(arrays, fourier, len(spectrum))
    if not arrays.have_memory:
        return Plan(arrays, [])
    passes = ConvPasses(arrays, fourier, circular, config)
    before, after = (name if name in arrays else None for name in ("gate_before", "gate_after"))
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
    fourier = fourier_of(arrays, n, circular)
    check_filter(arrays, n)
    shapes = spectrum_shapes(arrays.dims["channels"], fourier)
    if not arrays.have_memory:
        arrays.made |= {name: Made(shape, dtype, shape) for name, (shape, dtype) in shapes.items()}
        return Plan(arrays, [], result=tuple(shapes))
    passes = ConvPasses(arrays, fourier, circular)
    names = passes.add_spectrum()
    return Plan(arrays, passes.steps, passes.scratch, names)
