// Device functions of the emitted kernels. Sections are named after the PTX ISA's.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct __align__(64) TensorMap { u64 words[16]; };  // CUtensorMap, opaque

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

// -- numbers ------------------------------------------------------------------

DEVICE float max_nan(float a, float b) { float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
DEVICE float min_nan(float a, float b) { float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
DEVICE int max_nan(int a, int b) { return a > b ? a : b; }
DEVICE int min_nan(int a, int b) { return a < b ? a : b; }
DEVICE float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float exp_fast(float x) { return exp2_fast(x * 1.4426950408889634f); }
DEVICE float rsqrt_fast(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE int floor_div(int a, int b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
DEVICE int floor_mod(int a, int b) { return a - b * floor_div(a, b); }
DEVICE int ceil_div(int a, int b) { return -floor_div(-a, b); }
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }

// Two 16-bit floats in a register, the lower column in the lower half.
DEVICE u32 pack_bf16(float low, float high) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE u32 pack_f16(float low, float high) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE float from_bf16(u32 pair, int i) { return __uint_as_float(i & 1 ? pair & 0xffff0000u : pair << 16); }
DEVICE float from_f16(u32 pair, int i) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((unsigned short)(i & 1 ? pair >> 16 : pair)));
    return y;
}

// -- layouts (types/layouts.py says the same) ---------------------------------

template <int COLS> DEVICE constexpr int row_of(int i) { return i / (COLS / 2) * 2 + i / 2 % 2; }
template <int COLS> DEVICE constexpr int col_of(int i) { return i % (COLS / 2) / 4 * 2 + i % 2; }
// Row and column of register i of a tile, for a lane of a warp of its group.
template <int COLS, int WARPS> DEVICE int tile_row(int i, int warp, int lane) { return (i / (COLS / 2) * WARPS + warp) * 16 + lane / 4 + i / 2 % 2 * 8; }
template <int COLS> DEVICE int tile_col(int i, int lane) { return i % (COLS / 2) / 4 * 8 + lane % 4 * 2 + i % 2; }
// Position of register i of a plain vector, for a thread of its group.
template <int CHUNK, int THREADS> DEVICE int vector_at(int i, int thread) { return (i / CHUNK * THREADS + thread) * CHUNK + i % CHUNK; }
// Byte offset of an element of a shared tile made of swizzled panels.
template <int SWIZZLE> DEVICE u32 shared_at(int row, int byte, u32 panel_bytes) {
    const u32 at = byte / SWIZZLE * panel_bytes + row * SWIZZLE + byte % SWIZZLE;
    return at ^ (((at >> 7) & (SWIZZLE / 16 - 1)) << 4);
}

// -- lanes and groups ---------------------------------------------------------

DEVICE float quad_max(float x) { x = max_nan(x, __shfl_xor_sync(~0u, x, 1)); return max_nan(x, __shfl_xor_sync(~0u, x, 2)); }
DEVICE float quad_sum(float x) { x += __shfl_xor_sync(~0u, x, 1); return x + __shfl_xor_sync(~0u, x, 2); }
DEVICE int quad_max(int x) { x = max(x, __shfl_xor_sync(~0u, x, 1)); return max(x, __shfl_xor_sync(~0u, x, 2)); }
DEVICE int quad_sum(int x) { x += __shfl_xor_sync(~0u, x, 1); return x + __shfl_xor_sync(~0u, x, 2); }
template <class T> DEVICE T warp_max(T x) { UNROLL for (int d = 16; d > 0; d /= 2) x = max_nan(x, __shfl_xor_sync(~0u, x, d)); return x; }
template <class T> DEVICE T warp_sum(T x) { UNROLL for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d); return x; }
DEVICE void group_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }
// Keeps the compiler from moving what computes or uses these registers over this place.
template <int N> DEVICE void pin(float (&x)[N]) { UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i]) :: "memory"); }
template <int N> DEVICE void pin(u32 (&x)[N]) { UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i]) :: "memory"); }

// -- global memory ------------------------------------------------------------

template <int BYTES> struct Chunk;
template <> struct Chunk<2> { typedef unsigned short type; };
template <> struct Chunk<4> { typedef u32 type; };
template <> struct Chunk<8> { typedef uint2 type; };
template <> struct Chunk<16> { typedef uint4 type; };
template <int BYTES, class R> DEVICE void move_in(R* to, const void* from) { *(typename Chunk<BYTES>::type*)to = *(const typename Chunk<BYTES>::type*)from; }
template <int BYTES, class R> DEVICE void move_out(void* to, const R* from) { *(typename Chunk<BYTES>::type*)to = *(const typename Chunk<BYTES>::type*)from; }

// COUNT neighbours of a row from column `col`; outside 0 <= col < cols they read as `fill`. VECTOR: the row and
// col are aligned to the whole chunk. 16-bit elements arrive in pairs, bool as one register each.
template <int COUNT, bool VECTOR> DEVICE void load_chunk(u32* to, const unsigned short* row, int col, int cols, u32 fill) {
    constexpr int BYTES = COUNT * 2 < 16 ? COUNT * 2 : 16;
    if (VECTOR && COUNT > 1 && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int i = 0; i < COUNT * 2 / BYTES; ++i) move_in<BYTES>(to + i * BYTES / 4, (const char*)(row + col) + i * BYTES);
    } else {
        UNROLL for (int i = 0; i < COUNT; ++i) {
            const u32 x = col + i >= 0 && col + i < cols ? row[col + i] : fill;
            to[i / 2] = i & 1 ? to[i / 2] | x << 16 : x;
        }
    }
}
template <int COUNT, bool VECTOR, class T> DEVICE void load_chunk(T* to, const T* row, int col, int cols, T fill) {
    constexpr int BYTES = COUNT * 4 < 16 ? COUNT * 4 : 16;
    if (VECTOR && sizeof(T) == 4 && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int i = 0; i < COUNT * 4 / BYTES; ++i) move_in<BYTES>(to + i * BYTES / 4, (const char*)(row + col) + i * BYTES);
    } else {
        UNROLL for (int i = 0; i < COUNT; ++i) to[i] = col + i >= 0 && col + i < cols ? row[col + i] : fill;
    }
}
// COUNT neighbours to a row from column `col`; nothing outside 0 <= col < cols.
template <int COUNT, bool VECTOR> DEVICE void store_chunk(const u32* from, unsigned short* row, int col, int cols) {
    constexpr int BYTES = COUNT * 2 < 16 ? COUNT * 2 : 16;
    if (VECTOR && COUNT > 1 && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int i = 0; i < COUNT * 2 / BYTES; ++i) move_out<BYTES>((char*)(row + col) + i * BYTES, from + i * BYTES / 4);
    } else {
        UNROLL for (int i = 0; i < COUNT; ++i)
            if (col + i >= 0 && col + i < cols) row[col + i] = (unsigned short)(from[i / 2] >> (i & 1) * 16);
    }
}
template <int COUNT, bool VECTOR, class T> DEVICE void store_chunk(const T* from, T* row, int col, int cols) {
    constexpr int BYTES = COUNT * 4 < 16 ? COUNT * 4 : 16;
    if (VECTOR && sizeof(T) == 4 && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int i = 0; i < COUNT * 4 / BYTES; ++i) move_out<BYTES>((char*)(row + col) + i * BYTES, from + i * BYTES / 4);
    } else {
        UNROLL for (int i = 0; i < COUNT; ++i)
            if (col + i >= 0 && col + i < cols) row[col + i] = from[i];
    }
}

// -- shared memory ------------------------------------------------------------

DEVICE void store_matrix(u32 at, u32 a, u32 b, u32 c, u32 d) { asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory"); }
DEVICE void store_shared(u32 at, u32 a, u32 b) { asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(at), "r"(a), "r"(b) : "memory"); }
DEVICE void store_shared(u32 at, u32 a) { asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(a) : "memory"); }
DEVICE void store_shared(u32 at, unsigned short a) { asm volatile("st.shared.b16 [%0], %1;" :: "r"(at), "h"(a) : "memory"); }
DEVICE u32 load_shared(u32 at) { u32 a; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a) : "r"(at) : "memory"); return a; }
DEVICE unsigned short load_shared_16(u32 at) { unsigned short a; asm volatile("ld.shared.b16 %0, [%1];" : "=h"(a) : "r"(at) : "memory"); return a; }
// Orders ordinary writes to shared memory before the copy engine's and the tensor cores' reads.
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A tile of ROWS x COLS between a tensor and shared memory by the lanes of a warp, for tensors that the copy
// engine cannot address. T has the size of an element, `byte` is where a row starts in its panel.
template <int ROWS, int COLS, int SWIZZLE, class T>
DEVICE void copy_in(u32 to, u32 byte, u32 panel_bytes, const T* from, i64 stride, int row, int col, int rows, int cols, int lane) {
    NO_UNROLL for (int i = lane; i < ROWS * COLS; i += 32) {
        const int r = i / COLS, c = i % COLS;
        const bool inside = row + r >= 0 && row + r < rows && col + c >= 0 && col + c < cols;
        store_shared(to + shared_at<SWIZZLE>(r, byte + c * sizeof(T), panel_bytes), inside ? from[(row + r) * stride + col + c] : (T)0);
    }
}
DEVICE void fetch(u32 at, u32& x) { x = load_shared(at); }
DEVICE void fetch(u32 at, unsigned short& x) { x = load_shared_16(at); }
template <int ROWS, int COLS, int SWIZZLE, class T>
DEVICE void copy_out(T* to, i64 stride, int row, int col, int rows, int cols, u32 from, u32 byte, u32 panel_bytes, int lane) {
    NO_UNROLL for (int i = lane; i < ROWS * COLS; i += 32) {
        const int r = i / COLS, c = i % COLS;
        T x;
        fetch(from + shared_at<SWIZZLE>(r, byte + c * sizeof(T), panel_bytes), x);
        if (row + r >= 0 && row + r < rows && col + c >= 0 && col + c < cols) to[(row + r) * stride + col + c] = x;
    }
}
