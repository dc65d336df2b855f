"""What is refused before it runs: programs and launches too large for a GPU, and arguments that share memory."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.checker.proofs.launches import laps_itself, prove_aliasing, prove_launch, try_emit
from pykittens.checker.proofs.occupancy import Load, occupancy
from pykittens.emulate.finding import Kind, Scope
from pykittens.runtime.arguments import check, known_values
from pykittens.runtime.arrays import describe
from pykittens.types.devices import H200
from tests.running import recorded

X = np.zeros((256, 64), np.float32)


@pk.kernel
def staged(x, y, *, stages, registers=None, groups=1):
    ring = pk.pipeline(stages, pk.st(f32, 64, 64))
    (row,) = pk.grid(x.rows // 64)
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[row, 0])
    with pk.warpgroups(groups, registers=registers), ring.drain() as t:
        pk.store(y[row, 0], pk.load(t))


# -- programs --------------------------------------------------------------------------------------


def test_a_program_that_fits_is_emitted():
    source, found = try_emit(recorded(staged, X, X, stages=14), "sm_90a")
    assert not found
    assert source.threads == 256


@pytest.mark.parametrize(
    ("constants", "arch", "message"),
    [
        ({"stages": 15}, "sm_90a", "more than a block of sm_90a has"),
        ({"stages": 14}, "sm_80", "more than a block of sm_80 has"),
        ({"stages": 2, "groups": 8}, "sm_90a", "need 1152 threads, a block has at most 1024"),
        ({"stages": 2, "groups": 3, "registers": 240}, "sm_90a", "register budgets cannot be met"),
    ],
)
def test_a_program_that_needs_more_than_a_block_has_is_a_finding(constants, arch, message):
    source, (finding,) = try_emit(recorded(staged, X, X, **constants), arch)
    assert source is None
    assert (finding.kind, finding.scope) == (Kind.RESOURCES, Scope.ALWAYS)
    assert message in finding.message
    (step,) = finding.steps
    words = "def staged", "ring = pk.pipeline", "with pk.warpgroups", "with pk.producer"
    assert step.loc.text.strip().startswith(words)


def test_a_cluster_that_the_target_lacks_is_a_finding():
    @pk.kernel(cluster=4)
    def kernel(x):
        pk.grid(4)
        pk.store(x[0, 0], pk.zeros(f32, 64, 64))

    made = recorded(kernel, X)
    assert not try_emit(made, "sm_90a")[1]
    _, (finding,) = try_emit(made, "sm_89")
    assert finding.kind is Kind.RESOURCES
    assert "no clusters of 4 blocks" in finding.message


def test_what_a_target_cannot_do_and_an_unknown_one_are_faults():
    made = recorded(staged, X, X, stages=1)
    _, (finding,) = try_emit(made, "sm_20")
    assert finding.kind is Kind.FAULT


# -- launches --------------------------------------------------------------------------------------


def of_launch(kernel, *args, load=None, **constants):
    arguments = check(kernel.parameters, args, constants)
    made = recorded(kernel, *args, **constants)
    held = occupancy(load or Load(128, 0, 32), H200)
    return prove_launch(made, known_values(made, arguments), held)


@pk.kernel
def wide(x, n, m):
    pk.grid(n, m)
    pk.store(x[0, 0], pk.zeros(f32, 64, 64))


@pytest.mark.parametrize(("n", "m", "count"), [(65535, 1000, 0), (2**16, 2**15 - 1, 0), (0, 9, 0)])
def test_a_grid_that_can_be_counted_is_right(n, m, count):
    assert len(of_launch(wide, X, n, m)) == count


@pytest.mark.parametrize(("n", "m"), [(2**16, 2**15), (2**31 - 1, 2)])
def test_a_grid_of_more_blocks_than_a_launch_counts_is_a_finding(n, m):
    (finding,) = of_launch(wide, X, n, m)
    assert finding.kind is Kind.RESOURCES
    assert f"{n * m} blocks or tasks exceed the 2147483647" in finding.message
    assert "pk.grid" in finding.steps[0].loc.text


def test_tasks_are_counted_too():
    @pk.kernel
    def kernel(x, n):
        for i, j in pk.persistent((n, n)):
            pk.store(x[0, 0], pk.zeros(f32, 64, 64))

    assert not of_launch(kernel, X, 46340)
    (finding,) = of_launch(kernel, X, 46341)
    assert "2147488281 blocks or tasks" in finding.message


@pk.kernel
def chained(y, flags, n):
    (block,) = pk.grid(n)
    if block > 0:
        pk.wait(flags[block - 1], 1)
    pk.store(y[block], 1)
    pk.signal(flags[block], 1)


@pytest.mark.parametrize(("threads", "most"), [(128, 132 * 16), (1024, 132 * 2)])
def test_blocks_that_wait_for_one_another_run_at_once(threads, most):
    y, flags, load = np.zeros(8, np.int32), np.zeros(8, np.int32), Load(threads, 0, 32)
    assert not of_launch(chained, y, flags, most, load=load)
    (finding,) = of_launch(chained, y, flags, most + 1, load=load)
    assert f"so all {most + 1} must run at once, and H200 runs {most}" in finding.message
    assert ["pk.grid" in s.loc.text for s in finding.steps] == [True, False]
    assert ["pk.wait" in s.loc.text for s in finding.steps] == [False, True]


def test_persistent_blocks_that_wait_are_no_more_than_run_at_once():
    @pk.kernel
    def kernel(y, flags, n):
        for (i,) in pk.persistent((n,)):
            pk.wait(flags[i], 1)
            pk.store(y[i], 1)

    y = np.zeros(8, np.int32)
    assert not of_launch(kernel, y, y.copy(), 10**6)


def test_a_block_that_no_multiprocessor_holds_is_a_finding():
    (finding,) = of_launch(wide, X, 1, 1, load=Load(1024, 0, 80))
    assert "holds a block of 1024 threads" in finding.message
    assert finding.missing == "registers"
    (finding,) = of_launch(wide, X, 1, 1, load=Load(128, 228 * 1024))
    assert finding.missing == "shared memory"


# -- memory that arguments share -------------------------------------------------------------------


@pk.kernel
def doubled(x, y):
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    pk.store(y[row, col], t + t)


@pk.kernel(inplace=True)
def doubled_in_place(x, y):
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    pk.store(y[row, col], t + t)


def of_arrays(kernel, *arrays):
    return prove_aliasing(recorded(kernel, *arrays), check(kernel.parameters, arrays, {}))


def test_arrays_apart_share_nothing():
    base = np.zeros((256, 64), np.float32)
    assert not of_arrays(doubled, base[:128], base[128:])
    assert not of_arrays(doubled, base[:, :32], base[:, 32:])
    assert not of_arrays(doubled_in_place, base, base)


@pytest.mark.parametrize(
    ("kernel", "x", "y"),
    [
        (doubled, slice(0, 128), slice(0, 128)),
        (doubled, slice(0, 128), slice(64, 192)),
        (doubled_in_place, slice(0, 128), slice(64, 192)),
    ],
)
def test_an_output_that_shares_memory_with_an_input_is_a_finding(kernel, x, y):
    base = np.zeros((256, 64), np.float32)
    (finding,) = of_arrays(kernel, base[x], base[y])
    assert finding.kind is Kind.ALIASING
    assert "the output `y` shares memory with `x`" in finding.message


def test_an_alias_is_told_with_the_lines_that_touch_the_memory():
    base = np.zeros((256, 64), np.float32)
    (finding,) = of_arrays(doubled, base[:128], base[64:192])
    told = {s.who: (s.what, s.loc.text.strip()) for s in finding.steps}
    assert told["`y`"] == ("is written", "pk.store(y[row, col], t + t)")
    assert told["`x`"] == ("is read", "t = pk.load(x[row, col], rows=64, cols=64)")


def test_every_pair_is_told_once():
    @pk.kernel
    def kernel(x, y, z):
        pk.grid(1)
        t = pk.load(x[0, 0], rows=64, cols=64)
        pk.store(y[0, 0], t)
        pk.store(z[0, 0], t)

    base = np.zeros((256, 64), np.float32)
    messages = [f.message for f in of_arrays(kernel, base, base, base)]
    assert len(messages) == 3


def lapping(shape, strides):
    base = np.zeros(4096, np.float32)
    return np.lib.stride_tricks.as_strided(base, shape, [4 * s for s in strides])


@pytest.mark.parametrize(
    ("shape", "strides", "laps"),
    [
        ((8, 8), (8, 1), False),
        ((8, 8), (100, 1), False),
        ((8, 8), (4, 1), True),
        ((8, 8), (0, 1), True),
        ((1, 8), (0, 1), False),
        ((3, 2, 4), (4, 12, 1), False),
        ((4, 2, 4), (4, 12, 1), True),
        ((3, 3, 1), (2, 3, 1), False),  # 0 2 4, 3 5 7, 6 8 10: strides that mesh
        ((4, 3, 1), (2, 3, 1), True),  # 6 is reached twice
        ((0, 8), (0, 1), False),
    ],
)
def test_an_array_whose_elements_share_memory(shape, strides, laps):
    assert laps_itself(describe(lapping(shape, strides))) is laps


def test_an_output_that_laps_itself_is_a_finding():
    (finding,) = of_arrays(doubled, X, lapping((64, 16), (8, 1)))
    assert finding.kind is Kind.ALIASING
    assert "elements of the output `y` share memory with one another" in finding.message
    assert not of_arrays(doubled, lapping((64, 16), (8, 1)), np.zeros((64, 16), np.float32))
