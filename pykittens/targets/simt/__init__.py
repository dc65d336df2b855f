"""Lowerings that all GPUs share whose threads run in warps of 32 lanes."""
