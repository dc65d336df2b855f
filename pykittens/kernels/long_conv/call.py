"""What the host functions of long convolutions share: checks, and the launches of transforms and convolutions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykittens.kernels.arrays import NARROW, Arrays, Made
from pykittens.kernels.limits import limits_of
from pykittens.kernels.long_conv.config import ConvConfig, ConvForm, config_for, parts_for
from pykittens.kernels.long_conv.forward import convolved_tiles, filter_tiles
from pykittens.kernels.long_conv.outer import (
    even_scales,
    outer_forward,
    outer_inverse,
    sequence_scales,
)
from pykittens.kernels.long_conv.tables import COLS, INNER, Fourier, matrices_like
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.workspace import Scratch

LONGEST = 2**20  # positions of a sequence: what f16 holds the sums of
OF_SEQUENCES, OF_FILTER = "batch channels n", "channels taps"
Output = tuple[str | None, str]  # the names of a gate and of what is written


def check_sequences(arrays: Arrays, *names: str, circular: bool) -> Fourier:
    """The transform for sequences; an ArgumentError unless arrays of these names are sequences of 16-bit elements."""
    arrays.shapes(**dict.fromkeys(names, OF_SEQUENCES))
    arrays.dtypes(*names, among=NARROW)
    if 0 in (arrays.dims["batch"], arrays.dims["channels"]):
        raise arrays.fail(
            f"`{names[0]}` must have elements, not the shape {arrays.found[names[0]].shape}"
        )
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


def spectrum_shapes(channels: Any, fourier: Fourier) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shapes and dtypes of the arrays of a spectrum, in order by name."""
    rows = channels * fourier.length // COLS
    found: dict[str, Any] = {"values": ((2, rows, COLS), "f16"), "scales": ((rows,), "f32")}
    if fourier.outer:
        found["evens"] = ((1, channels, fourier.outer[0].rows), "f32")
    return found


def check_spectrum(arrays: Arrays, fourier: Fourier, count: int) -> None:
    """Raise an ArgumentError unless there is a filter or a spectrum of `count` arrays for a transform."""
    shapes = spectrum_shapes(arrays.dims["channels"], fourier)
    if ("filter" in arrays) == bool(count) or count not in (0, len(shapes)):
        raise arrays.fail("either `filter` or `spectrum`, what filter_spectrum returns, is needed")
    if not count:
        check_filter(arrays, fourier.n)
    for i, (shape, dtype) in enumerate(shapes.values()):
        arrays.shapes(**{f"spectrum{i}": " ".join(map(str, shape))})
        arrays.dtypes(f"spectrum{i}", among=(dtype,))


def given_spectrum(arrays: Arrays, fourier: Fourier) -> tuple[str, ...]:
    """The names of the arrays of a spectrum that is given."""
    names = [f"spectrum{i}" for i in range(len(spectrum_shapes(1, fourier)))]
    for name in names:
        arrays.reshape(name, tuple(arrays.found[name].shape))
    return tuple(names)


@dataclass
class ConvPasses:
    """The launches of a call, and their scratch memory."""

    arrays: Arrays
    fourier: Fourier
    circular: bool
    config: ConvConfig | None = None
    steps: list[PlanStep] = field(default_factory=list)
    scratch: dict[str, Scratch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.channels: int = self.arrays.dims["channels"]
        self.arrays.number("n", self.fourier.n)
        for i, level in enumerate((*self.fourier.outer, self.fourier.inner)):
            for name, x in matrices_like(self.arrays.like, level).items():
                self.arrays.view(f"{name}{i}", x)
        last = len(self.fourier.outer)
        self.inner = tuple(f"{name}{last}" for name in ("left", "twiddle", "right"))

    def make(self, name: str, shape: tuple[int, ...], dtype: str) -> str:
        """Add an array that the call makes; its name."""
        self.arrays.made[name] = Made(shape, dtype, shape)
        return name

    def lay_out(self, *names: str) -> None:
        """Let kernels take sequences as rows of matrices if they fill these, else one after another."""
        batch, n = self.arrays.dims["batch"], self.fourier.n
        first = (*self.fourier.outer, self.fourier.inner)[0]
        shape: tuple[int, ...] = (batch, self.channels * n)
        if self.fourier.length == n:
            shape = (batch, self.channels * first.rows, first.columns)
        for name in names:
            self.arrays.reshape(name, shape)
            self.arrays.alias(f"{name}_sequences", name, (batch, self.channels, n))

    def add_spectrum(self) -> tuple[str, ...]:
        """Find the transforms of `filter`, which the call makes; the names of their arrays."""
        arrays, fourier, taps = self.arrays, self.fourier, self.arrays.dims["taps"]
        shapes = spectrum_shapes(self.channels, fourier)
        names = tuple(self.make(name, *found) for name, found in shapes.items())
        arrays.number("taps", taps)
        arrays.reshape("filter", (1, self.channels * taps))
        wraps = self.circular and not fourier.is_cyclic
        if not fourier.outer:
            args = ("filter", *names, *self.inner, "n", "taps")
            how = {"rows": fourier.inner.rows, "wraps": wraps}
            self.steps.append(PlanStep(filter_tiles, args, how))
            return names
        if wraps:
            arrays.number("behind", fourier.length - fourier.n)
        arrays.number("root", float(fourier.length / INNER) ** 0.5)
        arrays.alias("filter_sequences", "filter", (1, self.channels, taps))
        self.find_scales("filter", None, "of_filters", 1)
        z = self.forward(
            "filter", None, "of_filters_rows", 1, False, "taps", "behind" if wraps else None
        )
        args = (z, "values", "scales", *self.inner, "n", "taps")
        self.steps.append(PlanStep(filter_tiles, args, {"rows": COLS, "wraps": False}))
        arrays.alias("all_scales", "scales", (self.channels, fourier.length // COLS))
        self.steps.append(PlanStep(even_scales, ("all_scales", "of_filters", "evens", "root")))
        return names

    def find_scales(self, u: str, before: str | None, ups: str, batch: int) -> None:
        """Find the scales of sequences, and let kernels take them in rows, too."""
        rows = self.fourier.outer[0].rows
        self.scratch[ups] = Scratch((batch, self.channels, rows))
        self.arrays.alias(f"{ups}_rows", ups, (batch, self.channels * rows))
        given = (None if x is None else f"{x}_sequences" for x in (u, before))
        self.steps.append(PlanStep(sequence_scales, (*given, ups)))

    def forward(
        self,
        u: str,
        before: str | None,
        ups: str,
        batch: int,
        is_paired: bool,
        n: str = "n",
        behind: str | None = None,
    ) -> str:
        """Do the outer levels of transforms; the name of what is left, (2 pairs, rows of all matrices, 64)."""
        pairs, name = -(-batch // (1 + is_paired)), u
        rows, scales = self.channels, ups
        for i, level in enumerate(self.fourier.outer):
            rows *= level.rows
            to = self.make(f"{u}_level{i}", (2 * pairs, rows, level.columns), "f16")
            if i:
                shape = (2 * pairs, rows, level.columns)
                self.arrays.alias(f"{name}_next", name, shape)
                name = f"{name}_next"
            own = [f"{x}{i}" for x in ("left", "twiddle", "steps")]
            first = (before, scales) if i == 0 else (None, None)
            args = (name, *first, to, *own, n, None if i else behind)
            how = {"rows": level.rows, "is_paired": bool(i) or is_paired}
            self.steps.append(PlanStep(outer_forward, args, how))
            name = to
        self.arrays.alias(f"{name}_inner", name, (2 * pairs, rows * COLS, COLS))
        return f"{name}_inner"

    def inverse(
        self, z: str, ups: str, evens: str, is_paired: bool, pairs: int, outs: list[Output]
    ) -> None:
        """Undo the outer levels of what has the name z, (2 pairs, rows, 64), and write outputs."""
        outer = self.fourier.outer
        rows = self.channels
        shapes = []
        for level in outer:
            rows *= level.rows
            shapes.append((2 * pairs, rows, level.columns))
        name = z
        for i in reversed(range(len(outer))):
            self.arrays.alias(f"{name}_at{i}", name, shapes[i])
            own = [f"{x}{i}" for x in ("left", "twiddle", "steps")]
            pair = [*outs, (None, None)][:2]
            scales: tuple[str | None, ...] = (ups, evens)
            if i:
                to = self.make(f"{z}_back{i}", shapes[i], "f16")
                pair, scales = [(None, to), (None, None)], (None, None)
            args = (f"{name}_at{i}", *scales, *own, *pair[0], *pair[1], "n")
            how = {"rows": outer[i].rows, "is_paired": bool(i) or is_paired}
            self.steps.append(PlanStep(outer_inverse, args, how))
            name = to if i else name

    def convolve(
        self,
        spectrum: tuple[str, ...],
        u: str,
        before: str | None,
        *outs: Output,
        is_adjoint: bool = False,
    ) -> None:
        """Convolve sequences with filters; outs: one or two outputs, each after the name of its gate."""
        fourier, batch = self.fourier, self.arrays.dims["batch"]
        form = ConvForm(fourier.is_cyclic, is_adjoint)
        if not fourier.outer:
            self.tiles(spectrum, u, before, list(outs), form, batch)
            return
        pairs = -(-batch // (1 + form.is_paired))
        ups, evens = f"of_{u}", "evens_rows"
        self.arrays.alias(evens, spectrum[2], (1, self.channels * fourier.outer[0].rows))
        self.find_scales(u, before, ups, batch)
        z = self.forward(u, before, f"{ups}_rows", batch, form.is_paired)
        shape = (2 * pairs, self.channels * fourier.length // COLS, COLS)
        y = self.make(f"{u}_convolved", shape, "f16")
        self.tiles(spectrum, z, None, [(None, y)], ConvForm(True, is_adjoint, False), 2 * pairs)
        self.inverse(y, f"{ups}_rows", evens, form.is_paired, pairs, list(outs))

    def tiles(
        self,
        spectrum: tuple[str, ...],
        u: str,
        before: str | None,
        outs: list[Output],
        form: ConvForm,
        batch: int,
    ) -> None:
        """The launch that convolves sequences of at most 4096 elements, or what outer levels leave."""
        fourier, limits = self.fourier, limits_of(self.arrays.like)
        gates = [name for name, _ in outs if name is not None]
        is_direct = bool(fourier.outer) or fourier.length == fourier.n
        each = is_direct * (1 + form.is_paired)
        tiles = (1 + (before is not None) + len(gates)) * each
        config = self.config or config_for(tiles, len(outs) * each, limits)
        steps = -(-batch // (1 + form.is_paired))
        blocks = -(-self.channels * (fourier.length // COLS) // COLS)
        parts = f"parts_{u}"
        self.arrays.number(parts, parts_for(blocks, steps, config, limits))
        pair = [*outs, (None, None)][:2]
        args = (u, before, *spectrum[:2], *self.inner, *pair[0], *pair[1], "n", parts)
        how = {"rows": fourier.inner.rows, "form": form, "config": config}
        self.steps.append(PlanStep(convolved_tiles, args, how))
