"""The work of a block: one point of a grid, or a share of ordered tasks; and `pk.range`."""

from __future__ import annotations

from typing import Any

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.ir.nodes import Grid, Order, Sharing, Tasks
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch, called
from pykittens.ir.values import Scalar, describe
from pykittens.lang.loops import Range
from pykittens.lang.roles import at_top
from pykittens.ops.arguments import check_between, check_int32, check_size
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR

CLUSTERS = (1, 2, 4, 8)  # numbers of blocks in a cluster
MOST_RESIDENT = 16  # 2048 threads of a multiprocessor / 128 of the smallest block

row_major = Order("row_major")
column_major = Order("column_major")


@called("supergroup")
def supergroup(rows: int) -> Order:
    """The order of tasks that goes down `rows` rows of tiles before the next column: operands stay in the L2 cache."""
    check_size("rows", rows)
    return Order("supergroup", rows)


class _LongestFirst(Order):
    """`longest_first`, or `longest_first(heads)` with the number of heads in a section."""

    @called("longest_first")
    def __call__(self, heads: int) -> Order:
        check_size("heads", heads)
        return _LongestFirst("longest_first", heads)


longest_first = _LongestFirst("longest_first", 16)


def _check_dims(word: str, dims: tuple[Any, ...]) -> None:
    builder = current(word)
    if builder.role is not None:
        raise LanguageError(f"pk.{word}: must be before the roles, not inside one")
    if builder.kernel.launch is not None:
        raise LanguageError(
            f"pk.{word}: a kernel can have one grid or one set of tasks only",
            operands={"the first": builder.kernel.launch.loc},
        )
    if not 1 <= len(dims) <= 5:
        raise LanguageError(f"pk.{word}: takes 1 to 5 extents, not {len(dims)}")
    for axis, d in enumerate(dims):
        builder.check_use(d, f"pk.{word}")
        check_int32(f"dims[{axis}]", d)


@called("pk.grid")
def grid(*dims: Any) -> tuple[Scalar, ...]:
    """Launch one block per point of a grid of these extents; returns the block's coordinates, the last axis fastest."""
    _check_dims("grid", dims)
    builder = current("grid")
    index = [Scalar(SCALAR(int32)) for _ in dims]
    node = Grid(dims, index, Loc.here())
    builder.kernel.launch = node
    builder.append(node, index)
    return tuple(index)


class SharedTasks(Tasks):
    """What pk.persistent returns: tasks to iterate over, shared by `blocks` blocks."""

    @property
    @called("tasks.block")
    def block(self) -> Scalar:
        """The number of this block, from 0 to `blocks` - 1; those of a cluster are neighbours."""
        return self._sharing()[0]

    @property
    @called("tasks.blocks")
    def blocks(self) -> Scalar:
        """The number of blocks that share the tasks, which the device decides."""
        return self._sharing()[1]

    def _sharing(self) -> list[Scalar]:
        builder = current("persistent")
        index = [Scalar(SCALAR(int32)) for _ in range(2)]
        builder.append(Sharing(index, Loc.here()), index)
        return index


@called("pk.persistent")
def persistent(
    dims: tuple[Any, ...],
    order: Order = row_major,
    *,
    cluster: int | None = None,
    cluster_axis: int = 0,
) -> SharedTasks:
    """The tasks (i, j, ...) of a grid of these extents, shared by as many blocks as the device holds.

    Iteration gives this block's tasks: block i takes tasks i, i + blocks, ... in the order; `.block` and `.blocks` are
    i and their number. The blocks of a cluster
    take neighbours along `cluster_axis`; blocks past its end have nothing to write. `cluster` is the number of blocks
    in a cluster, in place of that of @pk.kernel.
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
            f"pk.persistent: the order {order.kind} takes two or more extents, not {len(dims)}"
        )
    kernel = current("persistent").kernel
    if cluster is not None:
        if not is_int(cluster) or cluster not in CLUSTERS:
            raise Mismatch(f"`cluster` must be 1, 2, 4 or 8, not {describe(cluster)}")
        kernel.cluster = cluster
    check_between("cluster_axis", cluster_axis, 0, len(dims) - 1)
    tasks = SharedTasks(dims, order, cluster_axis if kernel.cluster > 1 else None, Loc.here())
    kernel.launch = tasks
    return tasks


@called("pk.resident")
def resident(blocks: int) -> None:
    """Let `blocks` blocks share a multiprocessor, its registers and its shared memory; before the roles.

    The work of one block then hides the waits of another: for example, products of one hide an epilogue of the other.
    """
    check_between("blocks", blocks, 1, MOST_RESIDENT)
    at_top("pk.resident").kernel.resident = blocks


@called("pk.overlap")
def overlap() -> None:
    """Let a launch start while the previous launch on its stream is ending, if the GPU supports it; before the roles.

    The blocks start and prepare; they read and write nothing until the previous launch has ended. A launch of some
    microseconds gains about one. Kernels whose blocks share much of the data they read lose more, as these blocks then
    run further apart in time.
    """
    at_top("pk.overlap").kernel.overlaps = True


@called("pk.range")
def range_(start: Any, stop: Any = None, step: int = 1) -> Range:
    """A run-time loop over start, start + step, ... below stop; `pk.range(stop)` starts at 0.

    `start` and `stop` are int32, `step` is a compile-time int.
    """
    if stop is None:
        start, stop = 0, start
    for name, bound in (("start", start), ("stop", stop)):
        check_int32(name, bound)
    if not is_int(step) or not int32.represents(step) or step == 0:
        raise Mismatch(f"`step` must be a nonzero compile-time int, not {describe(step)}")
    return Range(start, stop, step)
