"""What a machine refuses, and what it says."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.mega.isa import Machine, halves_in_turn, in_turn
from tests.mega.isa_models import bf16


@pytest.fixture
def m():
    return Machine(blocks=2, chunk=1024, heads=2, capacity=100, vocabulary=50)


def zeros(*shape, dtype=bf16):
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"chunk": 512}, "`chunk` must be 1024 or 2048, not 512"),
        ({"head": 96}, "`head` must be 64 or 128, not 96"),
        ({"heads": 0}, "`heads` must be an int of at least 1, not 0"),
        ({"capacity": 1.5}, "`capacity` must be an int of at least 1, not 1.5"),
        ({"blocks": 0}, "`blocks` must be an int of at least 1, not 0"),
    ],
)
def test_shapes_of_a_machine(words, message):
    with pytest.raises(ArgumentError, match=message):
        Machine(**{"blocks": 1} | words)


def test_memories_take_arrays_of_their_dtypes(m):
    with pytest.raises(ArgumentError, match="`matrix` must be bfloat16, not float32") as found:
        m.weights(zeros(16, 16, dtype=np.float32))
    assert found.value.help == ".astype(ml_dtypes.bfloat16), or .bfloat16() of a tensor"
    with pytest.raises(ArgumentError, match="`values` must be float32, not float64") as found:
        m.constant(np.zeros(3))
    assert found.value.help == ".astype(np.float32), or .float() of a tensor"
    with pytest.raises(ArgumentError, match="`matrix` must have 2 axes, not the shape"):
        m.weights(zeros(16))
    with pytest.raises(ArgumentError, match="`matrix` must be an array of NumPy or a tensor"):
        m.weights([[1.0]])
    with pytest.raises(ArgumentError, match="`length` must be an int of at least 1, not 0"):
        m.vector(0)
    with pytest.raises(ArgumentError, match="must have elements"):
        m.weights(zeros(0, 16))


def test_lengths_of_a_product(m):
    w, x = m.weights(zeros(20, 30)), m.vector(30)
    with pytest.raises(ArgumentError, match="`x` must have 30 elements, not 31"):
        m.matvec(w, m.vector(31), m.vector(20))
    with pytest.raises(ArgumentError, match="`out` has 21 elements, and `w` has 20 rows"):
        m.matvec(w, x, m.vector(21))
    with pytest.raises(ArgumentError, match="`other` must have 20 elements, not 19"):
        m.matvec_add(w, x, m.vector(19), m.vector(20))
    with pytest.raises(ArgumentError, match="`gain` must have 30 elements, not 29"):
        m.norm_matvec(w, x, m.constant(np.ones(29, np.float32)), m.vector(20))
    both = m.weights(in_turn(zeros(20, 30), zeros(20, 30)))
    with pytest.raises(ArgumentError, match="64 rows of two matrices in turn"):
        m.norm_gate(both, x, m.constant(np.ones(30, np.float32)), m.vector(40))
    with pytest.raises(ArgumentError, match="`w` must be made by weights.* not a NumPy") as found:
        m.matvec(zeros(20, 30), x, m.vector(20))
    assert found.value.help == "machine.weights(matrix) makes one"


def test_a_norm_of_more_than_the_widest_vector_is_an_instruction_of_its_own(m):
    w, gain = m.weights(zeros(20, 1025)), m.constant(np.ones(1025, np.float32))
    with pytest.raises(ArgumentError, match="`x` must have at most 1024 elements") as found:
        m.norm_matvec(w, m.vector(1025), gain, m.vector(20))
    assert found.value.help == "add machine.rms_norm(x, gain, y), and multiply y by machine.matvec"


def test_vectors_of_other_memories(m):
    x, gain = m.vector(16), m.constant(np.ones(16, np.float32))
    of_another = (
        r"`a` must be made by vector\(length\) of this machine, not by .* of another machine"
    )
    with pytest.raises(ArgumentError, match=of_another):
        m.add(Machine(blocks=1).vector(16), x, x)
    with pytest.raises(ArgumentError, match=r"of this machine, not by constant\(values\)") as found:
        m.add(gain, x, x)
    assert found.value.help == "machine.vector(length) makes one"
    with pytest.raises(ArgumentError, match=r"`gain` must be made by constant\(values\)") as found:
        m.rms_norm(x, x, m.vector(16))
    assert found.value.help == "machine.constant(values) makes one"
    with pytest.raises(
        ArgumentError, match=r"`b` must be made by vector\(length\) of this machine, not 3"
    ):
        m.add(x, 3, m.vector(16))


def test_parts(m):
    x = m.vector(100)
    with pytest.raises(ArgumentError, match="inside of them, not from 64 to 128"):
        x.part(64, 64)
    with pytest.raises(ArgumentError, match="multiples of 16, not at 0 and 20") as found:
        x.part(0, 20)
    assert found.value.help == "make a vector for each part, by machine.vector(length)"
    w = m.weights(zeros(16, 48))
    with pytest.raises(ArgumentError, match="room for a multiple of 1024 elements, not 48 from 0"):
        m.matvec(w, x.part(0, 48), m.vector(16))


def test_a_machine_without_stages_of_matrices():
    m = Machine(blocks=1, fetched=0)
    a, b = m.matrix(16, 64), m.matrix(16, 64)
    w = m.weight_pages(zeros(64, 64))
    with pytest.raises(ArgumentError, match=r"take stages of their own: Machine\(fetched=2\)"):
        m.matmul(a, w, b)
    with pytest.raises(ArgumentError, match=r"take stages of their own: Machine\(fetched=2\)"):
        m.attention_of_all(a, a, a, b)
    with pytest.raises(ArgumentError, match="`fetched` must be .*, not -1"):
        Machine(blocks=1, fetched=-1)


def test_activations_layers_and_heads(m):
    x, rope = m.vector(256), m.constant(np.ones((100, 64), np.float32))
    with pytest.raises(ArgumentError, match="one of .*, not \"relu\"|not 'relu'"):
        m.gate(x, x, m.vector(256), "relu")
    with pytest.raises(ArgumentError, match="`layer` must be from 0 to 0, not 1"):
        m.append(1, m.vector(128), m.vector(128))
    with pytest.raises(ArgumentError, match="`keys` must have 128 elements, not 256"):
        m.append(0, x, x)
    with pytest.raises(ArgumentError, match="`parts` must be from 1 to 2, not 3"):
        m.attention(0, x, m.vector(128), m.vector(128), m.vector(256), 3)
    with pytest.raises(ArgumentError, match="`q` must have a multiple of 2 heads, not 3"):
        m.attention(0, m.vector(192), x, x, m.vector(192))
    with pytest.raises(ArgumentError, match="`values` must have 128 elements, not 256"):
        m.attention(0, x, m.vector(128), x, m.vector(256))
    with pytest.raises(ArgumentError, match="`x` must be heads of 64, not 100 elements"):
        m.rotary(m.vector(100), rope, m.vector(100))
    gain, bias = m.constant(np.ones(64, np.float32)), m.constant(np.ones(256, np.float32))
    with pytest.raises(ArgumentError, match="`bias` or `gain`, not both"):
        m.rotary(x, rope, m.vector(256), bias=bias, gain=gain)
    with pytest.raises(ArgumentError, match="`gain` must have 64 elements, not 256"):
        m.rotary(x, rope, m.vector(256), gain=bias)
    with pytest.raises(ArgumentError, match="`bias` must be made by constant"):
        m.shift(x, x, m.vector(256))
    with pytest.raises(ArgumentError, match="`rope` must have 6400 elements, not 64"):
        m.rotary(x, m.constant(np.ones(64, np.float32)), m.vector(256))
    with pytest.raises(ArgumentError, match="not 2097152"):
        m.argmax(m.vector(2**21))


def test_tensors_of_a_machine(m):
    x = m.vector(20)
    m.embedding(x)
    with pytest.raises(ArgumentError, match="the program takes `table`"):
        m.tensors()
    with pytest.raises(ArgumentError, match=r"`table` must be \(50, 20\), not \(49, 20\)"):
        m.tensors(table=zeros(49, 20))
    with pytest.raises(ArgumentError, match="`out` must have 20 elements, as before, not 21"):
        m.embedding(m.vector(21))
    m.append(0, m.vector(128), m.vector(128))
    with pytest.raises(ArgumentError, match=r"`cache` must be \(2, 100, 128\), not \(2, 100, 64\)"):
        m.tensors(zeros(2, 100, 64), zeros(50, 20))
    with pytest.raises(ArgumentError, match="`cache` must be bfloat16, not float16"):
        m.tensors(zeros(2, 100, 128, dtype=np.float16), zeros(50, 20))


def test_numbers_of_a_run(m):
    m.embedding(m.vector(20))
    tensors = m.tensors(table=zeros(50, 20))
    with pytest.raises(ArgumentError, match="`token` must be from 0 to 49, not 50"):
        m.run(tensors, token=50)
    with pytest.raises(ArgumentError, match="a run takes the numbers token, not none"):
        m.run_coarse(tensors)
    with pytest.raises(ArgumentError, match="a run takes the numbers token, not position, token"):
        m.launcher(tensors)(position=0, token=0)


def test_matrices_in_turn():
    with pytest.raises(ArgumentError, match=r"one shape, not \(16, 2\) and \(16, 3\)"):
        in_turn(zeros(16, 2), zeros(16, 3))
    with pytest.raises(ArgumentError, match="not 100 rows of heads of 64"):
        halves_in_turn(zeros(100, 2), 64)
