"""PyTorch operators that call the library's kernels: with gradients, under torch.compile, in CUDA graphs."""

from pykittens.torch.gated_mlp import gated_mlp
from pykittens.torch.grouped_mm import grouped_mm
from pykittens.torch.linear import linear
from pykittens.torch.matmul import matmul
from pykittens.torch.scaled_mm import scaled_mm

__all__ = ["gated_mlp", "grouped_mm", "linear", "matmul", "scaled_mm"]
