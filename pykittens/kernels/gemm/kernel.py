"""Matrix products with an epilogue.

    C[i, j] = epilogue(sum over k of A[i, k] B[k, j])

C is cut into tiles. A block works on one tile at a time, and slices of A and B along k pass through a ring of stages.
If there are few tiles, several blocks split the steps of each tile and exchange their sums (splits.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypedDict, Unpack

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.gemm.call import NUMBERS, GemmCall
from pykittens.kernels.gemm.choose import pick
from pykittens.kernels.gemm.config import Config, check, together
from pykittens.kernels.gemm.reference import reference
from pykittens.kernels.gemm.splits import (
    Exchange,
    finish_in_cluster,
    finish_split,
    store_partials,
)
from pykittens.kernels.gemm.tiles import Task, Tiling, complete, send
from pykittens.kernels.gemm.tune import found_before, tuned
from pykittens.kernels.library import entry
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan
from pykittens.types.dtypes import DType


@pk.kernel
def gemm_tiles(A, B, C, *operands, form, config):  # type: ignore[no-untyped-def]
    """C = epilogue(A @ B); persistent blocks, a ring of stages, sums in registers."""
    given = form.named(operands)
    if config.overlap:
        pk.overlap()
    tiles = Tiling(A, B, C, given, form, config)
    inputs = pk.pipeline(config.stages, **tiles.stage())
    sides = (
        (config.out_cols, tiles.group_rows) if config.swap else (tiles.group_rows, config.out_cols)
    )
    outputs = pk.shared(pk.st(C.dtype, *sides), count=config.consumers * config.out_stages)
    exchange = Exchange(tiles) if config.exchanges else None

    with pk.producer(registers=tiles.producer_registers, copy_warps=config.loaders):
        for index in tiles.schedule:
            task = tiles.task(index)
            for k in pk.range(task.first, task.stop, config.splits):
                with inputs.fill() as s:
                    tiles.load(s, task, k)
            for part in range(tiles.parts):
                for tensor in tiles.streamed:
                    with inputs.fill() as s:
                        tiles.stream(s, tensor, task, part)

    with pk.consumers(config.consumers) as w:
        for index in tiles.schedule:
            task = tiles.task(index)
            if exchange is not None:
                exchange.expect(task, w)
            sums = tiles.zeros()
            scales = [
                tiles.scales(task, w, task.first + i * config.splits) for i in range(tiles.ahead)
            ]
            for k in pk.range(task.first, task.stop, config.splits):
                with inputs.drain() as s:
                    sums, pending = tiles.multiply(s, w, sums, k, scales[0])
                ahead = tiles.scales(task, w, k + tiles.ahead * config.splits)
                sums, scales = tiles.added(sums, pending), [*scales[1:], ahead]
            with pk.in_turn() if config.turns else nullcontext():
                if exchange is not None:
                    finish_in_cluster(tiles, exchange, outputs, task, w, sums)
                elif config.splits > 1:
                    before = store_partials(tiles, task, w, sums)
                    finish_split(tiles, outputs, task, w, before)
                else:
                    finish(tiles, inputs, outputs, task, w, sums)


@pk.function
def finish(tiles: Tiling, inputs: Any, outputs: Any, task: Task, w: Any, sums: list[Any]) -> None:
    """Do the epilogue of a tile and store it, one part of its columns at a time."""
    row_sums = None
    for part in range(tiles.parts):
        products = [tiles.summed(sums, i, part) for i in range(tiles.products)]
        arrived = []
        for _ in tiles.streamed:
            with inputs.drain() as s:
                arrived.append(tiles.arrived(s, w))
        at, x = complete(tiles, task, w, part, products, arrived)
        if "row_sums" in tiles.given:
            total = pk.row_sum(at.inside(x))
            row_sums = total if row_sums is None else row_sums + total
        send(tiles, tiles.outgoing(outputs, w, part), x, tiles.target(at))
    if row_sums is not None:
        pk.store(tiles.given["row_sums"][(*at.lead, task.col, at.row)], row_sums)


CASES = (
    {"m": 4096, "n": 4096, "k": 4096, "transpose_b": True},
    {"m": 8192, "n": 8192, "k": 8192, "transpose_b": True},
    {"m": 4096, "n": 4096, "k": 4096, "transpose_b": False},
    {"m": 8192, "n": 8192, "k": 8192, "transpose_b": False},
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


class Further(TypedDict, total=False):
    """Keyword arguments of gemm: operands of the epilogue and options."""

    out_dtype: DType | None
    accumulate: DType
    alpha: Any
    beta: float | None
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


def rival(torch: Any, a: Any, b: Any, transpose_b: bool) -> Any:
    """cuBLAS."""
    return torch.mm(a, b.mT if transpose_b else b)


def work(m: int, n: int, k: int, transpose_b: bool) -> tuple[float, Any]:
    """The floating-point operations of the product."""
    return 2.0 * m * n * k, "FLOP"


@entry(reference=reference, cases=CASES, inputs=inputs, rival=rival, work=work, numbers=NUMBERS)
def gemm(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    transpose_b: bool = True,
    tune: bool = False,
    config: Config | None = None,
    **further: Unpack[Further],
) -> Plan:
    """a @ b.T, or a @ b with transpose_b=False, with an epilogue.

        x = activation(alpha * row_scale * column_scale * (a @ b.T) + bias + beta * out)
        x = x * (the same with `gate` for b and its own alpha, column_scale and bias, without activation and beta)
        out = epilogue(x + residual, at, *operands)

    a: (..., m, k), b: (..., n, k) or (..., k, n), in any strides; both bf16 or both f16, or fp8. The result
    (..., m, n) has their dtype, bf16 for fp8, or `out_dtype`; it is rounded once from sums in f32, or in f16 with
    accumulate=pk.f16, and written to `out` if that is given. bias, column_scale: (n,). row_scale: (m,). residual:
    (m, n). alpha: a number or an array of one. row_blocks (m, k/128) and column_blocks (n/128, k/128), rounded up,
    scale blocks of fp8. activation: "relu", "gelu" or "silu". `epilogue` is a function as in
    pykittens.kernels.epilogue. With row_sums or column_sums the result is (out, sums): sums in f32 of the result before
    it is rounded. In a batch, operands have the axes of the batch in front; those of columns may lack them.

    config: how the work is cut; if None, one is picked for the shape and the GPU. tune: measure configurations once,
    and remember the fastest. An ArgumentError for other shapes and dtypes.

        >>> a, b = np.ones((20, 40), pk.bf16.numpy), np.ones((30, 40), pk.bf16.numpy)
        >>> gemm(a, b, bias=np.ones(30, np.float32), activation="relu").shape
        (20, 30)
    """
    call = GemmCall.of(gemm_tiles, a, b, out, transpose_b=transpose_b, **further)
    if not call.arrays.have_memory:
        return Plan(call.arrays, [], result=call.results)
    limits = limits_of(a)
    chosen = found_before(call) if config is None else check("gemm", config, call.shape)
    if chosen is None and tune:
        chosen = tuned(call)
        gemm.forget()  # `gemm` is the HostFunction: calls that do not tune use it, too
    chosen = chosen or pick(call.shape, limits)
    return call.plan(together(chosen, call.shape, limits.multiprocessors))
