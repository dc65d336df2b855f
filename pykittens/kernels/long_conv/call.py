"""What the host functions of long convolutions share: checks, the layout of sequences, transforms of filters."""

from __future__ import annotations

from typing import Any

from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.limits import limits_of
from pykittens.kernels.long_conv.config import ConvConfig, ConvForm, config_for, parts_for
from pykittens.kernels.long_conv.forward import convolved_tiles, filter_tiles
from pykittens.kernels.long_conv.tables import COLS, Fourier, matrices_like
from pykittens.kernels.plan import PlanStep

LONGEST = COLS * COLS  # positions of a sequence whose transform a warpgroup has in its registers
OF_SEQUENCES, OF_FILTER = "batch channels n", "channels taps"
MATRICES = ("left", "twiddle", "right")


def check_sequences(arrays: Arrays, *names: str, circular: bool) -> Fourier:
    """The transform for sequences; an ArgumentError unless arrays of these names are sequences of 16-bit elements."""
    arrays.shapes(**dict.fromkeys(names, OF_SEQUENCES))
    arrays.dtypes(*names, among=NARROW)
    return fourier_of(arrays, arrays.dims["n"], circular)


def fourier_of(arrays: Arrays, n: Any, circular: bool) -> Fourier:
    """The transform for sequences of n elements; an ArgumentError if there is none."""
    if not 1 <= n <= LONGEST:
        raise arrays.fail(f"n must be from 1 to {LONGEST}, not {n}")
    fourier = Fourier(n, False)
    # Only a circular convolution of a whole transform is one of its points.
    return Fourier(n, True) if circular and fourier.length == n else fourier


def check_filter(arrays: Arrays, n: Any) -> None:
    """Raise an ArgumentError unless `filter` is f32 and has from 1 to n taps."""
    arrays.shapes(filter=OF_FILTER)
    arrays.dtypes("filter", among=("f32",))
    if not 1 <= arrays.dims["taps"] <= n:
        raise arrays.fail(f"`filter` must have from 1 to {n} taps, not {arrays.dims['taps']}")


def add_matrices(arrays: Arrays, fourier: Fourier) -> None:
    """Let kernels take the matrices of a transform, and the length of sequences."""
    for name, x in matrices_like(arrays.like, fourier).items():
        arrays.view(name, x)
    arrays.number("n", fourier.n)


def make_spectrum(arrays: Arrays, fourier: Fourier) -> None:
    """Add the transforms of filters, which the call makes: in f16, and the scale of each row."""
    arrays.dims["rows"] = arrays.dims["channels"] * fourier.rows
    arrays.make("values", f"2 rows {COLS}", "f16")
    arrays.make("scales", "rows", "f32")


def transform_filters(arrays: Arrays, fourier: Fourier, circular: bool) -> PlanStep:
    """The launch that finds the transforms of `filter`, after `add_matrices` and `make_spectrum`."""
    channels, taps = (arrays.dims[x] for x in ("channels", "taps"))
    arrays.reshape("filter", (1, channels * taps))
    arrays.number("taps", taps)
    args = ("filter", "values", "scales", *MATRICES, "n", "taps")
    wraps = circular and not fourier.is_cyclic
    return PlanStep(filter_tiles, args, {"rows": fourier.rows, "wraps": wraps})


def lay_out(arrays: Arrays, fourier: Fourier, *names: str) -> None:
    """Let kernels take sequences as rows of matrices if they fill these, else one after another."""
    batch, channels = (arrays.dims[x] for x in ("batch", "channels"))
    shape: tuple[int, ...] = (batch, channels * fourier.n)
    if fourier.length == fourier.n:
        shape = (batch, channels * fourier.rows, COLS)
    for name in names:
        arrays.reshape(name, shape)


def convolve(
    arrays: Arrays,
    fourier: Fourier,
    spectrum: tuple[str, str],
    u: str,
    before: str | None,
    *outs: tuple[str | None, str],
    is_adjoint: bool = False,
    config: ConvConfig | None = None,
) -> PlanStep:
    """The launch that convolves; outs: one or two outputs, each after the name of its gate."""
    dims, limits = arrays.dims, limits_of(arrays.like)
    form = ConvForm(fourier.is_cyclic, is_adjoint)
    gates = [name for name, _ in outs if name is not None]
    tiles = (1 + (before is not None) + len(gates)) * (1 + form.is_paired)
    is_direct = fourier.length == fourier.n
    if config is None:
        results = len(outs) * (1 + form.is_paired)
        config = config_for(tiles if is_direct else 0, results if is_direct else 0, limits)
    steps = -(-dims["batch"] // (1 + form.is_paired))
    blocks = -(-dims["channels"] * fourier.rows // COLS)
    arrays.number("parts", parts_for(blocks, steps, config, limits))
    pairs = [*outs, (None, None)][:2]
    args = (u, before, *spectrum, *MATRICES, *pairs[0], *pairs[1], "n", "parts")
    constants = {"rows": fourier.rows, "form": form, "config": config}
    return PlanStep(convolved_tiles, args, constants)
