"""One position of linear attention for each of many sequences: the state is read and written once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.limits import Limits, limits_of
from pykittens.kernels.linear.call import check_gates, check_heads
from pykittens.kernels.linear.chunk import LEAST_LOG
from pykittens.kernels.linear.launches import add_scale
from pykittens.kernels.plan import Plan, PlanStep

CHUNK = 16  # rows of a state that a warp has in registers at a time
LINE = 32  # columns of a state in a line of 128 bytes
MOST_COLUMNS, MOST_WARPS = 128, 8
PIECE = 8192  # bytes of a state that a warp has at most, unless its rows of a line are more
BLOCK = 16384  # bytes of the states of a block, if its warps have less
LEAST = 4  # warps, or blocks of several, of a multiprocessor


def rows_of(d: int) -> int:
    """The rows of a state in shared memory."""
    return -(-d // CHUNK) * CHUNK


@dataclass(frozen=True)
class StepConfig:
    """The work of a block: cols of a head for each of some warps."""

    cols: int
    warps: int


def config_for(heads: int, d: int, width: int, limits: Limits) -> StepConfig:
    """The configuration for so many heads of all sequences.

    A warp has whole lines, unless these are too few for all multiprocessors.
    """
    column, least = 4 * rows_of(d), LEAST * limits.multiprocessors
    widest = min(MOST_COLUMNS, max(LINE, PIECE // column))

    def count(cols: int) -> int:
        return -(-width // cols)

    cols = min(range(LINE, widest + 1, LINE), key=lambda cols: (cols * count(cols), -cols))
    if width <= CHUNK or heads * count(cols) < least:
        cols = CHUNK
    warps = max(1, min(MOST_WARPS, BLOCK // (column * cols)))
    return StepConfig(cols, warps if heads * count(cols) >= least * warps else 1)


def reference(
    q: Any,
    k: Any,
    v: Any,
    state: Any,
    decay: Any = None,
    *,
    next_state: Any = None,
    scale: float | None = None,
) -> Any:
    """The same in float64."""
    shared = v.shape[1] // q.shape[1]
    q, k = (np.repeat(x.astype(np.float64), shared, axis=1) for x in (q, k))
    kept = np.ones(v.shape[:2]) if decay is None else np.exp(decay.astype(np.float64))
    if kept.ndim == 3:
        kept = np.repeat(kept, v.shape[1] // kept.shape[1], axis=1)[..., None]
    else:
        kept = np.broadcast_to(kept, v.shape[:2])[..., None, None]
    new = kept * state + k[..., None] * v.astype(np.float64)[..., None, :]
    scale = q.shape[2] ** -0.5 if scale is None else scale
    return scale * np.einsum("bhd,bhdw->bhw", q, new)


@pk.function
def vectors_of(x: Any, b: Any, h: Any) -> list[Any]:
    """The vector of a head, in f32, a part for each chunk of the rows of a state."""
    chunks = range(rows_of(pk.static(x.shape[2])) // CHUNK)
    return [pk.load(x[b, h, :][i], cols=CHUNK, spread=pk.per_row).to(pk.f32) for i in chunks]


@pk.function
def kept_of(decay: Any, b: Any, h: Any, heads: int) -> list[Any]:
    """What is kept of the state of a head, or of each chunk of its rows."""
    if decay is None:
        return [1.0]
    if len(decay.shape) == 3:
        logs = vectors_of(decay, b, h // (heads // pk.static(decay.shape[1])))
    else:
        logs = [pk.load(decay[h] if len(decay.shape) == 1 else decay[b, :][h])]
    return [pk.exp2(pk.maximum(log * pk.log2e, LEAST_LOG)) for log in logs]


@pk.kernel(inplace=True)
def state_step(  # type: ignore[no-untyped-def]
    Q, K, V, O, beta, state, following, decay, scale, *, cols, warps, by_lanes=False
):
    """O, and the next state, some columns of a head a warp; beta is that of the delta rule, or None.

    The copy engine takes the columns to shared memory, all at once, and back, unless lanes store them. Heads and sizes
    are those of a model, so the program has them as constants.
    """
    batch, heads, width = V.shape[0], pk.static(V.shape[1]), pk.static(V.shape[2])
    shared, parts = heads // pk.static(Q.shape[1]), -(-width // cols)
    tiles = pk.shared(pk.st(pk.f32, rows_of(pk.static(Q.shape[2])), cols), count=warps)
    full = pk.semaphore(1, count=warps)
    (block,) = pk.grid(pk.cdiv(batch * (heads * parts), warps))
    with pk.warps(warps) as w:
        piece = block * warps + w
        c, h, b = piece % parts, piece // parts % heads, piece // (parts * heads)
        if b < batch:
            tile = tiles[w]
            full[w].expect(tile)
            pk.load_async(tile, state[b, h, 0, c], signal=full[w])
            queries, keys = (vectors_of(x, b, h // shared) for x in (Q, K))
            added = pk.load(V[b, h, :][c], cols=cols, spread=pk.per_column).to(pk.f32)
            kept = kept_of(decay, b, h, heads)
            rate = None if beta is None else pk.load(beta[b, :][h]).to(pk.f32)
            chunks = [tile.tiles(CHUNK, cols)[i, 0] for i in range(len(keys))]
            full[w].wait(0)
            if rate is not None:
                known = pk.zeros(pk.f32, CHUNK, cols)
                for chunk, key in zip(chunks, keys, strict=True):
                    known = known + pk.load(chunk) * key
                added = (added - pk.col_sum(known) * kept[0]) * rate
            found = pk.zeros(pk.f32, CHUNK, cols)
            for i, chunk in enumerate(chunks):
                s = pk.load(chunk) * kept[i % len(kept)] + keys[i] * added
                pk.store(following[b, h, i, c] if by_lanes else chunk, s)
                found = found + s * queries[i]
            if not by_lanes:
                pk.fence_async()
                pk.sync()
                pk.store_async(following[b, h, 0, c], tile)
            pk.store(O[b, h, :][c], (pk.col_sum(found) * scale).to(O.dtype))


CASES = (
    {"batch": 64, "heads": 32, "d": 128, "width": 128},
    {"batch": 256, "heads": 16, "d": 64, "width": 64},
    {"batch": 3, "heads": 2, "d": 24, "width": 72},
)


def inputs(rng: np.random.Generator, batch: int, heads: int, d: int, width: int) -> dict[str, Any]:
    """Random normal q, k and v in bf16, a state in f32, and logarithms of decay from 0 to -0.1."""
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, heads, n)).astype(ml_dtypes.bfloat16)
        for name, n in {"q": d, "k": d, "v": width}.items()
    }
    found["state"] = rng.standard_normal((batch, heads, d, width)).astype(np.float32)
    found["decay"] = (-0.1 * rng.random((batch, heads))).astype(np.float32)
    return found | {"next_state": np.empty_like(found["state"])}


@entry(reference=reference, cases=CASES, inputs=inputs)
def linear_attention_step(
    q: Any,
    k: Any,
    v: Any,
    state: Any,
    decay: Any = None,
    out: Any = None,
    *,
    next_state: Any = None,
    scale: float | None = None,
) -> Plan:
    """One position of linear_attention: S = exp(decay) S + k v^T, and scale S^T q is returned.

    q, k: (batch, groups, d), v: (batch, heads, width), all bf16 or all f16, NumPy or PyTorch; d is at most 256. Head h
    of v goes with group h // (heads / groups). The result (batch, heads, width) has their dtype; it is written to `out`
    if that is given. state: f32 (batch, heads, d, width); it is replaced by the state after the position, which is
    written to `next_state` instead if that is given. decay: f32 (batch, heads) or (heads,), the logarithm of what is
    kept; or that of each channel, as of gated_linear_attention, (batch, gates, d) in f32, bf16 or f16. scale:
    1 / sqrt(d) if None. An ArgumentError for other arguments.

        >>> x, state = np.ones((1, 1, 16), np.float16), np.zeros((1, 1, 16, 16), np.float32)
        >>> [linear_attention_step(x, x, x, state, scale=1.0)[0, 0, 0] for _ in range(3)]
        [np.float16(16.0), np.float16(32.0), np.float16(48.0)]
    """
    given = {"q": q, "k": k, "v": v, "state": state, "decay": decay, "out": out}
    arrays = Arrays("linear_attention_step", **given, next_state=next_state)
    arrays.shapes(q="batch groups d", k="batch groups d", v="batch heads width")
    of_state = "batch heads d width"
    of_decay = "heads|batch heads|batch gates d"
    arrays.shapes(state=of_state, next_state=of_state, decay=of_decay)
    check_heads(arrays)
    if "gates" in arrays.dims:
        check_gates(arrays)
    arrays.result("batch heads width", arrays.found["v"].dtype)
    if not arrays.have_memory:
        return Plan(arrays, [])
    arrays.lines("q", "k", "v", "state", "next_state", "decay", "out")
    add_scale(arrays, scale)
    return plan_of(arrays)


def plan_of(arrays: Arrays) -> Plan:
    """The launch for arrays that are checked."""
    following = "next_state" if "next_state" in arrays else "state"
    beta, decay = arrays.present("beta", "decay")
    args = ("q", "k", "v", "out", beta, "state", following, decay, "scale")
    batch, heads, d, width = (int(arrays.dims[n]) for n in ("batch", "heads", "d", "width"))
    if 0 in (heads, width):
        return Plan(arrays, [])
    config = config_for(batch * heads, d, width, limits_of(arrays.like))
    # What the copy engine does not reach lanes would copy, and they have it.
    how = asdict(config) | {"by_lanes": not arrays.reachable(following)}
    return Plan(arrays, [PlanStep(state_step, args, how)])
