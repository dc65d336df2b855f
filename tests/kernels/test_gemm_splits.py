"""Split products whose blocks do not all run at once: shares are handed over, and no bit of the result changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from pykittens.checker.runs import run_schedules
from pykittens.emulate import machine
from pykittens.emulate.finding import Kind, Level
from pykittens.emulate.watch import Watcher
from pykittens.ir.nodes import calls, waits_for_flags
from pykittens.kernels.gemm import gemm_tiles
from pykittens.kernels.gemm.config import Config
from pykittens.runtime.arguments import check, scalars
from tests.gemm_problems import Problem, arguments_of
from tests.tiers import halved

CONFIGS = {
    "one-part": Config(128, 32, stages=3, out_cols=32, splits=3),
    "more-splits-than-parts": Config(64, 48, stages=2, consumers=1, out_cols=16, splits=5),
    "more-parts-than-splits": Config(128, 64, stages=3, out_cols=16, splits=3),
    "swap": Config(128, 32, stages=3, out_cols=16, splits=2, swap=True),
    "turns": Config(128, 64, stages=3, out_cols=32, splits=2, turns=True),
}
IN_CLUSTERS = {
    "a-part-each": Config(128, 64, stages=3, out_cols=32, splits=4, cluster=4),
    "more-blocks-than-units": Config(
        64, 48, stages=2, consumers=1, out_cols=16, splits=4, cluster=4
    ),
    "several-parts-each": Config(128, 64, stages=3, out_cols=16, splits=2, cluster=2),
    "swap": Config(192, 32, stages=3, consumers=3, out_cols=16, splits=8, cluster=8, swap=True),
    "one-part": Config(128, 32, stages=3, out_cols=32, splits=2, cluster=2),
}
SEEDS = (0, 1, 2, 3)


class Count(Watcher):
    """The number of calls of each operation."""

    def __init__(self):
        self.calls = Counter()

    def runs(self, group, call):
        self.calls[call.op.name] += 1


def recorded(config):
    """The kernel of a product with sums of rows and columns, and its arguments, with NaN in memory to be written."""
    sums = not config.swap
    problem = Problem(140, 70, 500, config=config, row_sums=sums, column_sums=sums)
    given, constants = arguments_of(problem.call(), config)
    arguments = check(gemm_tiles.parameters, given, constants)
    return gemm_tiles.record(arguments), arguments


def run(config, resident, seed=0):
    """The bytes of the output and the sums, and how often each operation ran."""
    kernel, arguments = recorded(config)
    names = arguments.constants["form"].epilogue.names
    tensors = {name: x.numpy() for name, x in arguments.tensors.items()}
    of = {n: tensors[f"operands{i}"] for i, n in enumerate(names) if f"operands{i}" in tensors}
    count = Count()
    machine.run(kernel, tensors, scalars(arguments), seed, count, resident)
    if "flags" in of:
        assert not of["flags"].any(), "the states are 0 after the launch"
    results = [tensors["C"], *(of[n] for n in ("row_sums", "column_sums") if n in of)]
    assert not np.isnan(tensors["C"].astype(np.float32)).any()
    return [x.tobytes() for x in results], count.calls


@pytest.mark.parametrize(("name", "resident"), halved([*CONFIGS], [1, 2, 3, 7]))
def test_no_bit_depends_on_the_number_of_blocks_that_run_at_once(name, resident):
    expected, _ = run(CONFIGS[name], 1000)
    for seed in SEEDS:
        found, _ = run(CONFIGS[name], resident, seed)
        assert found == expected


@pytest.mark.parametrize("name", CONFIGS)
def test_blocks_that_run_at_once_hand_nothing_over(name):
    for seed in (0, 1):
        assert run(CONFIGS[name], 1000, seed)[1]["atomic_or"] == 0


@pytest.mark.parametrize("name", CONFIGS)
def test_blocks_that_run_one_after_another_hand_their_shares_over(name):
    config = CONFIGS[name]
    tiles = np.prod([-(-70 // config.cols), -(-140 // config.rows)])
    if config.swap:
        tiles = np.prod([-(-140 // config.cols), -(-70 // config.rows)])
    shares = min(config.splits, config.parts)
    left = tiles * config.consumers * (shares - 1)  # all but that of the last block
    assert run(config, 1)[1]["atomic_or"] == left


@pytest.mark.parametrize("name", CONFIGS)
def test_no_block_waits_for_another_without_an_end(name):
    kernel, _ = recorded(CONFIGS[name])
    assert not waits_for_flags(kernel)


@pytest.mark.parametrize("name", IN_CLUSTERS)
def test_blocks_of_a_cluster_exchange_no_memory_and_no_bit_depends_on_their_order(name):
    config = IN_CLUSTERS[name]
    expected, count = run(config, 1000)
    assert any(c.op.name == "send" for c in calls(recorded(config)[0].body))
    assert count["atomic_add"] == 0
    for seed in SEEDS:
        assert run(config, 1, seed)[0] == expected
    one = np.frombuffer(run(replace(config, splits=1, cluster=1), 1000)[0][0], ml_dtypes.bfloat16)
    found = np.frombuffer(expected[0], ml_dtypes.bfloat16)
    assert np.allclose(found.astype(np.float32), one.astype(np.float32), atol=0.02, rtol=0.01)


@pytest.mark.parametrize("name", [*CONFIGS, *IN_CLUSTERS])
def test_no_fault_is_found_with_few_and_many_blocks_at_once(name):
    _, arguments = recorded((CONFIGS | IN_CLUSTERS)[name])
    found = run_schedules(gemm_tiles, arguments, range(6))
    errors = {f.kind for f in found if f.level is Level.ERROR}
    assert errors <= {Kind.UNWRITTEN_MEMORY}  # sums of rows and columns outside the product
