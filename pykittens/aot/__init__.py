"""Kernels for C programs: the C source and header of a compiled kernel."""
