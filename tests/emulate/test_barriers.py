"""Barriers and rings: a stage is full or free when all have arrived and every copy has landed."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.emulate.barriers import Barrier, Copy, StageRing, shared_memory
from pykittens.emulate.memory import POISON_INT, GlobalTile
from pykittens.errors import KernelError
from pykittens.ir.nodes import Call
from pykittens.ir.stages import Pipeline, Side
from pykittens.lang.pipeline import st
from pykittens.ops.core import OPS
from pykittens.types.dtypes import f32, int32


def ring(stages=2, fillers=1, drainers=1, writers=(0,)):
    pipeline = Pipeline("ring", stages, {"a": st(f32, 16, 16), "i": st(int32, 16, 16)})
    memory = shared_memory([pipeline])[pipeline]
    return StageRing(pipeline, fillers, drainers, memory, writers=writers)


def test_a_phase_is_complete_when_all_have_arrived():
    barrier = Barrier(expected=2)
    barrier.arrive()
    assert barrier.phases == 0
    barrier.arrive()
    assert (barrier.phases, barrier.arrived) == (1, 0)


def test_a_phase_waits_for_the_bytes_it_expects():
    barrier = Barrier(expected=1, bytes=96)
    barrier.arrive()
    barrier.land(32)
    assert barrier.phases == 0
    barrier.land(64)
    assert barrier.phases == 1


def test_an_expectation_is_an_arrival_that_asks_for_bytes():
    barrier = Barrier(expected=2)
    barrier.expect(64)
    barrier.land(64)
    assert (barrier.phases, barrier.arrived) == (0, 1)
    barrier.arrive()
    assert barrier.phases == 1


def test_a_wait_for_a_parity_passes_when_the_phase_before_the_open_one_has_it():
    barrier = Barrier(expected=2, name="full")
    assert barrier.missing(1) is None
    barrier.expect(64)
    assert barrier.missing(0) == "phase 0 of full, 1 of 2 arrived, 64 bytes to come"
    barrier.land(64)
    barrier.arrive()
    assert barrier.missing(0) is None
    assert barrier.missing(1) == "phase 1 of full, 0 of 2 arrived"


def test_an_arrival_too_many_is_told():
    barrier = Barrier(expected=1, name="full")
    barrier.expect(64)
    with pytest.raises(
        KernelError, match="full: one arrival more than the 1 that complete a phase"
    ):
        barrier.arrive()


def test_a_copy_may_land_before_it_is_expected():
    barrier = Barrier(expected=1)
    barrier.land(8)
    barrier.bytes += 8
    assert barrier.phases == 0
    barrier.arrive()
    assert barrier.phases == 1


def is_ready(made: StageRing, side: Side, number: int) -> bool:
    return made.barrier(side, number).phases > made.phase(side, number)


def test_a_copy_shows_only_when_it_lands():
    made = ring()
    tile = made.tiles(0)["a"]
    made.full[0].bytes += 1024
    call = Call(OPS["load_async"], {}, [])
    copy = Copy(
        call, tile, GlobalTile("x", np.ones((16, 16), np.float32), (0, 0), (0, 1)), made.full[0]
    )
    assert copy.bytes == 1024
    made.full[0].arrive()
    assert not is_ready(made, "drain", 0)
    assert np.isnan(tile.read()).all()
    copy.finish()
    assert is_ready(made, "drain", 0)
    assert (tile.read() == 1).all()


def give_back(made):
    made.barrier("fill", 0).arrive()
    made.release(0)


def test_a_ring_starts_free_and_poisoned():
    made = ring()
    assert [is_ready(made, "fill", turn) for turn in range(3)] == [True, True, False]
    assert not is_ready(made, "drain", 0)
    assert np.isnan(made.tiles(0)["a"].read()).all()
    assert (made.tiles(1)["i"].read() == POISON_INT).all()


def test_a_stage_is_free_when_all_who_drain_it_gave_it_back_and_holds_poison_again():
    made = ring(drainers=2)
    made.tiles(0)["a"].write(np.ones((16, 16)))
    give_back(made)
    assert not is_ready(made, "fill", 2)
    assert (made.tiles(0)["a"].read() == 1).all()
    give_back(made)
    assert is_ready(made, "fill", 2)
    assert np.isnan(made.tiles(0)["a"].read()).all()


def test_a_stage_that_other_blocks_write_to_holds_poison_before_it_is_free():
    made = ring(drainers=1, writers=(0, 1))
    made.tiles(0)["a"].write(np.ones((16, 16)))
    give_back(made)
    assert not is_ready(made, "fill", 2)
    assert np.isnan(made.tiles(0)["a"].read()).all()
    made.barrier("fill", 0).arrive()
    assert is_ready(made, "fill", 2)
