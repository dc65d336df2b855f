"""Parts of the kernels of the delta rule that go through a sequence: a chunk of positions and the state.

With X and c_i of `pairs`, c the sum of all logarithms of a chunk, and S the state before it,

    U = X diag(beta) (V - exp(c_i) K S)
    O = scale exp(c_i) Q S + (scale exp(c_i - c_j) Q K^T) U
    S' = exp(c) S + K^T (exp(c - c_i) U)

All of them are computed transposed: a warpgroup has 64 rows of S^T, which belong to 64 columns of the values, in
registers. Products take it from there, as they take what comes of it, so no operand but a wide state passes through
shared memory.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK, log_decay, publish
from pykittens.kernels.linear.sequences import own_registers

COLUMNS = 64  # of the values, that a warpgroup takes
SUMMING = 72  # registers of a thread that sums a decay, if two blocks share a multiprocessor


def factors_ring(stages: int, decay: Any) -> Any:
    """The ring of the factors of a chunk: beta, and if there is a decay, its exponentials."""
    names = ("beta",) if decay is None else ("beta", "prefix", "suffix", "total")
    stage: dict[str, Any] = {name: pk.sv(pk.f32, CHUNK) for name in names}
    return pk.pipeline(stages, **stage)


def registers_of(ends: Any, config: Any) -> int | None:
    """The registers of a thread of producers and storers, one of which sums a decay.

    Of two blocks on a multiprocessor, more leave too few for products, and the usual 40 are too few for the sums.
    """
    return SUMMING if config.resident > 1 else own_registers(ends, config)


@pk.function
def fill_factors(ring: Any, beta: Any, decay: Any, sequence: Any, h: Any, chunk: Any) -> None:
    """Fill a stage with the factors of a chunk."""
    rate = pk.load(sequence.heads(beta)[h, chunk], cols=CHUNK).to(pk.f32)
    if decay is None:
        with ring.fill() as t:
            pk.store(t.beta, rate)
    else:
        log = log_decay(decay, sequence, h, chunk)
        total, prefix = pk.sum(log), pk.cumsum(log)
        with ring.fill() as t:
            pk.store(t.beta, rate)
            pk.store(t.prefix, pk.exp2(prefix))
            pk.store(t.suffix, pk.exp2(total - prefix))
            pk.store(t.total, pk.exp2(pk.zeros(pk.f32, CHUNK) + total))


@pk.function
def scaled(x: Any, factor: Any) -> Any:
    """The product; x if there is no factor."""
    return x if factor is None else x * factor


@pk.function
def along(factors: Any, name: str, decay: Any) -> Any:
    """Factors of a stage along columns; None if there is no decay."""
    return None if decay is None else pk.load(getattr(factors, name), spread=pk.per_column)


def operand_memory(dtype: Any, rows: int, config: Any) -> Any:
    """Shared memory for the rounded states of warpgroups; None if registers hold them."""
    if not config.in_memory:
        return None
    return pk.shared(pk.st(dtype, COLUMNS, rows), count=config.groups)


@pk.function
def rounded(state: Any, memory: Any, w: Any, dtype: Any) -> Any:
    """A state in the dtype, as an operand of products: in registers, or in the memory of a warpgroup."""
    if memory is None:
        return state.to(dtype)
    publish([(memory[w], state.to(dtype))])
    return memory[w]


@pk.function
def added_values(values: Any, seen: Any, inverse: Any, factors: Any, decay: Any) -> Any:
    """U^T, of V, of S^T K^T, and of the transpose of X."""
    seen = scaled(seen, along(factors, "prefix", decay))
    rest = pk.load(values, transposed=True).to(pk.f32) - seen
    rest = rest * pk.load(factors.beta, spread=pk.per_column)
    return pk.mma_AB(rest.to(inverse.dtype), inverse)


@pk.function
def next_state(state: Any, k: Any, values: Any, factors: Any, decay: Any) -> Any:
    """The transpose of the state after a chunk, of U^T."""
    kept = None if decay is None else pk.load(factors.total.parts(1)[0])
    weighed = scaled(values, along(factors, "suffix", decay))
    return pk.mma_AB(weighed.to(k.dtype), k, scaled(state, kept))
