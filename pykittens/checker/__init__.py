"""Finds the faults of a kernel call and reports what the kernel costs."""
