"""What a function with homes may hold: loops, branches, grids, views and numbers of all kinds."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32, int32
from tests.running import recorded

ROWS, N = 16, 64
X = np.random.default_rng(0).standard_normal((ROWS, N)).astype(np.float32)


def result(kernel, *more, x=X, rows=ROWS, **constants):
    """The output of a kernel of x, which the checker has nothing against."""
    y = np.full((rows, N), np.nan, np.float32)
    report = pk.check(kernel, x, y, *more, schedules=3, **constants)
    assert report.ok, str(report)
    kernel(x, y, *more, **constants)
    assert kernel.source(x, y, *more, **constants)
    return y


def vectors(stages=2, **more):
    return pk.pipeline(stages, pk.sv(f32, N), **more)


def halves(stage, w):
    return stage.parts(N // 2)[w]


def test_numbers_and_branches_stand_before_homes():
    @pk.kernel
    def kernel(x, y, n):
        """y[i] = x[i] + (1 if n > 3) + x[i, 3]."""
        (i,) = pk.grid(x.rows)
        pk.overlap(ready=x)
        pk.require(x.rows == 16, "16 rows")
        ring = vectors()
        three = pk.load(x[i, 3])
        more = 0.0
        if n > 3:
            more = more + 1.0
        for k in pk.range(2):
            more = more + k.to(f32)
        w = pk.homes(pk.warps(2))
        pk.store(y[i, w], pk.load(halves(ring.stream(x[i]), w)) + three + more)

    for n in (3, 4):
        np.testing.assert_allclose(result(kernel, n), X + X[:, 3:4] + (n > 3) + 1, rtol=1e-5)


def test_grids_follow_homes_and_numbers_that_they_need():
    @pk.kernel
    def kernel(x, y):
        ring = vectors(3)
        w = pk.homes(pk.warps(2))
        pairs = pk.cdiv(x.rows, 2)
        pk.require(pairs == 8, "8 pairs")
        for i, half in pk.persistent((pairs, 2), blocks=pairs // 2):
            row = 2 * i + half
            pk.store(y[row, w], pk.load(halves(ring.stream(x[row]), w)) * 2)

    assert (result(kernel) == 2 * X).all()


def test_tiles_are_taken_by_tickets():
    @pk.kernel
    def kernel(x, y, tickets):
        ring = vectors(3)
        tasks = pk.persistent((x.rows,), blocks=3, tickets=tickets)
        w = pk.homes(pk.warps(2))
        for (i,) in tasks:
            pk.store(y[i, w], pk.load(halves(ring.stream(x[i]), w)))

    assert (result(kernel, np.zeros(2, np.int32)) == X).all()


@pytest.mark.parametrize("fetchers", [1, 2, 4])
def test_fetchers_divide_vectors_and_tiles(fetchers):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        ring, tiles = vectors(), pk.pipeline(1, pk.st(f32, 64, N))
        pk.homes(pk.warps(1), fetchers=fetchers)
        page = pk.load(tiles.fetch(x[0, 0]).tiles(16, N)[0, 0])
        row = pk.load(ring.fetch(x[3, 0]), spread=pk.per_column)
        pk.store(y[0, 0], page + row)

    assert (result(kernel) == X + X[3]).all()


@pytest.mark.parametrize("fetchers", [1, 2])
def test_fetchers_wait_for_tags(fetchers):
    @pk.kernel
    def kernel(x, y, tag):
        (i,) = pk.grid(x.rows)
        ring = vectors()
        w = pk.homes(pk.warps(2), fetchers=fetchers)
        pk.store(y[i, w], pk.load(halves(ring.fetch(x[i], tag=tag), w)))

    tagged = ((X.view(np.int32) & ~15) | 5).view(np.float32)
    plain = (X.view(np.int32) & ~15).view(np.float32)
    assert (result(kernel, 5, x=tagged) == plain).all()


def test_loops_are_nested_and_branches_follow_from_numbers_that_are_read():
    @pk.kernel
    def kernel(x, y, chosen):
        pk.grid(1)
        ring = vectors(3, flight=2)
        w = pk.homes(pk.warps(2))
        for i in pk.range(4):
            for j in pk.range(4):
                row = 4 * i + j
                if pk.load(chosen[row]) > 0:
                    v = pk.load(halves(ring.stream(x[row]), w))
                    pk.store(y[row, w], v)
                else:
                    pk.store(y[row, w], pk.zeros(f32, N // 2))

    chosen = np.arange(ROWS, dtype=np.int32) % 3
    assert (result(kernel, chosen) == np.where(chosen[:, None] > 0, X, 0)).all()


def test_a_while_runs_in_all_roles():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        ring = vectors()
        w = pk.homes(pk.warps(2))
        i = 0
        while i < x.rows:
            pk.store(y[i, w], pk.load(halves(ring.stream(x[i]), w)))
            i = i + 1

    assert (result(kernel) == X).all()


def test_the_consumers_decide_what_only_they_do():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        ring = vectors()
        pk.homes(pk.warps(1))
        for i in pk.range(x.rows):
            v = pk.load(ring.stream(x[i]))
            size = pk.sum(v * v)
            scale = 1.0
            while size > 1.0:
                size, scale = size * 0.5, scale * 0.5
            if pk.max(v) > 2.0:
                v = v * 0.0
            pk.store(y[i, 0], v * scale)

    y = result(kernel)
    norms = np.where((X.max(axis=1) > 2), 0, (y * y).sum(axis=1))
    assert (y[X.max(axis=1) > 2] == 0).all()
    assert (norms <= 1).all()


def test_a_carried_number_starts_everywhere_and_comes_to_live_with_the_consumers():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        ring = vectors()
        pk.homes(pk.warps(1))
        s, place = 0.0, i
        for _ in pk.range(3):
            v = pk.load(ring.stream(x[place]))
            s = s + pk.sum(v)
        pk.store(y[i, 0], pk.zeros(f32, N) + s)

    np.testing.assert_allclose(result(kernel)[:, 0], 3 * X.sum(axis=1), rtol=1e-4, atol=1e-5)


def test_lists_are_carried():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        ring = vectors()
        pk.homes(pk.warps(1))
        state = [0, pk.zeros(f32, N)]
        for _ in pk.range(4):
            v = pk.load(ring.stream(x[(i + state[0]) % x.rows]))
            state[0] = state[0] + 1
            state[1] = state[1] + v
        pk.store(y[i, 0], state[1])

    wanted = sum(np.roll(X, -k, axis=0) for k in range(4))
    np.testing.assert_allclose(result(kernel), wanted, rtol=1e-5, atol=1e-5)


def test_an_item_starts_everywhere_and_comes_to_live_with_the_consumers():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        ring = vectors()
        pk.homes(pk.warps(1))
        state = {"sum": pk.zeros(f32, N), "pair": (0.0, pk.zeros(f32, N))}
        for k in pk.range(3):
            state["sum"] = 1 - state["sum"]
            if k == 1:
                state["sum"] = pk.load(ring.stream(x[i]))
            count, last = state["pair"]
            state["pair"] = (count + 1, last + state["sum"])
        count, last = state["pair"]
        pk.store(y[i, 0], state["sum"] + last * 0 + count * 0)

    np.testing.assert_allclose(result(kernel), 1 - X, rtol=1e-6, atol=1e-6)


def test_views_share_the_stages_of_a_ring():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        tiles = pk.pipeline(2, pk.st(f32, 16, N))
        rows = tiles.view(pk.sv(f32, N))
        pk.homes(pk.warps(1))
        first = pk.row_sum(pk.load(tiles.stream(x[0, 0])))
        v = pk.load(rows.stream(x[i]))
        pk.store(y[i, 0], v + pk.sum(first))

    np.testing.assert_allclose(result(kernel), X + X.sum(), rtol=1e-4, atol=1e-4)


def test_stages_are_held_to_their_last_use():
    @pk.kernel
    def kernel(x, y):
        """Both stages are used in the loop after them."""
        (i,) = pk.grid(x.rows)
        ring = vectors()
        pk.homes(pk.warps(1))
        a, b = ring.stream(x[i]), ring.stream(x[0])
        total = pk.zeros(f32, N)
        for _ in pk.range(3):
            total = total + pk.load(a) + pk.load(b)
        pk.store(y[i, 0], total)

    np.testing.assert_allclose(result(kernel), 3 * (X + X[0]), rtol=1e-5, atol=1e-5)


def test_values_go_to_the_fetchers_and_back():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        there, back = vectors(), vectors()
        w = pk.homes(pk.warps(2))
        v = pk.load(x[i, w], cols=N // 2)
        away = pk.load(there.hand(v, to="fetchers"))
        pk.store(y[i, w], pk.load(halves(back.hand(away * 2, to="consumers"), w)))

    assert (result(kernel) == 2 * X).all()


def test_tiles_are_handed_by_their_rows():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        ring = pk.pipeline(1, pk.st(f32, 32, N))
        w = pk.homes(pk.warps(2))
        tile = pk.load(x[0, 0], rows=16, cols=N) * (w + 1).to(f32)
        stage = ring.hand(tile)
        pk.store(y[0, 0], pk.load(stage.tiles(16, N)[1, 0]) - pk.load(stage.tiles(16, N)[0, 0]))

    np.testing.assert_allclose(result(kernel), X, rtol=1e-5)


def test_a_name_is_of_one_home_and_then_of_another():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        sums = vectors()
        pk.homes(pk.warps(1))
        t = pk.zeros(f32, N)
        if i > 3:
            t = pk.load(x[i, 0], cols=N)
            pk.store(y[i, 0], t)
        else:
            for _ in pk.range(2):
                t = pk.load(x[i, 0], cols=N) + t * 0
                u = pk.load(sums.hand(t))
                pk.store(y[i, 0], u)
                u = t

    assert (result(kernel) == X).all()


def test_the_storer_carries_numbers():
    @pk.kernel
    def kernel(x, y):
        """y[i] = x[i] * sum(x[i])^2."""
        (i,) = pk.grid(x.rows)
        ring, sums = vectors(), vectors()
        pk.homes(pk.warps(1))
        scale = 1.0
        for _ in pk.range(2):
            v = pk.load(sums.hand(pk.load(ring.stream(x[i]))))
            scale = scale * pk.sum(v)
        pk.store(y[i, 0], pk.load(sums.hand(pk.load(x[i, 0], cols=N))) * scale)

    wanted = X * X.sum(axis=1, keepdims=True) ** 2
    np.testing.assert_allclose(result(kernel), wanted, rtol=1e-3, atol=1e-4)


def test_the_storer_carries_vectors_that_begin_as_zeros():
    @pk.kernel
    def kernel(x, y):
        """y[i] = 2 x[i] + ... + 2 x[i], four times, and the consumers' own zeros."""
        (i,) = pk.grid(x.rows)
        ring, sums = vectors(), vectors()
        pk.homes(pk.warps(1))
        zero = pk.zeros(f32, N)
        total, other = zero, zero
        for _ in pk.range(4):
            v = pk.load(ring.stream(x[i]))
            other = other + v
            total = total + pk.load(sums.hand(v * 2))
        pk.store(y[i, 0], total + pk.load(sums.hand(other)))

    np.testing.assert_allclose(result(kernel), 12 * X, rtol=1e-5)


def test_the_storer_stores_by_the_copy_engine_into_memory_that_a_ring_takes_over():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        ring = vectors()
        done = pk.pipeline(2, pk.sv(f32, N), reuse=ring)
        pk.homes(pk.warps(1))
        pk.store_async(y[i, 0], done.hand(pk.load(ring.stream(x[i])) + 1))

    assert (result(kernel) == X + 1).all()


def test_groups_of_consumers_take_turns():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        w = pk.homes(pk.warps(2))
        v = pk.load(x[i, w], cols=N // 2)
        for _ in pk.range(2):
            with pk.in_turn():
                pk.store(y[i, w], v)

    assert (result(kernel) == X).all()


def test_a_role_that_has_nothing_to_do_is_left_out():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        w = pk.homes(pk.warps(2), fetchers=2)
        pk.store(y[i, w], pk.load(x[i, w], cols=N // 2))

    assert (result(kernel) == X).all()
    assert [role.home for role in recorded(kernel, X, X.copy()).roles] == ["consumers"]


def test_a_static_extent_and_memory_of_the_kernel_stand_after_homes():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        w = pk.homes(pk.warps(2))
        half = pk.static(x.cols) // 2
        s = pk.shared(pk.sv(f32, N))
        pk.store(halves(s, w), pk.load(x[i, w], cols=half))
        pk.sync()
        pk.store(y[i, w], pk.load(halves(s, w)))

    assert (result(kernel) == X).all()


def test_a_kernel_may_catch_what_homes_raises():
    @pk.kernel
    def kernel(x, y):
        (i,) = pk.grid(x.rows)
        ring = vectors()
        try:
            w = pk.homes(pk.warps(2))
        except Exception:
            raise
        pk.store(y[i, w], pk.load(halves(ring.stream(x[i]), w)))

    @pk.kernel
    def careless(x, y):
        (i,) = pk.grid(x.rows)
        ring = vectors()
        try:
            w = pk.homes(pk.warps(2))
            pk.store(y[i, w], pk.load(halves(ring.stream(x[i]), w)))
        except BaseException:
            i = int32

    assert (result(kernel) == X).all()
    assert (result(careless) == X).all()


def test_the_report_calls_roles_by_their_homes():
    @pk.kernel
    def kernel(x, y):
        """The fetchers write one place both."""
        (i,) = pk.grid(x.rows)
        ring = vectors()
        w = pk.homes(pk.warps(2), fetchers=2)
        v = pk.load(x[i, w], cols=N // 2)
        pk.store(y[i, 0], pk.load(ring.hand(v, to="fetchers")))

    report = str(pk.check(kernel, X, X.copy(), schedules=3))
    assert "fetchers 1 writes it" in report or "fetchers 0 writes it" in report
    assert "filled by each of 2 consumers, drained by each of 2 fetchers" in report
