"""What the host functions of the delta rule share: checks, and the launches of a pass over a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.delta import pairs
from pykittens.kernels.delta.config import DeltaConfig, config_of_states, cut_for
from pykittens.kernels.delta.outputs import delta_outputs
from pykittens.kernels.delta.pairs import chunk_pairs
from pykittens.kernels.delta.states import scan_changes, scan_config_for, segment_changes
from pykittens.kernels.linear.call import check_shapes as check_sequences
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import blocks_for
from pykittens.kernels.linear.launches import Launches
from pykittens.kernels.plan import PlanStep
from pykittens.kernels.workspace import Scratch

CHANGES = "high", "low"  # the names of what segments multiply states by, in two parts
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
    backward: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        heads, given = self.sequences * self.heads[1], (self.segments, self.config, self.backward)
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
        # Products of single warps leave registers for fewer blocks.
        most = MOST if self.limits.warpgroups else MOST - 1
        taken = pairs.shared_bytes(self.sizes[0])
        how = {"resident": blocks_for("gated_delta_rule", taken, most, self.limits)}
        self.steps.append(
            PlanStep(chunk_pairs, ("q", "k", *self.gates, *names, "scale", self.ends), how)
        )

    def add_states(self, before: str | None, all_of_them: bool = False) -> str:
        """The name of the states at the starts of segments. all_of_them: what the last changes is found, too."""
        most, (d, width) = self.count - (0 if all_of_them else 1), self.sizes
        added = self.memory("added", most, width, d, of_sequences=True)
        for name in CHANGES:
            self.memory(name, most, d, d, dtype="bf16", of_sequences=True)
        states = self.memory("at_starts", self.count, width, d, of_sequences=True)
        given = ("k", "v", *self.gates, "inverses", added, *CHANGES, self.ends)
        how = {"config": self.config_of_states, "count": self.count}
        self.steps.append(PlanStep(segment_changes, given, how))
        self.add_scan(added, before, states)
        return states

    def add_scan(self, added: str, first: str | None, states: str, reverse: bool = False) -> None:
        """The states at the starts of segments, or in reverse their gradients at the ends."""
        how = {"config": scan_config_for(self.sizes[0], self.limits), "reverse": reverse}
        self.steps.append(PlanStep(scan_changes, (added, *CHANGES, first, states), how))

    def add_outputs(self, before: str | None, after: str | None) -> None:
        """The outputs, and the state after the last position if it has a name."""
        self.add_pairs()
        if self.count > 1:
            before = self.add_states(before)
        of_chunks = (*self.gates, "inverses", "pairs")
        args = ("q", "k", "v", "out", *of_chunks, before, after, None, "scale", self.ends)
        self.steps.append(PlanStep(delta_outputs, args, {"config": self.config}))
