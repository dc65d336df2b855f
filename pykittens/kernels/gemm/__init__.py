"""Matrix products, and what the products of the library share."""

from pykittens.kernels.gemm.kernel import gemm, gemm_tiles
from pykittens.kernels.gemm.vectors import gemm_vectors

__all__ = ["gemm", "gemm_tiles", "gemm_vectors"]
