"""Compiles, launches and tunes kernels."""
