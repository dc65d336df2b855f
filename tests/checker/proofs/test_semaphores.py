"""Semaphores whose arrivals make up phases and whose bytes come, those where they do not, and those left open."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.checker.proofs.balance import prove
from pykittens.emulate.finding import Kind, Level, Scope
from tests.running import recorded

X = np.zeros((256, 64), np.float32)
TILE = 64 * 64 * 4


@pk.kernel
def ring_of_tiles(x, y, *, bytes, needed, arrives, phase, signalled):
    """Two tiles by turns from a producer to two warpgroups, with what may be wrong given."""
    tiles = pk.shared(pk.st(f32, 64, 64), count=2)
    full, empty = pk.semaphore(1, count=2), pk.semaphore(needed, count=2)
    pk.grid(1)
    steps = pk.cdiv(x.rows, 64)
    with pk.producer():
        for i in pk.range(steps):
            empty[i % 2].wait(phase(i))
            full[i % 2].expect(bytes)
            pk.load_async(tiles[i % 2], x[i, 0], signal=(full if signalled else empty)[i % 2])
    with pk.warpgroups(2) as w:
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            t = pk.load(tiles[i % 2])
            if w == 0:
                pk.store(y[i, 0], t)
            for _ in range(arrives):
                empty[i % 2].arrive()


def of_ring(bytes=TILE, needed=2, arrives=1, phase=lambda i: i // 2 + 1, signalled=True):
    given = dict(bytes=bytes, needed=needed, arrives=arrives, phase=phase, signalled=signalled)
    return prove(recorded(ring_of_tiles, X, X, **given))


def test_a_ring_of_semaphores_balances():
    proofs = of_ring()
    assert not proofs.findings
    assert proofs.proved == (
        "semaphore `full`: each arrival completes a phase, cdiv(x.shape[0], 64) times",
        f"semaphore `full`: {TILE} * cdiv(x.shape[0], 64) bytes are expected, and copies bring as many",
        "semaphore `empty`: 2 * cdiv(x.shape[0], 64) arrivals complete whole phases of 2",
    )
    assert of_ring(needed=4, arrives=2).findings == ()


@pytest.mark.parametrize(("needed", "arrives"), [(1, 1), (3, 1), (2, 2), (2, 3)])
def test_a_phase_in_each_pass_needs_the_arrivals_of_a_pass(needed, arrives):
    (finding,) = of_ring(needed=needed, arrives=arrives).findings
    assert (finding.kind, finding.level) == (Kind.BARRIER_COUNT, Level.ERROR)
    assert finding.scope is Scope.ALWAYS
    assert f"the phase needs {needed} arrivals and gets {2 * arrives}" in finding.message
    lines = list(dict.fromkeys(s.loc.text.strip() for s in finding.steps))
    assert lines[0].endswith("empty = pk.semaphore(1, count=2), pk.semaphore(needed, count=2)")
    assert lines[1:] == ["empty[i % 2].arrive()", "empty[i % 2].wait(phase(i))"]


def test_phases_that_are_not_counted_by_passes_are_left_to_the_emulator():
    assert not of_ring(needed=1, phase=lambda i: i).findings
    assert not of_ring(needed=3, phase=lambda i: i // 3).findings


@pytest.mark.parametrize("bytes", [TILE // 2, 2 * TILE, 0])
def test_bytes_other_than_those_of_the_copies_are_an_error(bytes):
    (finding,) = of_ring(bytes=bytes).findings
    assert (finding.kind, finding.level) == (Kind.BYTE_COUNT, Level.ERROR)
    assert f"and copies bring {TILE} * cdiv(x.shape[0], 64)" in finding.message


def test_a_copy_that_signals_another_semaphore_is_told_of_both():
    findings = [f for f in of_ring(signalled=False).findings if f.kind is Kind.BYTE_COUNT]
    assert {f.message.split("`")[1] for f in findings} == {"full", "empty"}


def of_some(arrives, lag=0):
    """One group arrives in the passes that a function of Python picks, another waits in every pass."""

    @pk.kernel
    def kernel(y, n):
        ready = pk.semaphore(1)
        (block,) = pk.grid(4)
        with pk.warps(1):
            for i in pk.range(n):
                if arrives(i, block, n):
                    ready.arrive()
        with pk.warpgroups(1):
            for i in pk.range(n):
                ready.wait(i + lag)
                pk.store(y[block], i)

    return prove(recorded(kernel, np.zeros(8, np.int32), 3)).findings


def test_arrivals_under_a_condition_that_the_waits_lack_are_an_error():
    (finding,) = of_some(lambda i, block, n: block > 0)
    assert "the phase needs 1 arrivals and gets (block > 0)" in finding.message
    assert not of_some(lambda i, block, n: n == n)


def test_arrivals_that_some_passes_leave_out_are_left_to_the_emulator():
    assert not of_some(lambda i, block, n: i < n - 1, lag=1)
    assert not of_some(lambda i, block, n: i % 2 == 0)


def test_a_semaphore_that_two_loops_use_is_left_to_the_emulator():
    @pk.kernel
    def kernel(y, n):
        ready = pk.semaphore(1)
        pk.grid(1)
        with pk.warps(1):
            for i in pk.range(n):
                ready.arrive()
            for i in pk.range(n):
                ready.arrive()
        with pk.warpgroups(1):
            for i in pk.range(n):
                ready.wait(i)
            for i in pk.range(n):
                ready.wait(n + i)
                pk.store(y[i], i)

    assert not prove(recorded(kernel, np.zeros(8, np.int32), 3)).findings


# -- without loops ---------------------------------------------------------------------------------


def straight(arrivals, come, phase=0, waits=True):
    @pk.kernel
    def kernel(y):
        done = pk.semaphore(arrivals)
        pk.grid(1)
        with pk.warps(come) as w:
            done.arrive()
            if waits:
                done.wait(phase)
            pk.store(y[w], 1)

    return prove(recorded(kernel, np.zeros(8, np.int32)))


def test_arrivals_that_make_up_a_phase_balance():
    assert straight(3, 3).proved == ("semaphore `done`: 3 arrivals complete whole phases of 3",)
    assert straight(2, 4).findings == ()


@pytest.mark.parametrize(("arrivals", "come"), [(3, 2), (8, 5)])
def test_a_first_phase_that_is_never_complete_is_an_error(arrivals, come):
    (finding,) = straight(arrivals, come).findings
    assert finding.level is Level.ERROR
    assert (
        f"the first phase of `done`; the phase needs {arrivals} arrivals and gets {come}"
        in finding.message
    )


@pytest.mark.parametrize(("arrivals", "come", "waits"), [(2, 3, True), (3, 2, False)])
def test_arrivals_that_are_left_over_are_an_error(arrivals, come, waits):
    (finding,) = straight(arrivals, come, waits=waits).findings
    assert finding.level is Level.ERROR
    assert f"`done` gets {come} arrivals" in finding.message


def test_each_of_several_semaphores_is_counted_for_itself():
    @pk.kernel
    def kernel(y, *, other):
        done = pk.semaphore(2, count=2)
        pk.grid(1)
        with pk.warps(2) as w:
            done[0].arrive()
            done[other].arrive()
            done[0].wait(0)
            pk.store(y[w], 1)

    y = np.zeros(8, np.int32)
    assert not prove(recorded(kernel, y, other=1)).findings
    assert not prove(recorded(kernel, y, other=0)).findings
    assert prove(recorded(kernel, y, other=1)).proved == (
        "semaphore `done[0]`: 2 arrivals complete whole phases of 2",
        "semaphore `done[1]`: 2 arrivals complete whole phases of 2",
    )


# -- bytes -----------------------------------------------------------------------------------------


def of_copies(expects, copies):
    @pk.kernel
    def kernel(x, y, n):
        tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
        pk.grid(1)
        full.expect(expects(tile, n))
        for i in copies(n):
            pk.load_async(tile.tiles(16, 64)[i % 4], x[i, 0], signal=full)
        full.wait(0)
        pk.store(y[0], pk.load(tile))

    return prove(recorded(kernel, X, X, 3))


def test_bytes_of_several_copies_are_added_up():
    proofs = of_copies(lambda tile, n: tile, lambda n: range(4))
    assert not proofs.findings
    assert "16384 bytes are expected, and copies bring as many" in proofs.proved[1]
    assert of_copies(lambda tile, n: 8192, lambda n: pk.range(2)).proved[1:]


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_copies_that_bring_more_or_less_are_an_error(count):
    (finding,) = of_copies(lambda tile, n: tile, lambda n: range(count)).findings
    assert (finding.kind, finding.level) == (Kind.BYTE_COUNT, Level.ERROR)
    assert finding.message == (
        f"16384 bytes are expected at `full`, and copies bring {4096 * count}"
    )
    assert finding.steps[0].what == "expects 16384 bytes"


def test_bytes_that_depend_on_arguments_are_left_to_the_emulator():
    assert not of_copies(lambda tile, n: n * 4096, lambda n: pk.range(n)).findings
    assert not of_copies(lambda tile, n: tile, lambda n: pk.range(n)).findings


def test_bytes_that_nobody_expects_are_an_error():
    @pk.kernel
    def kernel(x, y):
        tile, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
        pk.grid(1)
        full.arrive()
        pk.load_async(tile, x[0], signal=full)
        full.wait(0)
        pk.store(y[0], pk.load(tile))

    (finding,) = prove(recorded(kernel, X, X)).findings
    assert finding.message == "0 bytes are expected at `full`, and copies bring 16384"
    assert finding.level is Level.ERROR
