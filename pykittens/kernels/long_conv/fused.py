"""Long convolutions of 2, 4 or 8 times 4096 complex points in one launch, with their outer level in shared memory.

A team of warpgroups has the R tiles of a sequence, or of a pair. The outer level combines elements at the same place of
all tiles, so it needs no product: butterflies, and factors that are those of a row times those of a column. What it
leaves takes the place of the tiles, and is what outer_forward leaves, so a filter's transform serves both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.long_conv.points import from_points, points_of
from pykittens.kernels.long_conv.tables import COLS, SLICE
from pykittens.kernels.long_conv.tiles import Whole, zeros_of
from pykittens.kernels.long_conv.transform import Transform, matrix_of, scales_of
from pykittens.lang.std.complex_tile import ComplexTile

SLICES = COLS // SLICE
ON_THEIR_WAY = 8  # slices of inputs at once, and more where that saves no registers
RIGHT = 2 * COLS  # rows and columns of a complex matrix in real form


@pk.kernel
def fused_tiles(  # type: ignore[no-untyped-def]
    U,
    before,
    values,
    scales,
    evens,
    twiddle,
    right,
    factors,
    after,
    Y,
    after2,
    Y2,
    *,
    points,
    shift,
    is_full,
    form,
    config,
):
    """Y = after * (the convolution of before * U with filters), and Y2 = after2 * that.

    Sequences are (batch, channels, rows, 4, 16), which are moved as tiles, or (batch, channels, n), element by element.
    scales: of the rows of values, relative to evens, (1, channels, points). factors: those of
    `outer_factors`.
    """
    batch, channels = U.shape[0], U.shape[1]
    groups, teams, members = config.groups, config.teams, 1 + form.is_paired
    pk.require(teams in (1, groups), "a team is a warpgroup, or all")
    together = groups // teams
    arrays = {"u": U, "before": before, "after": after, "after2": after2}
    arrays = {name: x for name, x in arrays.items() if x is not None}
    # Their extents are a part of the program, which then has no tests of what is inside; rows of full transforms only.
    given = [x for x in (*arrays.values(), Y, Y2) if x is not None and len(x.shape) == 5]
    inside = [x.shape[2 if is_full else 3 :] for x in given]
    for extent in sum((*inside, *(x.shape for x in (twiddle, right, factors))), ()):
        pk.static(extent)
    outs = [(name, y) for name, y in (("after", Y), ("after2", Y2)) if y is not None]
    tile: Any = pk.st(pk.f16, COLS, COLS)
    memory: Any = pk.shared(tile, count=2 * points * teams)
    spectra: Any = pk.shared(tile, count=2 * groups)
    matrix: Any = pk.shared(pk.st(pk.f16, RIGHT, RIGHT))
    table: Any = pk.shared(pk.sv(pk.f32, 4 * points * COLS))
    planes: Any = pk.shared(tile, count=2) if config.shared_factors else None
    zeros: Any = pk.shared(pk.sv(pk.int32, SLICE), count=groups) if len(U.shape) == 3 else None
    largest: Any = None if together == 1 else pk.shared(pk.sv(pk.f32, SLICE * members * groups))
    is_here: Any = pk.semaphore(1, count=groups)
    is_ready: Any = pk.semaphore(groups)
    met: Any = None if together == 1 else pk.semaphore(together, count=3 * teams)
    steps = pk.cdiv(batch, members)
    total = channels * steps
    tasks: Any = pk.persistent((pk.cdiv(total, teams),))

    with pk.warpgroups(groups) as w:
        share(w, groups, (right, matrix), (factors, table), (twiddle, planes))
        is_ready.arrive()
        is_ready.wait(0)
        team, member = (w, 0) if together == 1 else (0, w)  # a team is a warpgroup, or all
        own = Group(team, member, together, points, shift, memory, table, met)
        zero = None if zeros is None else zeros_of(zeros[w])
        spectrum = ComplexTile(spectra[2 * w], spectra[2 * w + 1])
        # With 64 rows and no shift, the matrix from the left is that from the right.
        left = ComplexTile(*(matrix.tiles(COLS, COLS)[0, i] for i in range(2)))
        twiddles = matrix_of(twiddle) if planes is None else ComplexTile(planes[0], planes[1])
        start = pk.minimum((tasks.block * teams + team) // steps, channels - 1)
        fetch(spectrum, values, start * points + member, is_here[w])
        count: Any = 0
        for (task,) in tasks:
            item = task * teams + team
            if item < total:
                h = item // steps
                at = Whole(arrays, item % steps * members, h, zero)
                ups = own.outer_forward(at, largest, w, form, count)
                later = pk.minimum(item + tasks.blocks * teams, total - 1)
                to_come = Whole(arrays, later % steps * members, later // steps, zero)
                to_come.prefetch(points, members, member, together)
                for k in pk.range(points // together):
                    j = member + k * together
                    pair = own.pair(j)
                    is_last = k + 1 == points // together
                    following = pk.where(
                        is_last, later // steps * points + member, h * points + j + together
                    )
                    of = Transform(left.loaded(), twiddles, matrix, pair)
                    c = of.forward_of_memory()
                    is_here[w].wait(count * (points // together) + k)
                    s = spectrum.loaded()
                    fetch(spectrum, values, following, is_here[w])
                    s = s.to(pk.f32)
                    y = of.inverse(c.times_conj(s) if form.is_adjoint else c * s, False)
                    pk.mma_wait()
                    pk.sync()
                    pair.store(y.to(pk.f16))
                own.meet(2, count)
                own.outer_inverse(at, scales, evens, ups, outs)
                count = count + 1
        is_here[w].wait(count * (points // together))


def share(w: Any, groups: int, *matrices: tuple[Any, Any]) -> None:
    """Bring matrices, factors and, if they are to be there, planes to shared memory, each group its part."""
    (right, matrix), (factors, table), (twiddle, planes) = matrices
    rows, count = RIGHT // groups, table.length // groups
    pk.store(matrix.tiles(rows, RIGHT)[w, 0], pk.load(right[w, 0], rows=rows, cols=RIGHT))
    pk.store(table.parts(count)[w], pk.load(factors[w], cols=count))
    if planes is not None:
        for i in range(2 // groups):
            pk.store(planes[w + i], pk.load(twiddle[w + i, 0, 0], rows=COLS, cols=COLS))
    pk.fence_async()


@pk.function
def fetch(spectrum: ComplexTile, values: Any, tile: Any, is_here: Any) -> None:
    """Start to bring a tile of a spectrum, once all warps of the group have what was there."""
    is_here.expect(spectrum.re, spectrum.im)
    pk.load_async(spectrum.re, values[0, tile, 0], signal=is_here)
    pk.load_async(spectrum.im, values[1, tile, 0], signal=is_here)


@dataclass(frozen=True, eq=False)
class Group:
    """A warpgroup, `member` of the `together` of a team, and the memory of the team's tiles."""

    team: Any
    member: Any
    together: int
    points: int
    shift: float
    memory: Any
    factors: Any
    met: Any

    def pair(self, j: Any) -> ComplexTile:
        """Tile j of the team's sequence."""
        i = 2 * (self.team * self.points + j)
        return ComplexTile(self.memory[i], self.memory[i + 1])

    def meet(self, which: int, count: Any) -> None:
        """Wait for the groups of the team, for the count-th time."""
        if self.together == 1:
            pk.sync()
        else:
            met = self.met[3 * self.team + which]
            met.arrive()
            met.wait(count)

    def outer_factors(self, j: int, q: Any) -> tuple[ComplexTile, ComplexTile]:
        """The factors of point j, of rows and of the columns of slice q, as vectors."""
        rows, columns = self.factors.parts(COLS), self.factors.parts(SLICE)
        planes = [i * self.points + j for i in range(4)]
        return (
            ComplexTile(*(pk.load(rows[i], spread=pk.per_row) for i in planes[:2])),
            ComplexTile(
                *(pk.load(columns[SLICES * i + q], spread=pk.per_column) for i in planes[2:])
            ),
        )

    @pk.function
    def outer_forward(self, at: Whole, largest: Any, w: Any, form: Any, count: Any) -> list[Any]:
        """Leave the outer level of the scaled sequence in memory; what takes the scales back."""
        members = range(1 + form.is_paired)
        scales = [scales_of(x) for x in self.largest_of(at, largest, w, members, count)]
        for k in pk.range(SLICES // self.together):
            q = self.member + k * self.together
            parts = [at.inputs(i, [(a, q) for a in range(self.points)]) for i in members]
            parts = [[x * down for x in own] for own, (down, _) in zip(parts, scales, strict=True)]
            x = [ComplexTile(*z) if form.is_paired else z[0] for z in zip(*parts, strict=True)]
            for j, z in enumerate(points_of(x, self.shift)):
                rows, columns = self.outer_factors(j, q)
                own = self.pair(j)
                z = (z * columns * rows).to(pk.f16)
                pk.store(own.re.tiles(COLS, SLICE)[0, q], z.re)
                pk.store(own.im.tiles(COLS, SLICE)[0, q], z.im)
        pk.fence_async()
        self.meet(1, count)
        return [up for _, up in scales]

    @pk.function
    def largest_of(self, at: Whole, largest: Any, w: Any, members: range, count: Any) -> list[Any]:
        """The largest magnitude of each sequence of the team."""
        most: list[Any] = [pk.zeros(pk.f32, COLS, SLICE) for _ in members]
        own = SLICES // self.together
        each = min(max(ON_THEIR_WAY // (self.points * len(members)), 1), own)
        for k in pk.range(own // each):
            for i in members:
                columns = [self.member + (k * each + c) * self.together for c in range(each)]
                for x in at.inputs(i, [(a, q) for q in columns for a in range(self.points)]):
                    most[i] = pk.maximum(most[i], pk.abs(x))
        found: list[Any] = [pk.max(x) for x in most]
        if self.together == 1:
            return found
        slots = largest.parts(SLICE)
        for i, own_most in enumerate(found):
            pk.store(slots[len(members) * w + i], pk.zeros(pk.f32, SLICE) + own_most)
        self.meet(0, count)
        first = len(members) * self.together * self.team
        for i in members:
            for group in range(self.together):
                slot = (first + len(members) * group + i) * SLICE
                found[i] = pk.maximum(found[i], pk.load(largest.parts(1)[slot]))
        return found

    @pk.function
    def outer_inverse(self, at: Whole, scales: Any, evens: Any, ups: list[Any], outs: Any) -> None:
        """Write the outputs of the sequence from what its tiles hold."""
        even = pk.load(evens[0, at.h, 0])
        for k in pk.range(SLICES // self.together):
            q = self.member + k * self.together
            z = []
            for j in range(self.points):
                rows, columns = self.outer_factors(j, q)
                own = self.pair(j)
                held = (pk.load(x.tiles(COLS, SLICE)[0, q]) for x in (own.re, own.im))
                scale = pk.load(scales[(at.h * self.points + j) * COLS]) * even
                z.append(ComplexTile(*held).to(pk.f32).times_conj(columns).times_conj(rows * scale))
            for a, y in enumerate(from_points(z, self.shift)):
                parts = [x * up for x, up in zip((y.re, y.im), ups, strict=False)]
                at.store(outs, parts, a, q)
