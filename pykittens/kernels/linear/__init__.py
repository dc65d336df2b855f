"""Linear attention: recurrences of a matrix state, computed chunk by chunk."""

from pykittens.kernels.linear.based import based_attention, based_attention_backward
from pykittens.kernels.linear.channel_gradients import channel_gradients
from pykittens.kernels.linear.channel_weights import weigh_channels
from pykittens.kernels.linear.channels import channel_outputs
from pykittens.kernels.linear.forward import chunk_outputs
from pykittens.kernels.linear.function import linear_attention
from pykittens.kernels.linear.gated import gated_linear_attention
from pykittens.kernels.linear.gated_gradient import gated_linear_attention_backward
from pykittens.kernels.linear.gradient import linear_attention_backward
from pykittens.kernels.linear.hedgehog import hedgehog_attention, hedgehog_attention_backward
from pykittens.kernels.linear.mamba2 import mamba2, mamba2_backward
from pykittens.kernels.linear.scan import scan_states
from pykittens.kernels.linear.states import segment_states
from pykittens.kernels.linear.step import linear_attention_step, state_step

__all__ = [
    "based_attention",
    "based_attention_backward",
    "chunk_outputs",
    "hedgehog_attention",
    "hedgehog_attention_backward",
    "channel_gradients",
    "channel_outputs",
    "chunk_outputs",
    "gated_linear_attention",
    "gated_linear_attention_backward",
    "linear_attention",
    "linear_attention_backward",
    "linear_attention_step",
    "mamba2",
    "mamba2_backward",
    "scan_states",
    "segment_states",
    "state_step",
    "weigh_channels",
]
