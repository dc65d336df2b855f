"""Cost tables of a kernel: shared memory, global memory and caches, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pykittens.analysis.banks import shared_costs
from pykittens.analysis.requests import Cost
from pykittens.analysis.sectors import SECTOR, global_costs
from pykittens.analysis.traffic.cache import Moved, Traffic, traffic
from pykittens.checker.report.report import Row, Table
from pykittens.ir.nodes import Kernel
from pykittens.runtime.arguments import Arguments
from pykittens.runtime.arrays import Array
from pykittens.types.devices import DeviceSpec

_ASSUMED = "*: the order of the accesses is not published and taken as the best one"
_UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass(frozen=True)
class _OnGpu:
    """A tensor as it would lie on a GPU, where allocations start at multiples of 256 bytes."""

    strides: tuple[int, ...]
    address: int
    itemsize: int

    @staticmethod
    def of(array: Array) -> _OnGpu:
        """An array of the CPU, whose allocations start at multiples of 16."""
        return _OnGpu(tuple(array.strides), array.address % 16, array.itemsize)


def cost_tables(
    kernel: Kernel,
    arguments: Arguments,
    scalars: Mapping[str, object],
    device: DeviceSpec,
    blocks_per_sm: int,
) -> tuple[Table, ...]:
    """Bank conflicts, sectors, and the traffic of the launch; a table without rows is left out."""
    tables = (
        bank_table(shared_costs(kernel)),
        sector_table(global_costs(kernel, {n: _OnGpu.of(a) for n, a in arguments.tensors.items()})),
        traffic_table(_traffic(kernel, arguments, scalars, device, blocks_per_sm)),
    )
    return tuple(t for t in tables if t.rows)


def bank_table(costs: Iterable[Cost]) -> Table:
    """Cycles of shared memory a line, and how many of them conflicts add."""
    note = "cycles of one group for one run of the line on sm_90a"
    columns = ("operation", "shared", "cycles", "ideal", "conflicts")
    return _table("Bank conflicts", columns, costs, note)


def sector_table(costs: Iterable[Cost]) -> Table:
    """Sectors of global memory a line, and how many of them hold nothing that is asked for."""
    note = f"sectors of {SECTOR} bytes of one group for one run of the line, inside the tensor"
    columns = ("operation", "tensor", "sectors", "ideal", "more")
    return _table("Global accesses", columns, costs, note)


def _table(title: str, columns: tuple[str, ...], costs: Iterable[Cost], note: str) -> Table:
    rows, assumed = [], False
    for c in costs:
        assumed = assumed or c.assumed
        more = f"{c.count / c.ideal:.3g}x" if c.count > c.ideal > 0 else "none"
        ideal = f"{c.ideal}*" if c.assumed else str(c.ideal)
        rows.append(Row((c.what, c.memory, str(c.count), ideal, more), c.loc))
    return Table(title, columns, tuple(rows), f"{note}; {_ASSUMED}" if assumed else note)


def traffic_table(found: Traffic) -> Table:
    """What a launch asks of L2, and what comes from and goes to memory, by tensor and altogether."""
    rows = [Row((name, *_moved(moved))) for name, moved in found.tensors.items()]
    rows.append(Row(("all", *_moved(found.total))))
    blocks = f"{found.blocks} block{'s' * (found.blocks != 1)}"
    note = (
        f"{found.device}: {blocks} at once, L2 of {_bytes(found.device.l2_bytes)} in one piece, least "
        f"recently used out first; memory needs at least {_time(found.hbm_seconds)}"
    )
    if found.guesses:
        note += "; it rests on values in memory: " + ", ".join(
            dict.fromkeys(f"{g.what} at {g.loc}" for g in found.guesses)
        )
    columns = ("tensor", "asked of L2", "L2 hits", "read from memory", "written", "least possible")
    return Table(
        "Traffic of the launch", columns, tuple(rows) if found.total.asked_bytes else (), note
    )


def _traffic(
    kernel: Kernel,
    arguments: Arguments,
    scalars: Mapping[str, object],
    device: DeviceSpec,
    blocks_per_sm: int,
) -> Traffic:
    shapes = {name: tuple(a.shape) for name, a in arguments.tensors.items()}
    contents = {name: a.numpy() for name, a in arguments.tensors.items() if _is_index(a)}
    return traffic(kernel, shapes, scalars, device, max(blocks_per_sm, 1), contents)


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
    """A number of bytes in the unit in which it has up to four digits."""
    power = 0
    while count >= 10_000 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.4g} {_UNITS[power]}"


def _time(seconds: float) -> str:
    """A time in the unit in which it has up to four digits before the point."""
    return f"{seconds * 1e6:.1f} us" if seconds >= 1e-6 else f"{seconds * 1e9:.0f} ns"
