"""Tasks by tickets: blocks take the next task when they get to it."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate import machine
from pykittens.errors import ArgumentError, LanguageError
from pykittens.ir.nodes import written
from pykittens.ir.text import text
from pykittens.targets.architectures import TARGETS
from pykittens.targets.cuda.program import emit
from tests.running import recorded

COUNTER = np.zeros(1, np.int32)


@pk.kernel
def rows(x, y, owner, counter):
    """y = 2 x, rows of tiles by roles, and the block that had each."""
    tile, out = (pk.pipeline(2, pk.st(pk.f32, 128, 64)) for _ in range(2))
    tasks = pk.persistent((pk.cdiv(x.shape[0], 128),), tickets=counter)
    with pk.producer():
        for (i,) in tasks:
            for j in pk.range(pk.cdiv(x.shape[1], 64)):
                with tile.fill() as t:
                    pk.load_async(t, x[i, j])
    with pk.consumers(2) as w:
        for (i,) in tasks:
            if w == 0:
                pk.store(owner[i], tasks.block)
            for _ in pk.range(pk.cdiv(x.shape[1], 64)):
                with tile.drain() as t:
                    a = pk.load(t.tiles(64, 64)[w, 0]) * 2.0
                with out.fill() as t:
                    pk.store(t.tiles(64, 64)[w, 0], a)
    with pk.storer():
        for (i,) in tasks:
            for j in pk.range(pk.cdiv(x.shape[1], 64)):
                with out.drain() as t:
                    pk.store_async(y[i, j], t)


@pk.kernel
def alone(x, y, owner, counter):
    """The same without roles."""
    tasks = pk.persistent((pk.cdiv(x.shape[0], 128),), tickets=counter)
    for (i,) in tasks:
        pk.store(owner[i], tasks.block)
        for j in pk.range(pk.cdiv(x.shape[1], 64)):
            pk.store(y[i, j], pk.load(x[i, j], rows=128, cols=64) * 2.0)


KERNELS = pytest.mark.parametrize("kernel", [rows, alone], ids=["roles", "alone"])


def arguments(m=1000, n=100):
    x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32)
    return x, np.zeros_like(x), np.full(-(-m // 128), -1, np.int32), np.zeros(1, np.int32)


@KERNELS
@pytest.mark.parametrize("blocks", [1, 3, 4, 8])
def test_every_task_is_taken_once_in_any_distribution(kernel, blocks, monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", blocks)
    x, y, owner, counter = arguments()
    kernel(x, y, owner, counter)
    assert (y == 2 * x).all()
    assert counter.tolist() == [0]
    assert owner.min() >= 0
    assert owner.max() < blocks
    in_turn = np.arange(8) % blocks
    assert blocks == 1 or (owner != in_turn).any()  # a kernel must not count on that


@KERNELS
def test_a_kernel_with_tickets_is_free_of_faults(kernel):
    report = pk.check(kernel, *arguments())
    (note,) = report.findings  # the block of each task, which the kernel tells
    assert note.message.startswith("`owner` differs between the schedules")
    assert "the task to come" in str(report)


@KERNELS
def test_the_tensor_of_tickets_is_written(kernel):
    made = recorded(kernel, *arguments())
    assert "counter" in written(made)
    assert "by tickets of counter" in text(made)


def test_the_first_warp_draws_and_the_others_read():
    made = recorded(rows, *arguments())
    program = emit(made, TARGETS["sm_90a"]).program
    assert "tickets_init(smem + 131136, 9)" in program  # 8 warps of consumers and the storer
    assert program.count("tickets.draw(") == program.count("tickets.read_alone(") == 1
    assert program.count("tickets.read_together(") == 1
    watched = emit(made, TARGETS["sm_90a"], debug=True).program
    assert "Tickets" not in watched  # the distribution is the compiler's to choose
    one = emit(recorded(alone, *arguments()), TARGETS["sm_80"]).program
    assert "warp_of_block == 0 ? __shfl_sync(~0u, lane == 0 ? tickets.draw(" in one


@KERNELS
def test_a_counter_that_does_not_start_with_0_is_refused(kernel):
    x, y, owner, counter = arguments()
    counter[0] = 3
    with pytest.raises(ArgumentError, match="`counter`, the tickets of its tasks, must start with"):
        kernel(x, y, owner, counter)
    assert (owner == -1).all()


def two_loops(tasks):
    for _ in range(2):
        for _i in tasks:
            pass


def in_a_branch(tasks):
    if tasks.block == 0:
        for _i in tasks:
            pass


@pytest.mark.parametrize("loops", [two_loops, in_a_branch], ids=lambda f: f.__name__)
def test_a_role_goes_through_them_once(loops):
    loops = pk.function(loops)

    @pk.kernel
    def kernel(counter):
        loops(pk.persistent((3,), tickets=counter))

    with pytest.raises(LanguageError, match="a role goes through them once, outside loops and"):
        recorded(kernel, COUNTER)


@pytest.mark.parametrize(
    ("tickets", "cluster", "message"),
    [
        (np.zeros(1, np.float32), 1, "must be an int32 tensor of rank 1, not gl<f32, 1>"),
        (np.zeros((1, 1), np.int32), 1, "must be an int32 tensor of rank 1, not gl<int32"),
        (COUNTER, 2, "must be None if blocks are in clusters, not"),
    ],
)
def test_what_cannot_count_tasks_is_refused(tickets, cluster, message):
    @pk.kernel
    def kernel(tickets):
        for _i in pk.persistent((3,), tickets=tickets, cluster=cluster):
            pass

    with pytest.raises(LanguageError, match=message):
        recorded(kernel, tickets)


def test_a_number_cannot_count_tasks():
    @pk.kernel
    def kernel(x):
        for _i in pk.persistent((3,), tickets=x.shape[0]):
            pass

    with pytest.raises(LanguageError, match="must be a tensor of the kernel, not"):
        recorded(kernel, COUNTER)
