"""Random programs of generic instructions: emulator, coarse machine and float64 agree, on any blocks, in any order."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.mega.isa_models import ACTIVATIONS, Model

LENGTHS = 1, 16, 63, 64, 128, 255, 700, 1024, 1100, 2100
CAPACITY = 130


def random_model(seed: int, steps: int) -> Model:
    """A model of random instructions on random earlier vectors, which are scaled so that none grows."""
    rng = np.random.default_rng(seed)
    m = Model(
        seed=seed,
        blocks=int(rng.integers(1, 7)),
        chunk=int(rng.choice([1024, 2048])),
        head=int(rng.choice([64, 128])),
        heads=int(rng.integers(1, 4)),
        layers=2,
        capacity=CAPACITY,
        vocabulary=40,
        dynamic=bool(rng.integers(2)),
        pages=int(rng.integers(2, 5)),
    )
    rope, size = m.angles(), m.machine.heads * m.machine.head
    vectors = [m.embedding(int(rng.choice(LENGTHS)))]
    free = [0, 1]  # layers without keys at the position

    def any_of(length=None):
        found = [v for v in vectors if v.length == length or length is None]
        if not found:
            found = [m.matvec(any_of(), length)]
            vectors.extend(found)
        return (
            m.rms_norm(found[i], m.gains(found[i].length))
            if (i := int(rng.integers(len(found)))) % 2
            else found[i]
        )

    def length():
        return int(rng.choice(LENGTHS))

    def product():
        x, rows = any_of(), length()
        words = [lambda: m.matvec(x, rows), lambda: m.matvec_add(x, any_of(rows))]
        if x.length <= m.machine.chunk:
            gain, kind = m.gains(x.length), str(rng.choice([*ACTIVATIONS]))
            words += [
                lambda: m.norm_matvec(x, gain, rows),
                lambda: m.norm_gate(x, gain, rows, kind),
            ]
            out = m.vector(m.machine.head * int(rng.integers(1, 4)))
            words.append(lambda: m.norm_rotary(x, gain, rope, out))
        return words[int(rng.integers(len(words)))]()

    def elements():
        n = length()
        a, b = any_of(n), any_of(n)
        norm = m.shift(m.layer_norm(b, m.gains(n), m.gains(n)), m.gains(n))
        return (
            m.add(a, norm) if rng.integers(2) else m.gate(norm, a, str(rng.choice([*ACTIVATIONS])))
        )

    def heads():
        if rng.integers(2) or not free:
            more = ({}, {"bias": m.gains(size)}, {"gain": m.gains(m.machine.head)})
            return m.rotary(any_of(size), rope, **more[int(rng.integers(3))])
        layer, v, each = free.pop(), any_of(size), int(rng.integers(1, 4))
        first, parts = bool(rng.integers(2)), int(rng.integers(1, 4))
        narrow, squares = [x for x in vectors if x.length <= m.machine.chunk], None
        if narrow and rng.integers(2):  # heads with norms
            x, qk = narrow[0], m.vector(size * (each + 1))
            q, k = qk.part(0, size * each), qk.part(size * each, size)
            of = m.norm_rotary(x, m.gains(x.length), rope, qk, normed=True)
            squares = of.part(0, size * each // 2), of.part(size * each // 2, size // 2)
        else:
            q, k = any_of(size * each), any_of(size)
        of_keys = squares and squares[1]
        if first:
            m.append(layer, k, v, of_keys)
        out = m.attention(layer, q, k, v, parts, squares)
        if not first:
            m.append(layer, k, v, of_keys)
        return out

    for _ in range(steps):
        vectors.append((product, elements, heads)[int(rng.integers(3))]())
    m.argmax(any_of())
    return m


# A smaller seed is no simpler program.
@settings(max_examples=8, phases=(Phase.reuse, Phase.generate))
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(0, CAPACITY - 1))
def test_random_programs_give_what_float64_does(seed, steps, position):
    random_model(seed, steps).checked(position, seed % 40)
