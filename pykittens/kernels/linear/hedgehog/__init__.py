"""Hedgehog: a softmax of near positions, and linear attention of the others by features that are learned."""

from pykittens.kernels.linear.hedgehog.forward import hedgehog_outputs, hedgehog_states
from pykittens.kernels.linear.hedgehog.function import hedgehog_attention

__all__ = ["hedgehog_attention", "hedgehog_outputs", "hedgehog_states"]
