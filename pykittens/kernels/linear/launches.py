"""What passes over the sequences of a call share: launches, memory, and the states at the starts of segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.limits import limits_of
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import (
    BANDWIDTH,
    GAIN,
    Cut,
    LinearConfig,
    Work,
    cut_of,
    work_of_heads,
)
from pykittens.kernels.linear.scan import scan_states
from pykittens.kernels.linear.sequences import slots_of
from pykittens.kernels.linear.states import clear
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.workspace import Scratch

# The names of states before and after, of what segments add to them, and of sums of decay, for a pass.
Starts: TypeAlias = tuple[str | None, str | None, str | None, str | None]
SHORTEST = 2  # chunks of a segment whose rates are those of one size


def add_scale(arrays: Arrays, scale: float | None) -> None:
    """Let kernels take the number by which results are multiplied: as attention does, or what is given."""
    arrays.number("scale", float(arrays.dims["d"] ** -0.5 if scale is None else scale))


@dataclass
class Launches:
    """The launches of passes over the sequences of a call, and their scratch memory.

    scale: as of `add_scale`. segments: parts of a sequence with blocks of their own, chosen for each pass if None.
    """

    arrays: Arrays
    scale: float | None = None
    segments: int | None = None
    steps: list[PlanStep] = field(default_factory=list, init=False)
    scratch: dict[str, Scratch] = field(default_factory=dict, init=False)
    cuts: dict[str, Cut] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        add_scale(self.arrays, self.scale)
        self.arrays.number("one", 1.0)
        self.limits, dims = limits_of(self.arrays.like), self.arrays.dims
        self.n, self.heads = dims["n"], (dims["batch"], dims["heads"])
        self.sizes = dims["d"], dims["width"]
        self.sequences, (self.ends,) = dims["sequences"], self.arrays.present("ends")
        self.chunks = self.slots(CHUNK, 1)
        self.dtype = self.arrays.found["k" if "k" in self.arrays else "B"].dtype
        length = -(-self.n // self.sequences) if self.ends else self.n  # the mean
        self.mean_chunks = -(-length // CHUNK)

    def slots(self, size: int, more: int) -> int:
        """As many slots as `slots_of`."""
        slots: int = slots_of(self.n, self.arrays.views.get("ends"), size, more)
        return slots

    def unless_0(self, name: str) -> tuple[str, str]:
        """The names of an array and of the scale, or of 0 and of 1 if the scale is 0, by which no state is divided."""
        if self.arrays.views["scale"] != 0:
            return name, "scale"
        self.scratch["zeros"] = Scratch(self.arrays.found[name].shape, dtype=self.dtype)
        self.steps.append(PlanStep(clear, ("zeros",)))
        return "zeros", "one"

    def cut_by_heads(
        self,
        name: str,
        of_keys: str,
        sizes: tuple[int, int],
        config: LinearConfig,
        others: Sequence[LinearConfig] | None = None,
    ) -> tuple[LinearConfig, Cut]:
        """The configuration and the cut by the time of `work_of_heads`, of so many segments as are given; the cut is
        that of states of this name.

        of_keys: the dim of the heads of queries and keys. others: configurations that may take less time; None if the
        states are for a scan, as `is_fixed` of `cut_of`. So they are if sequences are packed, as roles that copy parts
        of them have no registers left.
        """
        if name in self.cuts:
            return config, self.cuts[name]
        heads = self.sequences * self.arrays.dims[of_keys], self.sequences * self.heads[1]
        is_fixed, found = others is None or bool(self.ends), []
        is_given = self.segments is not None  # then configurations are, too, or are the usual ones
        for own in [config] if is_given or is_fixed or others is None else [config, *others]:
            work = work_of_heads(heads, self.mean_chunks, sizes, own)
            time, cut = cut_of(work, self.limits, self.segments, is_fixed)
            found.append((time if own is config else time / GAIN, own, cut))
        _, config, self.cuts[name] = min(found, key=itemgetter(0))
        return config, self.cuts[name]

    def cut_by_time(
        self,
        name: str,
        times: tuple[float, float],
        config: LinearConfig,
        rows: int,
        is_fixed: bool = True,
    ) -> Cut:
        """The cut by times of a chunk, as of `Work`, otherwise as of `cut_by_heads`; rows: of a state."""
        if name not in self.cuts:
            own, width = config.columns * config.groups, self.sizes[1]
            heads, sides = self.sequences * self.heads[1], (rows, min(own, width))
            of_all = heads * -(-width // own), self.mean_chunks, times
            memory = 0.0, 4 * heads * rows * width / BANDWIDTH
            work = Work(*of_all, config.resident, sides, config.columns, memory, SHORTEST)
            is_fixed = is_fixed or bool(self.ends)
            _, self.cuts[name] = cut_of(work, self.limits, self.segments, is_fixed)
        return self.cuts[name]

    def add_starts(
        self,
        name: str,
        step: PlanStep,
        cut: Cut,
        sides: tuple[int, int],
        states: tuple[str | None, str | None],
        *,
        totals: tuple[str, tuple[int, ...]] | None = None,
        unit: str = "one",
        reverse: bool = False,
    ) -> Starts:
        """The states that a pass in segments takes; the launches for its name are added once.

        name: of the states of segments. step: what finds how each segment changes one. sides: of a state. states: the
        first and the last state of sequences. totals: the name of the sums of decay of segments, and their shape.
        """
        of_decay = totals[0] if totals else None
        if name not in self.scratch:
            lead = self.sequences, self.heads[1], cut.segments
            self.scratch[name] = Scratch((*lead, *sides))
            if totals:
                self.scratch[totals[0]] = Scratch((*lead, *totals[1]))
            self.steps.append(step)
            if not cut.inside:
                args = name, of_decay, *states, unit
                self.steps.append(PlanStep(scan_states, args, {"reverse": reverse}))
        return (*states, name, of_decay) if cut.inside else (name, None, None, None)
