"""Hedgehog: a softmax of near positions, and linear attention of the others by features that are learned."""

from pykittens.kernels.linear.hedgehog.forward import hedgehog_outputs, hedgehog_states
from pykittens.kernels.linear.hedgehog.function import hedgehog_attention
from pykittens.kernels.linear.hedgehog.gradient import hedgehog_attention_backward

__all__ = [
    "hedgehog_attention",
    "hedgehog_attention_backward",
    "hedgehog_outputs",
    "hedgehog_states",
]
