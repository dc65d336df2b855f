"""The work of a block: one tile of a grid, or a share of the tasks in an order."""

from __future__ import annotations

from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.ir.nodes import Grid, Order, Tasks
from pykittens.ir.op import Mismatch, called
from pykittens.ir.values import Scalar, describe
from pykittens.lang.loops import Range
from pykittens.ops.arguments import check_int32, check_size
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR

CLUSTERS = (1, 2, 4, 8)  # blocks that a cluster may have
MOST_RESIDENT = 16  # blocks of a kernel with roles that a multiprocessor has threads for

row_major = Order("row_major")
column_major = Order("column_major")


@called("supergroup")
def supergroup(rows: int) -> Order:
    """Columns of `rows` rows of tiles after one another: both operands of the group stay in the L2 cache."""
    check_size("rows", rows)
    return Order("supergroup", rows)


class _LongestFirst(Order):
    """`longest_first`, or `longest_first(heads)` to say how many heads make a section."""

    @called("longest_first")
    def __call__(self, heads: int) -> Order:
        check_size("heads", heads)
        return _LongestFirst("longest_first", heads)


longest_first = _LongestFirst("longest_first", 16)


def _check_dims(word: str, dims: tuple[Any, ...]) -> None:
    builder = current(word)
    if builder.role is not None:
        raise LanguageError(f"pk.{word}: stands before the roles, not in one")
    if builder.kernel.launch is not None:
        raise LanguageError(
            f"pk.{word}: a kernel has one grid or one set of tasks",
            operands={"the first": builder.kernel.launch.loc},
        )
    if not 1 <= len(dims) <= 5:
        raise LanguageError(f"pk.{word}: takes 1 to 5 extents, not {len(dims)}")
    for axis, d in enumerate(dims):
        builder.check_use(d, f"pk.{word}")
        check_int32(f"dims[{axis}]", d)


@called("pk.grid")
def grid(*dims: Any) -> tuple[Scalar, ...]:
    """One block a point of a grid of these extents; returns this block's coordinates, the last axis fastest."""
    _check_dims("grid", dims)
    builder = current("grid")
    index = [Scalar(SCALAR(int32)) for _ in dims]
    node = Grid(dims, index, Loc.here())
    builder.kernel.launch = node
    builder.append(node, index)
    return tuple(index)


@called("pk.persistent")
def persistent(
    dims: tuple[Any, ...],
    order: Order = row_major,
    *,
    cluster: int | None = None,
    cluster_axis: int = 0,
) -> Tasks:
    """The tasks (i, j, ...) of a grid of these extents; as many blocks as the device holds share them.

    Iterating gives this block's tasks: block i takes i, i + blocks, ... in the order. Where the kernel has
    clusters, the blocks of one take neighbours along `cluster_axis`; past its end they have nothing to write.
    `cluster` is how many blocks one has, in place of what @pk.kernel says.
    """
    if not isinstance(dims, tuple | list):
        raise Mismatch(
            f"`dims` must be a tuple of extents, not {describe(dims)}",
            help="write `(n,)` for one",
        )
    dims = tuple(dims)
    _check_dims("persistent", dims)
    if not isinstance(order, Order):
        raise Mismatch(f"`order` must be an order such as pk.row_major, not {describe(order)}")
    if order.kind in ("supergroup", "column_major") and len(dims) < 2:
        raise LanguageError(
            f"pk.persistent: the order {order.kind} needs two extents or more, not {len(dims)}"
        )
    kernel = current("persistent").kernel
    if cluster is not None:
        known = isinstance(cluster, int) and not isinstance(cluster, bool)
        if not known or cluster not in CLUSTERS:
            raise Mismatch(f"`cluster` must be 1, 2, 4 or 8, not {describe(cluster)}")
        kernel.cluster = cluster
    known = isinstance(cluster_axis, int) and not isinstance(cluster_axis, bool)
    if not known or not 0 <= cluster_axis < len(dims):
        raise Mismatch(
            f"`cluster_axis` must be a compile-time int from 0 to {len(dims) - 1}, not {describe(cluster_axis)}"
        )
    tasks = Tasks(dims, order, cluster_axis if kernel.cluster > 1 else None, Loc.here())
    kernel.launch = tasks
    return tasks


@called("pk.resident")
def resident(blocks: int) -> None:
    """Have `blocks` blocks share a multiprocessor, its registers and its shared memory; stands before the roles.

    What one does then hides what another waits for: an epilogue, say, behind the products of the other.
    """
    known = isinstance(blocks, int) and not isinstance(blocks, bool)
    if not known or not 1 <= blocks <= MOST_RESIDENT:
        raise Mismatch(
            f"`blocks` must be a compile-time int from 1 to {MOST_RESIDENT}, not {describe(blocks)}"
        )
    builder = current("resident")
    if builder.role is not None or len(builder.stack) > 1:
        raise LanguageError("pk.resident: stands before the roles, outside loops and branches")
    builder.kernel.resident = blocks


@called("pk.overlap")
def overlap() -> None:
    """Let a launch start while the one before it on its stream still ends, where the GPU can; stands before the roles.

    Nothing is read or written before that one has ended: the blocks take their places and make ready. A launch of some
    microseconds gains one. Blocks that share much of what they read lose more, as they lie further apart.
    """
    builder = current("overlap")
    if builder.role is not None or len(builder.stack) > 1:
        raise LanguageError("pk.overlap: stands before the roles, outside loops and branches")
    builder.kernel.overlaps = True


@called("pk.range")
def range_(start: Any, stop: Any = None, step: int = 1) -> Range:
    """A run-time loop: `pk.range(stop)` or `pk.range(start, stop, step)`; step is a compile-time int."""
    if stop is None:
        start, stop = 0, start
    for name, bound in (("start", start), ("stop", stop)):
        check_int32(name, bound)
    known = isinstance(step, int) and not isinstance(step, bool) and int32.represents(step)
    if not known or step == 0:
        raise Mismatch(f"`step` must be a compile-time int other than 0, not {describe(step)}")
    return Range(start, stop, step)
