"""Fixtures of the tests of operators: the stand-in for a GPU, whose launches may be emulated."""

from tests.kernels.host_functions import emulated
from tests.runtime.fake_gpu import fake, gpu_tensors

__all__ = ["emulated", "fake", "gpu_tensors"]
