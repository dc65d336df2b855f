"""Long convolutions of the channels of a sequence, by Fourier transforms that are products on tensor cores."""

from pykittens.kernels.long_conv.forward import convolved_tiles, filter_tiles
from pykittens.kernels.long_conv.function import filter_spectrum, long_conv

__all__ = ["convolved_tiles", "filter_spectrum", "filter_tiles", "long_conv"]
