"""What the host functions of linear attention share: checks, and the launches of a pass over a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.ir.numbers import number
from pykittens.kernels.arrays import FLOATS, NARROW, Arrays
from pykittens.kernels.linear.chunk import values_in
from pykittens.kernels.linear.config import LinearConfig, Tiles, config_for, narrower
from pykittens.kernels.linear.forward import chunk_outputs
from pykittens.kernels.linear.launches import Launches, Starts
from pykittens.kernels.linear.states import segment_states
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.sequences import count_sequences
from pykittens.kernels.workspace import Scratch

MOST_SIDE = 256  # rows of a state, and in gradients its columns
OF_QK, OF_V, OF_STATE = "batch groups n d", "batch heads n width", "sequences heads d width"


def check_shapes(arrays: Arrays, of_decay: str = "heads|batch heads n") -> None:
    """Raise an ArgumentError unless the arrays of a sequence fit one another, and their dtypes are right."""
    arrays.shapes(q=OF_QK, k=OF_QK, v=OF_V, out=OF_V, gradient=OF_V)
    arrays.shapes(decay=of_decay)
    count_sequences(arrays, "v")
    arrays.shapes(**dict.fromkeys(("initial_state", "state_gradient"), OF_STATE))
    check_heads(arrays)
    arrays.positive("batch", "heads", "n", "width")


def make_outputs(
    arrays: Arrays, return_state: Any, values: str = "v", of_state: str = OF_STATE
) -> tuple[str, ...]:
    """Add the result, of the shape and dtype of the values, and a state if it is returned; the names of both."""
    arrays.result(OF_V, arrays.found[values].dtype)
    return "out", *arrays.optional("state", of_state, "f32", return_state)


def check_heads(arrays: Arrays, values: str = "v", others: str = "q and k") -> None:
    """Raise an ArgumentError unless heads of the values share those of the others, and the dtypes are right."""
    dims = arrays.dims
    arrays.dtypes("q", "k", "v", "out", "gradient", among=NARROW)
    for name in ("decay", "initial_state", "state", "next_state", "state_gradient"):
        arrays.dtypes(name, among=FLOATS if "gates" in dims and name == "decay" else ("f32",))
    if not dims["groups"] or dims["heads"] % dims["groups"]:
        raise arrays.fail(
            f"{dims['heads']} heads of {values} do not share {dims['groups']} of {others}"
        )
    if not 1 <= dims["d"] <= MOST_SIDE:
        raise arrays.fail(f"d must be from 1 to {MOST_SIDE}, not {dims['d']}")


def check_width(arrays: Arrays) -> None:
    """Raise an ArgumentError unless there are kernels of gradients for values of this width."""
    if arrays.dims["width"] > MOST_SIDE:
        raise arrays.fail(f"width must be at most {MOST_SIDE}, not {arrays.dims['width']}")


def check_gates(arrays: Arrays) -> None:
    """Raise an ArgumentError unless the gates of channels have heads that fit those of q, k and v."""
    gates, groups, heads = (arrays.dims[name] for name in ("gates", "groups", "heads"))
    if not gates or gates % groups or heads % gates:
        raise arrays.fail(
            f"{gates} heads of decay do not share {groups} of q and k, or {heads} of v"
        )


def checked(arrays: Arrays, segments: Any) -> int | None:
    """The number of segments, or None; an ArgumentError for anything else."""
    found = number(segments)
    if found is None or (type(found) is int and found > 0):
        return found
    raise arrays.fail(f"`segments` must be a positive int or None, not {found!r}")


@dataclass
class Passes(Launches):
    """The launches of passes of linear attention with a decay of positions or heads.

    gates: the names of decay, rate and bias, those that are given. skip: the name of what is added of values, or None.
    """

    config: LinearConfig | None = None
    gates: tuple[str, ...] = ("decay",)
    softplus: bool = False
    skip: str | None = None

    def add(
        self,
        q: str,
        k: str,
        v: str,
        out: str,
        sizes: tuple[int, int],
        *,
        states: tuple[str | None, str | None] = (None, None),
        numbers: tuple[str, str] = ("scale", "one"),
        reverse: bool = False,
        result_bytes: int = 2,
        with_state: str | None = None,
        found: tuple[str, ...] = (),
        skips: bool = False,
        exact: bool = False,
        turned: bool = False,
        alone: bool = False,
    ) -> None:
        """Add a pass, by the names of its arrays, of its first and last state, and of its numbers.

        sizes: of a query and of a value. numbers: by which outputs and states are multiplied. result_bytes: of an
        element of the output. with_state: an array like the output, whose rows are multiplied with those of the output
        and with what comes of the state there; found: which of "dots", "inside", "whole" and "skipped" of
        `chunk_outputs` to keep, as scratch memory f"{name}_{out}". skips: add `skip` of values. exact: the accuracy of
        states is that of f32. turned: rows and columns of states in memory are exchanged. alone: no other pass takes
        the states of segments.
        """
        gates = (*self.arrays.present(*self.gates), None, None)[:3]
        decay = gates[0]
        exact = exact or with_state is not None
        of_values = values_in(decay, exact)
        tiles = Tiles(2, 2 if with_state else 1, of_values, 1, result_bytes)
        usual = self.config or config_for(*sizes, self.limits, tiles)
        others: list[LinearConfig] | None = None
        if alone:
            others = [] if self.config else narrower(sizes[0], usual, self.limits, tiles)
        keys, values, of_states = (v, k, sizes[::-1]) if turned else (k, v, sizes)
        cut, totals = f"states_{keys}_{values}", f"totals_{keys}_{values}" if decay else None
        way = {"reverse": reverse, "exact": exact, "softplus": self.softplus}
        config, of_sequences = self.cut_by_heads(cut, "groups", sizes, usual, others)
        parts = -(-sizes[1] // (config.columns * config.groups))
        starts: Starts = (*states, None, None)
        if of_sequences.segments > 1:
            tiles, like = Tiles(1, 1, of_values, 0, 0), None if config is usual else config
            own = self.config or config_for(*of_states, self.limits, tiles, like)
            of_segments = keys, values, *gates, cut, totals, self.ends
            step = PlanStep(segment_states, of_segments, way | {"config": own})
            more: dict[str, Any] = {"totals": totals and (totals, ()), "unit": numbers[1]}
            starts = self.add_starts(
                cut, step, of_sequences, of_states, states, reverse=reverse, **more
            )
        names = ("dots", "inside", "whole", "skipped")
        sums = [f"{name}_{out}" if name in found else None for name in names]
        shape = (parts * config.groups, *self.heads, self.n)
        self.scratch |= {name: Scratch(shape) for name in sums if name}
        skip = self.skip if skips else None
        args = (q, k, v, out, *gates, skip, *starts, *numbers, with_state, *sums, self.ends)
        more = {"config": config, "turned": turned}
        self.steps.append(PlanStep(chunk_outputs, args, way | more))
