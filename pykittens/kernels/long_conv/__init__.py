"""Long convolutions of the channels of a sequence, by Fourier transforms that are products on tensor cores."""

from pykittens.kernels.long_conv.forward import convolved_tiles, filter_tiles
from pykittens.kernels.long_conv.function import filter_spectrum, long_conv, long_conv_backward
from pykittens.kernels.long_conv.gradient import correlated_tiles, sum_parts
from pykittens.kernels.long_conv.outer import (
    even_scales,
    outer_forward,
    outer_inverse,
    sequence_scales,
)

__all__ = [
    "convolved_tiles",
    "correlated_tiles",
    "even_scales",
    "filter_spectrum",
    "filter_tiles",
    "long_conv",
    "long_conv_backward",
    "outer_forward",
    "outer_inverse",
    "sequence_scales",
    "sum_parts",
]
