"""The work of a block: one point of a grid, or a share of ordered tasks; and `pk.range`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from pykittens.errors import LanguageError, Loc
from pykittens.ir.build import current
from pykittens.ir.evaluate import is_on_host
from pykittens.ir.nodes import Grid, Order, Require, Sharing, Tasks
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch, called
from pykittens.ir.orders import ROW_MAJOR
from pykittens.ir.values import Global, Int, Scalar, describe, is_int32, is_number
from pykittens.lang.bindings import named
from pykittens.lang.loops import Range
from pykittens.lang.merging import declared_by_kernel
from pykittens.lang.roles import at_top
from pykittens.ops.arguments import check_between, check_int32, check_size
from pykittens.ops.arithmetic import maximum
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR

CLUSTERS = (1, 2, 4, 8)  # numbers of blocks in a cluster
MOST_RESIDENT = 16  # 2048 threads of a multiprocessor / 128 of the smallest block

row_major = ROW_MAJOR
column_major = Order("column_major")


@called("supergroup")
def supergroup(rows: int) -> Order:
    """The order of tasks that goes down `rows` rows of tiles before the next column: operands stay in the L2 cache."""
    check_size("rows", rows)
    return Order("supergroup", rows)


class _LongestFirst(Order):
    """The order for tasks that take longer the higher their last index is: the longest first, in sections of heads.

    The other axes together are the heads. A section has 16 of them, or as many as `longest_first(heads)` says; in it,
    the last index of every head comes first. `heads` is an int of at least 1, or a value that the host computes from
    extents and arguments; a computed value below 1 counts as 1. If there are no more heads than that, there is one
    section.

    Every second round of blocks takes its tasks in the opposite direction: within a section, the block that had the
    longest task of a round has the shortest of the next. The blocks' shares are most alike if there is one section.
    """

    @called("longest_first")
    def __call__(self, heads: Int) -> Order:
        _check_count("heads", heads)
        if not is_number(heads):
            current("longest_first").check_use(heads, "longest_first")
            _check_on_host("heads", heads)
            heads = named("heads_at_once", maximum(heads, 1))
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
        _check_on_host(f"dims[{axis}]", d)


def _set_cluster(cluster: int | None) -> None:
    """Make clusters of so many blocks, if a number is given."""
    if cluster is None:
        return
    if not is_int(cluster) or cluster not in CLUSTERS:
        raise Mismatch(f"`cluster` must be 1, 2, 4 or 8, not {describe(cluster)}")
    current("cluster").kernel.cluster = cluster


def _check_count(name: str, x: Any, help: str | None = None) -> None:
    """Raise unless it is an int32, of at least 1 if it is a number."""
    if not is_int32(x) or (is_number(x) and x < 1):
        raise Mismatch(f"`{name}` must be an int32 of at least 1, not {describe(x)}", help=help)


def _check_on_host(name: str, x: Any) -> None:
    """Raise unless the host, which decides on the number of blocks, can compute an int32."""
    if not is_on_host(x, current("grid").host):
        raise Mismatch(
            f"`{name}` must be known on the host, not computed by the running kernel",
            help="only extents, scalar arguments and values computed from them are known",
        )


@overload
def grid(a: Int, /, *, cluster: int | None = None) -> tuple[Scalar]: ...
@overload
def grid(a: Int, b: Int, /, *, cluster: int | None = None) -> tuple[Scalar, Scalar]: ...
@overload
def grid(
    a: Int, b: Int, c: Int, /, *, cluster: int | None = None
) -> tuple[Scalar, Scalar, Scalar]: ...
@overload
def grid(
    a: Int, b: Int, c: Int, d: Int, /, *, cluster: int | None = None
) -> tuple[Scalar, Scalar, Scalar, Scalar]: ...
@overload
def grid(
    a: Int, b: Int, c: Int, d: Int, e: Int, /, *, cluster: int | None = None
) -> tuple[Scalar, Scalar, Scalar, Scalar, Scalar]: ...
@overload
def grid(*dims: Int, cluster: int | None = None) -> tuple[Scalar, ...]: ...
@called("pk.grid")
def grid(*dims: Int, cluster: int | None = None) -> Any:
    """Launch one block per point of a grid of these extents; returns the block's coordinates, the last axis fastest.

    `cluster` is the number of blocks in a cluster, in place of that of @pk.kernel. The blocks of a cluster are
    neighbours along the last axis; if its extent is `cluster`, the last coordinate is the number of the block in its
    cluster. The number of points is a multiple of the cluster.
    """
    return declared_by_kernel("pk.grid", lambda: _grid(dims, cluster))


def _grid(dims: tuple[Any, ...], cluster: int | None) -> tuple[Scalar, ...]:
    _check_dims("grid", dims)
    _set_cluster(cluster)
    builder = current("grid")
    index = [Scalar(SCALAR(int32)) for _ in dims]
    node = Grid(dims, index, Loc.here())
    builder.kernel.launch = node
    builder.append(node, index)
    return tuple(index)


class SharedTasks(Tasks):
    """What pk.persistent returns: tasks to iterate over, shared by `blocks` blocks."""

    if TYPE_CHECKING:  # a `for` over them in a kernel

        def __iter__(self) -> Iterator[tuple[Scalar, ...]]: ...

    @property
    @called("tasks.block")
    def block(self) -> Scalar:
        """The number of this block, from 0 to `blocks` - 1; those of a cluster are neighbours."""
        return self._sharing()[0]

    @property
    @called("tasks.blocks")
    def blocks(self) -> Scalar:
        """The number of blocks that share the tasks, which the device decides, within the limit of pk.persistent."""
        return self._sharing()[1]

    def _sharing(self) -> list[Scalar]:
        builder = current("persistent")
        index = [Scalar(SCALAR(int32)) for _ in range(2)]
        builder.append(Sharing(index, Loc.here()), index)
        return index


@called("pk.persistent")
def persistent(
    dims: tuple[Int, ...] | list[Int],
    order: Order = row_major,
    *,
    cluster: int | None = None,
    cluster_axis: int = 0,
    blocks: Int | None = None,
    tickets: Any = None,
) -> SharedTasks:
    """The tasks (i, j, ...) of a grid of these extents, shared by as many blocks as the device holds.

    Iteration gives this block's tasks: block i takes tasks i, i + blocks, ... in the order; `.block` and `.blocks` are
    i and their number. In `longest_first`, every second round goes backwards: block i takes i, 2 blocks - 1 - i,
    2 blocks + i, ... In every order, a block's tasks come in ascending order. The blocks of a cluster take neighbours
    along `cluster_axis`; blocks past its end have nothing to write. `cluster` is the number of blocks in a cluster, in
    place of that of @pk.kernel.

    The device decides the number of blocks: as many as its multiprocessors run at once, given the registers and the
    shared memory of a block, and no more than there are tasks. With `blocks`, there are at most that many: memory for
    one partial result per block has a known size, and other multiprocessors are left to other work. `blocks` is an int
    of at least 1, or a value that the host computes from extents and arguments. With clusters, an int is a multiple of
    the cluster, and a computed value is rounded down to one.

    With `tickets`, an int32 tensor whose first element is 0 before a launch, a block takes the next task of the order
    when it gets to one, so that blocks end together although tasks differ in length, and nothing is known of which
    block has which tasks. The first element counts them, and is 0 again after the launch. All roles of a block have the
    same tasks; each goes through them once. Not for clusters.
    """
    if not isinstance(dims, tuple | list):
        raise Mismatch(
            f"`dims` must be a tuple of extents, not {describe(dims)}",
            help="write `(n,)` for one",
        )
    given = tuple(dims), order, cluster, cluster_axis, blocks, tickets
    return declared_by_kernel("pk.persistent", lambda: _persistent(*given))


def _persistent(
    axes: tuple[Int, ...],
    order: Order,
    cluster: int | None,
    cluster_axis: int,
    blocks: Int | None,
    tickets: Any,
) -> SharedTasks:
    _check_dims("persistent", axes)
    if not isinstance(order, Order):
        raise Mismatch(f"`order` must be an order such as pk.row_major, not {describe(order)}")
    current("persistent").check_use(order.size, "pk.persistent")
    if order.kind in ("supergroup", "column_major") and len(axes) < 2:
        raise LanguageError(
            f"pk.persistent: the order {order.kind} takes two or more extents, not {len(axes)}"
        )
    kernel = current("persistent").kernel
    _set_cluster(cluster)
    check_between("cluster_axis", cluster_axis, 0, len(axes) - 1)
    if blocks is not None:
        _check_blocks(blocks, kernel.cluster)
    if tickets is not None:
        _check_tickets(tickets, kernel.cluster)
    along = cluster_axis if kernel.cluster > 1 else None
    tasks = SharedTasks(axes, order, along, blocks, tickets, Loc.here())
    kernel.launch = tasks
    return tasks


def _is_argument(x: Any) -> bool:
    """Whether it is a tensor that the kernel takes, not a part of one."""
    return isinstance(x, Global) and any(x is p for p in current("tensor").kernel.params)


def _check_tickets(tickets: Any, cluster: int) -> None:
    """Raise unless it is an argument that can count the tasks that blocks have taken."""
    if not _is_argument(tickets):
        raise Mismatch(f"`tickets` must be a tensor of the kernel, not {describe(tickets)}")
    if tickets.dtype is not int32 or len(tickets.shape) != 1:
        raise Mismatch(f"`tickets` must be an int32 tensor of rank 1, not {describe(tickets)}")
    if cluster > 1:
        raise Mismatch(f"`tickets` must be None if blocks are in clusters, not {describe(tickets)}")


def _check_blocks(blocks: Any, cluster: int) -> None:
    """Raise unless `blocks` is a limit that a launch can compute; each call checks a computed one."""
    _check_count("blocks", blocks, "leave it out to run as many blocks as the device holds")
    if is_number(blocks):
        if blocks % cluster:
            raise Mismatch(
                f"`blocks` must be a multiple of {cluster}, the blocks of a cluster, not {blocks}",
                help=f"use {max(blocks // cluster, 1) * cluster}",
            )
        return
    builder = current("persistent")
    builder.check_use(blocks, "pk.persistent")
    _check_on_host("blocks", blocks)
    message = f"`blocks` of pk.persistent must be at least {cluster}"
    builder.append(Require(blocks >= cluster, message, Loc.here()))


@called("pk.resident")
def resident(blocks: int) -> None:
    """Let `blocks` blocks share a multiprocessor, its registers and its shared memory; before the roles.

    The work of one block then hides the waits of another: for example, products of one hide an epilogue of the other.
    """
    check_between("blocks", blocks, 1, MOST_RESIDENT)

    def set_blocks() -> None:
        at_top("pk.resident").kernel.resident = blocks

    declared_by_kernel("pk.resident", set_blocks)


@called("pk.overlap")
def overlap(*, ready: Global | tuple[Global, ...] = ()) -> None:
    """Let a launch start while the previous launch on its stream is ending, if the GPU supports it; before the roles.

    The blocks start and prepare; they read and write nothing until the previous launch has ended. A launch of some
    microseconds gains about one. Kernels whose blocks share much of the data they read lose more, as these blocks then
    run further apart in time.

    ready: tensors of the kernel that are complete when it starts, such as weights: neither the kernel nor a launch
    before it that may still run writes them. A role reads them without waiting, until it comes to another tensor; one
    that reads nothing else never waits. So a ring of weights is full when the previous launch ends. `pk.prefetch` reads
    nothing: before the first access of its role it does not wait, whatever tensor it names.
    """
    declared_by_kernel("pk.overlap", lambda: _overlap(ready))


def _overlap(ready: Any) -> None:
    kernel = at_top("pk.overlap").kernel
    tensors = ready if isinstance(ready, tuple | list) else (ready,)
    for x in tensors:
        if not _is_argument(x):
            raise Mismatch(f"`ready` must be tensors of the kernel, not {describe(ready)}")
    kernel.overlaps, kernel.ready = True, frozenset(x.name for x in tensors)


@called("pk.range")
def range_(start: Int, stop: Int | None = None, step: int = 1) -> Range:
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
