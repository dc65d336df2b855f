"""Matrix products of groups of rows, each with its own matrix: the experts of a mixture, in one launch.

    C[i, j] = epilogue(sum over k of A[i, k] B[g, k, j]) for each row i of group g

The rows of a group are contiguous, and only the device knows where each group ends. The host counts tiles for the worst
case: every group ends inside a tile. Tasks are in the order of the groups, so each role of a block walks the groups
once; all roles skip tasks past the last tile.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import FP8, Arrays
from pykittens.kernels.epilogue import Epilogue, check_activation
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.grouped_choose import checked, pick_rows
from pykittens.kernels.gemm.grouped_tiles import RowGroups, advance
from pykittens.kernels.gemm.operands import (
    GROUPED,
    check_groups,
    check_operands,
    is_transposed,
    lay_out,
)
from pykittens.kernels.gemm.tiles import Form, send
from pykittens.kernels.library import entry
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.types.dtypes import DType


def reference(a: Any, b: Any, offsets: Any, transpose_b: bool = True) -> Any:
    """The same in float64; NaN past the last group."""
    right = b.astype(np.float64)
    right = right.swapaxes(-1, -2) if transpose_b else right
    out, start = np.full((a.shape[0], right.shape[-1]), np.nan), 0
    for matrix, stop in zip(right, offsets, strict=True):
        out[start:stop] = a[start:stop].astype(np.float64) @ matrix
        start = stop
    return out


@pk.kernel
def grouped_tiles(A, B, C, offsets, *operands, form, config):  # type: ignore[no-untyped-def]
    """C = epilogue(A @ B of a row's group); persistent blocks, a ring of stages, sums in registers."""
    given = form.named(operands)
    groups = RowGroups(offsets, A, B, C, given, form, config)
    inputs = pk.pipeline(config.stages, **groups.stage())
    tile = pk.st(C.dtype, groups.group_rows, config.out_cols)
    outputs = pk.shared(tile, count=config.consumers * config.out_stages)

    with pk.producer():
        at = groups.start()
        for (number,) in groups.schedule:
            at = advance(groups, at, number)
            if number < groups.total:
                task = groups.tile(at, number)
                for k in pk.range(task.stop):
                    with inputs.fill() as s:
                        groups.load(s, task, k)

    with pk.consumers(config.consumers) as w:
        at = groups.start()
        for (number,) in groups.schedule:
            at = advance(groups, at, number)
            if number < groups.total:
                task = groups.tile(at, number)
                sums = groups.zeros()
                scales = [groups.scales(task, w, i) for i in range(groups.ahead)]
                for k in pk.range(task.stop):
                    with inputs.drain() as s:
                        sums, pending = groups.multiply(s, w, sums, k, scales[0])
                    ahead = groups.scales(task, w, k + groups.ahead)
                    sums, scales = groups.added(sums, pending), [*scales[1:], ahead]
                finish(groups, outputs, task, w, sums)


@pk.function
def finish(groups: RowGroups, outputs: Any, task: Any, w: Any, sums: list[Any]) -> None:
    """Do the epilogue and store: by the copy engine, unless the group ends inside the tile."""
    width, given = groups.config.out_cols, groups.operands(task)
    row = task.row * groups.config.consumers + w
    whole = (row + 1) * groups.group_rows <= task.end - task.begin
    for part in range(groups.parts):
        products = [x[:, part * width : (part + 1) * width] for x in sums]
        at = groups.region(task, w, part)
        x = groups.form.epilogue(products, at, given, groups.c)
        if whole:
            # This window extends to the end of the tensor, so the copy engine need not know the group's end.
            c = groups.c.window(0, task.begin, groups.c.rows)
            send(groups, groups.outgoing(outputs, w, part), x, c[at.row, at.col])
        else:
            c = groups.c.window(0, task.begin, task.end)
            pk.store(c[at.row, at.col], x.to(c.dtype))


CASES = (
    {"groups": 8, "rows": 16384, "n": 4096, "k": 4096, "transpose_b": True},
    {"groups": 64, "rows": 16384, "n": 2048, "k": 4096, "transpose_b": True},
    {"groups": 64, "rows": 4096, "n": 2048, "k": 4096, "transpose_b": False},
    {"groups": 3, "rows": 50, "n": 24, "k": 20, "transpose_b": True},
    {"groups": 5, "rows": 40, "n": 21, "k": 19, "transpose_b": False},
)


def ends(rng: np.random.Generator, groups: int, rows: int) -> Any:
    """The ends of random groups that share all the rows; some may be empty."""
    return np.sort(np.append(rng.integers(0, rows + 1, groups - 1), rows)).astype(np.int32)


def inputs(
    rng: np.random.Generator, groups: int, rows: int, n: int, k: int, transpose_b: bool
) -> dict[str, Any]:
    """Random normal a and b in bf16, and groups of random sizes."""
    b = rng.standard_normal((groups, n, k) if transpose_b else (groups, k, n))
    return {
        "a": rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16),
        "b": b.astype(ml_dtypes.bfloat16),
        "offsets": ends(rng, groups, rows),
        "transpose_b": transpose_b,
    }


# -- the host --------------------------------------------------------------------------------------


@entry(reference=reference, cases=CASES, inputs=inputs)
def grouped_gemm(
    a: Any,
    b: Any,
    offsets: Any,
    out: Any = None,
    *,
    transpose_b: bool = True,
    out_dtype: DType | None = None,
    activation: str = "",
    bias: Any = None,
    gate: Any = None,
    gate_bias: Any = None,
    row_scale: Any = None,
    column_scale: Any = None,
    gate_column_scale: Any = None,
    row_blocks: Any = None,
    column_blocks: Any = None,
    gate_blocks: Any = None,
    config: Config | None = None,
) -> Plan:
    """a @ b[g].T for the rows of each group g, or a @ b[g] with transpose_b=False, and what is made of it.

        x = activation(row_scale * column_scale[g] * (a @ b[g].T) + bias[g])
        x = x * (row_scale * gate_column_scale[g] * (a @ gate[g].T) + gate_bias[g])

    a: (m, k). b, gate: (groups, n, k) or (groups, k, n). All bf16 or all f16, or fp8. offsets: int32 (groups,), on the
    device: group g has the rows from offsets[g - 1], or 0, up to but not including offsets[g]. Rows past the last group
    are not written. The result (m, n) has the dtype of a, bf16 for fp8, or `out_dtype`; it is rounded once from sums in
    f32, and written to `out` if that is given. bias, gate_bias, column_scale, gate_column_scale: (groups, n).
    row_scale: (m,). row_blocks (m, k/128) and column_blocks, gate_blocks (groups, n/128, k/128), rounded up, scale
    blocks of fp8. activation: "relu", "gelu" or "silu". An `a` whose rows are not contiguous is copied first.

    config: how the work is cut; if None, one is picked for the average number of rows per group, and for the GPU. An
    ArgumentError for other shapes and dtypes.

        >>> a, b = np.ones((20, 40), pk.bf16.numpy), np.ones((2, 30, 40), pk.bf16.numpy)
        >>> grouped_gemm(a, b, np.array([7, 20], np.int32)).shape
        (20, 30)
    """
    check_activation("grouped_gemm", activation)
    given = {"gate": gate, "bias": bias, "gate_bias": gate_bias, "row_scale": row_scale}
    given |= {"column_scale": column_scale, "gate_column_scale": gate_column_scale}
    given |= {"row_blocks": row_blocks, "column_blocks": column_blocks, "gate_blocks": gate_blocks}
    arrays = Arrays("grouped_gemm", a=a, b=b, offsets=offsets, out=out, **given)
    b_shape = "groups n k" if transpose_b else "groups k n"
    arrays.shapes(a="m k", b=b_shape)
    check_operands(arrays, GROUPED | {"gate": b_shape})
    shape, groups = check_groups(arrays, "m n", out_dtype)
    if not arrays.have_memory:
        return Plan(arrays, [])
    # The tensor cores multiply fp8 only if k runs fastest, so `b` is copied if need be.
    transposed = not transpose_b if arrays.found["b"].dtype in FP8 else is_transposed(b)
    lay_out(arrays, *("b", "gate") * transposed)
    if not groups:
        return Plan(arrays, [])
    names = tuple(name for name in GROUPED if name in arrays)
    constants = {
        "form": Form(
            b_is_transposed=transpose_b != transposed, epilogue=Epilogue(names, activation)
        ),
        "config": checked("grouped_gemm", config, shape) or pick_rows(shape, groups, limits_of(a)),
    }
    return Plan(arrays, [PlanStep(grouped_tiles, ("a", "b", "out", "offsets", *names), constants)])
