"""Hardware barriers in statements of CUDA C++: how they are read, and which uses of them are told."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.proofs.named_barriers import Meeting, meetings, prove_named_barriers
from pykittens.emulate.finding import Kind, Scope
from pykittens.targets.target import TARGETS
from tests.cases import CASES as OPERATIONS
from tests.running import recorded
from tests.targets.compiling import CASES as KERNELS
from tests.tiers import sampled, sampled_together

HOPPER = TARGETS["sm_90a"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("__syncthreads();", [("__syncthreads", 0, None, True)]),
        ("if (__syncthreads_or(x)) y();", [("__syncthreads_or", 0, None, True)]),
        ('asm volatile("bar.sync 3, 128;");', [("bar.sync", 3, 128, False)]),
        ('asm("barrier.cta.sync.aligned 4;" ::: "memory");', [("barrier.cta.sync.aligned", 4, None, True)]),
        ('asm volatile("bar.sync %0, %1;" :: "r"(2 + 1), "r"(2 * 64));', [("bar.sync", 3, 128, False)]),
        ('asm("bar.arrive %1, %2;" : "=r"(x) : "r"(f(5)), "n"(64));', [("bar.arrive", None, 64, False)]),
        ('asm("bar.red.popc.u32 %0, 5, 64, p;" : "=r"(x));', [("bar.red.popc.u32", 5, 64, False)]),
        (
            'asm("bar.sync 1, 64;\\n" "bar.arrive 2, 96;");',
            [("bar.sync", 1, 64, False), ("bar.arrive", 2, 96, False)],
        ),
        ("group_sync(9, 128);", [("group_sync", 9, 128, False)]),
        ("cutlass::arch::NamedBarrier::sync(128, 5);", [("NamedBarrier::sync", 5, 128, False)]),
        ("__barrier_sync_count(7, 64);", [("__barrier_sync_count", 7, 64, False)]),
        ('asm("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(a)); __syncwarp();', []),
        ("x(); // __syncthreads();\n/* bar.sync 0; */", []),
        ("barrier.cluster.arrive(); bar.sync;", []),
    ],
)  # fmt: skip
def test_barriers_are_read_from_text(text, found):
    assert meetings(text) == [Meeting(*f) for f in found]


def of_warpgroups(text, *, groups=2, by_group=False, producer=True):
    """The findings of a statement in warpgroups beside a producer; its operand is the group where it has one."""

    @pk.kernel
    def kernel(y):
        pk.grid(1)
        if producer:
            with pk.producer():
                pk.store(y[groups], 1)
        with pk.warpgroups(groups) as w:
            operands = (w,) if by_group else ()
            pk.inline_cuda(text, *operands, numpy=lambda *_: None)
            pk.store(y[w], 1)

    return prove_named_barriers(recorded(kernel, np.zeros(8, np.int32)), HOPPER)


def sync(id_, threads=""):
    return f'asm volatile("bar.sync {id_}{f", {threads}" if threads else ""};" ::: "memory");'


@pytest.mark.parametrize(
    ("text", "by_group"),
    [
        (sync(5, 256), False),  # both groups meet
        ('asm volatile("bar.sync %0, 128;" :: "r"({0} + 5));', True),
        ("group_sync(1 + {0}, 128);", True),  # each at its own
        ('asm volatile("bar.sync %0, 128;" :: "r"(threadIdx.x / 128 + 4));', False),  # not known
        ("__nanosleep(20);", False),
    ],
)
def test_barriers_of_which_each_group_has_its_own_are_right(text, by_group):
    assert not of_warpgroups(text, by_group=by_group)


@pytest.mark.parametrize(
    ("text", "by_group", "message"),
    [
        ("__syncthreads();", False, "waits for all 384 threads of the block, and 256 come there"),
        (sync(0), False, "bar.sync waits for all 384 threads of the block"),
        (sync(5, 128), False, "barrier 5 is used by 2 groups, and counts the threads of one, 128"),
        (sync(5, 512), False, "barrier 5 counts 512 threads, and 256 come there"),
        (sync(5, 96), False, "barrier 5 counts 96 threads, and 256 come there"),
        ("group_sync(2 - {0}, 128);", True, "takes barrier 2, at which the warps of warpgroups 1 meet"),
        ("group_sync(15 + {0}, 128);", True, "names barrier 16, and a block has barriers 0 to 15"),
        (sync(5, 100), False, "counts 100 threads, and barriers count whole warps"),
    ],
)  # fmt: skip
def test_barriers_that_hang_or_that_another_group_has_are_told(text, by_group, message):
    findings = of_warpgroups(text, by_group=by_group)
    assert findings
    assert any(message in f.message for f in findings), [f.message for f in findings]
    assert {(f.kind, f.scope) for f in findings} == {(Kind.NAMED_BARRIER, Scope.ALWAYS)}
    assert all("inline_cuda" in s.loc.text for f in findings for s in f.steps)


def test_all_threads_of_a_block_may_meet_where_they_all_run_the_text():
    assert not of_warpgroups("__syncthreads();", producer=False)

    @pk.kernel(warps=8)
    def kernel(y):
        pk.grid(1)
        pk.inline_cuda("__syncthreads();", numpy=lambda: None)
        pk.store(y[0], 1)

    assert not prove_named_barriers(recorded(kernel, np.zeros(8, np.int32)), HOPPER)


def test_a_group_that_never_comes_to_a_barrier_of_the_block_is_told():
    @pk.kernel
    def kernel(y, *, both: bool):
        pk.grid(1)
        with pk.warpgroups(2) as w:
            if w < (2 if both else 1):
                pk.inline_cuda("__syncthreads();", numpy=lambda: None)
            pk.store(y[w], 1)

    y = np.zeros(8, np.int32)
    assert not prove_named_barriers(recorded(kernel, y, both=True), HOPPER)
    (finding,) = prove_named_barriers(recorded(kernel, y, both=False), HOPPER)
    assert "waits for all 256 threads of the block, and 128 come there" in finding.message


def test_roles_that_share_a_barrier_count_the_threads_of_both():
    def of(threads):
        @pk.kernel
        def kernel(y):
            pk.grid(1)
            with pk.consumers(1):
                pk.inline_cuda(sync(6, threads), numpy=lambda: None)
                pk.store(y[0], 1)
            with pk.warps(2) as w:
                pk.inline_cuda(sync(6, threads), numpy=lambda: None)
                pk.store(y[1 + w], 1)

        return prove_named_barriers(recorded(kernel, np.zeros(8, np.int32)), HOPPER)

    assert not of(192)
    (finding,) = of(128)
    assert "barrier 6" in finding.message


@pytest.mark.parametrize("name", sampled(KERNELS, lambda name: KERNELS[name].kernel))
def test_nothing_is_found_in_examples_and_library(name):
    case = KERNELS[name]
    kernel = recorded(case.kernel, *case.args, **case.constants)
    assert not prove_named_barriers(kernel, TARGETS[case.targets[-1]])


@pytest.mark.parametrize("names", sampled_together(OPERATIONS, lambda name: OPERATIONS[name].ops))
def test_nothing_is_found_in_the_cases_of_operations(names):
    for case in map(OPERATIONS.__getitem__, names):
        inputs, outputs = case.arrays()
        kernel = recorded(case.kernel, *inputs, *outputs, *case.scalars, **case.constants)
        assert not prove_named_barriers(kernel, HOPPER), case.name
