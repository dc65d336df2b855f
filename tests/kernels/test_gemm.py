"""Matrix products of the library in the emulator, in every way of cutting them, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pykittens.kernels.gemm import gemm, gemm_tiles
from pykittens.kernels.gemm.choose import ALONE, candidates
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.limits import Limits
from pykittens.runtime.arguments import check
from pykittens.targets.architectures import TARGETS
from tests.gemm_problems import BLOCK_SCALES, Layout, Problem, arguments_of, results
from tests.gemm_random import fault_of
from tests.tiers import halved

HOPPER = Limits("sm_90a", TARGETS["sm_90a"].shared_bytes, warpgroups=True)
SMALL = Config(64, 64, stages=3, consumers=1)
GATE = {"gate": "bf16"}
FP8 = ("e4m3", "e4m3")

# A configuration of each kind; those of one kind differ in numbers only.
CONFIGS = {
    "large": Config(128, 256, stages=4),
    "tall": Config(256, 128, stages=4),
    "narrow": Config(64, 16, stages=4, consumers=1, out_cols=16),
    "odd-parts": Config(128, 48, stages=2, out_cols=16),
    "two-outputs": Config(128, 128, stages=2, out_stages=2),
    "two-outputs-odd-parts": Config(128, 48, stages=2, out_cols=16, out_stages=2),
    "two-outputs-one-part": Config(64, 32, stages=2, consumers=1, out_cols=32, out_stages=2),
    "turns": Config(128, 64, stages=3, turns=True),
    "cluster-rows": Config(128, 64, stages=3, cluster=2),
    "cluster-cols": Config(128, 64, stages=3, cluster=2, cluster_axis=1),
    "swap": Config(64, 32, stages=3, consumers=1, out_cols=32, swap=True),
    "swap-tall": Config(256, 64, stages=3, swap=True),
    "swap-turns": Config(128, 48, stages=3, out_cols=48, swap=True, turns=True),
    "swap-cluster": Config(128, 32, stages=3, out_cols=32, swap=True, cluster=2),
    "splits": Config(128, 64, stages=3, splits=3),
    "splits-swap": Config(128, 32, stages=3, out_cols=32, splits=2, swap=True),
    "splits-across": Config(128, 64, stages=3, splits=3, band=1),
    "splits-turns": Config(128, 64, stages=3, splits=2, turns=True),
    "splits-cluster": Config(128, 64, stages=3, splits=3, cluster=4),
    "splits-cluster-cols": Config(128, 64, stages=3, splits=3, cluster=4, cluster_axis=1),
    "splits-cluster-swap": Config(128, 32, stages=3, out_cols=16, splits=3, cluster=2, swap=True),
    "splits-many": Config(64, 48, stages=2, consumers=1, out_cols=16, splits=11, out_stages=2),
    "widest": Config(256, 192, stages=3, out_cols=32, out_stages=2, turns=True),
    "cluster-of-four": Config(128, 64, stages=3, cluster=4),
    "cluster-of-both": Config(128, 64, stages=3, cluster=4, across=2),
    "cluster-of-eight": Config(128, 64, stages=3, cluster=8, across=4, swap=True),
    "splits-cluster-of-both": Config(128, 64, stages=3, splits=3, cluster=8, across=2),
    "exchange": Config(128, 64, stages=3, out_cols=32, splits=4, cluster=4),
    "exchange-swap": Config(
        192, 48, stages=2, consumers=3, out_cols=16, splits=8, cluster=8, swap=True
    ),
    "exchange-across": Config(128, 64, stages=3, splits=2, cluster=2, band=1),
    "exchange-turns": Config(128, 64, stages=3, splits=2, cluster=2, turns=True),
    "sm_80": ALONE[0],
    "sm_89": ALONE[1],
}
SPLITS = [name for name, config in CONFIGS.items() if config.sums_in_memory]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_multiplies_at_any_size(name):
    for m, n, k in ((1, 1, 1), (300, 290, 100), (257, 129, 65)):
        assert fault_of(Problem(m, n, k, config=CONFIGS[name])) == ""


@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("m", [1, 5, 16, 33, 128])
def test_few_rows_are_multiplied_as_picked_and_as_columns(m, transpose_b):
    cols = -(-m // 16) * 16
    swap = Config(64, cols, stages=3, consumers=1, out_cols=16, swap=True)
    for config in (None, swap, replace(swap, splits=4)):
        problem = Problem(m, 200, 330, transpose_b=transpose_b, config=config, multiprocessors=7)
        assert fault_of(problem) == ""


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 64, 64), (128, 256, 128), (129, 257, 65), (500, 20, 33), (20, 500, 33), (700, 300, 70)],
)
def test_what_is_picked_multiplies(m, n, k):
    assert fault_of(Problem(m, n, k)) == ""


@pytest.mark.parametrize(
    "name", ["large", "narrow", "swap", "splits", "splits-swap", "exchange", "sm_80"]
)
def test_extents_of_nothing_and_of_one(name):
    for extents in ((130, 70, 0), (0, 70, 64), (70, 0, 64), (0, 0, 0), (1, 70, 1), (70, 1, 70)):
        problem = Problem(*extents, config=CONFIGS[name])
        assert fault_of(replace(problem, out=True, extras={"bias": "f32"})) == ""


@pytest.mark.parametrize("layouts", [{}, {"a": Layout(columns=True)}], ids=["a", "at"])
@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize(
    "dtypes", [("bf16",) * 2, ("f16",) * 2, ("e4m3",) * 2, ("e5m2",) * 2, ("e4m3", "e5m2")]
)
def test_dtypes_go_with_every_layout(dtypes, transpose_b, layouts):
    problem = Problem(140, 70, 200, dtypes=dtypes, transpose_b=transpose_b, layouts=layouts)
    for config in (SMALL, CONFIGS["swap"]):
        assert fault_of(replace(problem, config=config)) == ""


@pytest.mark.parametrize("out_dtype", ["bf16", "f16", "f32", "e4m3", "e5m2"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3"])
def test_a_result_has_the_dtype_that_is_asked_for_or_that_of_out(dtype, out_dtype):
    problem = Problem(70, 90, 80, dtypes=(dtype,) * 2, out_dtype=out_dtype)
    assert fault_of(problem) == ""
    assert fault_of(replace(problem, out=True, config=CONFIGS["swap"])) == ""


@pytest.mark.parametrize("name", ["large", "swap", "splits"])
def test_sums_in_f16(name):
    problem = Problem(140, 70, 330, dtypes=("f16", "f16"), accumulate="f16", config=CONFIGS[name])
    assert fault_of(problem) == ""
    assert fault_of(replace(problem, out_dtype="f32")) == ""


SCALED = {
    "one-piece": Config(128, 64, stages=2),
    "three-pieces": Config(64, 96, stages=2, consumers=1, out_cols=16),
    "two-pieces": Config(128, 192, stages=2, out_cols=64),
    "swap": Config(128, 48, stages=2, out_cols=48, swap=True),
    "splits": Config(64, 96, stages=2, consumers=1, out_cols=32, splits=2),
    "cluster": Config(128, 64, stages=2, cluster=2, cluster_axis=1),
    "splits-cluster": Config(128, 64, stages=2, splits=3, cluster=2),
    "three-groups": Config(192, 64, stages=2, consumers=3),
    "apart": Config(64, 256, stages=2, consumers=1, out_cols=32),
    "both-apart": Config(128, 256, stages=2),
    "narrow-pieces": Config(64, 160, stages=2, consumers=1, out_cols=32),
    "splits-of-two": Config(128, 128, stages=2, splits=3, out_cols=32),
    "half-steps": Config(64, 64, depth=64, stages=3, consumers=1),
    "sm_89": replace(ALONE[1], stages=2),
}
TOO_LARGE_WITH_GATE = ("two-pieces", "apart", "both-apart", "narrow-pieces")


@pytest.mark.parametrize(("name", "k"), halved([*SCALED], [300, 1, 512, 640]))
def test_scales_of_blocks(name, k):
    """With and without scales that the copy engine reaches: those of 512 lie in 16 bytes."""
    problem = Problem(200, 410, k, dtypes=FP8, extras=BLOCK_SCALES)
    problem = replace(problem, config=SCALED[name])
    assert fault_of(problem) == ""
    assert fault_of(replace(problem, transpose_b=False)) == ""
    padded = dict.fromkeys(BLOCK_SCALES, Layout(lines="padded"))
    columns = {"row_blocks": Layout(columns=True, lines="padded")}
    assert fault_of(replace(problem, layouts=padded | columns, schedule=1)) == ""
    gate = {"gate": "e4m3", "gate_blocks": "f32", "bias": "f32"}
    if name not in TOO_LARGE_WITH_GATE:
        gated = replace(problem, extras=BLOCK_SCALES | gate, layouts=padded | columns)
        assert fault_of(gated) == ""


# -- splits and schedules --------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "splits"), halved(SPLITS, [2, 3, 5, 8, 20]))
def test_few_and_many_blocks_do_a_part_of_each_tile(name, splits):
    """Also more than there are steps, and more or fewer than there are parts of the columns."""
    config = replace(CONFIGS[name], splits=splits)
    for extents in ((129, 130, 600), (300, 100, 200)):
        assert fault_of(Problem(*extents, config=config, schedule=splits)) == ""


def test_splits_of_a_batch_with_a_gate():
    problem = Problem(70, 130, 300, leads=((3,), (3,)), extras={"gate": "bf16", "residual": "f32"})
    for splits in (2, 4):
        config = Config(128, 32, stages=3, out_cols=16, splits=splits)
        assert fault_of(replace(problem, config=config, activation="silu")) == ""


def bits(problem):
    arrays = {name: x.view() for name, x in problem.stored().items()}
    return [x.tobytes() for x in results(problem, arrays)]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_order_in_which_blocks_and_roles_run_changes_no_bit(name):
    config = CONFIGS[name]
    sums = not config.swap
    extras, more = {"bias": "bf16"}, {"row_sums": sums, "column_sums": sums}
    problem = Problem(140, 150, 330, config=config, extras=extras, **more)
    first = bits(problem)
    for seed in (1, 2, 3):
        assert bits(replace(problem, schedule=seed)) == first
    assert fault_of(replace(problem, schedule=4)) == ""


# -- configurations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "about"),
    [
        *((config, {}) for config in CONFIGS.values()),
        (Config(128, 128, stages=3), {"extras": GATE}),
        (Config(64, 32, stages=3, consumers=1, out_cols=32, swap=True), {"extras": GATE}),
        (Config(128, 128, stages=3), {"out_dtype": "f32"}),
        (Config(128, 128, stages=3), {"dtypes": FP8, "extras": BLOCK_SCALES}),
        (Config(128, 96, stages=3, out_cols=32), {"dtypes": FP8, "extras": BLOCK_SCALES}),
        (Config(128, 256, stages=3), {"dtypes": FP8, "extras": BLOCK_SCALES}),
        (
            Config(64, 48, stages=3, out_cols=48, consumers=1, swap=True),
            {"dtypes": FP8, "extras": BLOCK_SCALES},
        ),
        (
            Config(64, 64, stages=3, consumers=1),
            {"dtypes": FP8, "extras": BLOCK_SCALES | {"gate": "e4m3", "gate_blocks": "f32"}},
        ),
    ],
    ids=str,
)
def test_a_configuration_knows_its_shared_memory(config, about):
    problem = Problem(256, 256, 512, config=config, **about)
    call = problem.call()
    arguments, constants = arguments_of(call, config)
    emitted = gemm_tiles.emitted(*arguments, **constants)
    shape = call.shape
    assert emitted.shared_bytes == config.shared_bytes(shape.out_bytes, shape.gated, shape.blocks)


def test_stages_contain_the_scales_that_the_copy_engine_reaches():
    """Each vector of scales takes 1024 bytes of a stage: of the rows, and of both pieces of the columns."""
    config, problem = Config(128, 256, stages=3), Problem(256, 256, 512, dtypes=FP8)
    vectors = {}
    for name, m, k in (
        ("all", 256, 512),
        ("rows", 256, 640),
        ("columns", 255, 512),
        ("none", 255, 640),
    ):
        given = replace(problem, m=m, k=k, extras=BLOCK_SCALES, config=config)
        arguments, constants = arguments_of(given.call(), config)
        vectors[name] = gemm_tiles.emitted(*arguments, **constants).shared_bytes
    least = vectors["none"]
    found = {name: (bytes - least) / (3 * 1024) for name, bytes in vectors.items()}
    assert found == {"all": 3, "rows": 1, "columns": 2, "none": 0}


@pytest.mark.parametrize("out_dtype", ["bf16", "f32"])
def test_the_warps_of_a_group_have_room_to_join_sums_of_columns(out_dtype):
    call = Problem(64, 64, 64, column_sums=True, out_dtype=out_dtype).call()
    for config in candidates(replace(call.shape, m=4096, n=4096, k=4096), HOPPER)[:20]:
        arguments, constants = arguments_of(call, config)
        emitted = gemm_tiles.emitted(*arguments, **constants)
        assert emitted.shared_bytes <= HOPPER.shared_bytes


def recorded(problem, config):
    arguments, constants = arguments_of(problem.call(), config)
    return gemm_tiles.record(check(gemm_tiles.parameters, arguments, constants))


def test_a_configuration_is_part_of_the_specialisation():
    problem = Problem(16, 16, 16)
    assert recorded(problem, SMALL) is recorded(problem, replace(SMALL))
    assert recorded(problem, SMALL) is not recorded(problem, replace(SMALL, band=1))


def test_blocks_that_start_together_do_the_same_steps_of_their_tiles():
    splits, *tiles = recorded(Problem(200, 130, 600), replace(SMALL, splits=3)).launch.dims
    assert splits == 3
    assert len(tiles) == 2


def test_gemm_gives_what_a_call_of_its_own_makes():
    a, b = (np.random.default_rng(i).standard_normal((40, 50)).astype(np.float16) for i in (0, 1))
    out = np.empty((40, 40), np.float16)
    assert gemm(a, b, out) is out
    assert (out == gemm(a, b)).all()
