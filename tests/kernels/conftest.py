"""What the tests of the library share: the stand-in for a GPU."""

from tests.runtime.fake_gpu import fake, gpu_tensors

__all__ = ["fake", "gpu_tensors"]
