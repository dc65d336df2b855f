"""The work of a launch as a sequence of units: tasks that blocks share, or the blocks of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pykittens.analysis.traffic.vector import IntArray, as_column
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Kernel, Order, Tasks
from pykittens.ir.orders import decode, evaluated, limited, task_extents
from pykittens.ir.values import Global, Value


@dataclass
class LaunchWork:
    """The work of a launch: `units` tasks, or blocks of a grid; the units of a cluster are contiguous.

    most: the blocks that run at most. order: that of the tasks; None for a grid.
    """

    kernel: Kernel
    known: dict[Value, Any]
    extents: tuple[int, ...]
    units: int
    most: int
    order: Order | None = None

    @staticmethod
    def of(
        kernel: Kernel, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, Any]
    ) -> LaunchWork:
        """The work of a kernel's launch for arguments of these shapes and values."""
        known: dict[Value, Any] = {}
        for param in kernel.params:
            if isinstance(param, Global):
                known.update(zip(param.extents, shapes[param.name], strict=True))
            else:
                known[param] = as_column(scalars[param.name], param.dtype)
        launch = kernel.launch
        assert launch is not None, "a kernel has a grid or tasks"
        dims = tuple(max(int(host_value(d, known)), 0) for d in launch.dims)
        if isinstance(launch, Tasks):
            extents = task_extents(launch, dims, kernel.cluster)
            tasks, cluster = prod(extents), kernel.cluster
            limit = None if launch.most is None else int(host_value(launch.most, known))
            most = limited(tasks, limit, cluster) * cluster
            order = evaluated(launch.order, known)
            return LaunchWork(kernel, known, extents, tasks * cluster, most, order)
        return LaunchWork(kernel, known, dims, prod(dims), prod(dims))

    @property
    def persistent(self) -> bool:
        """Whether blocks share tasks."""
        return self.order is not None

    def coordinates(self, first: int, last: int) -> IntArray:
        """The coordinates of units, one row per axis."""
        launch, cluster = self.kernel.launch, self.kernel.cluster
        if self.order is None:
            return np.array(np.unravel_index(np.arange(first, last), self.extents), np.int64)
        assert isinstance(launch, Tasks), "an order is that of tasks"
        positions = range(first // cluster, -(-last // cluster))
        found = [decode(self.order, self.extents, position) for position in positions]
        index = np.array(found, np.int64).reshape(len(positions), -1).repeat(cluster, axis=0)
        index = index[first % cluster :][: last - first]
        if (axis := launch.cluster_axis) is not None:
            index[:, axis] = index[:, axis] * cluster + np.arange(first, last) % cluster
        return index.T
