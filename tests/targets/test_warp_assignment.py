"""The warps of the warpgroup of producers and storers: which of them share the copies of a role."""

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from tests.cases import CASES
from tests.targets.compiling import CASES as KERNELS
from tests.targets.compiling import matrix


def program(kernel, *args, arch="sm_90a", **constants):
    return kernel.emitted(*args, arch=arch, **constants).program


def sharers(text):
    """The warps that share the copies of a role, in the order of the program."""
    return [int(n) for n in re.findall(r"its (\d+) warps share the copies", text)]


@pytest.mark.parametrize(("name", "warps"), [("stages-bf16-64", [2, 2]), ("turned-f32", [4])])
def test_all_warps_of_the_warpgroup_take_part(name, warps):
    case = CASES[f"skewed-{name}"]
    inputs, outputs = case.arrays()
    text = program(case.kernel, *inputs, *outputs)
    assert sharers(text) == warps
    # Each lane arrives when its copies have landed, and each warp when it has stored.
    assert f"barrier_init(ring_full + 8 * i, {33 * warps[0]})" in text
    assert f", {32 * warps[0]}, " in text[text.index("copy_in_skewed<") :].partition(">")[0]
    assert sharers(program(case.kernel, *inputs, *outputs, arch="sm_80")) == []


@pytest.mark.parametrize(("name", "full"), [("aaa", 1), ("uaa", 2 * 33), ("uuu", 2 * 33)])
def test_one_thread_starts_the_copies_of_the_engine(name, full):
    case = KERNELS[f"matmul-{name}"]
    text = program(case.kernel, *case.args)
    assert f"barrier_init(inputs_full + 8 * i, {full})" in text
    if name == "uaa":
        copy = text.index("copy_box(")
        assert text[:copy].rindex("if (thread == 0) {") > text[:copy].rindex("copy_in_skewed<")


@pk.kernel
def moved(x, y, flags, *, also):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer():
        first = pk.load(flags[0])
        if also == "wait":
            pk.wait(flags[1], 1)
        with ring.fill() as s:
            pk.load_async(s, x[first, 0])
        match also:
            case "print":
                pk.print("{}", first)
            case "assert":
                pk.assert_(first == 0, "first")
            case "signal":
                pk.signal(flags[2], 1)
            case "code":
                pk.inline_cuda("/* {0} */", first)
            case "atomic":
                pk.atomic_add(flags[3], 1)
            case "store":
                pk.store(flags[3], 1)
    with pk.consumers(1), ring.drain() as s:
        pk.store(y[0, 0], pk.load(s))


@pytest.mark.parametrize(
    "also", [None, "wait", "print", "assert", "signal", "code", "atomic", "store"]
)
def test_what_has_an_effect_is_done_by_one_warp(also):
    args = (matrix(128, 64, aligned=False), matrix(64, 64), np.zeros(8, np.int32))
    assert sharers(program(moved, *args, also=also)) == ([] if also else [4])


@pk.kernel
def passed(x, y, *, loads, stores):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer(copy_warps=loads), ring.fill() as s:
        pk.load_async(s, x[0, 0])
    with pk.storer(copy_warps=stores), ring.drain() as s:
        pk.store_async(y[0, 0], s)


@pytest.mark.parametrize(
    ("loads", "stores", "warps", "threads"),
    [
        (None, None, [2, 2], 128),
        (8, None, [8, 4], 384),
        (4, 4, [4, 4], 256),
        (1, 2, [2], 128),
        (1, None, [2], 128),
        (16, 1, [16], 640),
    ],
)
def test_a_role_has_the_warps_that_it_asks_for(loads, stores, warps, threads):
    odd = (matrix(64, 64, aligned=False), matrix(64, 64, aligned=False))
    source = passed.emitted(*odd, arch="sm_90a", loads=loads, stores=stores)
    assert sharers(source.program) == warps
    assert source.threads == threads
    aligned = (matrix(64, 64), matrix(64, 64))
    assert passed.emitted(*aligned, arch="sm_90a", loads=loads, stores=stores).threads == 128
    assert passed.emitted(*odd, arch="sm_80", loads=loads, stores=stores).threads == 64


@pytest.mark.parametrize("copy_warps", [4, 8, 16])
def test_warps_that_copy_have_registers_of_their_own(copy_warps):
    """All warpgroups together have no more than a block."""

    @pk.kernel
    def summed(x, y):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(copy_warps=copy_warps), ring.fill() as s:
            pk.load_async(s, x[0, 0])
        with pk.consumers(2) as w, ring.drain() as s:
            pk.store(y[w, 0], pk.load(s))

    source = summed.emitted(matrix(64, 64, aligned=False), matrix(128, 64), arch="sm_90a")
    budgets = dict(source.budgets)
    assert source.threads == 32 * copy_warps + 256
    total = 32 * copy_warps * budgets["producer"] + 256 * budgets["consumers"]
    assert 65536 - 8 * source.threads < total <= 65536
    count = copy_warps // 4
    assert f"if (warpgroup {f'< {count}' if count > 1 else '== 0'}) {{" in source.program


@pk.kernel
def by_elements(x, y):
    ring = pk.pipeline(2, pk.sv(f32, 32))
    pk.grid(1)
    with pk.producer(), ring.fill() as s:
        pk.load_async(s, x)
    with pk.storer(), ring.drain() as s:
        pk.store_async(y, s, op="add")


def test_one_warp_combines_memory_with_elements():
    x = np.zeros(33, np.float32)
    assert sharers(program(by_elements, x[1:], x[:-1].copy())) == [2]
