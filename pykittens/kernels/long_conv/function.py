"""The host functions of long convolutions, and their cases."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry, host_function
from pykittens.kernels.long_conv.call import (
    OF_SEQUENCES,
    add_matrices,
    check_filter,
    check_sequences,
    convolve,
    fourier_of,
    lay_out,
    make_spectrum,
    transform_filters,
)
from pykittens.kernels.long_conv.config import ConvConfig
from pykittens.kernels.long_conv.reference import reference
from pykittens.kernels.long_conv.tables import COLS
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

    u, gate_before, gate_after: (batch, channels, n), all bf16 or all f16, NumPy or PyTorch; n is at most 4096. filter:
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
    if 0 in (arrays.dims["batch"], arrays.dims["channels"]):
        raise arrays.fail(f"`u` must have elements, not the shape {arrays.found['u'].shape}")
    if ("filter" in arrays) == bool(spectrum) or len(spectrum) not in (0, 2):
        raise arrays.fail("either `filter` or `spectrum`, what filter_spectrum returns, is needed")
    if spectrum:
        arrays.dims["rows"] = arrays.dims["channels"] * fourier.rows
        arrays.shapes(spectrum0=f"2 rows {COLS}", spectrum1="rows")
        arrays.dtypes("spectrum0", among=("f16",))
        arrays.dtypes("spectrum1", among=("f32",))
    else:
        check_filter(arrays, fourier.n)
    if not arrays.have_memory:
        return Plan(arrays, [])
    names = [
        name
        for name in ("u", "gate_before", "gate_after", "out")
        if name in (*arrays.views, *arrays.made)
    ]
    lay_out(arrays, fourier, *names)
    add_matrices(arrays, fourier)
    steps = []
    if spectrum:
        arrays.lines("spectrum0", "spectrum1")
    else:
        make_spectrum(arrays, fourier)
        steps.append(transform_filters(arrays, fourier, circular))
    of_filter = ("spectrum0", "spectrum1") if spectrum else ("values", "scales")
    before, after = (name if name in arrays else None for name in ("gate_before", "gate_after"))
    steps.append(convolve(arrays, fourier, of_filter, "u", before, (after, "out"), config=config))
    return Plan(arrays, steps)


@functools.partial(host_function, numbers={})
def filter_spectrum(filter: Any, n: int, *, circular: bool = False) -> Plan:
    """The transforms of filters for convolutions of sequences of n elements, which long_conv takes as `spectrum`.

    filter: f32 (channels, taps). The result is (values, scales): f16 (2, channels r, 64), the real and the imaginary
    parts in the order of the products that find them, and f32 (channels r,), by which rows are multiplied. They serve
    this n, with or without `circular` as given here. An ArgumentError for other arguments.

        >>> values, scales = filter_spectrum(np.ones((3, 5), np.float32), 100)
        >>> values.shape, scales.shape
        ((2, 6, 64), (6,))
    """
    arrays = Arrays("filter_spectrum", filter=filter)
    fourier = fourier_of(arrays, n, circular)
    check_filter(arrays, n)
    make_spectrum(arrays, fourier)
    result = ("values", "scales")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    add_matrices(arrays, fourier)
    return Plan(arrays, [transform_filters(arrays, fourier, circular)], result=result)
