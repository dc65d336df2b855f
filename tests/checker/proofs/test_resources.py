"""What a kernel takes: shared memory by parts, registers by role, blocks at once, and what the compiler inserted."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.checker.proofs.occupancy import Load, occupancy
from pykittens.checker.proofs.resources import (
    inserted_table,
    memory_table,
    occupancy_table,
    register_table,
    resource_tables,
    shared_memory,
)
from pykittens.emulate.inserted import inserted
from pykittens.runtime import nvrtc
from pykittens.runtime.compiled import Resources, RoleResources, compile_kernel
from pykittens.targets.architectures import TARGETS
from pykittens.targets.emit import emit
from pykittens.types.devices import H200
from tests.running import recorded

HOPPER = TARGETS["sm_90a"]
X = np.zeros((256, 128), np.float32)


@pk.kernel
def mixed(x, y, *, stages):
    """Pipelines one of which takes over another's memory, shared tiles, semaphores, and a sum over warps."""
    first = pk.pipeline(stages, a=pk.st(f32, 64, 64), b=pk.sv(f32, 64))
    second = pk.pipeline(1, pk.st(f32, 64, 128), reuse=first)
    tile, ready = pk.shared(pk.st(bf16, 64, 64), count=2), pk.semaphore(1, count=3)
    (row,) = pk.grid(4)
    with pk.producer(), first.fill() as s:
        pk.load_async(s.a, x[row, 0])
        pk.load_async(s.b, x[row, 0])
    with pk.consumers(1):
        with first.drain() as s:
            t = pk.load(s.a)
        ready[0].arrive()
        pk.store(tile[0], t.to(bf16))
        with second.fill() as s:
            pk.store(s.tiles(64, 64)[0, 0], t + pk.sum(t))
    with pk.storer(), second.drain() as s:
        pk.store_async(y[row, 0], s)


def test_parts_of_shared_memory_lie_one_behind_the_other():
    kernel = recorded(mixed, X, X, stages=3)
    source = emit(kernel, "sm_90a")
    parts = shared_memory(kernel, HOPPER, source)
    by_place = [(p.name, p.offset, p.bytes) for p in parts]
    stage = 64 * 64 * 4 + 1024  # a tile, and a vector at a multiple of 1024 bytes
    tiles, barriers = 3 * stage, 3 * stage + 2 * 8192
    assert by_place[:6] == [
        ("first", 0, 3 * stage),
        ("second", 0, 64 * 128 * 4),
        ("tile", tiles, 2 * 8192),
        ("ready", barriers, 48),
        ("first", barriers + 48, 48),
        ("second", barriers + 96, 16),
    ]
    assert parts[1].what.endswith("in place of `first`")
    # What is left is where the warps of each group join what they have, up to the end of what a block asks for.
    assert (parts[6].offset, parts[6].end) == (barriers + 112, source.shared_bytes)
    assert parts[0].loc.text.strip().startswith("first = pk.pipeline")


def test_a_kernel_that_needs_too_much_has_a_map_too():
    kernel = recorded(mixed, X, X, stages=20)
    table = memory_table(shared_memory(kernel, HOPPER), HOPPER)
    total = int(table.rows[-1].cells[-1])
    assert total > HOPPER.shared_bytes
    assert f"{total} of {HOPPER.shared_bytes} bytes" in table.note


def test_registers_are_told_role_by_role():
    roles = (RoleResources("producer", 22, 40), RoleResources("consumers", 150, 232))
    table = register_table(Resources(168, 8, 200000, 384, ("16 bytes spilled",), roles))
    assert [r.cells for r in table.rows] == [("producer", "22", "40"), ("consumers", "150", "232")]
    assert "384 threads start with 168 registers each" in table.note
    assert "8 bytes of local memory" in table.note
    assert "16 bytes spilled" in table.note


def test_the_resource_that_limits_is_marked():
    table = occupancy_table(occupancy(Load(256, 100 * 1024, 64), H200))
    assert [r.cells[0] for r in table.rows if r.cells[-1]] == ["shared memory"]
    assert "holds 2 blocks at once, 16 warps; its 132 hold 264" in table.note
    assert (
        "registers are known only for a compiled kernel"
        in occupancy_table(occupancy(Load(256, 0), H200)).note
    )


def test_everything_inserted_is_a_row_with_its_line():
    kernel = recorded(mixed, X, X, stages=3)
    table = inserted_table(kernel, TARGETS["sm_90a"])
    *found, loads = [r.cells[1:] for r in table.rows]
    assert found == [(p.what, p.description) for p in inserted(kernel)]
    assert loads == ("fence", "what was loaded is there before the copy engine fills the memory")
    assert all(r.loc is not None for r in table.rows)
    without = [r.cells[1:] for r in inserted_table(kernel, TARGETS["sm_80"]).rows]  # has no engines
    assert without == [(p.what, p.description) for p in inserted(kernel) if p.what != "fence"]


@pytest.mark.skipif(nvrtc.available() is not None, reason="there is no compiler")
def test_the_tables_of_a_compiled_kernel():
    kernel = recorded(mixed, X, X, stages=3)
    source = emit(kernel, "sm_90a")
    compiled = compile_kernel(kernel, "sm_90a")
    held = occupancy(Load(source.threads, source.shared_bytes, compiled.resources.registers), H200)
    tables = resource_tables(kernel, "sm_90a", source, held, compiled)
    assert [t.title for t in tables] == [
        "Shared memory",
        "Blocks at once",
        "Registers",
        "Inserted by the compiler",
    ]
    assert "registers" in [r.cells[0] for r in tables[1].rows]
    assert len(resource_tables(kernel, "sm_90a")) == 2
