"""What the host functions of Based share: checks, and the launches of a pass over a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.based.backward import based_gradients, sum_columns
from pykittens.kernels.linear.based.features import feature_count, parts_of, wide
from pykittens.kernels.linear.based.forward import based_outputs, based_states
from pykittens.kernels.linear.based.sums import SLICE
from pykittens.kernels.linear.chunk import CHUNK, ROWS
from pykittens.kernels.linear.config import RESERVED, LinearConfig
from pykittens.kernels.linear.launches import Launches, Starts
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.sequences import count_sequences
from pykittens.kernels.workspace import Scratch

MOST_ELEMENTS = 32  # elements of a query
OF_QK, OF_V = "batch heads n d", "batch heads n width"
OF_STATE = "sequences heads features columns"
# Microseconds of an H200 for a chunk of 64 columns and three parts of features: of its outputs, and of its state alone.
OUTPUT, STATE = 2.2, 1.2


def check(arrays: Arrays, normalize: Any) -> None:
    """Raise an ArgumentError unless the arrays of a sequence fit one another, and their dtypes are right."""
    arrays.shapes(q=OF_QK, k=OF_QK, v=OF_V, out=OF_V, gradient=OF_V, weights="batch heads n")
    arrays.dtypes("q", "k", "v", "out", "gradient", among=NARROW)
    arrays.dtypes("initial_state", "state_gradient", "weights", among=("f32",))
    count_sequences(arrays, "v")
    dims = arrays.dims
    if not 1 <= dims["d"] <= MOST_ELEMENTS:
        raise arrays.fail(f"d must be from 1 to {MOST_ELEMENTS}, not {dims['d']}")
    arrays.positive("batch", "heads", "n", "width")
    dims["features"] = feature_count(dims["d"])
    dims["columns"] = dims["width"] + 1 if normalize else dims["width"]
    arrays.shapes(initial_state=OF_STATE, state_gradient=OF_STATE)


def make_outputs(arrays: Arrays, normalize: Any, return_state: Any) -> tuple[str, ...]:
    """Add the result, a state if it is returned, and the sums of weights if results are divided; the names of all."""
    arrays.result(OF_V, arrays.found["v"].dtype)
    state = arrays.optional("state", OF_STATE, "f32", return_state)
    return "out", *state, *arrays.optional("weights", "batch heads n", "f32", normalize)


def config_for(
    d: int, width: int, limits: Limits, is_divided: bool, for_gradients: bool = False
) -> LinearConfig:
    """The configuration for heads of d queries and `width` values: registers hold up to 192 x 64 of a state."""
    parts = parts_of(d)
    is_small = parts <= 3 and limits.warpgroups
    columns = 64 if is_small and width > 32 else 32
    resident = 2 if is_small else 1
    configs = [LinearConfig(columns, 1, stages, resident) for stages in (3, 2, 1)]
    configs += [LinearConfig(columns, 1, stages) for stages in (2, 1)]
    configs += [LinearConfig(16, 1, 1)]

    def shared_bytes(c: LinearConfig) -> int:
        result = wide(d) * 4 if for_gradients else c.columns * 2
        stage = 2 * CHUNK * (2 * wide(d) + c.columns * (2 if for_gradients else 1)) + 64
        stage += 4 * CHUNK if is_divided else 0  # the gradients of sums
        of_parts = parts * 2 * ROWS * (2 * wide(d) + c.columns + CHUNK + 6)
        own = c.stages * stage + of_parts + CHUNK * result + RESERVED
        if is_divided:
            own += 2 * CHUNK * SLICE + parts * ROWS * (4 if for_gradients else 2 * SLICE)
        return c.resident * own + (c.resident - 1) * RESERVED

    return first_that_fits("based_attention", configs, shared_bytes, limits)


@dataclass
class BasedPasses(Launches):
    """The launches of passes of Based."""

    normalize: bool = False

    def starts(
        self,
        name: str,
        arrays: tuple[str, str, str | None],
        states: tuple[str | None, str | None],
        reverse: bool,
        is_fixed: bool = True,
    ) -> Starts:
        """The states that a pass takes; those of segments are found before the first of their name.

        arrays: keys, values and factors of keys. states: before all chunks and after them.
        """
        width = self.sizes[1]
        config = config_for(*self.sizes, self.limits, self.normalize)
        features = self.arrays.dims["features"]
        cut = self.cut_by_time(name, (OUTPUT, STATE), config, features, is_fixed)
        if cut.segments == 1:
            return *states, None, None
        columns = -(-(width + 1) // 4) * 4 if self.normalize else width  # in units of 16 bytes
        step = PlanStep(
            based_states, (*arrays, name, self.ends), {"config": config, "reverse": reverse}
        )
        return self.add_starts(name, step, cut, (features, columns), states, reverse=reverse)

    def outputs(
        self,
        arrays: tuple[str, str, str, str],
        sums: str | None,
        states: tuple[str | None, str | None],
        *,
        name: str,
        scale: str = "scale",
        factors: str | None = None,
        reverse: bool = False,
        alone: bool = False,
    ) -> None:
        """Add a pass for outputs, by the names of its queries, keys, values and outputs.

        name: of the states of segments. factors: of the features of keys in the sums of these. alone: no other pass
        takes the states of segments.
        """
        # Beside a state of several parts there are no registers for those that are loaded.
        is_fixed = not alone or parts_of(self.sizes[0]) > 1
        starts = self.starts(name, (*arrays[1:3], factors), states, reverse, is_fixed)
        config = config_for(*self.sizes, self.limits, sums is not None)
        args = (*arrays, sums, *starts[:3], scale, "eps", self.ends)
        self.steps.append(PlanStep(based_outputs, args, {"config": config, "reverse": reverse}))

    def gradients(
        self,
        arrays: tuple[str, str, str, str, str],
        e: str | None,
        states: tuple[str | None, str | None],
        *,
        name: str,
        scale: str = "scale",
        reverse: bool = False,
    ) -> None:
        """Add a pass for gradients of queries, or in reverse of keys, by the names of its arrays."""
        starts = self.starts(name, (*arrays[1:3], e if reverse else None), states, reverse)[:2]
        (d, width), to = self.sizes, arrays[4]
        config = config_for(d, width, self.limits, self.normalize, for_gradients=True)
        how = {"config": config, "reverse": reverse}
        parts = -(-width // config.columns)
        if parts == 1:
            self.steps.append(
                PlanStep(based_gradients, (*arrays, e, *starts, scale, self.ends), how)
            )
            return
        of_parts = f"{to}_of_columns"
        self.scratch[of_parts] = Scratch((parts, *self.heads, self.n, d))
        args = (*arrays[:4], of_parts, e, *starts, scale, self.ends)
        self.steps += [PlanStep(based_gradients, args, how), PlanStep(sum_columns, (of_parts, to))]
