"""Kernels with holes, which functions of the user fill."""
