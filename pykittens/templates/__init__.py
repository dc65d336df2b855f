"""Kernels that call functions of the user."""
