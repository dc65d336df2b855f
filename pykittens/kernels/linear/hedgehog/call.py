"""What the host functions of Hedgehog share: checks, configurations, and the states at the starts of segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.call import OF_V
from pykittens.kernels.linear.chunk import CHUNK, ROWS
from pykittens.kernels.linear.config import Cut, LinearConfig
from pykittens.kernels.linear.hedgehog.features import PARTS, wide
from pykittens.kernels.linear.hedgehog.forward import OF_ROW, hedgehog_states
from pykittens.kernels.linear.launches import Launches, Starts
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.sequences import count_sequences

VECTORS = 7040  # bytes for vectors of rows, sums of features and of several warps, and semaphores
MOST_ELEMENTS, MOST_FEATURES = 128, 64  # elements of a query, and features of a map
OF_QK, OF_MAP, OF_STATE = "batch heads n d", "heads d features", "sequences heads both columns"
OF_ROWS = f"batch heads {OF_ROW} n"


def make_outputs(arrays: Arrays, return_state: Any, return_rows: Any) -> tuple[str, ...]:
    """Add the result, and a state and what gradients take of rows if these are returned; the names of all."""
    arrays.result(OF_V, arrays.found["v"].dtype)
    state = arrays.optional("state", OF_STATE, "f32", return_state)
    return "out", *state, *arrays.optional("rows", OF_ROWS, "f32", return_rows)


def check(arrays: Arrays) -> None:
    """Raise an ArgumentError unless the arrays fit one another, and their dtypes are right."""
    arrays.shapes(q=OF_QK, k=OF_QK, v=OF_V, out=OF_V, query_map=OF_MAP, key_map=OF_MAP)
    arrays.shapes(factors="2 heads", gradient=OF_V, rows=OF_ROWS)
    arrays.dtypes("q", "k", "v", "query_map", "key_map", "out", "gradient", among=NARROW)
    arrays.dtypes("factors", "initial_state", "state_gradient", "rows", among=("f32",))
    count_sequences(arrays, "v")
    dims = arrays.dims
    for name, most in (("d", MOST_ELEMENTS), ("features", MOST_FEATURES)):
        if not 1 <= dims[name] <= most:
            raise arrays.fail(f"{name} must be from 1 to {most}, not {dims[name]}")
    arrays.positive("batch", "heads", "n", "width")
    dims["both"], dims["columns"] = 2 * dims["features"], dims["width"] + 1
    arrays.shapes(initial_state=OF_STATE, state_gradient=OF_STATE)


def configs_for(width: int) -> list[LinearConfig]:
    """The configurations for `width` values, the largest first: warpgroups have half of some columns each."""
    columns = dict.fromkeys(min(wide(width), x) for x in (128, 64, 32))
    return [LinearConfig(x // PARTS, PARTS, stages) for x in columns for stages in (2, 1)]


def config_for(d: int, width: int, limits: Limits) -> LinearConfig:
    """The configuration for heads of d queries and `width` values."""

    def shared_bytes(c: LinearConfig) -> int:
        own, pair = c.columns * PARTS, 2 * PARTS * CHUNK * ROWS
        stage = 2 * CHUNK * (3 * wide(d) + 2 * own)
        once = 2 * ROWS * (2 * wide(d) + PARTS * own) + 2 * CHUNK * own + 2 * pair
        return c.stages * stage + once + VECTORS

    configs = configs_for(width)
    if not limits.warpgroups:  # with little memory, copies in flight are worth more than columns
        configs.sort(key=lambda c: -c.stages)
    return first_that_fits("hedgehog_attention", configs, shared_bytes, limits)


@dataclass
class HedgehogPasses(Launches):
    """The launches of passes of Hedgehog attention."""

    def starts(self, cut: Cut, sums: int, states: tuple[str | None, str | None]) -> Starts:
        """The states that a pass takes, with room for so many columns of sums."""
        if cut.segments == 1:
            return *states, None, None
        sides = self.sides(sums)
        args = "k", "v", "key_map", "starts", self.ends
        how = {"config": config_for(*self.sizes, self.limits)}
        return self.add_starts("starts", PlanStep(hedgehog_states, args, how), cut, sides, states)

    def sides(self, sums: int) -> tuple[int, int]:
        """Those of a state with so many columns of sums, in units of 16 bytes."""
        return self.arrays.dims["both"], -(-(self.sizes[1] + sums) // 4) * 4
