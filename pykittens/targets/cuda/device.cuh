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
DEVICE i64 max_nan(i64 a, i64 b) { return a > b ? a : b; }
DEVICE i64 min_nan(i64 a, i64 b) { return a < b ? a : b; }
DEVICE float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float exp_fast(float x) { return exp2_fast(x * 1.4426950408889634f); }
DEVICE float rsqrt_fast(float x) { float y; asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }

// Float to integer: towards zero, beyond the range its end, NaN gives 0.
DEVICE int to_int32(float x) { int y; asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(y) : "f"(x)); return y; }
DEVICE i64 to_int64(float x) { i64 y; asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(y) : "f"(x)); return x != x ? 0 : y; }
DEVICE int to_int8(float x) { return min(max(to_int32(x), -128), 127); }
DEVICE int to_uint8(float x) { return min(max(to_int32(x), 0), 255); }

// Narrow numbers in a register, the lower column in the lower bits.
DEVICE u32 pack_bf16(float low, float high = 0.0f) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE u32 pack_f16(float low, float high = 0.0f) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE float from_bf16(u32 pair, int i) { return __uint_as_float(i & 1 ? pair & 0xffff0000u : pair << 16); }
DEVICE float half_to_float(unsigned short bits) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits)); return y; }
DEVICE float from_f16(u32 pair, int i) { return half_to_float((unsigned short)(i & 1 ? pair >> 16 : pair)); }
DEVICE u32 pack_int8(int a, int b = 0, int c = 0, int d = 0) { return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (u32)d << 24; }
DEVICE u32 pack_uint8(int a, int b = 0, int c = 0, int d = 0) { return pack_int8(a, b, c, d); }
DEVICE int from_int8(u32 word, int i) { return (int)(word << (3 - i % 4) * 8) >> 24; }
DEVICE int from_uint8(u32 word, int i) { return word >> i % 4 * 8 & 255; }

// 8-bit floats. Beyond the largest, infinities included, they take the largest; NaN stays.
#if __CUDA_ARCH__ >= 890
DEVICE u32 pack_e4m3(float a, float b = 0.0f, float c = 0.0f, float d = 0.0f) {
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return low | (u32)high << 16;
}
DEVICE u32 pack_e5m2(float a, float b = 0.0f, float c = 0.0f, float d = 0.0f) {
    unsigned short low, high;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return low | (u32)high << 16;
}
#else
// Rounds to MANTISSA bits, ties to even, with subnormals below 2 to the power of LEAST.
template <int MANTISSA, int LEAST> DEVICE u32 narrow(float x, float largest, u32 nan) {
    const u32 sign = __float_as_uint(x) >> 24 & 128;
    if (x != x) return sign | nan;
    const float size = fminf(fabsf(x), largest);
    // The last place of the result, as a power of two; adding and taking away 2^23 of it rounds there.
    const int exponent = max((int)(__float_as_uint(size) >> 23) - 127, LEAST) - MANTISSA;
    const u32 steps = __float2uint_rn(size * __uint_as_float((u32)(127 - exponent) << 23));
    const u32 carried = steps >> (MANTISSA + 1);  // rounded up to the next power of two
    const u32 mantissa = steps >> carried;
    const u32 field = mantissa >> MANTISSA ? (u32)(exponent + MANTISSA - LEAST + 1) + carried : 0;
    return sign | field << MANTISSA | (mantissa & ((1 << MANTISSA) - 1));
}
DEVICE u32 byte_e4m3(float x) { return narrow<3, -6>(x, 448.0f, 0x7f); }
DEVICE u32 byte_e5m2(float x) { return narrow<2, -14>(x, 57344.0f, 0x7f); }
DEVICE u32 pack_e4m3(float a, float b = 0.0f, float c = 0.0f, float d = 0.0f) { return byte_e4m3(a) | byte_e4m3(b) << 8 | byte_e4m3(c) << 16 | byte_e4m3(d) << 24; }
DEVICE u32 pack_e5m2(float a, float b = 0.0f, float c = 0.0f, float d = 0.0f) { return byte_e5m2(a) | byte_e5m2(b) << 8 | byte_e5m2(c) << 16 | byte_e5m2(d) << 24; }
#endif
// e5m2 is the upper half of f16. e4m3 has one exponent bit fewer and a NaN where f16 goes on: 2^8 makes up for the bias.
DEVICE float from_e5m2(u32 word, int i) { return half_to_float((unsigned short)((word >> i % 4 * 8 & 255) << 8)); }
DEVICE float from_e4m3(u32 word, int i) {
    const u32 byte = word >> i % 4 * 8 & 255;
    if ((byte & 127) == 127) return __uint_as_float(0x7fc00000u);
    return half_to_float((unsigned short)((byte & 128) << 8 | (byte & 127) << 7)) * 256.0f;
}

// -- layouts (types/layouts.py says the same) ---------------------------------

template <int COLS> DEVICE constexpr int row_of(int i) { return i / (COLS / 2) * 2 + i / 2 % 2; }
template <int COLS> DEVICE constexpr int col_of(int i) { return i % (COLS / 2) / 4 * 2 + i % 2; }
// Row and column of register i of a tile, for a lane of a warp of its group.
template <int COLS, int WARPS> DEVICE int tile_row(int i, int warp, int lane) { return (i / (COLS / 2) * WARPS + warp) * 16 + lane / 4 + i / 2 % 2 * 8; }
template <int COLS> DEVICE int tile_col(int i, int lane) { return i % (COLS / 2) / 4 * 8 + lane % 4 * 2 + i % 2; }
// First register, and column, of the chunk of four 16-bit neighbours that a lane moves between a tensor and a tile. An
// even lane moves the first eight of 16 columns with its neighbours, an odd lane the second: whole sectors of 32 bytes.
DEVICE constexpr int halves(int i) { return i / 8 * 8 + i / 4 % 2 * 2; }
template <int COLS> DEVICE int halves_col(int i, int lane) { return tile_col<COLS>(halves(i), lane & ~1) + lane % 2 * 8; }
// Position of register i of a plain vector, for a thread of its group.
template <int CHUNK, int THREADS> DEVICE int vector_at(int i, int thread) { return (i / CHUNK * THREADS + thread) * CHUNK + i % CHUNK; }
// Position of register i of a per-row and of a per-column vector.
template <int WARPS> DEVICE int row_position(int i, int warp, int lane) { return (i / 2 * WARPS + warp) * 16 + lane / 4 + i % 2 * 8; }
DEVICE int column_position(int i, int lane) { return i / 2 * 8 + lane % 4 * 2 + i % 2; }
// How many of the 32 elements of a row that a lane has in 128 columns lie before a column; below 0 and above 32 outside.
DEVICE int elements_before(int column, int lane) {
    const int at = column - lane % 4 * 2;  // of every 8 columns a lane has two neighbours
    return (at >> 3) * 2 + min(at & 7, 2);
}
// A bit for each of these elements: 1 from a column on, and 1 before it. ptxas moves such bits to predicates, seven at a
// time, if none is inverted.
DEVICE u32 bits_from(int column, int lane) {
    u32 bits;
    asm("shl.b32 %0, %1, %2;" : "=r"(bits) : "r"(~0u), "r"(max(elements_before(column, lane), 0)));  // 0 from 32 on
    return bits;
}
DEVICE u32 bits_before(int column, int lane) {
    u32 bits;
    asm("shr.u32 %0, %1, %2;" : "=r"(bits) : "r"(~0u), "r"(max(32 - max(elements_before(column, lane), 0), 0)));
    return bits;
}
// Byte offset of an element of a shared tile made of swizzled panels.
template <int SWIZZLE> DEVICE u32 shared_at(int row, int byte, u32 panel_bytes) {
    const u32 at = byte / SWIZZLE * panel_bytes + row * SWIZZLE + byte % SWIZZLE;
    return at ^ (((at >> 7) & (SWIZZLE / 16 - 1)) << 4);
}

// Whether an index lies in a range from 0; a range of a negative length has none. One comparison in a loop.
DEVICE bool is_below(int i, int count) { return (u32)i < (u32)max(count, 0); }
// A place of a tensor some rows, not fewer than 0, further on: two instructions. The compiler would factor the size of an
// element out of a product in C++, and move the sum to each use.
template <class T> DEVICE T* row_at(T* first, int rows, i64 stride) {
    u64 at;
    asm("mad.lo.u64 %0, %1, %2, %3;" : "=l"(at) : "l"((u64)(u32)rows), "l"(stride * (i64)sizeof(T)), "l"(__cvta_generic_to_global(first)));
    return (T*)__cvta_global_to_generic(at);
}

// -- lanes and groups ---------------------------------------------------------

DEVICE void group_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }
// Keeps the compiler from moving what computes or uses these registers over this place.
template <int N> DEVICE void pin(float (&x)[N]) { UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i]) :: "memory"); }
template <int N> DEVICE void pin(u32 (&x)[N]) { UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i]) :: "memory"); }
template <int N> DEVICE void pin(int (&x)[N]) { UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i]) :: "memory"); }

// -- global memory ------------------------------------------------------------

template <int BYTES> struct Chunk;
template <> struct Chunk<1> { typedef unsigned char type; };
template <> struct Chunk<2> { typedef unsigned short type; };
template <> struct Chunk<4> { typedef u32 type; };
template <> struct Chunk<8> { typedef uint2 type; };
template <> struct Chunk<16> { typedef uint4 type; };
template <int BYTES, class R> DEVICE void move_in(R* to, const void* from) { *(typename Chunk<BYTES>::type*)to = *(const typename Chunk<BYTES>::type*)from; }
template <int BYTES, class R> DEVICE void move_out(void* to, const R* from) { *(typename Chunk<BYTES>::type*)to = *(const typename Chunk<BYTES>::type*)from; }

// Element i of registers, as it lies in memory: elements of 16 bits share a register in pairs, those of 8 in fours.
// They are put in ascending order: the first of a register clears it.
template <class T> DEVICE void put(T* to, int i, T x) { to[i] = x; }
DEVICE void put(u32* to, int i, unsigned short x) { to[i / 2] = i & 1 ? to[i / 2] | (u32)x << 16 : x; }
DEVICE void put(u32* to, int i, unsigned char x) { to[i / 4] = i & 3 ? to[i / 4] | (u32)x << i % 4 * 8 : x; }
template <class T> DEVICE T pick(const T* from, int i, const T*) { return from[i]; }
DEVICE unsigned short pick(const u32* from, int i, const unsigned short*) { return (unsigned short)(from[i / 2] >> i % 2 * 16); }
DEVICE unsigned char pick(const u32* from, int i, const unsigned char*) { return (unsigned char)(from[i / 4] >> i % 4 * 8); }

// One element of a matrix, `fill` outside it; and one element to it, nothing outside.
template <class T, class F> DEVICE T load_element(const T* matrix, i64 stride, int row, int col, int rows, int cols, F fill) {
    return row >= 0 && row < rows && col >= 0 && col < cols ? matrix[row * stride + col] : (T)fill;
}
template <class T, class R> DEVICE void store_element(T* matrix, i64 stride, int row, int col, int rows, int cols, R value) {
    if (row >= 0 && row < rows && col >= 0 && col < cols) matrix[row * stride + col] = pick(&value, 0, matrix);
}

// COUNT neighbours of a row from column `col` to registers i and up; outside 0 <= col < cols they read as `fill`.
// VECTOR: the row and col are aligned to the whole chunk. Two elements of 16 bits share a register, and four of 8.
template <int COUNT, bool VECTOR> DEVICE void load_chunk(u32* to, int i, const unsigned short* row, int col, int cols, u32 fill) {
    constexpr int BYTES = COUNT * 2 < 16 ? COUNT * 2 : 16;
    if constexpr (COUNT == 1) {
        put(to, i, (unsigned short)(col >= 0 && col < cols ? row[col] : fill));
        return;
    }
    to += i / 2;
    if (VECTOR && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int k = 0; k < COUNT * 2 / BYTES; ++k) move_in<BYTES>(to + k * BYTES / 4, (const char*)(row + col) + k * BYTES);
    } else {
        UNROLL for (int k = 0; k < COUNT; ++k) {
            const u32 x = col + k >= 0 && col + k < cols ? row[col + k] : fill;
            to[k / 2] = k & 1 ? to[k / 2] | x << 16 : x;
        }
    }
}
template <int COUNT, bool VECTOR> DEVICE void load_chunk(u32* to, int i, const unsigned char* row, int col, int cols, u32 fill) {
    if constexpr (COUNT == 1) {
        put(to, i, (unsigned char)(col >= 0 && col < cols ? row[col] : fill));
        return;
    }
    if (VECTOR && COUNT >= 4 && col >= 0 && col + COUNT <= cols) {
        move_in<COUNT>(to + i / 4, row + col);
        return;
    }
    UNROLL for (int k = 0; k < COUNT; k += 2) {
        u32 pair;
        if (VECTOR && col + k >= 0 && col + k + 2 <= cols) {
            pair = *(const unsigned short*)(row + col + k);
        } else {
            pair = col + k >= 0 && col + k < cols ? row[col + k] : fill;
            pair |= (col + k + 1 >= 0 && col + k + 1 < cols ? row[col + k + 1] : fill) << 8;
        }
        to[(i + k) / 4] = (i + k) & 2 ? to[(i + k) / 4] | pair << 16 : pair;
    }
}
template <int COUNT, bool VECTOR, class T> DEVICE void load_chunk(T* to, int i, const T* row, int col, int cols, T fill) {
    constexpr int SIZE = sizeof(T), BYTES = COUNT * SIZE < 16 ? COUNT * SIZE : 16;
    to += i;
    if (VECTOR && SIZE >= 4 && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int k = 0; k < COUNT * SIZE / BYTES; ++k) move_in<BYTES>(to + k * BYTES / SIZE, (const char*)(row + col) + k * BYTES);
    } else {
        UNROLL for (int k = 0; k < COUNT; ++k) to[k] = col + k >= 0 && col + k < cols ? row[col + k] : fill;
    }
}
// COUNT neighbours from registers i and up to a row from column `col`; nothing outside 0 <= col < cols.
template <int COUNT, bool VECTOR> DEVICE void store_chunk(const u32* from, int i, unsigned short* row, int col, int cols) {
    constexpr int BYTES = COUNT * 2 < 16 ? COUNT * 2 : 16;
    if constexpr (COUNT == 1) {
        if (col >= 0 && col < cols) row[col] = pick(from, i, row);
        return;
    }
    from += i / 2;
    if (VECTOR && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int k = 0; k < COUNT * 2 / BYTES; ++k) move_out<BYTES>((char*)(row + col) + k * BYTES, from + k * BYTES / 4);
    } else {
        UNROLL for (int k = 0; k < COUNT; ++k)
            if (col + k >= 0 && col + k < cols) row[col + k] = (unsigned short)(from[k / 2] >> (k & 1) * 16);
    }
}
template <int COUNT, bool VECTOR> DEVICE void store_chunk(const u32* from, int i, unsigned char* row, int col, int cols) {
    if constexpr (COUNT == 1) {
        if (col >= 0 && col < cols) row[col] = pick(from, i, row);
        return;
    }
    if (VECTOR && COUNT >= 4 && col >= 0 && col + COUNT <= cols) {
        move_out<COUNT>(row + col, from + i / 4);
        return;
    }
    UNROLL for (int k = 0; k < COUNT; k += 2) {
        const u32 pair = from[(i + k) / 4] >> ((i + k) & 2) * 8;
        if (VECTOR && col + k >= 0 && col + k + 2 <= cols) {
            *(unsigned short*)(row + col + k) = (unsigned short)pair;
        } else {
            if (col + k >= 0 && col + k < cols) row[col + k] = (unsigned char)pair;
            if (col + k + 1 >= 0 && col + k + 1 < cols) row[col + k + 1] = (unsigned char)(pair >> 8);
        }
    }
}
template <int COUNT, bool VECTOR, class T> DEVICE void store_chunk(const T* from, int i, T* row, int col, int cols) {
    constexpr int SIZE = sizeof(T), BYTES = COUNT * SIZE < 16 ? COUNT * SIZE : 16;
    from += i;
    if (VECTOR && SIZE >= 4 && col >= 0 && col + COUNT <= cols) {
        UNROLL for (int k = 0; k < COUNT * SIZE / BYTES; ++k) move_out<BYTES>((char*)(row + col) + k * BYTES, from + k * BYTES / SIZE);
    } else {
        UNROLL for (int k = 0; k < COUNT; ++k)
            if (col + k >= 0 && col + k < cols) row[col + k] = from[k];
    }
}
// Between the four neighbours that a lane moves and the two pairs that it holds, both ways: of registers a and b.
DEVICE void exchange_halves(u32& a, u32& b, int lane) {
    const bool odd = lane % 2;
    const u32 other = __shfl_xor_sync(~0u, odd ? a : b, 1);
    a = odd ? other : a;
    b = odd ? b : other;
}
DEVICE void exchange_halves(u32* x, int i, int lane) { exchange_halves(x[halves(i) / 2], x[halves(i) / 2 + 2], lane); }
// The exchange follows all loads, so that they are on their way at once.
template <int COUNT, bool VECTOR> DEVICE void load_halves(u32* to, int i, const unsigned short* row, int col, int cols, u32 fill) {
    u32 moved[2];
    load_chunk<COUNT, VECTOR>(moved, 0, row, col, cols, fill);
    to[halves(i) / 2] = moved[0];
    to[halves(i) / 2 + 2] = moved[1];
}
template <int COUNT, bool VECTOR> DEVICE void store_halves(const u32* from, int i, unsigned short* row, int col, int cols, int lane) {
    u32 moved[2] = {from[halves(i) / 2], from[halves(i) / 2 + 2]};
    exchange_halves(moved[0], moved[1], lane);
    store_chunk<COUNT, VECTOR>(moved, 0, row, col, cols);
}

// -- memory combined with registers -------------------------------------------

struct Add {
    template <class T> static DEVICE T of(T a, T b) { return a + b; }
};
struct Max {
    template <class T> static DEVICE T of(T a, T b) { return max_nan(a, b); }
};
struct Min {
    template <class T> static DEVICE T of(T a, T b) { return min_nan(a, b); }
};
// 16-bit floats as they lie in memory.
struct F16 {
    unsigned short bits;
    DEVICE float wide() const { return half_to_float(bits); }
    static DEVICE unsigned short narrow(float x) { return (unsigned short)pack_f16(x); }
};
struct BF16 {
    unsigned short bits;
    DEVICE float wide() const { return from_bf16(bits, 0); }
    static DEVICE unsigned short narrow(float x) { return (unsigned short)pack_bf16(x); }
};
DEVICE F16 pick(const u32* from, int i, const F16* at) { return {pick(from, i, &at->bits)}; }
DEVICE BF16 pick(const u32* from, int i, const BF16* at) { return {pick(from, i, &at->bits)}; }
DEVICE unsigned short compare_and_swap(void* at, unsigned short old, unsigned short next) {
    unsigned short seen;
    asm volatile("atom.global.cas.b16 %0, [%1], %2, %3;" : "=h"(seen) : "l"(__cvta_generic_to_global(at)), "h"(old), "h"(next) : "memory");
    return seen;
}

// *at = OP(*at, x), in one step; what the hardware has no instruction for is tried until nobody came between.
template <class OP, class T> DEVICE void combine(OP, T* at, T x) {
    unsigned short seen = *(volatile unsigned short*)at, old;
    do {
        old = seen;
        const unsigned short next = T::narrow(OP::of(T{old}.wide(), x.wide()));
        if (next == old) return;
        seen = compare_and_swap(at, old, next);
    } while (seen != old);
}
template <class OP> DEVICE void combine(OP, float* at, float x) {
    int seen = *(volatile int*)at, old;
    do {
        old = seen;
        const int next = __float_as_int(OP::of(__int_as_float(old), x));
        if (next == old) return;
        seen = atomicCAS((int*)at, old, next);
    } while (seen != old);
}
DEVICE void combine(Add, float* at, float x) { atomicAdd(at, x); }
DEVICE void combine(Add, int* at, int x) { atomicAdd(at, x); }
DEVICE void combine(Max, int* at, int x) { atomicMax(at, x); }
DEVICE void combine(Min, int* at, int x) { atomicMin(at, x); }
DEVICE void combine(Add, i64* at, i64 x) { atomicAdd((u64*)at, (u64)x); }
DEVICE void combine(Max, i64* at, i64 x) { atomicMax(at, x); }
DEVICE void combine(Min, i64* at, i64 x) { atomicMin(at, x); }

// Two neighbours, from registers i and i + 1 to an address that is aligned to both.
template <class OP, class T, class R> DEVICE void combine_pair(OP op, T* at, const R* from, int i) {
    combine(op, at, pick(from, i, at));
    combine(op, at + 1, pick(from, i + 1, at));
}
DEVICE void combine_pair(Add, F16* at, const u32* from, int i) { asm volatile("red.global.add.noftz.f16x2 [%0], %1;" :: "l"(__cvta_generic_to_global(at)), "r"(from[i / 2]) : "memory"); }
#if __CUDA_ARCH__ >= 900
DEVICE void combine_pair(Add, BF16* at, const u32* from, int i) { asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" :: "l"(__cvta_generic_to_global(at)), "r"(from[i / 2]) : "memory"); }
DEVICE void combine_pair(Add, float* at, const float* from, int i) { asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" :: "l"(__cvta_generic_to_global(at)), "f"(from[i]), "f"(from[i + 1]) : "memory"); }
#endif

// COUNT neighbours from registers i and up, combined with a row from column `col`; nothing outside 0 <= col < cols.
template <class OP, int COUNT, bool VECTOR, class T, class R> DEVICE void combine_chunk(const R* from, int i, T* row, int col, int cols) {
    constexpr int STEP = VECTOR && COUNT > 1 ? 2 : 1;
    UNROLL for (int k = 0; k < COUNT; k += STEP) {
        if (STEP == 2 && col + k >= 0 && col + k + 2 <= cols) {
            combine_pair(OP(), row + col + k, from, i + k);
            continue;
        }
        UNROLL for (int one = k; one < k + STEP; ++one)
            if (col + one >= 0 && col + one < cols) combine(OP(), row + col + one, pick(from, i + one, row));
    }
}
template <class OP, int COUNT, bool VECTOR, class T> DEVICE void combine_halves(const u32* from, int i, T* row, int col, int cols, int lane) {
    u32 moved[2] = {from[halves(i) / 2], from[halves(i) / 2 + 2]};
    exchange_halves(moved[0], moved[1], lane);
    combine_chunk<OP, COUNT, VECTOR>(moved, 0, row, col, cols);
}
template <class OP, class T, class R> DEVICE void combine_element(T* matrix, i64 stride, int row, int col, int rows, int cols, R value) {
    combine_chunk<OP, 1, false>(&value, 0, matrix + (row >= 0 && row < rows ? row * stride : 0), col, row >= 0 && row < rows ? cols : 0);
}

// -- shared memory ------------------------------------------------------------

DEVICE void load_matrix(u32 at, u32& a, u32& b, u32& c, u32& d) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at) : "memory"); }
DEVICE void store_shared(u32 at, i64 a, i64 b) { asm volatile("st.shared.v2.b64 [%0], {%1, %2};" :: "r"(at), "l"(a), "l"(b) : "memory"); }
DEVICE void store_shared(u32 at, u32 a, u32 b) { asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(at), "r"(a), "r"(b) : "memory"); }
DEVICE void store_shared(u32 at, u32 a) { asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(a) : "memory"); }
DEVICE void store_shared(u32 at, u64 a) { asm volatile("st.shared.b64 [%0], %1;" :: "r"(at), "l"(a) : "memory"); }
DEVICE void store_shared(u32 at, unsigned char a) { asm volatile("st.shared.b8 [%0], %1;" :: "r"(at), "r"((u32)a) : "memory"); }
DEVICE void store_shared(u32 at, unsigned short a) { asm volatile("st.shared.b16 [%0], %1;" :: "r"(at), "h"(a) : "memory"); }
DEVICE u32 load_shared(u32 at) { u32 a; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a) : "r"(at) : "memory"); return a; }
DEVICE unsigned short load_shared_16(u32 at) { unsigned short a; asm volatile("ld.shared.b16 %0, [%1];" : "=h"(a) : "r"(at) : "memory"); return a; }
DEVICE uint4 load_piece(u32 at) { uint4 x; asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at) : "memory"); return x; }
DEVICE void keep_piece(u32 at, u32 a, u32 b, u32 c, u32 d) { asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory"); }

// Two neighbours of a row to registers i and i + 1; those of 8 bits share a register in fours.
DEVICE void load_pair(u32 at, float* to, int i) { asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[i]), "=f"(to[i + 1]) : "r"(at) : "memory"); }
DEVICE void load_pair(u32 at, int* to, int i) { asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(to[i]), "=r"(to[i + 1]) : "r"(at) : "memory"); }
DEVICE void load_pair(u32 at, i64* to, int i) { asm volatile("ld.shared.v2.b64 {%0, %1}, [%2];" : "=l"(to[i]), "=l"(to[i + 1]) : "r"(at) : "memory"); }
DEVICE void load_pair(u32 at, u32* to, int i) {
    const u32 pair = load_shared_16(at);
    to[i / 4] = i & 2 ? to[i / 4] | pair << 16 : pair;
}

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
DEVICE void fetch(u32 at, u64& x) { asm volatile("ld.shared.b64 %0, [%1];" : "=l"(x) : "r"(at) : "memory"); }
DEVICE void fetch(u32 at, u32& x) { x = load_shared(at); }
DEVICE void fetch(u32 at, unsigned short& x) { x = load_shared_16(at); }
DEVICE void fetch(u32 at, unsigned char& x) { u32 word; asm volatile("ld.shared.u8 %0, [%1];" : "=r"(word) : "r"(at) : "memory"); x = (unsigned char)word; }
DEVICE void fetch(u32 at, float& x) { x = as_float(load_shared(at)); }
DEVICE void fetch(u32 at, int& x) { x = (int)load_shared(at); }
DEVICE void fetch(u32 at, i64& x) { u64 word; fetch(at, word); x = (i64)word; }
DEVICE void fetch(u32 at, F16& x) { x.bits = load_shared_16(at); }
DEVICE void fetch(u32 at, BF16& x) { x.bits = load_shared_16(at); }
template <class T> DEVICE T fetched(u32 at) {
    T x;
    fetch(at, x);
    return x;
}
// The place of element (row, col) in a tensor, null outside it.
template <class T> DEVICE T* place_of(T* matrix, i64 stride, int row, int col, int rows, int cols) {
    return row >= 0 && row < rows && col >= 0 && col < cols ? matrix + row * stride + col : nullptr;
}
template <int ROWS, int COLS, int SWIZZLE, class T>
DEVICE void copy_out(T* to, i64 stride, int row, int col, int rows, int cols, u32 from, u32 byte, u32 panel_bytes, int lane) {
    NO_UNROLL for (int i = lane; i < ROWS * COLS; i += 32) {
        const int r = i / COLS, c = i % COLS;
        T x;
        fetch(from + shared_at<SWIZZLE>(r, byte + c * sizeof(T), panel_bytes), x);
        if (T* at = place_of(to, stride, row + r, col + c, rows, cols)) *at = x;
    }
}
template <class OP, int ROWS, int COLS, int SWIZZLE, class T>
DEVICE void combine_out(T* to, i64 stride, int row, int col, int rows, int cols, u32 from, u32 byte, u32 panel_bytes, int lane) {
    NO_UNROLL for (int i = lane; i < ROWS * COLS; i += 32) {
        const int r = i / COLS, c = i % COLS;
        T x;
        fetch(from + shared_at<SWIZZLE>(r, byte + c * sizeof(T), panel_bytes), x);
        if (T* at = place_of(to, stride, row + r, col + c, rows, cols)) combine(OP(), at, x);
    }
}
