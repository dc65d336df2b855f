extern "C" __global__ void __launch_bounds__(128, 1)
rms_norm_rows(int x_n0,
    const unsigned short* __restrict__ weight,
    int weight_n0,
    const unsigned short* __restrict__ x,
    i64 x_s0,
    float eps,
    unsigned short* y,
    i64 y_s0,
    int y_n0,
    int y_n1) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32;
#line 36 "rms_norm.py"
    // (block,) = pk.grid(pk.cdiv(x.rows, rows))
    const int block = (int)blockIdx.x;
    const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int thread = lane;
    const int w = warp_of_block;
#line 38 "rms_norm.py"
    // gain = pk.load(weight, cols=n)  # before x, so that both are on their way at once
    u32 gain[32];
    UNROLL for (int i = 0; i < 64; i += 8) {
        load_chunk<8, true>(gain, i, weight, vector_at<8, 32>(i, thread), min(weight_n0, 2048), 0x0u);
    }
#line 39 "rms_norm.py"
    // t = pk.load(x[block * rows + w], cols=n).to(f32)
    u32 t1[32];
    UNROLL for (int i = 0; i < 64; i += 8) {
        const int at_row = block * 4 + w;
        const bool inside = is_below(at_row, x_n0) && is_below(vector_at<8, 32>(i, thread), 2048);
        load_chunk<8, true>(t1, i, row_at(x, at_row, x_s0) + vector_at<8, 32>(i, thread), 0, inside ? 8 : 0, 0x0u);
    }
    float t[64];
    UNROLL for (int i = 0; i < 64; ++i) t[i] = from_bf16(t1[i / 2], i);
#line 40 "rms_norm.py"
    // scale = pk.rsqrt(pk.sum(t * t) * (1 / n) + eps)
    float t2[64];
    UNROLL for (int i = 0; i < 64; ++i) t2[i] = t[i] * t[i];
    float t3 = 0.0f;
    UNROLL for (int i = 0; i < 64; ++i) t3 = t3 + t2[i];
    t3 = join_lanes<1, 16>(t3, [](float a, float b) { return a + b; });
    const float scale = rsqrt_fast(((t3 * 0.00048828125f) + eps));
#line 41 "rms_norm.py"
    // pk.store(y[block * rows + w], (t * scale * gain.to(f32)).to(y.dtype))
    float t4[64];
    UNROLL for (int i = 0; i < 64; ++i) t4[i] = t[i] * scale;
    float t5[64];
    UNROLL for (int i = 0; i < 64; ++i) t5[i] = from_bf16(gain[i / 2], i);
    float t6[64];
    UNROLL for (int i = 0; i < 64; ++i) t6[i] = t4[i] * t5[i];
    u32 t7[32];
    UNROLL for (int i = 0; i < 64; i += 2) t7[i / 2] = pack_bf16(t6[i], t6[i + 1]);
    UNROLL for (int i = 0; i < 64; i += 8) {
        const int at_row = block * 4 + w;
        const bool inside = is_below(at_row, y_n0) && is_below(vector_at<8, 32>(i, thread), y_n1);
        store_chunk<8, true>(t7, i, row_at(y, at_row, y_s0) + vector_at<8, 32>(i, thread), 0, inside ? 8 : 0);
    }
}
