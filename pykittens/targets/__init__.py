"""Code generation: the CUDA program of a lowered kernel for an architecture."""
