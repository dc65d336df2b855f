"""Prefetches to the L2 cache: one instruction for each line of a tile, by the lanes of the group.

Hopper's copy engine takes whole panels of aligned tensors (bulk.py). Source: PTX ISA, "prefetch, prefetchu".
"""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.cuda.emitter import PREFETCH, CudaEmitter
from pykittens.targets.simt.memory import address_of
from pykittens.targets.target import Lowerings

L2 = Lowerings()

# A row of n bytes meets at most ceil((n - s) / 128) + 1 lines if its elements of s bytes are aligned.
FUNCTION = f"""\
// Each lane takes every THREADS-th line of the tile. It names the first byte of the line that is in the tile and in the
// matrix, so that no address is outside of the tensor.
template <int ROWS, int COLS, int THREADS, class T>
DEVICE void {PREFETCH}(const T* matrix, i64 stride, int row, int col, int rows, int cols, int thread) {{
    constexpr u32 LINES = ((u64)(COLS - 1) * sizeof(T) + 127) / 128 + 1, COUNT = ROWS * LINES;
    const i64 left = max(col, 0), right = min((i64)col + COLS, (i64)cols);
    _Pragma("unroll 4") for (u32 first = 0; first < COUNT; first += THREADS) {{
        const u32 i = first + thread;
        const int at_row = (int)(row + i / LINES);
        const u64 start = __cvta_generic_to_global(matrix) + (at_row * stride + left) * sizeof(T);
        const u64 line = (start & ~127ull) + i % LINES * 128, end = start + (right - left) * sizeof(T);
        const bool inside = i < COUNT && at_row >= 0 && at_row < rows && left < right && line < end;
        if (inside) asm volatile("prefetch.global.L2 [%0];" :: "l"(max(line, start)));
    }}
}}
"""


@L2.lower("prefetch")
def lower_prefetch(e: CudaEmitter, call: Call) -> None:
    src, rows, cols = call.args["src"], call.args["rows"] or 1, call.args["cols"]
    at = address_of(e, src, rows, cols)
    if cols == 0:
        return
    e.instructions.setdefault(PREFETCH, FUNCTION)
    threads = e.team.copy_threads
    if not at.is_strided:
        e.line(f"{PREFETCH}<{rows}, {cols}, {threads}>({at.matrix}, {at.operands}, thread);")
        return
    # The elements of a row lie in lines of their own: it is like a column, of a matrix with the pitch as its stride.
    with e.braces(f"NO_UNROLL for (int i = 0; i < {rows}; ++i) {{"):
        e.line(f"const int at_row = {at.row + 'i'};")
        e.line(f"const bool inside = at_row >= 0 && at_row < {at.rows};")
        row, height = f"{at.matrix} + at_row * (i64){at.stride}", f"inside ? {at.cols} : 0"
        operands = f"{row}, {at.pitch}, {at.col}, 0, {height}, 1, thread"
        e.line(f"{PREFETCH}<{cols}, 1, {threads}>({operands});")
