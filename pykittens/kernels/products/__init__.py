"""What the kernels of matrix products share: how the work is cut, what a call says, launches, tuning."""
