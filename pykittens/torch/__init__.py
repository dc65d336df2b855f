"""PyTorch operators that call kernels: with gradients, under torch.compile, in CUDA graphs. `op` makes one's own."""

from pykittens.torch.attention import attention, scaled_dot_product_attention
from pykittens.torch.based_attention import based_attention
from pykittens.torch.causal_conv import causal_conv
from pykittens.torch.gated_delta_rule import gated_delta_rule
from pykittens.torch.gated_linear_attention import gated_linear_attention
from pykittens.torch.gated_mlp import gated_mlp
from pykittens.torch.grouped_mm import grouped_mm
from pykittens.torch.hedgehog_attention import hedgehog_attention
from pykittens.torch.linear import linear
from pykittens.torch.linear_attention import linear_attention
from pykittens.torch.long_conv import long_conv
from pykittens.torch.mamba2 import mamba2
from pykittens.torch.matmul import matmul
from pykittens.torch.op import op
from pykittens.torch.scaled_mm import scaled_mm

__all__ = [
    "attention",
    "gated_delta_rule",
    "based_attention",
    "causal_conv",
    "gated_linear_attention",
    "gated_mlp",
    "grouped_mm",
    "hedgehog_attention",
    "linear",
    "linear_attention",
    "long_conv",
    "mamba2",
    "matmul",
    "op",
    "scaled_dot_product_attention",
    "scaled_mm",
]
