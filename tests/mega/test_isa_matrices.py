"""Generic instructions for many tokens: products and attention of any shape, in all machines."""

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.mega.isa import Machine
from pykittens.runtime import nvrtc
from tests.tiers import halved

BF16 = np.dtype(ml_dtypes.bfloat16)


def numbers(rng, *shape):
    return rng.standard_normal(shape).astype(BF16)


def exact(rng, *shape):
    """Small integers, whose products and sums have no rounding."""
    return rng.integers(-2, 3, shape).astype(BF16)


def close(found, wanted):
    found, wanted = found.astype(np.float64), np.asarray(wanted, np.float64)
    return np.linalg.norm(found - wanted) < 4e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("run", ["run", "run_coarse"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 256, 64), (1, 1, 1), (130, 300, 100), (257, 513, 70), (64, 900, 200)]
)
def test_products_of_any_shape(m, n, k, run):
    rng = np.random.default_rng(m)
    machine, a, b = Machine(blocks=3), exact(rng, m, k), exact(rng, n, k)
    x, y = machine.matrix(m, k), machine.matrix(m, n)
    machine.matmul(x, machine.weight_pages(b), y)
    tensors = machine.tensors()
    machine.set_matrix(tensors, x, a)
    getattr(machine, run)(tensors)
    wanted = (a.astype(np.float32) @ b.astype(np.float32).T).astype(BF16)
    assert (machine.matrix_values(tensors, y) == wanted).all()


def test_a_product_reads_what_another_writes_without_races():
    rng = np.random.default_rng(0)
    machine = Machine(blocks=2, pages=4)
    a, b, c = numbers(rng, 140, 70), exact(rng, 130, 70), exact(rng, 90, 130)
    x, y, z = machine.matrix(140, 70), machine.matrix(140, 130), machine.matrix(140, 90)
    machine.matmul(x, machine.weight_pages(b), y)
    machine.matmul(y, machine.weight_pages(c), z)
    tensors = machine.tensors()
    machine.set_matrix(tensors, x, a)
    schedule = machine.program.scheduled(**tensors)
    assert schedule.counters
    given = machine.program.arguments(schedule, **tensors)
    assert pk.check(machine.program.kernel(), *given, schedules=2).ok
    machine.run(tensors)
    first = (a.astype(np.float32) @ b.astype(np.float32).T).astype(BF16)
    assert close(machine.matrix_values(tensors, y), first)
    assert close(
        machine.matrix_values(tensors, z), first.astype(np.float32) @ c.astype(np.float32).T
    )


def attended(q, k, v, head, causal):
    """Attention in float64; rows are tokens, columns heads after one another."""
    parts = [x.astype(np.float64).reshape(len(x), -1, head).swapaxes(0, 1) for x in (q, k, v)]
    q, k, v = parts[0], *(np.repeat(x, len(parts[0]) // len(parts[1]), 0) for x in parts[1:])
    s = q @ k.swapaxes(1, 2) / np.sqrt(head)
    if causal:
        n, m = s.shape[1:]
        s = np.where(np.tri(n, m, m - n, dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(s.shape[1], -1)


@pytest.mark.parametrize(
    ("queries", "keys", "heads", "of_keys", "head", "causal", "run"),
    halved(
        [
            (128, 128, 1, 1, 64),
            (1, 1, 2, 1, 64),
            (200, 200, 2, 2, 64),
            (130, 300, 2, 1, 64),
            (100, 385, 1, 1, 128),
            (260, 300, 1, 1, 128),
        ],
        [False, True],
        ["run", "run_coarse"],
    ),
)
def test_attention_of_any_shape(queries, keys, heads, of_keys, head, causal, run):
    rng = np.random.default_rng(queries)
    machine = Machine(blocks=2, head=head, fetched=3)
    q = numbers(rng, queries, heads * head)
    k, v = (numbers(rng, keys, of_keys * head) for _ in range(2))
    places = [machine.matrix(*x.shape) for x in (q, k, v, q)]
    machine.attention_of_all(*places, causal=causal)
    tensors = machine.tensors()
    for place, x in zip(places, (q, k, v), strict=False):
        machine.set_matrix(tensors, place, x)
    getattr(machine, run)(tensors)
    assert close(machine.matrix_values(tensors, places[3]), attended(q, k, v, head, causal))


def test_wrong_matrices_are_refused():
    machine, other = Machine(blocks=2), Machine(blocks=2)
    rng = np.random.default_rng(0)
    w, x, y = machine.weight_pages(numbers(rng, 8, 16)), machine.matrix(4, 16), machine.matrix(4, 8)
    with pytest.raises(ArgumentError, match="out = a w\\^T: 4 x 8 by 8 x 16"):
        machine.matmul(y, w, x)
    with pytest.raises(
        ArgumentError, match=r"`w` must be made by weight_pages\(matrix\) of this machine"
    ):
        machine.matmul(x, x, y)
    with pytest.raises(ArgumentError, match="`a` must be made by matrix.* of another machine"):
        machine.matmul(other.matrix(4, 16), w, y)
    with pytest.raises(ArgumentError, match="of heads of 64 columns"):
        machine.attention_of_all(x, x, x, x)
    q, k = machine.matrix(9, 64), machine.matrix(8, 64)
    with pytest.raises(ArgumentError, match="9 queries are no more than the 8 keys"):
        machine.attention_of_all(q, k, k, q)
    tensors, given = {"M": np.zeros((128, 64))}, numbers(rng, 4, 9)
    with pytest.raises(ArgumentError, match="`values` must be \\(4, 8\\), not \\(4, 9\\)"):
        machine.set_matrix(tensors, machine.matrix(4, 8), given)
    with pytest.raises(ArgumentError, match="`to` must be made by matrix"):
        machine.set_matrix(tensors, machine.weight_pages(given), given)
    with pytest.raises(ArgumentError, match="`x` must be made by vector"):
        machine.values(tensors, machine.matrix(4, 8))
    for rows in (0, 1.5):
        with pytest.raises(ArgumentError, match="`rows` must be an int of at least 1"):
            machine.matrix(rows, 8)
    with pytest.raises(ArgumentError, match="must have elements, not the shape"):
        machine.weight_pages(given[:0])
    with pytest.raises(ArgumentError, match="bfloat16"):
        machine.weight_pages(np.ones((8, 16), np.float32))


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize("head", [64, 128])
def test_kinds_beside_one_another_spill_no_registers(head):
    """The roles of a program have the most registers that one of its kinds asks for; what is left is the consumers'."""
    machine, budgets = Machine(blocks=132, head=head, pages=6), []
    rng = np.random.default_rng(0)
    a, out, q, k, v, mixed = (machine.matrix(256, 512) for _ in range(6))
    machine.matmul(a, machine.weight_pages(numbers(rng, 512, 512)), out)
    machine.attention_of_all(q, k, v, mixed)
    for more in (False, True):
        if more:  # a kind whose warps that fetch vectors need more
            x = machine.vector(100)
            machine.embedding(x)
            machine.matvec(machine.weights(numbers(rng, 32, 100)), x, machine.vector(32))
        tensors, program = machine.tensors(table=numbers(rng, 256, 100)), machine.program
        arguments = program.arguments(program.scheduled(**tensors), **tensors)
        found = program.kernel().compile(*arguments, arch="sm_90a").resources
        budgets.append({role.budget for role in found.roles})
        assert found.frame == 0 or (more and head == 128)
    assert budgets == [{40, 216}, {64, 96, 176}]
