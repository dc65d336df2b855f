"""Errors of functions with homes: the sentence, the line with its caret, and the help."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.mega import Program

N = 64
X = np.ones((16, N), np.float32)
NAMED = (
    "all roles know fields, extents, numbers that are read from memory, and what follows from them"
)
ROLES = "decide by fields, extents or numbers that are read from memory, which all roles know"
MOVES = "ring.join(...) brings the sum over the consumers to the storer, ring.hand(...) a value to another role"


def vectors(length=N, stages=2):
    return pk.pipeline(stages, pk.sv(f32, length))


CASES = {}


def wrong(message, marked, help=None):
    """Decorator: the kernel is refused with this sentence, a caret under this expression, and this help."""

    def add(function):
        CASES[function.__name__] = pk.kernel(function), message, marked, help
        return function

    return add


@wrong("add: `total` lives with the storer and `v` with the consumers", "total + v", MOVES)
def operands_of_two_homes(x, y):
    pk.grid(1)
    ring, sums = vectors(), vectors(2 * N)
    pk.homes(pk.warps(2))
    v = pk.load(ring.stream(x[0]))
    total = sums.join(v)
    pk.store(y[0, 0], total + v)


@wrong(
    "hand: `total` lives with the storer and `v` with the consumers",
    "two.hand(a=total, b=v)",
    MOVES,
)
def values_of_two_homes(x, y):
    pk.grid(1)
    two, sums = pk.pipeline(1, a=pk.sv(f32, N), b=pk.sv(f32, N)), vectors(2 * N)
    pk.homes(pk.warps(2))
    v = pk.load(x[0, 0], cols=N)
    total = sums.join(v)
    two.hand(a=total, b=v)


@wrong(
    "stream: `i` lives with the consumers, and the producer must know the place to copy from",
    "ring.stream(x[i])",
    NAMED,
)
def a_place_from_a_vector(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    i = pk.sum(pk.load(x[0, 0], cols=N)).to(int32)
    pk.store(y[0, 0], pk.load(ring.stream(x[i])))


@wrong(
    "fetch: `w` lives with the consumers, and the fetchers must know the place to copy from",
    "ring.fetch(x[w])",
    NAMED,
)
def a_place_from_the_group(x, y):
    pk.grid(1)
    ring = vectors()
    w = pk.homes(pk.warps(2))
    pk.store(y[w, 0], pk.load(ring.fetch(x[w])))


@wrong(
    "stream: `i` lives with the consumers, and the producer must know the place to copy from",
    "ring.stream(x[i])",
    NAMED,
)
def a_place_that_a_loop_carries(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    i = 0
    for _ in pk.range(4):
        v = pk.load(ring.stream(x[i]))
        i = pk.sum(v).to(int32)
        pk.store(y[0, 0], v)


@wrong(
    "fill: runs with the producer, in a loop or branch that only the consumers can decide",
    "ring.stream(x[1])",
    ROLES,
)
def a_stream_in_a_branch_of_the_consumers(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    v = pk.load(ring.stream(x[0]))
    if pk.sum(v) > 0:
        v = pk.load(ring.stream(x[1]))
    pk.store(y[0, 0], v)


@wrong(
    "drain: runs with the storer, in a loop or branch that only the consumers can decide",
    "sums.join(v)",
    ROLES,
)
def a_join_in_a_loop_of_the_consumers(x, y):
    pk.grid(1)
    ring, sums = vectors(), vectors()
    pk.homes(pk.warps(1))
    v = pk.load(ring.stream(x[0]))
    for _ in pk.range(pk.sum(v).to(int32)):
        pk.store(y[0, 0], sums.join(v))


@wrong(
    "fill: the values of this function have homes, and it has no roles",
    "with ring.fill() as stage:",
    "`stream` and `fetch` of the ring bring tiles to the consumers, `hand` and `join` move values",
)
def a_fill(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    with ring.fill() as stage:
        pk.load_async(stage, x[0])


@wrong(
    "drain: the values of this function have homes, and it has no roles",
    "with ring.drain() as stage:",
    "`stream` and `fetch` of the ring bring tiles to the consumers, `hand` and `join` move values",
)
def a_drain(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    with ring.drain() as stage:
        pk.store(y[0, 0], pk.load(stage))


@wrong(
    "stream: moves a value from one home to another, and values have none here",
    "ring.stream(x[0])",
    "`w = pk.homes(pk.warps(8))` at the start of the function gives them some; in roles, `fill` and `drain` move tiles",
)
def a_stream_without_homes(x, y):
    pk.grid(1)
    ring = vectors()
    with pk.warps(1):
        pk.store(y[0, 0], pk.load(ring.stream(x[0])))


@wrong(
    "pk.producer: the values of this function have homes; it has no other roles",
    "with pk.producer():",
)
def a_role(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    with pk.producer():
        ring.stream(x[0])


ONCE = "pk.homes: must be called once, outside loops and branches, in a function without roles"


@wrong(ONCE, "pk.homes(pk.warps(2))")
def homes_after_a_role(x, y):
    pk.grid(1)
    ring = vectors()
    with pk.producer(), ring.fill() as stage:
        pk.load_async(stage, x[0])
    pk.homes(pk.warps(2))


@wrong(ONCE, "pk.homes(pk.warps(2))")
def homes_twice(x, y):
    pk.grid(1)
    pk.homes(pk.warps(1))
    pk.store(y[0, 0], pk.load(x[0, 0], cols=N))
    pk.homes(pk.warps(2))


OUTSIDE = "pk.homes: must be outside roles, loops and branches"


@wrong(OUTSIDE, "pk.homes(pk.warps(1))")
def homes_in_a_loop(x, y):
    pk.grid(1)
    for i in pk.range(2):
        pk.homes(pk.warps(1))
        pk.store(y[i, 0], pk.load(x[i, 0], cols=N))


@wrong(OUTSIDE, "pk.homes(pk.warps(1))")
def homes_in_a_role(x, y):
    pk.grid(1)
    with pk.warps(1):
        pk.homes(pk.warps(1))
        pk.store(y[0, 0], pk.load(x[0, 0], cols=N))


@wrong(
    "pk.homes: `consumers` must be a role such as pk.warps(8) or pk.consumers(2), not one group of 1 warps",
    "pk.homes(pk.storer())",
)
def storers_that_compute(x, y):
    pk.grid(1)
    pk.homes(pk.storer())


@wrong(
    "pk.homes: nothing in homes_of_nothing runs in a role",
    "pk.homes(pk.warps(1))",
    "operations on vectors and tiles run with the consumers, after pk.homes",
)
def homes_of_nothing(x, y):
    pk.grid(1)
    pk.homes(pk.warps(1))


@wrong(
    "zeros: must be after pk.homes, which makes the role that runs it",
    "pk.zeros(f32, N)",
    "only numbers may be computed and read before pk.homes",
)
def a_vector_before_homes(x, y):
    pk.grid(1)
    zero = pk.zeros(f32, N)
    pk.homes(pk.warps(1))
    pk.store(y[0, 0], zero)


@wrong(
    "pk.persistent: `n` is used outside the function `a_grid_by_memory` that made it",
    "pk.persistent((n, 1))",
    "bind the name before the loop to carry it out, or pass tiles between roles through a pipeline",
)
def a_grid_by_memory(x, y):
    pk.homes(pk.warps(1))
    n = pk.load(x[0, 0]).to(int32)
    for i, _ in pk.persistent((n, 1)):
        pk.store(y[i, 0], pk.load(x[i, 0], cols=N))


@wrong("hand: the value lives with the consumers already", 'ring.hand(v, to="consumers")')
def a_value_that_is_there(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    v = pk.load(x[0, 0], cols=N)
    ring.hand(v, to="consumers")


@wrong("join: the value lives with the storer already", "again.join(total)")
def a_sum_of_the_storer(x, y):
    pk.grid(1)
    ring, again = vectors(2 * N), vectors()
    pk.homes(pk.warps(2))
    total = ring.join(pk.load(x[0, 0], cols=N))
    again.join(total)


@wrong(
    "join: the stage must have room for rv<f32, 64, plain> of each of 2 groups, not sv<f32, 64>",
    "ring.join(v)",
    "pk.sv(pk.f32, 128) has it",
)
def a_stage_without_room(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(2))
    v = pk.load(x[0, 0], cols=N)
    pk.store(y[0, 0], ring.join(v))


@wrong(
    "hand: the stage must have room for rt<f32, 16x64> of one group, not st<bf16, 16x64>",
    "ring.hand(tile)",
    "pk.st(pk.f32, 16, 64) has it",
)
def a_stage_of_another_dtype(x, y):
    pk.grid(1)
    ring = pk.pipeline(1, pk.st(bf16, 16, N))
    pk.homes(pk.warps(1))
    tile = pk.load(x[0, 0], rows=16, cols=N)
    ring.hand(tile)


@wrong(
    "stream: a stage of the ring has the tiles a, b, not the tiles a, c",
    "ring.stream(a=x[0], c=x[1])",
)
def a_name_that_the_ring_has_not(x, y):
    pk.grid(1)
    ring = pk.pipeline(2, a=pk.sv(f32, N), b=pk.sv(f32, N))
    pk.homes(pk.warps(1))
    ring.stream(a=x[0], c=x[1])


@wrong("hand: a stage of the ring has the tiles a, not one tile", "ring.hand(v)")
def no_name(x, y):
    pk.grid(1)
    ring = pk.pipeline(2, a=pk.sv(f32, N))
    pk.homes(pk.warps(1))
    v = pk.load(x[0, 0], cols=N)
    ring.hand(v)


@wrong(
    "fetch: the ring moves values from the producer to the consumers, not from the fetchers to the consumers",
    "ring.fetch(x[1])",
    "a ring has one role that fills it and one that drains it; make another with pk.pipeline",
)
def a_ring_of_two_ways(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    v = pk.load(ring.stream(x[0]))
    pk.store(y[0, 0], v + pk.load(ring.fetch(x[1])))


@wrong("stream: takes one tile or value, or one for each name of the ring's tiles", "ring.stream()")
def nothing_to_stream(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    ring.stream()


@wrong(
    "fetch: `src` must be a tile of a tensor such as A[i, j], not rv<f32, 64, plain>",
    "ring.fetch(v)",
)
def a_fetch_of_registers(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1), fetchers=2)
    v = pk.load(x[0, 0], cols=N)
    ring.fetch(v)


@wrong("hand: `value` must be a vector or tile in registers, not f32", "ring.hand(pk.max(v))")
def a_number_that_is_handed(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    v = pk.load(x[0, 0], cols=N)
    ring.hand(pk.max(v))


@wrong(
    'hand: `to` must be "storer", "consumers" or "fetchers", not \'producer\'',
    'ring.hand(v, to="producer")',
)
def a_home_that_receives_nothing(x, y):
    pk.grid(1)
    ring = vectors()
    pk.homes(pk.warps(1))
    v = pk.load(x[0, 0], cols=N)
    ring.hand(v, to="producer")


@wrong("fetch: 2 fetchers divide vectors into multiples of 16, not 48", "ring.fetch(x[0])")
def fetchers_that_divide_no_vector(x, y):
    pk.grid(1)
    ring = vectors(48)
    pk.homes(pk.warps(1), fetchers=2)
    ring.fetch(x[0])


@wrong(
    "fetch: 4 fetchers divide the rows of tiles into multiples of 16, not 32", "ring.fetch(x[0, 0])"
)
def fetchers_that_divide_no_tile(x, y):
    pk.grid(1)
    ring = pk.pipeline(1, pk.st(f32, 32, N))
    pk.homes(pk.warps(1), fetchers=4)
    ring.fetch(x[0, 0])


@wrong(
    "fetch: `src` must be a vector to be loaded by its tag, not a tile",
    "ring.fetch(x[0, 0], tag=3)",
)
def a_tile_with_a_tag(x, y):
    pk.grid(1)
    ring = pk.pipeline(1, pk.st(f32, 16, N))
    pk.homes(pk.warps(1))
    ring.fetch(x[0, 0], tag=3)


@wrong(
    "`t` is carried by the loop: `t` lives with the consumers and `t` with the storer",
    "pk.range(2)",
    MOVES,
)
def a_carried_value_that_changes_its_home(x, y):
    pk.grid(1)
    sums = vectors()
    pk.homes(pk.warps(1))
    t = pk.load(x[0, 0], cols=N)
    for _ in pk.range(2):
        t = pk.load(sums.hand(t + 1))


@wrong(
    "`t` lives with the consumers and with the storer in a run-time loop", "pk.store(y[0, 0], t)"
)
def a_home_that_depends_on_a_loop(x, y):
    pk.grid(1)
    sums = vectors()
    pk.homes(pk.warps(1))
    t = v = pk.load(x[0, 0], cols=N)
    for _ in pk.range(2):
        t = pk.load(sums.hand(v))
    pk.store(y[0, 0], t)


@wrong(
    "`t` lives with the consumers and with the storer after a run-time `if`", "pk.store(y[i, 0], t)"
)
def a_home_that_depends_on_a_branch(x, y):
    (i,) = pk.grid(2)
    sums = vectors()
    pk.homes(pk.warps(1))
    v = pk.load(x[i, 0], cols=N)
    if i > 0:
        t = v
    else:
        t = pk.load(sums.hand(v))
    pk.store(y[i, 0], t)


@wrong(
    "store: runs with the consumers, in a loop or branch that only the storer can decide",
    "pk.store(y[0, 0], v)",
    ROLES,
)
def a_store_of_the_consumers_in_a_branch_of_the_storer(x, y):
    pk.grid(1)
    sums = vectors()
    pk.homes(pk.warps(1))
    v = pk.load(x[0, 0], cols=N)
    if pk.sum(pk.load(sums.hand(v))) > 0:
        pk.store(y[0, 0], v)


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named_at_its_line(name):
    kernel, message, marked, help = CASES[name]
    with pytest.raises(pk.KernelError) as caught:
        kernel(X, X.copy())
    error, lines = caught.value, str(caught.value).splitlines()
    assert error.message == message
    assert error.help == help
    under = next(i for i, line in enumerate(lines) if set(line.strip()) == {"^"})
    first = lines[under].index("^")
    assert lines[under - 1][first : first + lines[under].count("^")] == marked


def test_an_instruction_with_homes_has_no_grid():
    program = Program(1)

    @program.instruction
    def copied(x, *, at):
        w = pk.homes(pk.warps(2))
        pk.grid(4)
        pk.store(x[at, w], pk.zeros(f32, N // 2))

    program.add(copied, at=0)
    with pytest.raises(pk.KernelError, match="pk.grid: an instruction cannot use it"):
        program.run(x=X.copy())
