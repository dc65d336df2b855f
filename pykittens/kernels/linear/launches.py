"""What passes over the sequences of a call share: launches, memory, and the states at the starts of segments."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.limits import limits_of
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import LinearConfig, segments_for, segments_of_heads
from pykittens.kernels.linear.sequences import slots_of
from pykittens.kernels.linear.states import clear, scan_states
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.workspace import Scratch

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

    def segments_by_heads(
        self, name: str, of_keys: str, sizes: tuple[int, int], config: LinearConfig
    ) -> int:
        """As many segments as `segments_of_heads`, unless they are given, or states of this name have them.

        of_keys: the dim of the heads of queries and keys.
        """
        if name in self.scratch:
            return self.scratch[name].shape[2]
        if self.segments is not None:
            return self.segments
        heads = self.sequences * self.arrays.dims[of_keys], self.sequences * self.heads[1]
        return segments_of_heads(heads, self.mean_chunks, sizes, config, self.limits)

    def segments_by_time(self, times: tuple[float, float], config: LinearConfig) -> int:
        """As many segments as `segments_for`, unless they are given."""
        tasks = (
            self.sequences * self.heads[1] * -(-self.sizes[1] // (config.columns * config.groups))
        )
        chunks, resident = self.mean_chunks, config.resident
        return self.segments or segments_for(tasks, chunks, self.limits, resident, times, SHORTEST)

    def add_starts(
        self,
        name: str,
        step: PlanStep,
        segments: int,
        sides: tuple[int, int],
        states: tuple[str | None, str | None],
        *,
        totals: tuple[str, tuple[int, ...]] | None = None,
        unit: str = "one",
        reverse: bool = False,
    ) -> tuple[str, None]:
        """The first and the last state of a pass in segments; the launches for its name are added once.

        name: of the states of segments. step: what finds how each segment changes one. sides: of a state. states: the
        first and the last state of sequences. totals: the name of the sums of decay of segments, and their shape.
        """
        if name not in self.scratch:
            lead = self.sequences, self.heads[1], segments
            self.scratch[name] = Scratch((*lead, *sides))
            if totals:
                self.scratch[totals[0]] = Scratch((*lead, *totals[1]))
            args = name, totals[0] if totals else None, *states, unit
            self.steps += [step, PlanStep(scan_states, args, {"reverse": reverse})]
        return name, None
