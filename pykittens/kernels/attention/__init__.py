"""Attention, forward and backward."""

from pykittens.kernels.attention.backward import gradient_blocks
from pykittens.kernels.attention.forward import attention_blocks
from pykittens.kernels.attention.function import attention
from pykittens.kernels.attention.gradients import attention_backward

__all__ = ["attention", "attention_backward", "attention_blocks", "gradient_blocks"]
