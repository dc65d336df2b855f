"""The timeline of a run: what overlaps, what waits for what, and that it does not depend on the schedule."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from examples.catalog import EXAMPLES, arrays, load
from pykittens.analysis.timeline.rates import HOPPER
from pykittens.analysis.timeline.recorder import Recorder
from pykittens.analysis.timeline.spans import Activity, Span, Timeline
from pykittens.emulate import machine
from pykittens.runtime.arguments import check
from pykittens.types.dtypes import bf16
from tests.cases import CASES
from tests.kernels_cluster import cluster_matmul
from tests.timelines import of, times


def watched(
    kernel: Any, *args: Any, seed: int = 0, clusters: int = 4, **constants: Any
) -> Timeline:
    """The timeline of a run of a kernel in the emulator."""
    arguments = check(kernel.parameters, args, constants)
    recorder = Recorder(kernel.__name__, clusters)
    tensors = {name: array.numpy() for name, array in arguments.tensors.items()}
    machine.run(kernel.record(arguments), tensors, arguments.scalars, seed, recorder)
    return recorder.timeline()


def case(name: str, seed: int = 0) -> Timeline:
    """The timeline of the kernel of a case."""
    found = CASES[name]
    inputs, outputs = found.arrays()
    return watched(found.kernel, *inputs, *outputs, *found.scalars, seed=seed, **found.constants)


def product(example: Any, steps: int, seed: int = 0) -> Timeline:
    """The timeline of examples/06_matmul.py: one tile of C, so many steps along k."""
    A = np.ones((128, 64 * steps), ml_dtypes.bfloat16)
    B = np.ones((256, 64 * steps), ml_dtypes.bfloat16)
    return watched(
        example("06_matmul").matmul, A, B, np.zeros((128, 256), ml_dtypes.bfloat16), seed=seed
    )


def as_text(timeline: Timeline) -> list[str]:
    """All that a timeline says, in an order of its own."""
    spans = [f"{s.track} {s.name} {s.start} {s.end} {s.activity} {s.loc}" for s in timeline.spans]
    arrows = [
        f"{a.source.track} {a.source.end} to {a.target.track} {a.target.end}"
        for a in timeline.arrows
    ]
    return sorted([*spans, *arrows, *map(str, timeline.tracks)])


def test_the_copies_of_the_next_stages_overlap_the_product_of_this_one(example):
    shown = product(example, 8)
    copies, products = of(shown, "copies in"), of(shown, "tensor cores")
    assert (len(copies), len(products)) == (2 * 8, 2 * 8)
    # The copies of the last three steps are done when a product frees a stage that nobody fills again.
    for step, mine in enumerate(by_step(products)[:-3]):
        later = copies[2 * (step + 1) : 2 * (step + 3)]  # into the two stages that this step leaves
        overlapping = [(p, c) for p in mine for c in later if p.start < c.end and c.start < p.end]
        assert overlapping, f"step {step}"
    # One after the other they would take longer than all of it does.
    assert sum(s.end - s.start for s in (*copies, *products)) > shown.end


def by_step(products: list[Span]) -> list[tuple[Span, ...]]:
    """The products of both groups of consumers, a pair a step."""
    names = ("consumers 0", "consumers 1")
    return list(zip(*([p for p in products if p.args["by"] == n] for n in names), strict=True))


def test_a_product_starts_when_its_stage_is_full_and_the_stage_is_free_when_it_has_ended(example):
    shown = product(example, 8)
    copies, products = of(shown, "copies in"), of(shown, "tensor cores")
    for step, (one, other) in enumerate(by_step(products)):
        landed = max(c.end for c in copies[2 * step : 2 * step + 2])
        assert min(one.start, other.start) > landed
        drained = next(
            s
            for s in of(shown, f"inputs[{step % 3}]", Activity.DRAINING)
            if s.name == f"turn {step}"
        )
        assert drained.start == landed
        assert drained.end >= max(one.end, other.end)


def test_copies_and_products_take_the_cycles_of_the_rates(example):
    shown = product(example, 3)
    a, b = HOPPER.copy(128 * 64 * 2), HOPPER.copy(256 * 64 * 2)
    assert [s.end - s.start for s in of(shown, "copies in")] == 3 * [a, b]
    assert {s.end - s.start for s in of(shown, "tensor cores")} == {
        HOPPER.product(64, 256, 64, bf16)
    }
    assert [s.end - s.start for s in of(shown, "copies out")] == [HOPPER.copy(128 * 256 * 2)]


def test_a_block_with_more_work_takes_longer(example):
    ends = [product(example, steps).end for steps in (1, 4, 16)]
    assert ends == sorted(ends)
    # Twelve steps more of two products each, which take longer than their copies.
    assert ends[2] - ends[1] == 12 * 2 * HOPPER.product(64, 256, 64, bf16)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_times_do_not_depend_on_the_schedule(example, seed):
    assert as_text(product(example, 7, seed)) == as_text(product(example, 7))
    name = "by_hand-ring-bf16-320x64"
    assert as_text(case(name, seed)) == as_text(case(name))


@pytest.mark.parametrize("found", EXAMPLES, ids=lambda e: e.title)
def test_spans_of_a_track_do_not_overlap_in_any_example(found):
    shown = watched(load(found).kernel, *arrays(found, found.small), **found.constants)
    assert shown.spans
    check_tracks(shown)


def check_tracks(shown: Timeline) -> None:
    """Fail where two spans of a track overlap, or a wait ended before its cause."""
    for track in shown.tracks:
        spans = [s for s in shown.spans if s.track == track]
        assert all(a.end <= b.start for a, b in itertools.pairwise(spans)), track
    for arrow in shown.arrows:
        assert arrow.target.activity is Activity.WAIT
        assert arrow.source.end <= arrow.target.end


def test_every_wait_of_a_pipeline_has_an_arrow_from_what_ended_it(example):
    shown = product(example, 8)
    ended = {id(a.target): a.source for a in shown.arrows}
    waits = [s for s in shown.spans if s.activity is Activity.WAIT]
    assert waits
    for wait in waits:
        assert ended[id(wait)].end == wait.end
    full = [w for w in waits if w.name.endswith("is full") and w.name.startswith("until inputs")]
    assert {ended[id(w)].track.name for w in full} == {"copies in"}


def test_spans_tell_the_line_of_the_kernel(example):
    shown = product(example, 2)
    lines = {s.loc.text.strip() for s in of(shown, "tensor cores") if s.loc is not None}
    assert lines == {"acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)"}
    (store,) = of(shown, "copies out")
    assert store.loc is not None
    assert store.loc.text.strip() == "pk.store_async(C[row, col], s.c)"
    assert store.args == {"to": "C[0, 0]", "bytes": 128 * 256 * 2}


def waits_of(shown: Timeline, what: str) -> list[Span]:
    return [s for s in shown.spans if s.activity is Activity.WAIT and s.name.startswith(what)]


def test_semaphores_by_hand_make_waits_that_end_with_their_copies():
    shown = case("by_hand-ring-bf16-320x64")
    ended = {id(a.target): a.source.track.name for a in shown.arrows}
    full = waits_of(shown, "until a phase of full")
    assert full
    assert {ended[id(w)] for w in full} == {"copies in"}
    assert not [t for t in shown.tracks if t.kind.value == "stage"]
    check_tracks(shown)


def test_groups_in_turn_wait_for_one_another():
    shown = case("by_hand-turns-consumers-2-5")
    groups = {
        a.target.track.name: a.source.track.name for a in shown.arrows if "turn" in a.target.name
    }
    assert groups == {"consumers 0": "consumers 1", "consumers 1": "consumers 0"}
    check_tracks(shown)


def test_a_block_that_waits_for_a_flag_goes_on_when_the_block_before_it_has_set_it():
    shown = case("by_hand-chain-f32-2x64")
    (wait,) = waits_of(shown, "until flags[0] is set")
    assert wait.track.process == "block 1"
    (arrow,) = [a for a in shown.arrows if a.target is wait]
    assert arrow.source.track.process == "block 0"
    assert arrow.source.end == wait.end


def test_a_product_that_the_user_waits_for_ends_a_wait():
    shown = case("by_hand-two-bf16-64x64")
    first, second = of(shown, "tensor cores")
    ended = [w.end for w in waits_of(shown, "until its products are done")]
    assert ended[0] == first.end
    stores = [s for s in shown.spans if s.name == "store"]
    assert stores[0].start >= first.end
    assert stores[0].start < second.end <= stores[1].start


def test_a_multicast_copy_comes_to_both_blocks_of_a_cluster():
    A, B = (np.ones(s, ml_dtypes.bfloat16) for s in ((256, 128), (256, 128)))
    shown = watched(cluster_matmul, A, B, np.zeros((256, 256), ml_dtypes.bfloat16))
    assert shown.processes == ("block 0", "block 1")
    halves = HOPPER.copy(128 * 64 * 2)  # of B's tile, each as large as A's
    for block in shown.processes:
        copies = [s for s in of(shown, "copies in") if s.track.process == block]
        assert [s.end - s.start for s in copies] == 2 * 3 * [halves]
    check_tracks(shown)


def test_the_first_clusters_are_recorded_and_no_others():
    x = np.ones((64 * 6, 64), np.float32)

    @pk.kernel
    def double(x, y):
        (row,) = pk.grid(x.rows // 64)
        pk.store(y[row, 0], 2 * pk.load(x[row, 0], rows=64, cols=64))

    assert watched(double, x, np.zeros_like(x), clusters=2).processes == ("block 0", "block 1")
    shown = watched(double, x, np.zeros_like(x), clusters=1)
    moved, doubled = HOPPER.copy(64 * 64 * 4), HOPPER.elements(64 * 64, 4)
    assert [s.name for s in shown.spans] == ["load", "mul", "store"]
    assert times(list(shown.spans)) == [
        (0, moved),
        (moved, moved + doubled),
        (moved + doubled, 2 * moved + doubled),
    ]
