"""The least cycles that work takes on one multiprocessor, without other work on the device.

These are rates only, without latencies, conflicts and other blocks. Times computed from them show an order and are no
measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.types.dtypes import DType

_LANES_A_WARP = 32


@dataclass(frozen=True)
class Rates:
    """Peak rates of a multiprocessor, per cycle.

    product_flops: for operands of one byte; operands of two bytes run at half of it, of four bytes at a quarter.
    lanes: elements of 32 bits. shared_bytes, global_bytes: to or from shared memory, and to or from the L2 cache.
    """

    product_flops: int
    lanes: int
    shared_bytes: int
    global_bytes: int

    def product(self, rows: int, cols: int, depth: int, dtype: DType) -> int:
        """The cycles of a matrix product of these operands."""
        return _cycles(2 * rows * cols * depth * dtype.bytes, self.product_flops)

    def copy(self, bytes: int) -> int:
        """The cycles of a copy between a tensor and shared memory or registers."""
        return _cycles(bytes, self.global_bytes)

    def shared(self, bytes: int) -> int:
        """The cycles in which a group moves these bytes between shared memory and registers."""
        return _cycles(bytes, self.shared_bytes)

    def elements(self, count: int, warps: int) -> int:
        """The cycles in which a group does one operation on each of `count` elements."""
        return _cycles(count, min(self.lanes, warps * _LANES_A_WARP))


def _cycles(amount: int, a_cycle: int) -> int:
    """Whole cycles, at least the one that the issue of an instruction takes."""
    return max(1, -(-amount // a_cycle))


# product_flops: 1978.9 TFLOP/s of e4m3 on 132 multiprocessors at 1.83 GHz (NVIDIA H100 Tensor Core GPU Architecture).
# lanes: CUDA C++ Programming Guide, "Arithmetic Instructions", throughput of 32-bit additions. shared_bytes: same
# guide, "Shared Memory", 32 banks of 32 bits. global_bytes: assumed, as the vendor documents none for Hopper.
HOPPER = Rates(product_flops=8192, lanes=128, shared_bytes=128, global_bytes=64)
