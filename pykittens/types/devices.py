"""Data sheets of GPUs, for the analysis of a kernel for a GPU that is not present.

Launches query the GPU they run on and read nothing here. Sources: multiprocessors and bandwidth, NVIDIA's data sheets
of H200, H100 SXM, A100 80 GB SXM, L40S and RTX 4090 and the architecture white papers (Ampere, Hopper, Ada). L2: the
same papers; for the H200 the 60 MiB that its driver reports, where an H100 has 50. Limits of a multiprocessor: CUDA C++
Programming Guide, "Technical Specifications per Compute Capability"; the system takes 1 KiB of shared memory per block.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 2**10, 2**20
RESERVED_SHARED_BYTES = KIB  # per block


def shared_room(most: int, resident: int) -> int:
    """Bytes of shared memory of a block if `resident` blocks share a multiprocessor; a single block has `most`."""
    return (most + RESERVED_SHARED_BYTES) // resident // 16 * 16 - RESERVED_SHARED_BYTES


@dataclass(frozen=True)
class DeviceSpec:
    """A GPU: `sms` multiprocessors, its L2 cache and memory bandwidth, and the limits of a multiprocessor.

    shared_bytes_per_block: the most that one block can use. reserved_shared_bytes: what the system adds per block.
    """

    name: str
    arch: str
    sms: int
    l2_bytes: int
    hbm_bytes_per_second: float
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int = 65536
    reserved_shared_bytes: int = RESERVED_SHARED_BYTES

    def __str__(self) -> str:
        return self.name


H200 = DeviceSpec("H200", "sm_90a", 132, 60 * MIB, 4.8e12, 228 * KIB, 227 * KIB, 2048, 32)
H100 = DeviceSpec("H100 SXM", "sm_90a", 132, 50 * MIB, 3.35e12, 228 * KIB, 227 * KIB, 2048, 32)
A100 = DeviceSpec("A100 SXM", "sm_80", 108, 40 * MIB, 2.039e12, 164 * KIB, 163 * KIB, 2048, 32)
L40S = DeviceSpec("L40S", "sm_89", 142, 96 * MIB, 0.864e12, 100 * KIB, 99 * KIB, 1536, 24)
RTX_4090 = DeviceSpec("RTX 4090", "sm_89", 128, 72 * MIB, 1.008e12, 100 * KIB, 99 * KIB, 1536, 24)

DEVICES = {d.name: d for d in (H200, H100, A100, L40S, RTX_4090)}
