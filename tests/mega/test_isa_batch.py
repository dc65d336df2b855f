"""Several sequences at once: each has the results of float64, whatever the others' tokens and positions are."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.mega.isa import Machine
from pykittens.runtime import nvrtc
from tests.mega.isa_models import ACTIVATIONS, Model, all_kinds, llama, resources_of
from tests.tiers import halved


def places(batch, seed=0, capacity=100, vocabulary=300):
    """Positions and tokens."""
    rng = np.random.default_rng(seed)
    return rng.integers(capacity, size=batch).tolist(), rng.integers(
        vocabulary, size=batch
    ).tolist()


@pytest.mark.parametrize(("chunk", "head", "batch"), halved([(2048, 128), (1024, 64)], [2, 4, 8]))
def test_each_kind_gives_what_float64_does(batch, chunk, head):
    all_kinds(batch=batch, chunk=chunk, head=head, pages=3).checked(*places(batch))


@pytest.mark.parametrize(("batch", "widest"), halved([2, 8], [1, 2]))
def test_products_of_any_length(batch, widest):
    m = Model(batch=batch, widest=widest, vocabulary=40)
    x = m.embedding(1025 if widest > 1 else 1000)
    m.matvec_add(x, m.matvec(x, 33))
    for activation in ACTIVATIONS:
        m.norm_gate(x, m.gains(x.length), 20, activation)
    m.checked(token=places(batch, vocabulary=40)[1])


@pytest.mark.parametrize(("batch", "parts", "dynamic"), halved([(2, 1), (4, 2)], [False, True]))
def test_a_small_llama_continues_all_sequences(batch, parts, dynamic):
    m, logits = llama(batch=batch, parts=parts, dynamic=dynamic)
    positions, tokens = places(batch, capacity=60)
    tensors = m.tensors()
    for _ in range(3):
        m.machine.run_coarse(tensors, position=positions, token=tokens)
        m.check(tensors, positions, tokens)
        assert m.read(tensors, logits).shape == (batch, logits.length)
        positions, tokens = [p + 1 for p in positions], tensors["chosen"].tolist()
    m.checked(positions, tokens)


def test_a_sequence_does_not_depend_on_the_others():
    m, logits = llama(batch=2)
    found = []
    for other in (3, 40):
        tensors = m.tensors()
        m.machine.run_coarse(tensors, position=[7, other], token=[5, other])
        found.append(m.read(tensors, logits))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert (found[0][1] != found[1][1]).any()


def test_what_a_machine_of_several_sequences_refuses():
    with pytest.raises(ArgumentError, match="`batch` must be 1, 2, 4 or 8, not 3"):
        Machine(blocks=1, batch=3)
    with pytest.raises(ArgumentError, match="8 vectors of 8192 elements leave no room") as found:
        Machine(blocks=1, batch=8, widest=4)
    assert "fewer sequences" in found.value.help
    m, _ = llama(batch=2)
    with pytest.raises(ArgumentError, match="`position` must be 2 numbers, not 1"):
        m.machine.run_coarse(m.tensors(), position=3, token=[1, 2])
    with pytest.raises(ArgumentError, match="`token` must be from 0 to 299, not 300"):
        m.machine.run_coarse(m.tensors(), position=[0, 1], token=[1, 300])


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize(
    ("batch", "chunk", "head"),
    [
        (1, 2048, 64),
        pytest.param(2, 1024, 64, marks=pytest.mark.soak),
        pytest.param(4, 1024, 128, marks=pytest.mark.soak),
        (8, 2048, 128),
    ],
)
def test_all_pages_that_a_machine_takes_have_room(batch, chunk, head):
    m = all_kinds(batch=batch, chunk=chunk, head=head, pages=0, fetched=0)
    found = resources_of(m)
    assert found.shared_bytes > 227 * 1024 - m.machine.batch * 2048 - 20 * 1024
