"""Barriers in CUDA C++: which texts give a warning, and what the warning says."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.proofs.named_barriers import unjudged_barriers
from pykittens.emulate.finding import Kind, Level, Scope
from tests.cases import CASES as OPERATIONS
from tests.running import recorded
from tests.tiers import sampled_together


def warnings(text, *, is_expression=False):
    """The warnings about a kernel with a text of CUDA C++."""

    @pk.kernel
    def kernel(y):
        pk.grid(1)
        with pk.warpgroups(2) as w:
            if is_expression:
                pk.store(y[w], pk.inline_cuda(text, like=w + 0, numpy=lambda: 1))
            else:
                pk.inline_cuda(text, numpy=lambda: None)
                pk.store(y[w], 1)

    return unjudged_barriers(recorded(kernel, np.zeros(8, np.int32)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__syncthreads();", "`__syncthreads`"),
        ("if (__syncthreads_or(x)) y();", "`__syncthreads_or`"),
        ('asm volatile("bar.sync 3, 128;");', "`bar.sync`"),
        ('asm("barrier.cta.sync.aligned 4;" ::: "memory");', "`barrier.cta.sync`"),
        ('asm("bar.red.popc.u32 %0, 5, 64, p;" : "=r"(x));', "`bar.red`"),
        ('asm("bar.sync 1, 64;\\n" "bar.arrive 2, 96;");', "`bar.sync`, `bar.arrive`"),
        ('asm("barrier.cluster.wait;");', "`barrier.cluster.wait`"),
        ('asm("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(a));', "`mbarrier.arrive`"),
        ("group_sync(9, 128);", "`group_sync`"),
        ("cutlass::arch::NamedBarrier::sync(128, 5);", "`NamedBarrier::sync`"),
        ("__barrier_sync_count(7, 64);", "`__barrier_sync_count`"),
    ],
)
def test_a_text_with_a_barrier_gives_a_warning_at_its_line(text, words):
    (finding,) = warnings(text)
    assert (finding.kind, finding.level) == (Kind.NAMED_BARRIER, Level.WARNING)
    assert finding.scope is Scope.ALWAYS
    (step,) = finding.steps
    assert step.what == f"names {words}"
    assert "inline_cuda" in step.loc.text


@pytest.mark.parametrize(
    "text",
    ["__nanosleep(20);", "__syncwarp();", "x(); // __syncthreads();\n/* bar.sync 0; */", "bar.x;"],
)
def test_other_texts_give_none(text):
    assert not warnings(text)


def test_the_text_of_an_expression_is_read_too():
    assert len(warnings("__syncthreads_count(1)", is_expression=True)) == 1
    assert not warnings("1", is_expression=True)


@pytest.mark.parametrize("names", sampled_together(OPERATIONS, lambda name: OPERATIONS[name].ops))
def test_nothing_is_found_in_the_cases_of_operations(names):
    for case in map(OPERATIONS.__getitem__, names):
        inputs, outputs = case.arrays()
        kernel = recorded(case.kernel, *inputs, *outputs, *case.scalars, **case.constants)
        assert not unjudged_barriers(kernel), case.name
