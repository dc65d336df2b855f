"""What the host functions of long convolutions check, and the shapes of transforms of filters."""

from __future__ import annotations

from typing import Any

from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.long_conv.tables import COLS, Fourier

LONGEST = 2**20  # positions of a sequence: what f16 holds the sums of
OF_SEQUENCES, OF_FILTER = "batch channels n", "channels taps"


def check_sequences(arrays: Arrays, *names: str) -> None:
    """Raise an ArgumentError unless arrays of these names are sequences of 16-bit elements, and some are there."""
    arrays.shapes(**dict.fromkeys(names, OF_SEQUENCES))
    arrays.dtypes(*names, among=NARROW)
    arrays.positive("batch", "channels")
    check_length(arrays, arrays.dims["n"])


def check_length(arrays: Arrays, n: Any) -> None:
    """Raise an ArgumentError unless there are transforms for sequences of n elements."""
    if not 1 <= n <= LONGEST:
        raise arrays.fail(f"n must be from 1 to {LONGEST}, not {n}")


def fourier_of(n: int, circular: bool) -> Fourier:
    """The transform for sequences of n elements."""
    fourier = Fourier(n, False)
    # Only a circular convolution of a whole transform is one of its points.
    return Fourier(n, True) if circular and fourier.length == n else fourier


def check_filter(arrays: Arrays, n: Any) -> None:
    """Raise an ArgumentError unless `filter` is f32 and has from 1 to n taps."""
    arrays.shapes(filter=OF_FILTER)
    arrays.dtypes("filter", among=("f32",))
    if not 1 <= arrays.dims["taps"] <= n:
        raise arrays.fail(f"`filter` must have from 1 to {n} taps, not {arrays.dims['taps']}")


def spectrum_shapes(channels: Any, fourier: Fourier) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shapes and dtypes of the arrays of a spectrum, in order by name."""
    rows = channels * fourier.length // COLS
    found: dict[str, Any] = {"values": ((2, rows, COLS), "f16"), "scales": ((rows,), "f32")}
    if fourier.outer:
        found["evens"] = ((1, channels, fourier.outer[0].rows), "f32")
    return found


def check_spectrum(arrays: Arrays, fourier: Fourier, count: int) -> None:
    """Raise an ArgumentError unless a spectrum of `count` arrays is one for a transform."""
    shapes = spectrum_shapes(arrays.dims["channels"], fourier)
    if count != len(shapes):
        raise arrays.fail(
            f"`spectrum` must be the {len(shapes)} arrays that filter_spectrum returns, not {count}"
        )
    for i, (shape, dtype) in enumerate(shapes.values()):
        arrays.shapes(**{f"spectrum{i}": " ".join(map(str, shape))})
        arrays.dtypes(f"spectrum{i}", among=(dtype,))


def given_spectrum(arrays: Arrays, fourier: Fourier) -> tuple[str, ...]:
    """The names of the arrays of a spectrum that is given."""
    names = [f"spectrum{i}" for i in range(len(spectrum_shapes(1, fourier)))]
    for name in names:
        arrays.reshape(name, tuple(arrays.found[name].shape))
    return tuple(names)
