"""Least cycles of work on one multiprocessor that has the device to itself.

These are rates only: no latency, no conflict, no other block. Times made of them show an order, they measure nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykittens.types.dtypes import DType

_LANES_A_WARP = 32


@dataclass(frozen=True)
class Rates:
    """What a multiprocessor does in a cycle at best.

    product_flops: of operands of one byte; those of two bytes run at half of it, those of four at a quarter.
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
        """The cycles in which a group moves so much between shared memory and registers."""
        return _cycles(bytes, self.shared_bytes)

    def elements(self, count: int, warps: int) -> int:
        """The cycles in which a group does one thing to each of so many elements."""
        return _cycles(count, min(self.lanes, warps * _LANES_A_WARP))


def _cycles(amount: int, a_cycle: int) -> int:
    """Whole cycles, and one at least: so long it takes to issue an instruction."""
    return max(1, -(-amount // a_cycle))


# product_flops: 1978.9 TFLOP/s of e4m3 on 132 multiprocessors at 1.83 GHz (NVIDIA H100 Tensor Core GPU Architecture).
# lanes: CUDA C++ Programming Guide, "Arithmetic Instructions", throughput of 32-bit additions. shared_bytes: same
# guide, "Shared Memory", 32 banks of 32 bits. global_bytes: assumed, no document of the vendor has it for Hopper.
HOPPER = Rates(product_flops=8192, lanes=128, shared_bytes=128, global_bytes=64)
