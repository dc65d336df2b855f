"""Causal convolution of each channel along a sequence, and its gradients."""

from pykittens.kernels.causal_conv.function import causal_conv
from pykittens.kernels.causal_conv.gradient import causal_conv_backward

__all__ = ["causal_conv", "causal_conv_backward"]
