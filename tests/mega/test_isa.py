"""Generic instructions compute what float64 does, of any lengths; emulator and coarse machine agree to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.mega.isa import Machine, Vector, in_turn
from pykittens.runtime import nvrtc
from tests.mega.isa_models import ACTIVATIONS, Model, all_kinds, bf16, llama, resources_of
from tests.tiers import halved

LENGTHS = [1, 16, 100, 256, 1000, 1024]
LONG = [*LENGTHS, 1025, 2500]
HEADS = [(64, 1, 1), (64, 2, 6), (64, 3, 3), (128, 1, 3), (128, 2, 4)]  # width, of keys, of queries


def normed(m: Model, length: int) -> Vector:
    return m.rms_norm(m.embedding(length), m.gains(length))


# -- each kind alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LONG)
def test_the_embedding_is_the_row_of_the_token(length):
    m = Model()
    m.embedding(length)
    m.checked(token=255)


@pytest.mark.parametrize(
    ("rows", "length", "chunk", "widest"),
    halved(
        [(1, 1), (16, 1024), (70, 100), (33, 2500), (7, 1040)], [(1024, 1), (2048, 1), (1024, 3)]
    ),
)
def test_products_take_matrices_of_any_shape(rows, length, chunk, widest):
    m = Model(chunk=chunk, widest=widest)
    x = m.embedding(length)
    m.matvec_add(x, m.matvec(x, rows))
    m.checked(token=3)


@pytest.mark.parametrize(
    ("rows", "length", "widest"),
    [(1, 1, 1), (16, 1024, 1), (70, 100, 2), (300, 1000, 1), (33, 1025, 2), (20, 5100, 5)],
)
def test_products_with_a_norm(rows, length, widest):
    m = Model(widest=widest)
    x, gain = m.embedding(length), m.gains(length)
    m.norm_matvec(x, gain, rows)
    for activation in ACTIVATIONS:
        m.norm_gate(x, gain, rows, activation)
    m.checked(token=7)


@pytest.mark.parametrize("length", LONG)
def test_a_sum_of_vectors(length):
    m = Model()
    x = m.embedding(length)
    m.add(x, normed(m, length))
    m.checked(token=9)


@pytest.mark.parametrize(("length", "activation"), halved(LENGTHS, [*ACTIVATIONS]))
def test_a_gate(length, activation):
    m = Model()
    x = m.embedding(length)
    m.gate(x, normed(m, length), activation)
    m.checked(token=9)


@pytest.mark.parametrize(("length", "chunk"), halved(LONG, [1024, 2048]))
def test_norms(length, chunk):
    m = Model(chunk=chunk)
    x, gain = m.embedding(length), m.gains(length)
    y = m.layer_norm(m.rms_norm(x, gain), gain, m.constant(m.rng.standard_normal(length)))
    assert y.length == length
    m.checked(token=1)


def test_a_layer_norm_subtracts_a_large_mean():
    m = Model()
    x = m.embedding(1500)
    m.table = (m.table + np.array(1000, bf16)).astype(bf16)
    m.layer_norm(x, m.gains(1500), m.gains(1500))
    m.checked()


@pytest.mark.parametrize(("heads", "head"), halved([1, 2, 5], [64, 128]))
def test_heads_are_rotated_by_the_angles_of_the_position(head, heads):
    m = Model(head=head, capacity=70)
    rope, x = m.angles(), m.embedding(heads * head)
    m.rotary(x, rope)
    m.rotary(x, rope, bias=m.constant(m.rng.standard_normal(x.length)))
    m.rotary(x, rope, gain=m.gains(head))
    m.shift(x, m.constant(m.rng.standard_normal(x.length)))
    out = m.vector(3 * head)
    m.norm_rotary(x, m.gains(x.length), rope, out)
    m.checked(position=69)


@pytest.mark.parametrize(
    ("capacity", "parts", "position", "head", "heads", "queries"),
    halved([(64, 1, 0), (100, 2, 99), (300, 3, 130), (300, 3, 5), (1100, 18, 1090)], HEADS),
)
def test_attention_to_the_keys_up_to_the_position(head, heads, queries, capacity, parts, position):
    m = Model(head=head, heads=heads, capacity=capacity, layers=2)
    x = m.embedding(200)
    k, v = m.matvec(x, heads * head), m.matvec(x, heads * head)
    m.attention(1, m.matvec(x, queries * head), k, v, parts)
    m.append(1, k, v)
    m.checked(position, 11)


@pytest.mark.parametrize(
    ("position", "parts", "head", "queries"),
    halved([0, 1, 70], [1, 2], [(64, 3), (128, 1), (128, 9)]),
)
def test_attention_of_heads_with_norms(head, queries, parts, position):
    m = Model(head=head, heads=2, capacity=100)
    x, rope = m.embedding(200), m.angles()
    qk = m.vector((2 + 2 * queries) * head)
    q, k = qk.part(0, 2 * queries * head), qk.part(2 * queries * head, 2 * head)
    squares = m.norm_rotary(x, m.gains(200), rope, qk, normed=True)
    of_heads = squares.part(0, q.length // 2), squares.part(q.length // 2, head)
    v = m.matvec(x, 2 * head)
    m.attention(0, q, k, v, parts, of_heads)
    m.append(0, k, v, of_heads[1])
    m.checked(position, 11)


def test_keys_may_be_longer_than_a_chunk():
    m = Model(head=128, heads=16, capacity=70)
    x = m.embedding(100)
    k, v = m.matvec(x, 2048), m.matvec(x, 2048)
    assert k.start % 2048
    m.attention(0, m.matvec(x, 2048), k, v)
    m.append(0, k, v)
    m.checked(65, 3)


@pytest.mark.parametrize(("head", "queries"), [(64, 9), (128, 10)])
def test_more_queries_share_a_key_than_an_instruction_takes(head, queries):
    m = Model(head=head, heads=1, capacity=100)
    x = m.embedding(200)
    k, v = m.matvec(x, head), m.matvec(x, head)
    m.attention(0, m.matvec(x, queries * head), k, v, 2)
    assert sum(step.kind.name == "attend_part" for step in m.machine.program.instructions) == 4
    m.append(0, k, v)
    m.checked(90, 3)


@pytest.mark.parametrize("length", [1, 16, 255, 256, 257, 3000])
def test_the_largest_of_any_vector(length):
    m = Model()
    x = m.embedding(length)
    m.table = (-np.abs(m.table) - np.array(1, bf16)).astype(bf16)  # less than what pads it
    m.argmax(x)
    m.checked(token=2)
    assert m.chosen == int(m.table[2].argmax())


# -- exactly ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [100, 2500])
def test_integers_are_exact(length):
    m = Model()
    x = m.embedding(length)
    m.table = m.rng.integers(-4, 5, m.table.shape).astype(bf16)
    m.matrix = lambda rows, cols: m.rng.integers(-4, 5, (rows, cols)).astype(bf16)
    y = m.matvec(x, 50)
    m.matvec_add(x, m.add(y, y))
    found = m.checked(token=5)
    for out, *_ in m.steps:
        m.expect(token=5)
        np.testing.assert_array_equal(m.read(found, out), m.found[out])


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "parts", "dynamic"), halved([1024, 2048], [1, 2], [False, True]))
def test_a_small_llama_continues_from_its_cache(chunk, parts, dynamic):
    m, logits = llama(chunk=chunk, parts=parts, dynamic=dynamic)
    tensors = [m.tensors() for _ in range(2)]
    for position, token in ((70, 3), (71, 299)):
        for t, word in zip(tensors, ("run", "run_coarse"), strict=True):
            getattr(m.machine, word)(t, position=position, token=token)
            m.check(t, position, token)
        assert all(tensors[0][n].tobytes() == tensors[1][n].tobytes() for n in tensors[0])
    fresh, _ = llama(chunk=chunk, parts=parts, dynamic=dynamic)
    for position, token in ((70, 3), (71, 299)):
        fresh.expect(position, token)  # with one step after another in float64
    error = np.abs(m.read(tensors[0], logits) - fresh.found[fresh.steps[-2][0]])
    assert error.max() < 1e-3


@pytest.mark.parametrize(("head", "heads", "queries"), HEADS[2:])
def test_llamas_with_other_heads(head, heads, queries):
    m, _ = llama(head=head, heads=heads, queries=queries, parts=2)
    m.checked(99, 17)


def test_a_launcher_runs_any_number_of_times():
    m, _ = llama(layers=1)
    tensors, other = m.tensors(), m.tensors()
    launch = m.machine.launcher(tensors)
    for position, token in ((0, 0), (1, 5), (2, 299)):
        launch(position=position, token=token)
        m.machine.run_coarse(other, position=position, token=token)
        m.check(tensors, position, token)
        assert tensors["chosen"] == other["chosen"]


def test_a_model_with_layer_norms_and_gelu():
    """It has separate keys and values, and a width of more than a chunk."""
    m = Model(heads=2, capacity=64, vocabulary=90)
    h = m.embedding(1100)
    norm = m.layer_norm(h, m.gains(1100), m.gains(1100))
    q, k, v = (m.matvec(norm, 128) for _ in range(3))
    mixed = m.attention(0, q, k, v)
    m.append(0, k, v)
    h = m.matvec_add(mixed, h)
    norm = m.layer_norm(h, m.gains(1100), m.gains(1100))
    h = m.matvec_add(m.gate(m.matvec(norm, 900), m.matvec(norm, 900), "gelu"), h)
    m.argmax(m.matvec(m.rms_norm(h, m.gains(1100)), 90))
    m.checked(33, 89)


def test_there_are_no_races():
    m, _ = llama(layers=1, width=48, hidden=33, vocabulary=20, heads=1, queries=2, blocks=2)
    tensors = m.tensors()
    tensors["position"][0], tensors["token"][0] = 65, 3
    program = m.machine.program
    arguments = program.arguments(program.scheduled(**tensors), **tensors)
    report = pk.check(program.kernel(), *arguments, schedules=2)
    assert report.ok, str(report)


def test_what_pads_a_vector_is_written_once_if_it_is_read():
    m = Model()
    x = m.embedding(100)
    m.matvec(x, 20)
    m.matvec(x, 20)
    kinds = [step.kind.name for step in m.machine.program.instructions]
    assert kinds.count("clear") == 1
    y = m.add(x, x)
    assert [s.kind.name for s in m.machine.program.instructions][-1] == "add"
    assert y.room - y.start == 1024


def test_matrices_in_turn_are_padded():
    a = np.arange(34, dtype=np.float32).reshape(17, 2)
    both = in_turn(a, -a)
    assert both.shape == (64, 2)
    np.testing.assert_array_equal(both[16:32], -a[:16])
    np.testing.assert_array_equal(both[32], a[16])
    assert not both[33:48].any()


def test_parts_of_vectors_are_written_one_by_one():
    m = Model()
    x, both = m.embedding(64), m.vector(100)
    m.matvec(x, 48, out=both.part(0, 48))
    m.matvec(x, 52, out=both.part(48, 52))
    m.found[both] = None
    out = m.vector(100)
    m.machine.add(both, both, out)
    tensors = m.tensors()
    m.machine.run(tensors, token=3)
    y = m.read(tensors, both)
    np.testing.assert_allclose(m.read(tensors, out), y + y, rtol=2**-18)


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize(("head", "chunk"), halved([64, 128], [2048, 1024], rest=pytest.mark.units))
def test_no_kind_spills_registers(head, chunk):
    """As many pages as there is room for, so that the program is one of `test_all_pages_that_a_machine_takes`."""
    m = all_kinds(head=head, chunk=chunk, pages=0, fetched=0)
    found = resources_of(m)
    assert found.frame == 0
    assert (found.registers, found.threads) == (128, 512)


def test_machines_are_shown_by_what_they_are_made_of():
    assert repr(Machine(blocks=2)).startswith("Machine(blocks=2, chunk=2048, head=64, heads=8")
    assert repr(Machine(blocks=2).vector(3)) == "Vector(start=0, length=3)"


def test_a_program_may_be_for_the_first_positions_alone():
    """Its instructions attend to these pages, whatever the capacity is, and it runs at no later position."""
    m = Model(capacity=300, below=100, heads=1)
    x = m.embedding(128)
    q, k, v = (m.matvec(x, 64) for _ in range(3))
    m.attention(0, q, k, v, 2)
    m.append(0, k, v)
    tensors = m.checked(position=99)
    (parts,) = {
        step.fields[step.kind.fields.index("parts")]
        for step in m.machine.program.instructions
        if step.kind.name == "attend_part"
    }
    assert parts == 2
    with pytest.raises(ArgumentError, match="`position` must be from 0 to 99, not 100"):
        m.machine.run(tensors, position=100, token=0)
    launch = m.machine.launcher(tensors)
    m.machine.begin()  # of which the launches of the first program know nothing
    with pytest.raises(ArgumentError, match="`position` must be from 0 to 99, not 100"):
        launch(position=100, token=0)
    with pytest.raises(ArgumentError, match="`below` must be from 1 to 300, not 301"):
        m.machine.begin(301)
