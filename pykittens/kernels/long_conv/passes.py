"""The launches of long convolutions: of transforms, of convolutions with them, and of gradients of filters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykittens.kernels.arrays import Arrays, Made
from pykittens.kernels.limits import limits_of
from pykittens.kernels.long_conv.call import spectrum_shapes
from pykittens.kernels.long_conv.config import (
    ConvConfig,
    ConvForm,
    FusedConfig,
    config_for,
    fused_for,
    outer_blocks,
    parts_for,
    points_of_fused,
)
from pykittens.kernels.long_conv.forward import convolved_tiles, filter_tiles
from pykittens.kernels.long_conv.fused import fused_tiles
from pykittens.kernels.long_conv.gradient import correlated_tiles, sum_parts
from pykittens.kernels.long_conv.outer import (
    even_scales,
    outer_forward,
    outer_inverse,
    sequence_scales,
)
from pykittens.kernels.long_conv.tables import COLS, INNER, Fourier, matrices_like
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.workspace import Scratch

Output = tuple[str | None, str]  # the names of a gate and of what is written


@dataclass
class ConvPasses:
    """The launches of a call, and their scratch memory. tag: ends names, so that two transforms serve one call."""

    arrays: Arrays
    fourier: Fourier
    circular: bool
    config: ConvConfig | FusedConfig | None = None
    tag: str = ""
    steps: list[PlanStep] = field(default_factory=list)
    scratch: dict[str, Scratch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.channels: int = self.arrays.dims["channels"]
        self.limits = limits_of(self.arrays.like)
        self.resident = outer_blocks(self.limits)
        self.outer, inner = self.fourier.outer, self.fourier.inner
        self.rows = self.channels * self.fourier.length // COLS  # of all innermost matrices
        self.n: str | None = None
        if self.fourier.n < self.fourier.length:  # elements are moved by their places
            self.n = "n"
            self.arrays.number("n", self.fourier.n)
        for i, level in enumerate((*self.outer, inner)):
            for name, x in matrices_like(self.arrays.like, level).items():
                self.arrays.view(f"{name}{i}{self.tag}", x)
        self.inner = self._matrices(len(self.outer), "right")
        self.behind: str | None = None
        if self.circular and not self.fourier.is_cyclic:
            self.behind = "behind"
            self.arrays.number("behind", self.fourier.length - self.fourier.n)

    def lay_out(self, *names: str) -> None:
        """Let kernels take sequences as rows of matrices if they fill these, else one after another."""
        batch, n = self.arrays.dims["batch"], self.fourier.n
        first = (*self.outer, self.fourier.inner)[0]
        shape: tuple[int, ...] = (batch, self.channels * n)
        if self.fourier.length == n:
            shape = (batch, self.channels * first.rows, first.columns)
        for name in names:
            self.arrays.reshape(name, shape)
            self.arrays.lines(name)
            self.arrays.alias(f"{name}_sequences", name, (batch, self.channels, n))
            if n % COLS == 0:
                self.arrays.alias(f"{name}_tiles", name, (batch, self.channels, n // COLS, 4, 16))

    def add_spectrum(self) -> tuple[str, ...]:
        """Find the transforms of `filter`, which the call makes; the names of their arrays."""
        arrays, taps = self.arrays, self.arrays.dims["taps"]
        shapes = spectrum_shapes(self.channels, self.fourier)
        names = tuple(self._made(name, *found) for name, found in shapes.items())
        arrays.number("taps", taps)
        arrays.reshape("filter", (1, self.channels * taps))
        source, behind = "filter", self.behind
        if self.outer:
            arrays.alias("filter_sequences", "filter", (1, self.channels, taps))
            self._find_scales("filter", None, 1)
            source, behind = self._forward("filter", None, 1, False, "taps", behind), None
        args = (source, *names[:2], *self.inner, "taps", behind)
        self.steps.append(PlanStep(filter_tiles, args, {"rows": self.fourier.inner.rows}))
        if self.outer:
            root = (self.fourier.length / INNER) ** 0.5
            self._even("scales", f"scales_of_filter{self.tag}", "evens", root)
        return names

    def convolve(
        self,
        spectrum: tuple[str, ...],
        u: str,
        before: str | None,
        *outs: Output,
        is_adjoint: bool = False,
    ) -> None:
        """Convolve sequences with filters; outs: one or two outputs, each after the name of its gate."""
        batch, form = self.arrays.dims["batch"], ConvForm(self.fourier.is_cyclic, is_adjoint)
        if not self.outer:
            self._tiles(spectrum, u, before, outs, form, batch)
            return
        pairs = -(-batch // (1 + form.is_paired))
        config = self.config or fused_for(self.fourier, self.channels * pairs, self.limits)
        if isinstance(config, FusedConfig) and points_of_fused(self.fourier):
            self._fused(spectrum, u, before, outs, form, config)
            return
        ups = self._find_scales(u, before, batch)
        z = self._forward(u, before, batch, form.is_paired, self.n)
        y = self._made(f"{u}_convolved{self.tag}", (2 * pairs, self.rows, COLS), "f16")
        of_pairs = ConvForm(True, is_adjoint, is_scaled=False)
        self._tiles(spectrum, z, None, ((None, y),), of_pairs, 2 * pairs)
        evens = self._rows_of(spectrum[2], 1)
        self._inverse(y, (None, ups, evens), form.is_paired, pairs, outs, self.n, None)

    def correlate(
        self, u: str, before: str | None, g: str, after: str | None, total: str, taps: int
    ) -> None:
        """Sum the correlations of a batch of sequences with gradients, at the first `taps` positions."""
        batch, each = self.arrays.dims["batch"], 2 if self.outer else 1
        gates = 0 if self.outer else (before is not None) + (after is not None)
        config, parts = self._cut((2 + gates) * each, 0, 1 if self.outer else batch)
        count = parts * (1 if self.behind is None else 2)
        sums = f"{total}_sums"
        self.scratch[sums] = Scratch((count, self.channels * taps))
        self.arrays.alias(f"{total}_row", total, (1, self.channels * taps))
        self.arrays.number("taps", taps)
        self.arrays.number("sums", parts)
        how = {"rows": self.fourier.inner.rows, "config": config, "share": self._share()}
        if not self.outer:
            numbers = (self.n, "taps", self.behind, "sums")
            args = (u, before, None, g, after, None, *self.inner, sums, None, *numbers)
            self.steps.append(PlanStep(correlated_tiles, args, how))
        else:
            self._correlate_outer(((u, before), (g, after)), sums, how)
        self.steps.append(PlanStep(sum_parts, (sums, f"{total}_row")))

    def _correlate_outer(
        self, given: tuple[tuple[str, str | None], ...], sums: str, how: dict[str, Any]
    ) -> None:
        """The same through outer levels."""
        batch, args = self.arrays.dims["batch"], list[str | None]()
        for name, gate in given:
            ups = self._find_scales(name, gate, batch)
            args += (self._forward(name, gate, batch, False, self.n), None, ups)
        y = self._made("correlated", (2, self.rows, COLS), "f16")
        self.scratch["correlated_scales"] = Scratch((self.rows // COLS,))
        args += (*self.inner, y, "correlated_scales", None, None, None, "sums")
        self.steps.append(PlanStep(correlated_tiles, tuple(args), how))
        self.scratch["correlated_evens"] = Scratch((1, self.channels, self.outer[0].rows))
        self._even("correlated_scales", None, "correlated_evens", self.fourier.length**0.5)
        self.arrays.alias("correlated_relative", "correlated_scales", (1, self.rows // COLS))
        scales = ("correlated_relative", None, self._rows_of("correlated_evens", 1))
        self._inverse(y, scales, False, 1, ((None, sums),), "taps", self.behind)

    def _made(self, name: str, shape: tuple[int, ...], dtype: str) -> str:
        """Add an array that the call makes; its name."""
        self.arrays.made[name] = Made(shape, dtype, shape)
        return name

    def _matrices(self, i: int, last: str) -> tuple[str, ...]:
        """The names of the matrices of a level, of which the last is `right` or `steps`."""
        return tuple(f"{name}{i}{self.tag}" for name in ("left", "twiddle", last))

    def _share(self) -> int:
        """How many sequences of 4096 elements are left of a row of the outermost matrices."""
        return self.fourier.length // INNER // self.outer[0].rows if self.outer else 1

    def _rows_of(self, scales: str, batch: int) -> str:
        """Let kernels take scales of (batch, channels, rows) as (batch, rows of all); their name."""
        shape = (batch, self.channels * self.outer[0].rows)
        self.arrays.alias(f"{scales}_rows", scales, shape)
        return f"{scales}_rows"

    def _find_scales(self, u: str, before: str | None, batch: int) -> str:
        """Find the scales of sequences; their name, as rows of all."""
        name = f"scales_of_{u}{self.tag}"
        self.scratch[name] = Scratch((batch, self.channels, self.outer[0].rows))
        given = (None if x is None else f"{x}_sequences" for x in (u, before))
        self.steps.append(PlanStep(sequence_scales, (*given, name)))
        return self._rows_of(name, batch)

    def _even(self, scales: str, ups: str | None, evens: str, root: float) -> None:
        """Make the scales of what outer levels leave relative to the largest of a channel."""
        each = (
            self.arrays.made[scales].shape
            if scales in self.arrays.made
            else self.scratch[scales].shape
        )
        self.arrays.alias(
            f"{scales}_of_channels", scales, (self.channels, each[0] // self.channels)
        )
        self.arrays.number(f"{scales}_root", root)
        args = (f"{scales}_of_channels", ups, evens, f"{scales}_root")
        self.steps.append(PlanStep(even_scales, args))

    def _forward(
        self,
        u: str,
        before: str | None,
        batch: int,
        is_paired: bool,
        n: str | None,
        behind: str | None = None,
    ) -> str:
        """Do the outer levels of transforms; the name of what is left, (2 pairs, rows of all matrices, 64)."""
        pairs, name, rows = -(-batch // (1 + is_paired)), u, self.channels
        first: tuple[str | None, ...] = (before, f"scales_of_{u}{self.tag}_rows")
        for i, level in enumerate(self.outer):
            rows *= level.rows
            shape = (2 * pairs, rows, level.columns)
            to = self._made(f"{u}_level{i}{self.tag}", shape, "f16")
            if i:
                self.arrays.alias(f"{name}_next", name, shape)
                name, first, n, behind = f"{name}_next", (None, None), None, None
            args = (name, *first, to, *self._matrices(i, "steps"), n, behind)
            how = {"rows": level.rows, "is_paired": bool(i) or is_paired, "resident": self.resident}
            self.steps.append(PlanStep(outer_forward, args, how))
            name = to
        self.arrays.alias(f"{name}_inner", name, (2 * pairs, self.rows, COLS))
        return f"{name}_inner"

    def _inverse(
        self,
        z: str,
        scales: tuple[str | None, str | None, str | None],
        is_paired: bool,
        pairs: int,
        outs: tuple[Output, ...],
        n: str | None,
        behind: str | None,
    ) -> None:
        """Undo the outer levels of what has the name z, (2 pairs, rows, 64), and write outputs.

        scales: relative ones of all rows, and those of the outermost rows of sequences and of all batches.
        """
        rows, shapes = self.channels, []
        for level in self.outer:
            rows *= level.rows
            shapes.append((2 * pairs, rows, level.columns))
        relative, *of_rows = scales
        for i in reversed(range(len(self.outer))):
            self.arrays.alias(f"{z}_at{i}", z, shapes[i])
            own, own_outs, is_pair = of_rows, outs, is_paired
            if i:
                z = self._made(f"{z}_back{i}", shapes[i], "f16")
                own, own_outs, is_pair = [None, None], ((None, z),), True
            source = f"{z.removesuffix(f'_back{i}')}_at{i}"
            places = (None, None) if i else (n, behind)
            args = (source, relative, *own, *self._matrices(i, "steps"), *_two(own_outs), *places)
            how = {"rows": self.outer[i].rows, "is_paired": is_pair, "resident": self.resident}
            self.steps.append(PlanStep(outer_inverse, args, how))
            relative = None

    def _tiles(
        self,
        spectrum: tuple[str, ...],
        u: str,
        before: str | None,
        outs: tuple[Output, ...],
        form: ConvForm,
        batch: int,
    ) -> None:
        """The launch that convolves sequences of at most 4096 elements, or what outer levels leave."""
        members, gates = 1 + form.is_paired, sum(name is not None for name, _ in outs)
        tiles = (1 + (before is not None) + gates) * members
        config, parts = self._cut(tiles, len(outs) * members, -(-batch // members))
        self.arrays.number(f"parts_{u}", parts)
        n = None if self.outer else self.n
        args = (u, before, *spectrum[:2], *self.inner, *_two(outs), n, f"parts_{u}")
        how = {"rows": self.fourier.inner.rows, "form": form, "config": config}
        self.steps.append(PlanStep(convolved_tiles, args, how))

    def _fused(
        self,
        spectrum: tuple[str, ...],
        u: str,
        before: str | None,
        outs: tuple[Output, ...],
        form: ConvForm,
        config: FusedConfig,
    ) -> None:
        """The launch that convolves sequences of up to 8 times 4096 elements."""
        ending = "sequences" if self.fourier.n % COLS else "tiles"
        given = [None if x is None else f"{x}_{ending}" for x in (u, before, *_two(outs))]
        level = self.outer[0]
        matrices = (*self.inner[1:], f"factors0{self.tag}")
        args = (*given[:2], *spectrum, *matrices, *given[2:])
        how: dict[str, Any] = {"points": level.rows, "shift": level.shift}
        how |= {"is_full": self.n is None, "form": form, "config": config}
        self.steps.append(PlanStep(fused_tiles, args, how))

    def _cut(self, tiles: int, results: int, steps: int) -> tuple[ConvConfig, int]:
        """The configuration for so many tiles of a stage and of results, and into how many parts steps are cut."""
        is_direct = bool(self.outer) or self.fourier.length == self.fourier.n
        given = self.config if isinstance(self.config, ConvConfig) else None
        config = given or config_for(tiles * is_direct, results * is_direct, self.limits)
        return config, parts_for(-(-self.rows // COLS), steps, config, self.limits)


def _two(outs: tuple[Output, ...]) -> tuple[str | None, ...]:
    """The names of two outputs and their gates, of which the second may be None."""
    first, second = (*outs, (None, None))[:2]
    return (*first, *second)
