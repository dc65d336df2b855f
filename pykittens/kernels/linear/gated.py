"""Linear attention with a gate for each channel: the host function, and its cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.linear.call import check_gates, check_shapes, checked, make_outputs
from pykittens.kernels.linear.channel_weights import MOST, channels_of, shared_bytes, weigh_channels
from pykittens.kernels.linear.channels import channel_outputs
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import LinearConfig, Tiles, blocks_for, config_for, narrower
from pykittens.kernels.linear.launches import Launches, Starts
from pykittens.kernels.linear.reference import reference
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

OF_GATES = "batch gates n d"

CASES = (
    {"batch": 16, "heads": 16, "length": 1024, "d": 128, "width": 128},
    {"batch": 1, "heads": 4, "length": 12288, "d": 128, "width": 256},
    {"batch": 16, "heads": 16, "length": 1024, "d": 64, "width": 64},
    {"batch": 1, "heads": 2, "length": 100, "d": 16, "width": 24},
    {"batch": 1, "heads": 1, "length": 17, "d": 80, "width": 40},
)


def inputs(
    rng: np.random.Generator, batch: int, heads: int, length: int, d: int, width: int
) -> dict[str, Any]:
    """Random normal q, k and v in bf16, and logarithms of gates as GLA has them: of a sigmoid, divided by 16."""
    sizes = {"q": d, "k": d, "v": width}
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, heads, length, size)).astype(ml_dtypes.bfloat16)
        for name, size in sizes.items()
    }
    gate = rng.standard_normal((batch, heads, length, d))
    return found | {"decay": (-np.logaddexp(0, -gate) / 16).astype(np.float32)}


@entry(reference=reference, cases=CASES, inputs=inputs)
def gated_linear_attention(
    q: Any,
    k: Any,
    v: Any,
    decay: Any,
    out: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """scale S^T q at each position, with the state S = diag(exp(decay)) S + k v^T, which begins with `initial_state`.

    decay: the logarithm of what is kept of each row of the state at each position, at most 0, in f32, bf16 or f16. Its
    shape is (batch, gates, n, d), with the heads of q and k, or those of v, or a number between. The other arguments,
    among them `ends` of packed sequences, are those of linear_attention. An ArgumentError for other arguments.

        >>> x, decay = np.ones((1, 2, 8, 32), np.float16), np.zeros((1, 2, 8, 32), np.float32)
        >>> gated_linear_attention(x, x, x, decay, scale=1.0)[0, 0, :3, 0]
        array([32., 64., 96.], dtype=float16)
    """
    given = {"q": q, "k": k, "v": v, "decay": decay, "initial_state": initial_state, "out": out}
    arrays = Arrays("gated_linear_attention", **given, ends=ends)
    check_gated(arrays)
    parts = checked(arrays, segments)
    result = make_outputs(arrays, return_state)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines("q", "k", "v", "decay", "initial_state", "ends", "out")
    passes = ChannelPasses(arrays, scale, parts, config)
    passes.weigh(("keys",) if return_state else ())
    (before,) = arrays.present("initial_state")
    states = before, "state" if return_state else None
    passes.add("queries", "keys", "v", "out", states)
    return Plan(arrays, passes.steps, passes.scratch, result)


def check_gated(arrays: Arrays) -> None:
    """Raise an ArgumentError unless the arrays of a call fit one another, and their dtypes are right."""
    check_shapes(arrays, OF_GATES)
    check_gates(arrays)


@dataclass
class ChannelPasses(Launches):
    """The launches of passes with a gate for each channel."""

    config: LinearConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        dims = self.arrays.dims
        self.wide, self.gates = channels_of(dims["d"]), (dims["batch"], dims["gates"])

    def weigh(self, exact: tuple[str, ...]) -> None:
        """Add the launch that finds "queries", "keys", "pairs" and "kept"; exact: as of `weigh_channels`."""
        self.exact, dims = exact, self.arrays.dims
        for name, columns in (("queries", self.wide), ("keys", self.wide), ("pairs", CHUNK)):
            positions = (1 + (name in exact)) * self.chunks * CHUNK
            self.scratch[name] = Scratch((*self.gates, positions, columns), dtype=self.dtype)
        self.scratch["kept"] = Scratch((*self.gates, self.chunks, self.wide))
        taken = shared_bytes(dims["d"], self.arrays.found["decay"].dtype == "f32", exact)
        resident = blocks_for("gated_linear_attention", taken, MOST, self.limits)
        how = {"shared": dims["gates"] // dims["groups"], "exact": exact, "resident": resident}
        args = ("q", "k", "decay", "queries", "keys", "pairs", "kept", self.ends)
        self.steps.append(PlanStep(weigh_channels, args, how))

    def add(
        self,
        queries: str | None,
        keys: str,
        v: str,
        out: str | None,
        states: tuple[str | None, str | None],
        *,
        scale: str = "scale",
        unit: str | None = None,
        of_chunks: str | None = None,
        reverse: bool = False,
    ) -> None:
        """Add a pass, by the names of its arrays and numbers.

        states: the first and the last one. of_chunks: scratch memory for those before all chunks.
        """
        how: dict[str, Any] = {"reverse": reverse, "exact": keys in self.exact}
        of_rows, of_outputs = 1 + (keys in self.exact), int(out is not None)
        tiles = Tiles(of_rows + of_outputs, 1, 0, of_outputs, 2 * of_outputs, of_outputs)
        usual = self.config or config_for(self.wide, self.sizes[1], self.limits, tiles)
        others: list[LinearConfig] | None = None
        if (
            unit is None
        ):  # a scan rounds multiples of states: blocks would not find the same in the last bit
            others = [] if self.config else narrower(self.wide, usual, self.limits, tiles)
        if of_chunks:
            self.scratch[of_chunks] = Scratch((*self.heads, self.chunks, *self.sizes))
        cut = f"cut_{keys}"
        config, of_sequences = self.cut_by_heads(cut, "gates", self.sizes, usual, others)
        starts: Starts = (*states, None, None)
        if of_sequences.segments > 1:
            tiles, like = Tiles(of_rows, 1, 0, 0, 0), None if config is usual else config
            own = self.config or config_for(self.wide, self.sizes[1], self.limits, tiles, like)
            no_starts = None, cut, None, None
            of_cut = (None, keys, None, "kept", v, None, *no_starts, "whole", None, scale, None)
            step = PlanStep(channel_outputs, (*of_cut, self.ends), how | {"config": own})
            more: dict[str, Any] = {"totals": ("whole", self.sizes[:1]), "unit": unit or "one"}
            starts = self.add_starts(
                cut, step, of_sequences, self.sizes, states, reverse=reverse, **more
            )
        pairs = "pairs" if out else None
        args = (queries, keys, pairs, "kept", v, out, *starts, None, of_chunks, scale, unit)
        self.steps.append(PlanStep(channel_outputs, (*args, self.ends), how | {"config": config}))
