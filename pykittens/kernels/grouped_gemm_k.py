"""Matrix products of groups of k, the axis of the sum: the gradients of the experts' matrices, in one launch.

    C[g, i, j] = sum over k of group g of A[k, i] B[k, j]

The elements of a group along k are contiguous, and only the device knows where each group ends. The last step of a
group may load elements of the next group, too; they are set to zero in the stage before they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.grouped_choose import checked, pick_k
from pykittens.kernels.gemm.operands import check_groups, lay_out
from pykittens.kernels.gemm.tiles import Form, Task, Tiling, send
from pykittens.kernels.grouped_gemm import ends
from pykittens.kernels.library import entry
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.types.dtypes import DType


def reference(
    a: Any, b: Any, offsets: Any, transpose_a: bool = False, transpose_b: bool = False
) -> Any:
    """The same in float64."""
    left = (a.T if transpose_a else a).astype(np.float64)
    right = (b.T if transpose_b else b).astype(np.float64)
    groups = [slice(begin, end) for begin, end in zip((0, *offsets[:-1]), offsets, strict=True)]
    return np.stack([left[:, group] @ right[group] for group in groups])


STRIP = (
    64  # columns of a stage that a warpgroup clears at once: the fewest rows of its register tiles
)


@dataclass(frozen=True)
class DepthGroupTask(Task):
    """A tile of the product of a group, whose elements along k start at `begin`.

    whole: the number of steps that lie inside the group. cut: 1 if another step extends past its end, else 0; `rest` is
    the number of the group's elements in that step.
    """

    begin: Any = None
    whole: Any = None
    cut: Any = None
    rest: Any = None


class DepthGroups(Tiling):
    """The tiles of the products of all groups; each has as many steps as its group needs."""

    def __init__(self, offsets: Any, a: Any, b: Any, c: Any, form: Form, config: Config) -> None:
        super().__init__(a, b, c, {}, form, config)
        self.offsets, self.inner = offsets, self.a.rows
        pk.require(offsets.shape[0] == self.c.shape[0], "there must be an offset for each matrix")

    def task(self, index: Any) -> DepthGroupTask:
        """The tile with these indices."""
        group = index[0]
        before = pk.load(self.offsets[pk.maximum(group - 1, 0)])
        begin = pk.maximum(pk.minimum(pk.where(group > 0, before, 0), self.inner), 0)
        end = pk.minimum(pk.maximum(pk.load(self.offsets[group]), begin), self.inner)
        whole, rest = (end - begin) // self.depth, (end - begin) % self.depth
        cut = pk.cdiv(rest, self.depth)
        at = index[:-2], index[-2], index[-1], 0, whole + cut
        return DepthGroupTask(*at, begin=begin, whole=whole, cut=cut, rest=rest)

    def load(self, s: Any, task: Any, k: Any) -> None:
        """Fill a stage. The last one may extend into the next group, so the copy engine need not know the end."""
        a, b = (x.window(0, task.begin, x.rows) for x in (self.a, self.b))
        pk.load_async(s.a, a[k, task.row])
        pk.load_async(s.b, b[k, task.col])


@pk.kernel
def grouped_k_tiles(A, B, C, offsets, *, form, config):  # type: ignore[no-untyped-def]
    """C = A.T @ B of each group; persistent blocks, a ring of stages, sums in registers."""
    groups = DepthGroups(offsets, A, B, C, form, config)
    inputs = pk.pipeline(config.stages, **groups.stage())
    tile = pk.st(C.dtype, groups.group_rows, config.out_cols)
    outputs = pk.shared(tile, count=config.consumers * config.out_stages)
    cleared = pk.semaphore(config.consumers)

    with pk.producer():
        for index in groups.schedule:
            task = groups.task(index)
            for k in pk.range(task.stop):
                with inputs.fill() as s:
                    groups.load(s, task, k)

    with pk.consumers(config.consumers) as w:
        phase = 0
        for index in groups.schedule:
            task, sums = groups.task(index), groups.zeros()
            for _ in pk.range(task.whole):
                with inputs.drain() as s:
                    sums, _ = groups.multiply(s, w, sums)
            for _ in pk.range(task.cut):
                with inputs.drain() as s:
                    clear(groups, s, w, task.rest)
                    cleared.arrive()
                    cleared.wait(phase)
                    sums, _ = groups.multiply(s, w, sums)
                phase = phase + 1
            for part in range(groups.parts):
                at, width = groups.region(task, w, part), config.out_cols
                x = sums[0][:, part * width : (part + 1) * width]
                send(groups, groups.outgoing(outputs, w, part), x, C.at(*at.lead)[at.row, at.col])


@pk.function
def clear(groups: DepthGroups, s: Any, w: Any, rest: Any) -> None:
    """Set the elements of a stage past the first `rest` along k to zero; the warpgroups share the columns.

    Both tiles are cleared: zero times an infinity or NaN of another group would be NaN.
    """
    for tile in (s.a, s.b):
        strips = tile.tiles(groups.depth, STRIP)
        for i in pk.range(w, tile.cols // STRIP, groups.config.consumers):
            x = pk.load(strips[0, i], transposed=True)
            pk.store(strips[0, i], pk.right_fill(x, rest, 0.0), transposed=True)
    pk.fence_async()


CASES = (
    {"groups": 8, "k": 16384, "m": 4096, "n": 4096, "transpose_a": True},
    {"groups": 64, "k": 16384, "m": 2048, "n": 4096, "transpose_a": True},
    {"groups": 3, "k": 60, "m": 24, "n": 20, "transpose_a": True},
    {"groups": 5, "k": 40, "m": 21, "n": 19, "transpose_a": False},
)


def inputs(
    rng: np.random.Generator, groups: int, k: int, m: int, n: int, transpose_a: bool
) -> dict[str, Any]:
    """Random normal a and b in bf16, and groups of random sizes."""
    return {
        "a": rng.standard_normal((k, m) if transpose_a else (m, k)).astype(ml_dtypes.bfloat16),
        "b": rng.standard_normal((k, n)).astype(ml_dtypes.bfloat16),
        "offsets": ends(rng, groups, k),
        "transpose_a": transpose_a,
    }


# -- the host --------------------------------------------------------------------------------------


@entry(reference=reference, cases=CASES, inputs=inputs)
def grouped_gemm_k(
    a: Any,
    b: Any,
    offsets: Any,
    out: Any = None,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: DType | None = None,
    config: Config | None = None,
) -> Plan:
    """a[:, g] @ b[g] for the elements of k in each group g: x.T @ y per expert, for tokens x and gradients y.

    a: (m, k), or (k, m) with transpose_a. b: (k, n), or (n, k) with transpose_b. Both bf16 or both f16. offsets: int32
    (groups,), on the device: group g has the elements along k from offsets[g - 1], or 0, up to but not including
    offsets[g]. The result (groups, m, n) has the dtype of a, or `out_dtype`; it is rounded once from sums in f32, is
    zero for an empty group, and is written to `out` if that is given. An operand in whose memory k runs fastest is
    copied first.

    config: how the work is cut; if None, one is picked for the shape and the GPU. An ArgumentError for other shapes and
    dtypes.

        >>> x, y = np.ones((20, 40), pk.bf16.numpy), np.ones((20, 30), pk.bf16.numpy)
        >>> grouped_gemm_k(x, y, np.array([7, 20], np.int32), transpose_a=True).shape
        (2, 40, 30)
    """
    arrays = Arrays("grouped_gemm_k", a=a, b=b, offsets=offsets, out=out)
    arrays.shapes(a="k m" if transpose_a else "m k", b="n k" if transpose_b else "k n")
    shape, groups = check_groups(arrays, "groups m n", out_dtype, NARROW)
    if not arrays.have_memory:
        return Plan(arrays, [])
    # The kernel takes both with k first: the copy engine can start at any element of that axis.
    lay_out(arrays, *"a" * (not transpose_a), *"b" * transpose_b)
    if not groups:
        return Plan(arrays, [])
    chosen = checked("grouped_gemm_k", config, shape) or pick_k(shape, groups, limits_of(a))
    form = Form(a_is_transposed=True, b_is_transposed=False)
    constants = {"form": form, "config": chosen}
    return Plan(arrays, [PlanStep(grouped_k_tiles, ("a", "b", "out", "offsets"), constants)])
