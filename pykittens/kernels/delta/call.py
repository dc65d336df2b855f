"""What the host functions of the delta rule share: checks, and the launches of a pass over a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.delta import pairs
from pykittens.kernels.delta.config import DeltaConfig, blocks_for, config_of_states, cut_for
from pykittens.kernels.delta.outputs import delta_outputs
from pykittens.kernels.delta.pairs import chunk_pairs
from pykittens.kernels.delta.states import scan_changes, scan_config_for, segment_changes
from pykittens.kernels.linear.call import check_shapes as check_sequences
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.launches import Launches
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.workspace import Scratch

MOST = 4  # blocks of `chunk_pairs` on a multiprocessor, which registers hold


def check_shapes(arrays: Arrays) -> None:
    """Raise an ArgumentError unless the arrays of a sequence fit one another, and their dtypes are right."""
    check_sequences(arrays)
    arrays.shapes(beta="batch heads n")
    check_rate(arrays)


def check_rate(arrays: Arrays) -> None:
    """Raise an ArgumentError unless beta is f32 or has the dtype of v."""
    arrays.dtypes("beta", among=("f32", arrays.found["v"].dtype))


@dataclass
class DeltaPasses(Launches):
    """The launches of passes of the delta rule; the number of segments is chosen with the configuration."""

    config: DeltaConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        heads, given = self.sequences * self.heads[1], (self.segments, self.config)
        of_all = heads, self.mean_chunks * CHUNK, self.sizes, self.limits
        self.count, config = cut_for(*of_all, *given)
        self.config = config
        self.config_of_states = config_of_states(config, self.sizes[0], self.limits)
        self.gates = "beta", *self.arrays.present("decay")

    def memory(self, name: str, *sides: int, dtype: str = "f32", of_sequences: bool = False) -> str:
        """The name of scratch memory of each head, of a sequence or else of all positions of a batch."""
        batch, heads = self.heads
        lead = self.sequences if of_sequences else batch, heads
        self.scratch[name] = Scratch((*lead, *sides), dtype=dtype)
        return name

    def add_pairs(self) -> None:
        """What positions are to one another in each chunk."""
        names = [
            self.memory(x, self.chunks * CHUNK, CHUNK, dtype=self.dtype)
            for x in ("inverses", "pairs")
        ]
        how = {"resident": blocks_for(pairs.shared_bytes(self.sizes[0]), MOST, self.limits)}
        self.steps.append(
            PlanStep(chunk_pairs, ("q", "k", *self.gates, *names, "scale", self.ends), how)
        )

    def add_states(self, before: str | None) -> str:
        """The name of the states at the starts of segments."""
        most, (d, width) = self.count - 1, self.sizes
        added = self.memory("added", most, width, d, of_sequences=True)
        parts = [
            self.memory(x, most, d, d, dtype="bf16", of_sequences=True) for x in ("high", "low")
        ]
        states = self.memory("states", self.count, width, d, of_sequences=True)
        given = (*self.gates, "inverses")
        of_scan = {"config": scan_config_for(d, self.limits)}
        how = {"config": self.config_of_states}
        self.steps += [
            PlanStep(segment_changes, ("k", "v", *given, added, *parts, self.ends), how),
            PlanStep(scan_changes, (added, *parts, before, states), of_scan),
        ]
        return states

    def add_outputs(self, before: str | None, after: str | None) -> None:
        """The outputs, and the state after the last position if it has a name."""
        self.add_pairs()
        if self.count > 1:
            before = self.add_states(before)
        of_chunks = (*self.gates, "inverses", "pairs")
        args = ("q", "k", "v", "out", *of_chunks, before, after, None, "scale", self.ends)
        self.steps.append(PlanStep(delta_outputs, args, {"config": self.config}))
