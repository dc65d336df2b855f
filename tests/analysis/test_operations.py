"""No operation that touches shared or global memory, or goes through scratch memory, is left out of the costs."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.banks import shared_costs, shared_moves, uncounted
from pykittens.analysis.requests import calls_by_role
from pykittens.analysis.sectors import global_moves
from pykittens.ir.values import Global, SharedTile, TileRef
from pykittens.ops.core import OPS, op
from pykittens.runtime.arrays import describe
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.exchange import exchange
from pykittens.targets.simt.scratch import SCRATCH, Exchange, Put, Strides, declared
from pykittens.targets.simt.target import SIMT
from tests.cases import CASES
from tests.running import recorded


def left_out(kernel, *args, **constants):
    """The operations of a kernel that touch memory of which the model counts nothing, with the memory.

    Scratch memory is what lowerings ask the emitter for, the rest what effects name. An operation may declare why
    nothing is counted of its scratch memory; flags are not counted, as waits and signals are not.
    """
    taken, scratch = set(), Emitter.scratch

    def noted(e, size, call):
        taken.add((call.op, "scratch"))
        return scratch(e, size, call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Emitter, "scratch", noted)
        kernel.emitted(*args, arch="sm_90a", **constants)
    named = zip(kernel.parameters.names(len(args)), args, strict=True)
    tensors = {n: describe(a) for n, a in named if isinstance(a, np.ndarray)}
    counted = set()
    for role, call in calls_by_role(recorded(kernel, *args, **constants)):
        effects = call.op.effects
        for name in set(effects.reads + effects.writes) - set(effects.flags):
            if isinstance(memory := call.args[name], Global | TileRef):
                taken.add((call.op, memory.first.tensor.name))
            elif isinstance(memory, SharedTile):
                taken.add((call.op, memory))
        for move in (*shared_moves(role, call), *global_moves(role, call, tensors)):
            if any(r.addresses.size for r in move.requests):
                counted.add((call.op, move.memory))
    assert counted <= taken, "what is counted is taken"
    reasons = {(o, "scratch") for o, _ in taken if isinstance(declared(o), str)}
    return {o.name for o, _ in taken - counted - reasons}


def test_every_operation_that_touches_memory_is_counted():
    for case in CASES.values():
        inputs, outputs = case.arrays()
        missing = left_out(case.kernel, *inputs, *outputs, *case.scalars, **case.constants)
        assert not missing, case.name


@pytest.fixture
def planted(monkeypatch):
    """A new operation whose lowering is `lower`, and a kernel of it."""

    def plant(lower):
        monkeypatch.setitem(OPS, "mirrored", None)  # so that it is gone afterwards
        monkeypatch.setitem(SCRATCH, "mirrored", None)
        monkeypatch.setitem(SIMT.lowerings, "mirrored", None)
        SIMT.lower("mirrored")(lower)

        @op()
        def mirrored(tile):
            """A square tile mirrored at its diagonal."""

        mirrored.type(lambda tile: tile.type)
        mirrored.numpy(lambda tile: tile.T)

        @pk.kernel(warps=1)
        def mirror(x):
            pk.grid(1)
            pk.store(x[0], mirrored(pk.load(x[0], rows=16, cols=16)))

        return mirror

    return plant


def mirrors(call, warps):
    """A tile, written by rows and read by columns."""
    return Exchange((Put(call.args["tile"], Strides(row=16)),), Strides(row=1, col=16))


def test_an_operation_that_takes_scratch_memory_and_declares_nothing_is_found(planted):
    def lower(e, call):
        e.scratch(1024, call)
        e.declare(call.results[0])

    mirror, x = planted(lower), np.zeros((16, 16), np.float32)
    assert left_out(mirror, x) == {"mirrored"}
    SCRATCH["mirrored"] = "one value a warp"
    assert left_out(mirror, x) == set()
    SCRATCH["mirrored"] = lambda call, warps: None
    assert left_out(mirror, x) == {"mirrored"}
    SCRATCH["mirrored"] = mirrors
    assert left_out(mirror, x) == set()


def test_what_an_operation_declares_is_emitted_and_counted(planted):
    mirror, x = planted(exchange), np.zeros((16, 16), np.float32)
    with pytest.raises(AssertionError, match="mirrored declares no exchange"):
        mirror.source(x)
    SCRATCH["mirrored"] = mirrors
    assert left_out(mirror, x) == set()
    (cost,) = shared_costs(recorded(mirror, x))
    assert (cost.what, cost.memory) == ("mirrored", "scratch")


@pk.kernel(warps=1)
def with_text(x, *, how: str):
    pk.grid(1)
    t = pk.load(x[0], rows=16, cols=16)
    if how == "text":
        t = pk.inline_cuda("{0}", t, like=t, numpy=lambda a: a)
    pk.store(x[0], t)


def test_a_line_without_a_model_is_listed_with_its_reason(planted):
    x = np.zeros((16, 16), np.float32)
    (line,) = uncounted(recorded(with_text, x, how="text"))
    assert (line.what, line.reason) == ("inline_cuda", "CUDA C++ of the kernel")
    assert line.loc is not None
    assert line.loc.text.strip().startswith("t = pk.inline_cuda")
    assert uncounted(recorded(with_text, x, how="")) == []
    mirror = planted(exchange)
    (line,) = uncounted(recorded(mirror, x))
    assert line.reason == "an operation from outside the package, which declares no moves"
    SCRATCH["mirrored"] = "one value a warp"
    assert uncounted(recorded(mirror, x)) == []


def test_the_table_of_bank_conflicts_lists_a_line_without_a_model():
    report = pk.check(with_text, np.zeros((16, 16), np.float32), schedules=1, how="text")
    (table,) = (t for t in report.tables if t.title == "Bank conflicts")
    assert [r.cells for r in table.rows] == [
        ("inline_cuda", "no model", "", "", "CUDA C++ of the kernel")
    ]
