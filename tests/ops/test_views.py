"""Parts of shared vectors and rows of shared tiles: loads, stores, refusals, and the release of their stage."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError, KernelError, TypeMismatch
from pykittens.ir.nodes import Call, walk
from pykittens.ir.stages import GiveBack
from tests.ops.kernels import normal, poisoned
from tests.running import recorded


def on_a_row(body, *numbers, length=64):
    """Run `body` on a shared vector that holds a row, and a tensor of its size."""
    x = normal(0, (length,))
    y = poisoned((length,), np.float32)

    @pk.kernel
    def kernel(x, y, i):
        vector = pk.shared(pk.sv(pk.f32, length))
        pk.grid(1)
        pk.store(vector, pk.load(x, cols=length))
        pk.sync()
        body(vector, y, i)

    kernel(x, y, *(numbers or (0,)))
    return x, y


def test_a_part_of_one_element_is_a_scalar_and_other_parts_are_vectors():
    types = []

    def body(vector, y, i):
        types.append([str(pk.load(vector.parts(n)[i]).type) for n in (1, 2, 16)])
        types.append(str(pk.load(vector.parts(64)[0], spread=pk.per_row).type))
        types.append(str(pk.load(vector.parts(16)[0], spread=pk.per_column).type))

    on_a_row(body)
    assert types == [
        ["f32", "rv<f32, 2, plain>", "rv<f32, 16, plain>"],
        "rv<f32, 64, per row>",
        "rv<f32, 16, per column>",
    ]


def test_the_first_columns_of_a_tile_are_a_view():
    x = normal(0, (64, 80))
    y = poisoned((64, 80), np.float32)

    @pk.kernel
    def kernel(x, y):
        tile = pk.shared(pk.st(pk.f32, 64, 128))
        pk.grid(1)
        pk.store(tile, pk.zeros(pk.f32, 64, 128))
        pk.sync()
        pk.store(tile[:, :80], pk.load(x, rows=64, cols=80))
        pk.sync()
        pk.store(y, pk.load(tile[:, 0:80]))

    kernel(x, y)
    assert np.array_equal(x, y)


@pytest.mark.parametrize(
    "index",
    [0, (0, 0), slice(None), (slice(None), 16), (slice(None), slice(16, 32))]
    + [(slice(None), slice(n)) for n in (None, 0, 8, 40, 144, "many")]
    + [(slice(0, 8), slice(16)), (slice(None), slice(None, 32, 2))],
    ids=str,
)
def test_other_slices_of_a_shared_tile_are_refused(index):
    @pk.kernel
    def kernel(y):
        tile = pk.shared(pk.st(pk.f32, 16, 128))
        pk.grid(1)
        pk.store(y, pk.load(tile[index]))

    with pytest.raises(KernelError, match=r"must be `\[:, :n\]` with a multiple of 16 up to 128"):
        kernel(poisoned((16, 16), np.float32))


def test_a_part_is_no_copy():
    def body(vector, y, i):
        part = vector.parts(16)[2]
        pk.store(part, pk.full(pk.f32, 7, 16))
        pk.sync()
        pk.store(y, pk.load(vector))

    x, y = on_a_row(body)
    x[32:48] = 7
    assert np.array_equal(x, y)


@pytest.mark.parametrize("i", [4, -1])
def test_a_part_outside_its_vector_is_an_error_when_the_kernel_runs(i):
    with pytest.raises(AccessError, match=f"part {i} of 16 is outside a shared vector of 64"):
        on_a_row(lambda v, y, i: pk.store(y, pk.load(v.parts(16)[i])), i)


def test_a_vector_of_another_length_does_not_fit_a_part():
    with pytest.raises(TypeMismatch, match="`value` must be a register vector of 16"):
        on_a_row(lambda v, y, i: pk.store(v.parts(16)[i], pk.load(v)))


def test_an_element_is_no_vector_of_rows():
    with pytest.raises(TypeMismatch, match="`src.length` must be a multiple of 64"):
        on_a_row(lambda v, y, i: pk.load(v.parts(1)[i], spread=pk.per_row))


def test_copies_move_whole_vectors():
    @pk.kernel
    def kernel(x, y, *, out: bool):
        ring = pk.pipeline(1, pk.sv(pk.f32, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s if out else s.parts(32)[0], x)
        with ring.drain() as s:
            pk.store_async(y, s.parts(32)[0])

    x, y = normal(0, (64,)), poisoned((64,), np.float32)
    for out, name in ((False, "dst"), (True, "src")):
        wanted = f"`{name}` must be a whole shared vector, not a part of sv<f32, 64>"
        with pytest.raises(TypeMismatch, match=wanted):
            kernel(x, y, out=out)


def test_a_part_is_of_its_stage_and_is_read_only_while_that_is_held():
    @pk.kernel
    def kernel(x, y, *, side: str):
        ring = pk.pipeline(1, pk.sv(pk.f32, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x)
            part = s.parts(1)[3]
            if side == "fill":
                pk.load(part)
        with ring.drain() as s:
            part = s.parts(1)[3]
        pk.store(y[0], pk.load(part))

    x, y = normal(0, (64,)), poisoned((64,), np.float32)
    with pytest.raises(KernelError, match="taken with `drain`, not with `fill`"):
        kernel(x, y, side="fill")
    with pytest.raises(KernelError, match="stage"):
        kernel(x, y, side="after")


def test_a_stage_is_given_back_behind_the_loads_of_its_parts():
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.sv(pk.f32, 64))
        pk.grid(1)
        for i in pk.range(3):
            with ring.fill() as s:
                pk.load_async(s, x[i])
            with ring.drain() as s:
                scale = pk.load(s.parts(1)[i])
            pk.store(y[i, 0], scale)

    x, y = normal(0, (3, 64)), poisoned((3, 1), np.float32)
    kernel(x, y)
    assert np.array_equal(y[:, 0], np.diag(x[:, :3]))
    steps = [
        n.op.name if isinstance(n, Call) else "give back"
        for n in walk(recorded(kernel, x, y).body)
        if isinstance(n, GiveBack) or (isinstance(n, Call) and n.op.name in ("load", "store"))
    ]
    assert steps == ["load", "give back", "store"]


def test_an_element_is_not_read_before_the_roles_that_bring_it():
    @pk.kernel
    def kernel(x, y):
        vector, full = pk.shared(pk.sv(pk.f32, 64)), pk.semaphore(1)
        pk.grid(1)
        scale = pk.load(vector.parts(1)[0])
        with pk.producer():
            full.expect(vector)
            pk.load_async(vector, x, signal=full)
        with pk.consumers(1):
            full.wait(0)
            pk.store(y, pk.load(vector) * scale)

    x, y = normal(0, (64,)), poisoned((64,), np.float32)
    with pytest.raises(KernelError, match="load: stands outside the roles of a kernel with roles"):
        kernel(x, y)


# -- rows of tiles ---------------------------------------------------------------------------------


def on_a_tile(body, i=0, warps=4):
    """Run `body` on a shared tile that holds a matrix, and a tensor of its size."""
    x, y = normal(0, (64, 64)), poisoned((64, 64), np.float32)

    @pk.kernel(warps=warps)
    def kernel(x, y, i):
        tile = pk.shared(pk.st(pk.f32, 64, 64))
        pk.grid(1)
        pk.store(tile, pk.load(x[0], rows=64, cols=64))
        pk.sync()
        body(tile, y, i)

    kernel(x, y, i)
    return x, y


def test_a_row_is_a_plain_vector():
    types = []

    def body(tile, y, i):
        types.extend([str(tile.row(i).type), tile.row(i).length, tile.row(i).shape])
        types.append(str(pk.load(tile.row(i)).type))
        types.append(str(pk.load(tile.tiles(16, 32)[1, 1].row(3)).type))

    on_a_tile(body)
    assert types == ["row<f32, 64>", 64, (1, 64), "rv<f32, 64, plain>", "rv<f32, 32, plain>"]


def test_a_row_is_no_copy():
    def body(tile, y, i):
        pk.store(tile.row(i), pk.full(pk.f32, 7, 64))
        pk.store(tile.tiles(16, 32)[i // 16 - 1, 1].row(5), pk.full(pk.f32, 8, 32))
        pk.sync()
        pk.store(y[0], pk.load(tile))

    x, y = on_a_tile(body, 40)
    x[40], x[21, 32:] = 7, 8
    assert np.array_equal(x, y)


def test_a_row_is_published_for_engines():
    def body(tile, y, i):
        pk.publish(tile.row(i), pk.full(pk.f32, 7, 64))
        pk.store_async(y[0], tile)

    x, y = on_a_tile(body, 3)
    x[3] = 7
    assert np.array_equal(x, y)


@pytest.mark.parametrize("i", [64, -1])
def test_a_row_outside_its_tile_is_an_error_when_the_kernel_runs(i):
    with pytest.raises(AccessError, match=f"row {i} is outside a shared tile of 64x64"):
        on_a_tile(lambda t, y, i: pk.store(y[0], pk.load(t.row(i))), i)


def test_a_row_outside_a_part_of_its_tile_is_an_error_when_the_kernel_runs():
    with pytest.raises(AccessError, match="row 16 is outside a shared tile of 16x64"):
        on_a_tile(lambda t, y, i: pk.store(y[0], pk.load(t.tiles(16, 64)[1].row(i))), 16)


@pytest.mark.parametrize("i", [64, -1, 1.0, (0, 1), None, slice(0, 2), 2**40])
def test_the_number_of_a_row_is_that_of_one_of_the_tile(i):
    with pytest.raises(TypeMismatch, match="row: `i` must be"):
        on_a_tile(lambda t, y, _: t.row(i))


OTHERS = {
    "per row": lambda: pk.zeros(pk.f32, 64, spread=pk.per_row),
    "per column": lambda: pk.zeros(pk.f32, 64, spread=pk.per_column),
    "rv<f32, 32, plain>": lambda: pk.zeros(pk.f32, 32),
    "rt<f32, 64x64>": lambda: pk.zeros(pk.f32, 64, 64),
    "1.0": lambda: 1.0,
}


@pytest.mark.parametrize("given", OTHERS)
def test_only_a_plain_vector_of_its_length_fits_a_row(given):
    with pytest.raises(
        TypeMismatch, match="`value` must be a plain register vector of 64"
    ) as fault:
        on_a_tile(lambda t, y, i: pk.store(t.row(i), OTHERS[given]()))
    assert given in str(fault.value)
    assert ("pk.spread(value, pk.plain)" in str(fault.value)) == given.startswith("per")


def test_a_row_takes_values_of_its_dtype():
    with pytest.raises(TypeMismatch, match="`value` must be f32 like `dst`, not bf16"):
        on_a_tile(lambda t, y, i: pk.store(t.row(i), pk.zeros(pk.bf16, 64)))


# Calls that take no row, and what their errors say.
REFUSED = {
    "`spread` must be left out for a row of a shared tile, not per row": lambda t: pk.load(
        t.row(0), spread=pk.per_row
    ),
    "`transposed` must be False unless a tile is moved": lambda t: pk.load(
        t.row(0), transposed=True
    ),
    "`src` must be in a tensor if `rows` or `cols` is given": lambda t: pk.load(t.row(0), cols=64),
    "store: `transposed` must be False unless a tile is moved": lambda t: pk.store(
        t.row(0), pk.zeros(pk.f32, 64), transposed=True
    ),
    "`op` must be left out for shared memory": lambda t: pk.store(
        t.row(0), pk.zeros(pk.f32, 64), op="add"
    ),
    "mma_ABt: `a` must be a shared or a register tile, not row": lambda t: pk.mma_ABt(t.row(0), t),
    "mma_ABt: `b` must be a shared tile, not row": lambda t: pk.mma_ABt(t, t.row(0)),
    "gather: `src` must be a tensor of rank 1": lambda t: pk.gather(t.row(0), pk.iota(64)),
    "scatter: `dst` must be a tensor of rank 1": lambda t: pk.scatter(t.row(0), pk.iota(64), 1.0),
    "atomic_add: `element` must be an element": lambda t: pk.atomic_add(t.row(0), 1),
    "row: a shared row has no rows": lambda t: t.row(0).row(0),
    "tiles: a shared row has no tiles": lambda t: t.row(0).tiles(1, 16),
    "add: `a` must be a register tile, a vector": lambda t: t.row(0) + 1,
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_takes_no_row_says_so(message):
    with pytest.raises(KernelError, match=re.escape(message)) as fault:
        on_a_tile(lambda t, y, i: REFUSED[message](t))
    if message.startswith(("mma", "gather", "scatter", "atomic", "row", "tiles")):
        assert "help: pk.load and pk.store move a row as a whole, as a plain vector" in str(
            fault.value
        )


def test_a_row_has_no_parts_and_no_elements():
    @pk.kernel
    def parts(x):
        row = pk.shared(pk.st(pk.f32, 64, 64)).row(0)
        pk.grid(1)
        row.parts(16)

    @pk.kernel
    def element(x):
        row = pk.shared(pk.st(pk.f32, 64, 64)).row(0)
        pk.grid(1)
        row[3]

    with pytest.raises(KernelError, match="`row` is row<f32, 64> and has no `parts`"):
        parts(normal(0, (4,)))
    with pytest.raises(KernelError, match="a shared row has no columns") as fault:
        element(normal(0, (4,)))
    assert "pk.load and pk.store move a row as a whole" in str(fault.value)


def test_a_vector_has_no_rows():
    with pytest.raises(TypeMismatch, match="row: a shared vector has no rows") as fault:
        on_a_row(lambda v, y, i: v.row(0))
    assert "vector.parts(length)[i] is a part of it" in str(fault.value)


@pytest.mark.parametrize("out", [False, True])
def test_copies_move_no_rows(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(pk.f32, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s if out else s.row(0), x[0])
        with ring.drain() as s:
            pk.store_async(y[0], s.row(0))

    x, y = normal(0, (64, 64)), poisoned((64, 64), np.float32)
    name = "src" if out else "dst"
    with pytest.raises(TypeMismatch, match=f"`{name}` must be a shared tile, not row<f32, 64>"):
        kernel(x, y)


def test_a_row_is_of_its_stage_and_is_used_only_while_that_is_held():
    @pk.kernel
    def kernel(x, y, *, side: str):
        ring = pk.pipeline(1, pk.st(pk.f32, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.store(s.row(3), pk.load(x, cols=64))
            if side == "fill":
                pk.load(s.row(3))
        with ring.drain() as s:
            row = s.tiles(16, 64)[0].row(3)
        pk.store(y, pk.load(row))

    x, y = normal(0, (64,)), poisoned((64,), np.float32)
    with pytest.raises(KernelError, match="taken with `drain`, not with `fill`"):
        kernel(x, y, side="fill")
    with pytest.raises(KernelError, match="belongs to a stage that was left"):
        kernel(x, y, side="after")


def test_a_stage_is_given_back_after_the_loads_of_its_rows():
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(pk.f32, 64, 64))
        pk.grid(1)
        for i in pk.range(3):
            with ring.fill() as s:
                pk.load_async(s, x[i])
            with ring.drain() as s:
                row = pk.load(s.row(i))
            pk.store(y[i], row)

    x, y = normal(0, (192, 64)), poisoned((3, 64), np.float32)
    kernel(x, y)
    assert np.array_equal(y, x[[0, 65, 130]])
    steps = [
        n.op.name if isinstance(n, Call) else "give back"
        for n in walk(recorded(kernel, x, y).body)
        if isinstance(n, GiveBack) or (isinstance(n, Call) and n.op.name in ("load", "store"))
    ]
    assert steps == ["load", "give back", "store"]
