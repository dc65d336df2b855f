
// -- integers -----------------------------------------------------------------

// Signed overflow is undefined in C++; integers of tiles and vectors wrap.
DEVICE int wrapping_add(int a, int b) { return (int)((u32)a + (u32)b); }
DEVICE i64 wrapping_add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
DEVICE int wrapping_sub(int a, int b) { return (int)((u32)a - (u32)b); }
DEVICE i64 wrapping_sub(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
DEVICE int wrapping_mul(int a, int b) { return (int)((u32)a * (u32)b); }
DEVICE i64 wrapping_mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
DEVICE int wrapping_neg(int a) { return (int)(0u - (u32)a); }
DEVICE i64 wrapping_neg(i64 a) { return (i64)(0ull - (u64)a); }
DEVICE int absolute(int a) { return a < 0 ? wrapping_neg(a) : a; }
DEVICE i64 absolute(i64 a) { return a < 0 ? wrapping_neg(a) : a; }
DEVICE float absolute(float a) { return fabsf(a); }

// Divisions downwards. Neither 0 nor -1 reaches the instruction: by 0 the result is 0, and the least integer by -1 wraps.
template <class T> DEVICE T floor_div(T a, T b) {
    const T safe = b == 0 || b == -1 ? 1 : b;
    const T q = a / safe - (a % safe != 0 && (a < 0) != (safe < 0));
    return b == 0 ? 0 : b == -1 ? wrapping_neg(a) : q;
}
template <class T> DEVICE T floor_mod(T a, T b) {
    const T safe = b == 0 || b == -1 ? 1 : b;
    const T r = a % safe;
    return r != 0 && (r < 0) != (safe < 0) ? r + safe : r;
}
template <class T> DEVICE T ceil_div(T a, T b) { return -floor_div(-a, b); }

// Counts outside 0 to bits - 1 shift everything out, as `shl` and `shr` of PTX do.
DEVICE int shift_left(int a, int n) { return (u32)n < 32 ? (int)((u32)a << n) : 0; }
DEVICE i64 shift_left(i64 a, i64 n) { return (u64)n < 64 ? (i64)((u64)a << n) : 0; }
DEVICE int shift_right(int a, int n) { return a >> ((u32)n < 32 ? n : 31); }
DEVICE i64 shift_right(i64 a, i64 n) { return a >> ((u64)n < 64 ? n : 63); }
DEVICE bool inverted(bool a) { return !a; }
DEVICE int inverted(int a) { return ~a; }
DEVICE i64 inverted(i64 a) { return ~a; }

// -- functions of floats ------------------------------------------------------

// The functions of CUDA state their errors in the CUDA C++ Programming Guide, "Mathematical Functions".
DEVICE float exp_accurate(float x) { return expf(x); }
DEVICE float log_accurate(float x) { return logf(x); }
DEVICE float log2_accurate(float x) { return log2f(x); }
DEVICE float log1p_accurate(float x) { return log1pf(x); }
DEVICE float expm1_accurate(float x) { return expm1f(x); }
DEVICE float sqrt_rounded(float x) { return __fsqrt_rn(x); }
DEVICE float tanh_accurate(float x) { return tanhf(x); }
DEVICE float erf_accurate(float x) { return erff(x); }
DEVICE float pow_accurate(float x, float y) { return powf(x, y); }
DEVICE float fma_rounded(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// A small whole power as products.
template <int N> DEVICE float power(float x) { return N == 2 ? x * x : N == 3 ? x * x * x : x * x * (x * x); }
DEVICE float reciprocal_fast(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

// x / (1 + exp(-v)) with the exponential of -|v|, which never overflows.
DEVICE float times_sigmoid(float x, float v) {
    const float e = exp_accurate(-fabsf(v));
    return x * (v < 0.0f ? e : 1.0f) * reciprocal_fast(1.0f + e);
}
DEVICE float sigmoid(float x) { return times_sigmoid(1.0f, x); }
// Far below 0 the results are 0; the bound keeps -infinity times 0 away.
DEVICE float silu(float x) { x = max_nan(x, -128.0f); return times_sigmoid(x, x); }
// erfc(z / sqrt(2)) / 2 = t 2^(P(t) - z^2 log2(e) / 2), t = 1 / (1 + 0.4 z), in the form of Press et al., "Numerical
// Recipes", 1992, 6.2; P was fitted for z up to 16, within 9.1e-8 of the whole. From there on less than 2^-142 is left.
DEVICE float gelu_erf(float x) {
    const float z = min_nan(fabsf(x), 16.0f), t = reciprocal_fast(__fmaf_rn(0.4f, z, 1.0f));
    float p = 0.27235895f;
    p = __fmaf_rn(p, t, -1.3956970f);
    p = __fmaf_rn(p, t, 2.7876012f);
    p = __fmaf_rn(p, t, -2.5009990f);
    p = __fmaf_rn(p, t, 0.76538330f);
    p = __fmaf_rn(p, t, -0.25511053f);
    p = __fmaf_rn(p, t, 0.53528950f);
    p = __fmaf_rn(p, t, 1.4387007f);
    p = __fmaf_rn(p, t, -2.6475272f);
    const float tail = t * exp2f(__fmaf_rn(-0.72134752f * z, z, p));
    return __fmaf_rn(-z, tail, max_nan(x, 0.0f));
}
// (1 + tanh(u)) / 2 is the sigmoid of 2u.
DEVICE float gelu_tanh(float x) {
    x = max_nan(x, -16.0f);
    return times_sigmoid(x, x * __fmaf_rn(0.071354814f, x * x, 1.5957691f));
}
DEVICE float softplus(float x) { return max_nan(x, 0.0f) + log1p_accurate(exp_accurate(-fabsf(x))); }

// -- sine and cosine ----------------------------------------------------------

// x in quarter turns modulo 4, in units of 2^-62: bits of 2/pi, those that count for the exponent of x, times its mantissa
// (Payne and Hanek, "Radian reduction for trigonometric functions", 1983). |x| from 2^-5 on.
DEVICE u64 turns_of(float x) {
    const u32 bits = __float_as_uint(x), at = (bits >> 23 & 255) - 120, shift = at & 31;
    const u32 mantissa = (bits & 0x7fffffu) | 0x800000u;
    // 2/pi behind 32 zeros. Four words from number at / 32 on, chosen without an array: one indexed at run time would lie in
    // local memory.
    const bool by_4 = at & 128, by_2 = at & 64, by_1 = at & 32;
    const u32 a0 = by_4 ? 0xf534ddc0u : 0u, a1 = by_4 ? 0xdb629599u : 0xa2f9836eu;
    const u32 a2 = by_4 ? 0x3c439041u : 0x4e441529u, a3 = by_4 ? 0xfe5163abu : 0xfc2757d1u;
    const u32 a4 = 0xf534ddc0u, a5 = 0xdb629599u, a6 = 0x3c439041u;
    const u32 b0 = by_2 ? a2 : a0, b1 = by_2 ? a3 : a1, b2 = by_2 ? a4 : a2, b3 = by_2 ? a5 : a3, b4 = by_2 ? a6 : a4;
    const u32 c0 = by_1 ? b1 : b0, c1 = by_1 ? b2 : b1, c2 = by_1 ? b3 : b2, c3 = by_1 ? b4 : b3;
    const u64 low = (u64)mantissa * __funnelshift_l(c3, c2, shift);
    const u64 middle = (u64)mantissa * __funnelshift_l(c2, c1, shift) + (low >> 32);
    const u32 high = mantissa * __funnelshift_l(c1, c0, shift) + (u32)(middle >> 32);
    return (u64)high << 32 | (u32)middle;
}
// x less the nearest multiple of pi/2, to 2^-29 of it and rounded; `quarter` is that multiple modulo 4. NaN for infinities.
DEVICE float reduce_angle(float x, u32& quarter) {
    if (fabsf(x) <= 65536.0f) {
        // 1.5 * 2^23 puts the nearest whole number into the lowest bits. pi/2 in three parts (Cody and Waite, 1980).
        const float whole = __fmaf_rn(x, 0.63661975f, 12582912.0f), n = __fsub_rn(whole, 12582912.0f);
        quarter = __float_as_uint(whole);
        return __fmaf_rn(n, -5.390302953474238e-15f, __fmaf_rn(n, -7.549789415861596e-08f, __fmaf_rn(n, -1.570796251296997f, x)));
    }
    const u64 turns = turns_of(x), nearest = turns + (1ull << 61);
    const i64 rest = (i64)(turns << 2);  // of a quarter turn, in units of 2^-64
    const u64 size = rest < 0 ? 0 - (u64)rest : (u64)rest;
    const int zeros = __clzll(size);
    // The first 32 bits times pi/2 in units of 2^-31.
    const float angle = __ull2float_rn((size << zeros >> 32) * 0xc90fdaa2ull) * __uint_as_float((64 - zeros) << 23);
    const bool negative = (rest < 0) != (x < 0.0f);
    quarter = x < 0.0f ? 0 - (u32)(nearest >> 62) : (u32)(nearest >> 62);
    return fabsf(x) < __uint_as_float(0x7f800000u) ? negative ? -angle : angle : x - x;
}
// The sine of r + n pi/2 for |r| up to pi/4. Polynomials: Moshier, Cephes, sinf.c.
DEVICE float sine_of(float r, u32 n) {
    const float s = __fmul_rn(r, r);
    const float a = __fmaf_rn(__fmaf_rn(-1.9515296e-4f, s, 8.3321609e-3f), s, -0.16666655f);
    const float b = __fmaf_rn(__fmaf_rn(2.4433157e-5f, s, -1.3887316e-3f), s, 0.041666646f);
    // Adding 0 makes -0 0, so that the sine of -0 is -0.
    const float sine = __fmaf_rn(__fmaf_rn(a, s, 0.0f), r, r);
    const float cosine = __fmaf_rn(__fmaf_rn(b, s, -0.5f), s, 1.0f);
    const float y = n & 1 ? cosine : sine;
    return n & 2 ? -y : y;
}
DEVICE float sin_accurate(float x) { u32 n; const float r = reduce_angle(x, n); return sine_of(r, n); }
DEVICE float cos_accurate(float x) { u32 n; const float r = reduce_angle(x, n); return sine_of(r, n + 1); }
