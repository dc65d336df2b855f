"""A box that a tensor map describes is copied as NumPy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykittens.errors import BackendError
from pykittens.runtime.driver import Device
from pykittens.runtime.launcher import Launcher
from pykittens.runtime.tensor_map import encode_tensor_map
from tests.runtime.device import Memory, loaded

# Copies a box of 32 x 8 f32 values at (x, y) to `out`, with the swizzle the map has.
BOX = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void box(const __grid_constant__ Map map, float *out, int x, int y) {
    extern __shared__ __align__(1024) float s[];
    unsigned tile = (unsigned)__cvta_generic_to_shared(s), bar = tile + 1024;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar)
                     : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4}], [%2];"
                     ::"r"(tile), "l"(&map), "r"(bar), "r"(x), "r"(y) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0; "
                 "@P bra D; bra W; D: }" ::"r"(bar) : "memory");
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = s[i];
}
"""


def boxed(values: Memory, x: int, y: int, swizzle_bytes: int) -> np.ndarray[Any, Any]:
    rows, columns = values.shape
    out = Memory(np.full((8, 32), np.nan, np.float32))
    slots = ("tensor_map", "pointer", "int32", "int32")
    it = Launcher(loaded(BOX, "box", 2048), slots, 32, 2048)
    encoded = encode_tensor_map(
        out.address, "f32", (columns, rows), (columns * 4,), (32, 8), swizzle_bytes
    )
    it.set_tensor_map(0, encoded)
    it.set_tensor_map_address(0, values.address)  # it was encoded for another tensor
    it.fill([out.address, x, y])
    it.launch()
    return out.numpy()


@pytest.mark.gpu
def test_a_box_is_copied_and_reads_as_zero_outside_the_tensor(gpu: Device) -> None:
    matrix = np.arange(1, 20 * 64 + 1, dtype=np.float32).reshape(20, 64)
    values = Memory(matrix)
    np.testing.assert_array_equal(boxed(values, 16, 4, 16), matrix[4:12, 16:48])
    expected = np.zeros((8, 32), np.float32)
    expected[:4, :16] = matrix[16:, 48:]
    np.testing.assert_array_equal(boxed(values, 48, 16, 16), expected)
    expected = np.zeros((8, 32), np.float32)
    expected[3:, 4:] = matrix[:5, :28]
    np.testing.assert_array_equal(boxed(values, -4, -3, 16), expected)


@pytest.mark.gpu
def test_a_swizzled_box_lies_as_the_swizzle_says(gpu: Device) -> None:
    matrix = np.arange(20 * 64, dtype=np.float32).reshape(20, 64)
    at = np.arange(8 * 32) * 4
    swizzled = (at ^ ((at >> 7) & 7) << 4) // 4
    found = boxed(Memory(matrix), 0, 0, 128).reshape(-1)
    np.testing.assert_array_equal(found[swizzled], matrix[:8, :32].reshape(-1))


@pytest.mark.gpu
def test_a_tensor_map_that_cannot_be_is_told_with_its_operands(gpu: Device) -> None:
    with pytest.raises(BackendError, match="encoding a tensor map failed") as caught:
        encode_tensor_map(4096, "bf16", (100, 100), (200,), (64, 64), 128)
    assert caught.value.operands["strides_bytes"] == (200,)
    for extents, strides in [((1024,), ()), ((64, 64, 2, 2, 2), (128, 8192, 16384, 32768))]:
        box = (64, 8, 1, 1, 1)[: len(extents)]
        assert len(encode_tensor_map(4096, "bf16", extents, strides, box, 128)) == 128
