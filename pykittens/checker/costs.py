"""Cost tables of a kernel: shared memory, global memory and caches, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pykittens.analysis.banks import Uncounted, shared_costs, uncounted
from pykittens.analysis.requests import Cost
from pykittens.analysis.sectors import SECTOR, global_costs
from pykittens.analysis.traffic.cache import Moved, Traffic, traffic
from pykittens.checker.report.report import Row, Table
from pykittens.ir.nodes import Kernel
from pykittens.runtime.arguments import Arguments, scalars
from pykittens.runtime.arrays import Array
from pykittens.types.devices import DeviceSpec

_ASSUMED = "*: the order of the accesses is not published, or an index decides where they lie; the best case is assumed"
_UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass(frozen=True)
class _OnGpu:
    """A tensor as it would be on a GPU, where allocations start at multiples of 256 bytes."""

    strides: tuple[int, ...]
    address: int
    itemsize: int

    @staticmethod
    def of(array: Array) -> _OnGpu:
        """An array on the CPU, where allocations start at multiples of 16 bytes."""
        return _OnGpu(tuple(array.strides), array.address % 16, array.itemsize)


def cost_tables(
    kernel: Kernel, arguments: Arguments, device: DeviceSpec, blocks_per_sm: int
) -> tuple[Table, ...]:
    """Bank conflicts, sectors, and the traffic of the launch; a table without rows is omitted."""
    arrays = arguments.tensors
    shapes = {name: tuple(a.shape) for name, a in arrays.items()}
    contents = {name: a.numpy() for name, a in arrays.items() if _is_index(a)}
    found = traffic(kernel, shapes, scalars(arguments), device, max(blocks_per_sm, 1), contents)
    tables = (
        _by_line(
            "Bank conflicts",
            ("operation", "shared", "cycles", "ideal", "conflicts"),
            shared_costs(kernel),
            "cycles per group and execution of the line on sm_90a",
            uncounted(kernel),
        ),
        _by_line(
            "Global accesses",
            ("operation", "tensor", "sectors", "ideal", "more"),
            global_costs(kernel, {name: _OnGpu.of(a) for name, a in arrays.items()}),
            f"sectors of {SECTOR} bytes per group and execution of the line, inside the tensor",
        ),
        _by_tensor(found),
    )
    return tuple(t for t in tables if t.rows)


def _by_line(
    title: str,
    columns: tuple[str, ...],
    costs: Iterable[Cost],
    note: str,
    without_model: Sequence[Uncounted] = (),
) -> Table:
    """The count of each line, its ideal, and by how much the count is larger; last the lines without a model."""
    rows, assumed = [], False
    for c in costs:
        assumed = assumed or c.assumed
        more = f"{c.count / c.ideal:.3g}x" if c.count > c.ideal > 0 else "none"
        ideal = f"{c.ideal}*" if c.assumed else str(c.ideal)
        rows.append(Row((c.what, c.memory, str(c.count), ideal, more), c.loc))
    rows += [Row((u.what, "no model", "", "", u.reason), u.loc) for u in without_model]
    return Table(title, columns, tuple(rows), f"{note}; {_ASSUMED}" if assumed else note)


def _by_tensor(found: Traffic) -> Table:
    """The bytes that a launch requests from L2, reads from memory and writes to it, by tensor and in total."""
    moved = {**found.tensors, "all": found.total}
    blocks = f"{found.blocks} block{'s' * (found.blocks != 1)}"
    note = (
        f"{found.device}: {blocks} at once, one L2 of {_bytes(found.device.l2_bytes)} with least recently used "
        f"eviction; memory needs at least {_time(found.hbm_seconds)}"
    )
    if found.guesses:
        note += "; depends on values in memory: " + ", ".join(
            dict.fromkeys(f"{g.what} at {g.loc}" for g in found.guesses)
        )
    columns = (
        "tensor",
        "requested from L2",
        "L2 hits",
        "read from memory",
        "written",
        "least possible",
    )
    rows = tuple(Row((name, *_moved(m))) for name, m in moved.items())
    return Table("Traffic of the launch", columns, rows if found.total.asked_bytes else (), note)


def _is_index(array: Array) -> bool:
    return array.device == "cpu" and array.dtype in ("int32", "int64")


def _moved(moved: Moved) -> tuple[str, ...]:
    return (
        _bytes(moved.asked_bytes),
        f"{100 * moved.hit_rate:.0f}%" if moved.asked_read else "",
        _bytes(moved.hbm_read),
        _bytes(moved.hbm_written),
        _bytes(moved.least_bytes),
    )


def _bytes(count: float) -> str:
    """A number of bytes with a unit and at most four digits."""
    power = 0
    while count >= 10_000 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.4g} {_UNITS[power]}"


def _time(seconds: float) -> str:
    """A time with a unit and at most four digits before the point."""
    return f"{seconds * 1e6:.1f} us" if seconds >= 1e-6 else f"{seconds * 1e9:.0f} ns"
