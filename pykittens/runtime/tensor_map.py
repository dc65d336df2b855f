"""Tensor maps: the copy engine's description of a tensor and of the box it moves.

Source: CUDA Driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_uint32, c_uint64

from pykittens.errors import BackendError
from pykittens.runtime import driver
from pykittens.targets.source import MAP_DTYPE, MAP_SWIZZLE

MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_L2_PROMOTION_128 = 2  # a miss loads 128 bytes into L2, the widest row of a swizzled box


def encode_tensor_map(
    address: int,
    dtype_code: str,
    extents: tuple[int, ...],
    strides_bytes: tuple[int, ...],
    box: tuple[int, ...],
    swizzle_bytes: int,
) -> bytearray:
    """The 128 bytes that describe a tensor and a box of it to the copy engine.

    All axes are listed innermost first. `extents` and `box` count elements, one for each of 1 to 5
    axes. `strides_bytes` starts with the second axis, since the innermost is packed. `swizzle_bytes` is
    16 (none), 32, 64 or 128. Elements outside the extents read as zero.
    """
    rank = len(extents)
    assert len(strides_bytes) == rank - 1, "strides start with the second axis"
    assert len(box) == rank, "a box has the tensor's axes"
    storage, start = aligned_memory(MAP_BYTES)
    code = driver.library().cuTensorMapEncodeTiled(
        start, MAP_DTYPE[dtype_code], rank, address,
        (c_uint64 * rank)(*extents),
        # Rank 1 has no strides, but the driver rejects a null address.
        (c_uint64 * rank)(*strides_bytes),
        (c_uint32 * rank)(*box),
        (c_uint32 * rank)(*[1] * rank),
        0, MAP_SWIZZLE[swizzle_bytes], _L2_PROMOTION_128, 0,
    )  # fmt: skip
    if code != 0:
        raise BackendError(
            f"encoding a tensor map failed: {driver.error_text(code)}",
            operands={
                "address": f"{address:#x}",
                "dtype": dtype_code,
                "extents": extents,
                "strides_bytes": strides_bytes,
                "box": box,
                "swizzle_bytes": swizzle_bytes,
            },
        )
    return storage[start - address_of(storage) :][:MAP_BYTES]


def aligned_memory(size: int) -> tuple[bytearray, int]:
    """Memory, and an address in it that is aligned for a map and followed by at least `size` bytes."""
    storage = bytearray(size + _MAP_ALIGNMENT)
    return storage, -(-address_of(storage) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT


def address_of(storage: bytearray) -> int:
    return ctypes.addressof(c_char.from_buffer(storage))
