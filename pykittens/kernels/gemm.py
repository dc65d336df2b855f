"""Matrix products: C = A @ B, and what is made of it before it is stored.

    C[i, j] = epilogue(sum over k of A[i, k] B[k, j])

C is cut into tiles, a block works on one at a time, and along k parts of A and B pass through a ring of stages. Where
the tiles do not come out even, blocks get equal shares of the steps: those that have the later steps of a tile leave
their sums in memory, and the one that has the first adds them in order, so that results do not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypedDict, Unpack

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.core import Repeated, entry, limits_of
from pykittens.kernels.products.config import Config, check
from pykittens.kernels.products.launch import Call
from pykittens.kernels.products.options import PLAIN, Asked, parted
from pykittens.kernels.products.pick import pick
from pykittens.kernels.products.reference import reference
from pykittens.kernels.products.tiling import Task, Tiling, of_batch, send
from pykittens.kernels.products.tune import found_before, tuned
from pykittens.runtime.bound import PreparedCalls, SameTensors
from pykittens.types.dtypes import DType


@pk.kernel
def gemm_tiles(A, B, C, *operands, form, config):  # type: ignore[no-untyped-def]
    """C = epilogue(A @ B); persistent blocks, a ring of stages, sums in registers."""
    given = dict(zip(form.epilogue.names, operands, strict=True))
    if config.overlap:
        pk.overlap()
    tiles = Tiling(A, B, C, given, form, config)
    inputs = pk.pipeline(config.stages, **tiles.stage())
    sides = (config.out_cols, tiles.own) if config.swap else (tiles.own, config.out_cols)
    outputs = pk.shared(pk.st(C.dtype, *sides), count=config.consumers * config.out_stages)

    with pk.producer():
        for turn in tiles.turns:
            task = tiles.task(turn)
            for k in pk.range(task.first, task.stop):
                with inputs.fill() as s:
                    tiles.load(s, task, k)
            if not config.shares or task.first == 0:
                for part in range(tiles.parts):
                    for tensor in tiles.streamed:
                        with inputs.fill() as s:
                            tiles.stream(s, tensor, task, part)

    with pk.consumers(config.consumers) as w:
        for turn in tiles.turns:
            task = tiles.task(turn)
            sums, scales = tiles.zeros(), tiles.scales(task, w, task.first)
            for k in pk.range(task.first, task.stop):
                with inputs.drain() as s:
                    sums, left = tiles.multiply(s, w, sums, k, scales)
                ahead = tiles.scales(task, w, k + 1)
                sums, scales = tiles.added(sums, left), ahead
            with pk.in_turn() if config.turns else nullcontext():
                if config.shares and task.first > 0:
                    leave(tiles, w, sums)
                else:
                    finish(tiles, inputs, outputs, task, w, sums)


@pk.function
def leave(tiles: Tiling, w: Any, sums: list[Any]) -> None:
    """Leave the sums of a tile that another block finishes in memory, and say so."""
    for i in range(tiles.products):
        for part in range(tiles.parts):
            pk.store(tiles.left(tiles.block, w, i, part), tiles.summed(sums, i, part))
    pk.signal(tiles.flag(tiles.block, w), 1)


@pk.function
def finish(tiles: Tiling, inputs: Any, outputs: Any, task: Task, w: Any, sums: list[Any]) -> None:
    """Add what other blocks have left, do the epilogue and store, a part of the columns at a time."""
    own, width, given = tiles.own, tiles.config.out_cols, tiles.given
    if tiles.config.shares:
        for block in pk.range(tiles.block + 1, task.last + 1):
            pk.wait(tiles.flag(block, w), 1)
    row_sums = None
    for part in range(tiles.parts):
        products = [tiles.summed(sums, i, part) for i in range(tiles.products)]
        if tiles.config.shares:
            for block in pk.range(tiles.block + 1, task.last + 1):
                for i in range(tiles.products):
                    others = pk.load(tiles.left(block, w, i, part), rows=own, cols=width)
                    products[i] = products[i] + others
        arrived = []
        for _ in tiles.streamed:
            with inputs.drain() as s:
                arrived.append(tiles.arrived(s, w))
        at = tiles.place(task, w, part, arrived)
        x = tiles.form.epilogue(products, at, given, tiles.c)
        if "column_sums" in given:
            pk.store(given["column_sums"][(*at.lead, at.row, at.col)], pk.col_sum(at.inside(x)))
        if "row_sums" in given:
            total = pk.row_sum(at.inside(x))
            row_sums = total if row_sums is None else row_sums + total
        to = (at.col, at.row) if tiles.config.swap else (at.row, at.col)
        send(tiles, outputs, w, part, x, of_batch(tiles.c, at.lead)[to])
    if row_sums is not None:
        pk.store(given["row_sums"][(*at.lead, task.col, at.row)], row_sums)
    if tiles.config.shares:
        for block in pk.range(tiles.block + 1, task.last + 1):
            pk.signal(tiles.flag(block, w), 0)


CASES = (
    {"m": 4096, "n": 4096, "k": 4096, "transpose_b": True},
    {"m": 8192, "n": 8192, "k": 8192, "transpose_b": True},
    {"m": 4096, "n": 4096, "k": 4096, "transpose_b": False},
    {"m": 1111, "n": 2222, "k": 3333, "transpose_b": True},
    {"m": 70, "n": 40, "k": 33, "transpose_b": True},
    {"m": 33, "n": 70, "k": 40, "transpose_b": False},
    {"m": 5, "n": 150, "k": 70, "transpose_b": False},
)


def inputs(rng: np.random.Generator, m: int, n: int, k: int, transpose_b: bool) -> dict[str, Any]:
    """Random normal a and b in bf16."""
    return {
        "a": rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16),
        "b": rng.standard_normal((n, k) if transpose_b else (k, n)).astype(ml_dtypes.bfloat16),
        "transpose_b": transpose_b,
    }


# -- the host --------------------------------------------------------------------------------------

CALLS: PreparedCalls[Repeated] = PreparedCalls()
SAME = SameTensors()


def forget_calls() -> None:
    """Work out anew what is kept for calls that are alike."""
    CALLS.forget()
    SAME.forget()


class Further(TypedDict, total=False):
    """What a call of gemm may say besides."""

    out_dtype: DType | None
    accumulate: DType
    alpha: Any
    beta: float
    bias: Any
    activation: str
    residual: Any
    gate: Any
    gate_alpha: Any
    gate_bias: Any
    row_scale: Any
    column_scale: Any
    gate_column_scale: Any
    row_blocks: Any
    column_blocks: Any
    gate_blocks: Any
    row_sums: bool
    column_sums: bool
    epilogue: Callable[..., Any] | None
    operands: tuple[Any, ...]
    config: Config | None


@entry(kernel=gemm_tiles, reference=reference, cases=CASES, inputs=inputs)
def gemm(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    transpose_b: bool = True,
    tune: bool = False,
    **further: Unpack[Further],
) -> Any:
    """a @ b.T, or a @ b with transpose_b=False, and what is made of it before it is stored.

        x = activation(alpha * row_scale * column_scale * (a @ b.T) + bias + beta * out)
        x = x * (the same of `gate` in place of b, without activation and beta) + residual
        out = epilogue(x, place, *operands)

    a: (..., m, k), b: (..., n, k) or (..., k, n), in any strides; both bf16 or both f16, or fp8. The result
    (..., m, n) has their dtype, that of fp8 is bf16, or it has `out_dtype`; it is rounded once from sums in f32, or in
    f16 where `accumulate` says so, and written to `out` where given. bias, column_scale: (n,). row_scale: (m,).
    residual: (m, n). alpha: a number or an array of one. row_blocks (m, k/128) and column_blocks (n/128, k/128),
    rounded up, scale blocks of fp8. activation: "relu", "gelu" or "silu". `epilogue` is a function as in
    pykittens.kernels.epilogue. With row_sums or column_sums the result is (out, sums): sums in f32 of the result before
    it is rounded. In a batch operands have its axes in front, which those of columns may lack.

    config: how the work is cut; if None, one is picked for the shape and the GPU. tune: measure configurations once,
    and remember the fastest.
    """
    tensors, said = (a, b, out), transpose_b
    may_recur = out is not None and not tune
    if may_recur:
        if further:
            tensors, said = parted(tensors, transpose_b, further)
        if SAME.launch(tensors, said):
            return out
    asked = Asked.of(further) if further else PLAIN
    again, key, values, stream = CALLS.find(
        (a, b, out, *asked.tensors), transpose_b, tune, asked.key
    )
    if again is None:
        call = Call(gemm_tiles, (a, b, out, *asked.given), asked.options(transpose_b))
        given = None if asked.config is None else check("gemm", asked.config, call.shape)
        chosen = given or found_before(call)
        if chosen is None and tune:
            chosen = tuned(call)
            forget_calls()  # those without `tune` use it, too
        chosen = chosen or pick(call.shape, limits_of(a))
        again = call.again(chosen, asked.names) if key is not None else None
        if again is None:
            return call.result(chosen)
        CALLS.keep(key, again)
    passed = [*values, *asked.numbers]
    result = again(passed, a, out, stream)
    if (
        may_recur
        and SAME.recurs(tensors, said)
        and (fixed := again.fixed(passed, stream)) is not None
    ):
        SAME.keep(tensors, said, fixed)
    return result
