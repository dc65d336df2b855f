"""Based: linear attention whose weights are the series of the exponential up to the second order."""

from pykittens.kernels.linear.based.forward import based_outputs, based_states
from pykittens.kernels.linear.based.function import based_attention
from pykittens.kernels.linear.based.gradient import based_attention_backward

__all__ = ["based_attention", "based_attention_backward", "based_outputs", "based_states"]
