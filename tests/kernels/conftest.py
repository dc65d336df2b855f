"""Fixtures of the tests of the library: the stand-in for a GPU, and host functions that are called on it."""

from tests.kernels.host_functions import emulated, launched, programs, sums, times
from tests.runtime.fake_gpu import fake, gpu_tensors

__all__ = ["emulated", "fake", "gpu_tensors", "launched", "programs", "sums", "times"]
