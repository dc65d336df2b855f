"""Fences between lanes and engines: the table of docs/language.md, the race detector and the emitted text agree."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from pykittens.ir.nodes import walk
from pykittens.ir.stages import Leave
from pykittens.ops.core import OPS
from pykittens.runtime.arguments import check as check_arguments
from tests.emulate.races.test_detector_clean import nothing, told
from tests.planted.missing_fence import (
    result_stored_without_a_fence,
    tensor_brought_back_without_a_fence,
)
from tests.races import faults, left_out, tile

PAGE = Path(__file__).resolve().parent.parent / "docs" / "language.md"


@pk.kernel
def left_in_place(x, between, y, *, side: str, fenced: bool = False):
    """Lanes write to a stage or a tensor and hand it on by leaving a stage; the engine then accesses it."""
    ring, back = pk.pipeline(1, pk.st(f32, 64, 64)), pk.pipeline(1, pk.st(f32, 64, 64))
    spare, landed = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    with pk.producer():
        for i in pk.range(pk.cdiv(x.rows, 64)):
            with ring.fill() as t:
                pk.load_async(t, x[i])
    with pk.consumers(1):
        for _ in pk.range(pk.cdiv(x.rows, 64)):
            with ring.drain() as t:
                made = pk.load(t) + 1
                if side == "drain":
                    pk.sync()
                    pk.store(t, made)
            if side == "tensor":
                pk.store(between[0], made)
                if fenced:
                    pk.fence_async()
            with back.fill() as t:
                pk.store(t, made)
    with pk.storer():
        for i in pk.range(pk.cdiv(x.rows, 64)):
            with back.drain() as t:
                pk.store_async(y[i], t)
                if side == "tensor":
                    pk.store_wait(read=True)
                    landed.expect(spare)
                    pk.load_async(spare, between[0], signal=landed)
                    landed.wait(i)


def arguments():
    return tile(192, 64), nothing(64, 64), nothing(192, 64)


def program(kernel, *args, **constants):
    """The kernel's own part of the program, without device functions."""
    text = kernel.source(*args, arch="sm_90a", **constants)
    return text[text.index("__global__") :]


def test_the_table_of_the_language_page_is_that_of_the_operations():
    rows = re.findall(
        r"^\| (.+) \| ((?:not )?fenced) \| ((?:not )?fenced) \|$", PAGE.read_text(), re.M
    )
    found = {words: (shared == "fenced", tensors == "fenced") for words, shared, tensors in rows}
    for words, spaces in found.items():
        for name in re.findall(r"`(?:pk|semaphore)\.(\w+)\(", words):
            fences = OPS[{"in_turn": "pass_turn"}.get(name, name)].effects.fences
            assert ("shared" in fences, "tensors" in fences) == spaces, name
    assert found["end of the `with` of a `fill`"] == (True, False)
    assert found["end of the `with` of a `drain`"] == (True, False)


@pytest.mark.parametrize("side", ["drain", "fill"])
def test_leaving_a_stage_that_lanes_wrote_fences_shared_memory(side):
    text = program(left_in_place, *arguments(), side=side)
    consumers = text[text.index("// consumers") :]
    # One before the stage of `ring` is given back, for loads and stores, and one after the stores to `back`.
    assert consumers.count("fence_async();") == 2
    assert "fence_engines();" not in text
    assert told(left_in_place, *arguments(), side=side) == []


def test_leaving_a_stage_is_no_fence_of_tensors():
    for fenced in (False, True):
        found = told(left_in_place, *arguments(), side="tensor", fenced=fenced)
        assert any(f.kind is Kind.MISSING_FENCE for f in found) is not fenced


def test_fence_async_covers_tensors_if_the_copy_engine_fetches_what_the_kernel_writes():
    args = tile(192, 64), nothing(64, 64), nothing(192, 64)
    text = program(tensor_brought_back_without_a_fence, *args, broken=False)
    assert re.search(r"fence_async\(\);\s+fence_engines\(\);", text)
    text = program(result_stored_without_a_fence, args[0], args[2], broken=False)
    assert "fence_async();" in text
    assert "fence_engines();" not in text


def test_fence_async_covers_tensors_of_a_kernel_that_may_get_one_twice():
    @pk.kernel(inplace=True)
    def kernel(x, y):
        made, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
        pk.grid(1)
        pk.store(x, pk.zeros(f32, 64, 64))
        pk.fence_async()
        pk.sync()
        full.expect(made)
        pk.load_async(made, y, signal=full)
        full.wait(0)

    x = np.ones((64, 64), np.float32)
    assert "fence_engines();" in program(kernel, x, x)


@pk.kernel
def handed_on(x, y, *, to, shared=False):
    """Lanes fill a ring that lanes drain, or the copy engine; and perhaps memory outside of rings that it stores."""
    ring, last = pk.pipeline(1, pk.st(f32, 64, 64)), pk.shared(pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.consumers(1):
        made = pk.load(x[0, 0], rows=64, cols=64)
        if shared:
            pk.store(last, made)
        with ring.fill() as t:
            pk.store(t, made)
        if shared:
            pk.sync()
            pk.store_async(y[1, 0], last)
    with pk.warpgroups(1) if to == "lanes" else pk.storer(), ring.drain() as t:
        if to == "lanes":
            pk.store(y[0, 0], pk.load(t))
        else:
            pk.store_async(y[0, 0], t)


@pytest.mark.parametrize(
    ("to", "shared", "fences"), [("lanes", False, 0), ("engine", False, 1), ("lanes", True, 1)]
)
def test_a_stage_is_fenced_where_an_engine_accesses_what_lanes_store(to, shared, fences):
    text = program(handed_on, tile(128, 64), nothing(128, 64), to=to, shared=shared)
    body = text[text.index("// consumers") :]
    assert body.count("fence_async();") == fences


@pk.kernel
def alone(x, y):
    """A kernel without roles fills a ring by lanes, and lets the engine store it."""
    ring = pk.pipeline(1, pk.st(f32, 64, 64))
    pk.grid(1)
    with ring.fill() as t:
        pk.store(t, pk.load(x[0, 0], rows=64, cols=64))
    with ring.drain() as t:
        pk.store_async(y[0, 0], t)


def test_a_kernel_without_roles_fences_what_it_hands_to_the_engine():
    assert (
        program(alone, tile(64, 64), nothing(64, 64)).count("fence_async();") == 2
    )  # one at the start


# -- rows of tiles ---------------------------------------------------------------------------------


@pk.kernel
def written_by_rows(x, y, *, by: str):
    """Two warps fill a ring by rows; a warpgroup multiplies with a stage, lanes load it, or the engine stores it."""
    ring, a = pk.pipeline(2, pk.st(bf16, 16, 64)), pk.shared(pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.warps(2) as w:
        for k in pk.range(3):
            with ring.fill() as s:
                for i in pk.range(8):
                    pk.store(s.row(8 * w + i), pk.load(x[8 * w + i, k], cols=64))
    with pk.warps(1) if by == "rows" else pk.storer() if by == "copies" else pk.consumers(1):
        if by == "products":
            pk.publish(a, pk.full(bf16, 1, 64, 64))
        for k in pk.range(3):
            with ring.drain() as s:
                if by == "products":
                    pk.store(y[0, k], pk.mma_ABt(a, s))
                elif by == "copies":
                    pk.store_async(y[0, k], s)
                else:
                    for i in pk.range(16):
                        pk.store(y[i, k], pk.load(s.row(i)))


WAYS = [("products", (64, 48), f32), ("copies", (16, 192), bf16), ("rows", (16, 192), bf16)]


@pytest.mark.parametrize(("by", "shape", "dtype"), WAYS)
def test_a_stage_that_warps_write_by_rows_is_fenced_where_an_engine_accesses_it(by, shape, dtype):
    x = np.arange(16 * 192).reshape(16, 192) % 7
    args = x.astype(bf16.numpy), np.full(shape, np.nan, dtype.numpy)
    text = program(written_by_rows, *args, by=by)
    filling = text[text.index("// warps") :].partition("barrier_arrive(")[0]
    assert filling.count("fence_async();") == (by != "rows")
    report = pk.check(written_by_rows, *args, by=by)
    assert report.ok, str(report)
    written_by_rows(*args, by=by)
    sums = x.reshape(16, 3, 64).sum(axis=2).T.reshape(-1)
    assert np.array_equal(args[1], np.tile(sums, (64, 1)) if by == "products" else x)


@pytest.mark.parametrize(("by", "shape", "dtype"), WAYS[:2])
def test_rows_of_a_stage_without_the_fence_are_found(by, shape, dtype):
    args = np.ones((16, 192), bf16.numpy), np.full(shape, np.nan, dtype.numpy)
    kernel = written_by_rows.record(check_arguments(written_by_rows.parameters, args, {"by": by}))
    leave = next(n for n in walk(kernel.body) if isinstance(n, Leave))
    with left_out(leave, "fence"):
        found = faults(written_by_rows, *args, by=by)
    assert found == {Kind.MISSING_FENCE}


@pk.kernel
def rows_written_back(x, y):
    """A warpgroup overwrites a row of a drained stage, which the copy engine fills again."""
    ring = pk.pipeline(1, pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(3):
            with ring.fill() as s:
                pk.load_async(s, x[i])
    with pk.consumers(1):
        for i in pk.range(3):
            with ring.drain() as s:
                pk.store(s.row(i), pk.full(f32, 7, 64))
                pk.sync()
                t = pk.load(s)
            pk.store(y[i], t)


def test_a_drained_stage_of_which_lanes_wrote_a_row_is_fenced():
    args = tile(192, 64), nothing(192, 64)
    text = program(rows_written_back, *args)
    assert text[text.index("// consumers") :].count("fence_async();") == 1
    assert told(rows_written_back, *args) == []


# -- loads from memory that is filled again ------------------------------------------------------------


@pk.kernel
def filled_again(x, y, *, where: str):
    """Each tile through the same memory."""
    made, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        full.expect(made)
        pk.load_async(made, x[i], signal=full)
        full.wait(i)
        if where == "load":
            pk.store(y[i], pk.load(made))
            pk.sync()
        elif where == "loop":
            total = pk.zeros(f32, 64, 32)
            for j in pk.range(2):
                total = total + pk.load(made.tiles(64, 32)[0, j])
            pk.store(y[i], pk.concat(total, total))
            pk.sync()
        elif where == "branch":
            if i > 1:
                pk.store(y[i], pk.load(made))
            pk.sync()
        elif where == "none":
            pk.sync()


@pk.kernel
def filled_by_another(x, y):
    """The same, if another group starts the copies."""
    made, full, free = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1), pk.semaphore(1)
    pk.grid(1)
    with pk.producer():
        for i in pk.range(pk.cdiv(x.rows, 64)):
            free.wait(i + 1)
            full.expect(made)
            pk.load_async(made, x[i], signal=full)
    with pk.warpgroups(1):
        for i in pk.range(pk.cdiv(x.rows, 64)):
            full.wait(i)
            t = pk.load(made)
            free.arrive()
            pk.store(y[i], t)


@pk.kernel
def filled_in_stages(x, y):
    """The same, through a pipeline."""
    ring = pk.pipeline(2, pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(pk.cdiv(x.rows, 64)):
            with ring.fill() as tile:
                pk.load_async(tile, x[i])
    with pk.warpgroups(1):
        for i in pk.range(pk.cdiv(x.rows, 64)):
            with ring.drain() as tile:
                t = pk.load(tile)
            pk.store(y[i], t)


LOADS_ARE_DONE = "fence_async();  // what was loaded"


def fence_before(kernel, line):
    """Whether a fence for loads stands before a line of the program, but for one other line."""
    text = program(kernel, tile(192, 64), nothing(192, 64))
    lines = [text.strip() for text in text.splitlines()]
    lines = [text for text in lines if not text.startswith("//")]
    (at,) = (i for i, text in enumerate(lines) if line in text)
    return any(LOADS_ARE_DONE in text for text in lines[at - 2 : at])


@pytest.mark.parametrize("where", ["load", "loop", "branch", "none"])
def test_what_was_loaded_is_there_before_the_warps_meet(where):
    text = program(filled_again, tile(192, 64), nothing(192, 64), where=where)
    waits = text[text.index("barrier_wait") :]
    fence, meeting = waits.find(LOADS_ARE_DONE), waits.index("group_sync")
    assert (0 <= fence < meeting) is (where != "none")
    assert waits.count(LOADS_ARE_DONE) == (where != "none")


def test_loads_that_a_loop_carries_to_its_next_pass_are_done_before_the_warps_meet():
    """Nothing but the next pass meets: its `expect` is where they have to be done."""
    text = program(filled_at_the_end, tile(192, 64), nothing(192, 64))
    fence, meeting = text.index(LOADS_ARE_DONE), text.index("group_sync")
    assert fence < meeting < text.index("semaphore_expect")


@pk.kernel
def filled_at_the_end(x, y):
    made, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        full.expect(made)
        pk.load_async(made, x[i], signal=full)
        full.wait(i)
        pk.store(y[i], pk.load(made))


def test_what_was_loaded_is_there_before_another_group_fills_the_memory():
    assert fence_before(filled_by_another, "group_sync")
    assert fence_before(filled_in_stages, "give the stage back")


@pk.kernel
def filled_from_a_window(x, y):
    """The same, of tiles that an edge may cut."""
    ring, rows = pk.pipeline(2, pk.st(f32, 64, 64)), x.window(0, 10, x.rows)
    pk.grid(1)
    with pk.producer():
        for i in pk.range(pk.cdiv(rows.rows, 64)):
            with ring.fill() as tile:
                pk.load_async(tile, rows[i])
    with pk.warpgroups(1):
        for i in pk.range(pk.cdiv(rows.rows, 64)):
            with ring.drain() as tile:
                t = pk.load(tile)
            pk.store(y[i], t)


@pytest.mark.parametrize("kernel", [filled_by_another, filled_in_stages, filled_from_a_window])
def test_copies_of_lanes_do_not_overtake_loads(kernel):
    x, y = tile(192, 64), nothing(192, 64)
    assert LOADS_ARE_DONE not in kernel.source(x, y, arch="sm_80")
    assert LOADS_ARE_DONE in kernel.source(x, y, arch="sm_90a")
    if kernel is not filled_from_a_window:
        assert LOADS_ARE_DONE not in kernel.source(_unaligned(), y, arch="sm_90a")


def _unaligned():
    """Rows that the copy engine does not reach."""
    return np.zeros((192, 65), np.float32)[:, :64]


@pytest.mark.parametrize("kernel", [filled_by_another, filled_in_stages, filled_at_the_end])
def test_the_checker_asks_for_no_fence_of_loads(kernel):
    assert told(kernel, tile(192, 64), nothing(192, 64)) == []
