"""Random functions with homes: values that wander between roles through loops and branches, equal to NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens import f32

N, BLOCKS, ROWS = 32, 3, 8
HOMES = {"c": "consumers", "s": "storer", "f": "fetchers"}
NAMES = tuple(f"{home}{i}" for home in HOMES for i in range(2))


@pk.function
def carried_out(plan, state, x, chosen, block, turn, rings):
    """The vectors of the names after a plan; each name lives with one role."""
    for what, *rest in plan:
        match what, rest:
            case (("stream" | "fetch"), (name, shift)):
                place = x[(block + shift + turn) % ROWS]
                ring = rings[what]
                stage = ring.stream(place) if what == "stream" else ring.fetch(place)
                state = {**state, name: pk.load(stage)}
            case "hand", (source, name):
                ring = rings[source[0] + name[0]]
                state = {**state, name: pk.load(ring.hand(state[source], to=HOMES[name[0]]))}
            case "max", (name, other):
                state = {**state, name: pk.maximum(state[name], state[other])}
            case "turn", (name,):
                state = {**state, name: 1 - state[name]}
            case "loop", (count, inner):
                for i in pk.range(count):
                    state = carried_out(inner, state, x, chosen, block, turn + i, rings)
            case "if", (row, yes, no):
                if pk.load(chosen[(block + row) % ROWS]) > 0:
                    state = carried_out(yes, state, x, chosen, block, turn, rings)
                else:
                    state = carried_out(no, state, x, chosen, block, turn, rings)
    return state


@pk.kernel
def wander(x, chosen, y, *, plan, stages):
    """y[block] = the vectors of all names after a plan."""
    (block,) = pk.grid(BLOCKS)
    ways = ["stream", "fetch", *(a + b for a in HOMES for b in HOMES if a != b)]
    rings = {way: pk.pipeline(stages, pk.sv(f32, N)) for way in ways}
    pk.homes(pk.warps(1))
    zero = pk.zeros(f32, N)
    state = {name: zero for name in NAMES}
    for name in NAMES:  # each to its home
        if name[0] != "c":
            state[name] = pk.load(rings["c" + name[0]].hand(zero, to=HOMES[name[0]]))
    state = carried_out(plan, state, x, chosen, block, 0, rings)
    for i, name in enumerate(NAMES):
        pk.store(y[block * len(NAMES) + i, 0], state[name])


def computed(plan, state, x, chosen, block, turn):
    """The same in NumPy."""
    for what, *rest in plan:
        match what, rest:
            case (("stream" | "fetch"), (name, shift)):
                state[name] = x[(block + shift + turn) % ROWS]
            case "hand", (source, name):
                state[name] = state[source]
            case "max", (name, other):
                state[name] = np.maximum(state[name], state[other])
            case "turn", (name,):
                state[name] = 1 - state[name]
            case "loop", (count, inner):
                for i in range(count):
                    computed(inner, state, x, chosen, block, turn + i)
            case "if", (row, yes, no):
                branch = yes if chosen[(block + row) % ROWS] > 0 else no
                computed(branch, state, x, chosen, block, turn)


def random_plan(rng, depth=2):
    plan = []
    for _ in range(int(rng.integers(1, 5))):
        what = str(rng.choice(["stream", "fetch", "hand", "hand", "max", "turn", "loop", "if"]))
        name, other = (str(n) for n in rng.choice(NAMES, 2, replace=False))
        if what in ("stream", "fetch"):
            plan.append((what, f"c{rng.integers(2)}", int(rng.integers(ROWS))))
        elif what == "hand" and name[0] != other[0]:
            plan.append((what, name, other))
        elif what == "max":
            plan.append((what, f"{name[0]}0", f"{name[0]}1"))
        elif what == "turn":
            plan.append((what, name))
        elif what == "loop" and depth:
            plan.append((what, int(rng.integers(1, 4)), random_plan(rng, depth - 1)))
        elif what == "if" and depth:
            inner = (random_plan(rng, depth - 1) for _ in range(2))
            plan.append((what, int(rng.integers(ROWS)), *inner))
    return tuple(plan)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), stages=st.integers(1, 2))
def test_values_wander_as_the_plan_says(seed, stages):
    rng = np.random.default_rng(seed)
    plan = random_plan(rng)
    x = rng.integers(-4, 5, (ROWS, N)).astype(np.float32)
    chosen = rng.integers(0, 2, ROWS).astype(np.int32)
    y = np.full((BLOCKS * len(NAMES), N), np.nan, np.float32)
    wanted = np.zeros_like(y).reshape(BLOCKS, len(NAMES), N)
    for block in range(BLOCKS):
        state = dict.fromkeys(NAMES, np.zeros(N, np.float32))
        computed(plan, state, x, chosen, block, 0)
        wanted[block] = [state[name] for name in NAMES]
    report = pk.check(wander, x, chosen, y, plan=plan, stages=stages, schedules=2, compile=False)
    assert report.ok, str(report)
    wander(x, chosen, y, plan=plan, stages=stages)
    np.testing.assert_array_equal(y.reshape(wanted.shape), wanted)
