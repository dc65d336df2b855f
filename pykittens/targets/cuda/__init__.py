"""The CUDA targets and their lowerings, with the device functions in *.cuh."""
