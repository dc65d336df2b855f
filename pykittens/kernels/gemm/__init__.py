"""Matrix products, and what the products of the library share."""

from pykittens.kernels.gemm.kernel import gemm, gemm_tiles

__all__ = ["gemm", "gemm_tiles"]
