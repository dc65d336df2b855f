"""The gated delta rule: a matrix state in which values are replaced by key, computed chunk by chunk."""

from pykittens.kernels.delta.backward import gated_delta_rule_backward
from pykittens.kernels.delta.function import gated_delta_rule
from pykittens.kernels.delta.gradients import chunk_gradients
from pykittens.kernels.delta.outputs import delta_outputs
from pykittens.kernels.delta.pairs import chunk_pairs
from pykittens.kernels.delta.reverse import state_gradients
from pykittens.kernels.delta.states import scan_changes, segment_changes
from pykittens.kernels.delta.step import gated_delta_rule_step

__all__ = [
    "chunk_gradients",
    "chunk_pairs",
    "delta_outputs",
    "gated_delta_rule",
    "gated_delta_rule_backward",
    "gated_delta_rule_step",
    "scan_changes",
    "segment_changes",
    "state_gradients",
]
