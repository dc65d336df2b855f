extern "C" __global__ void __launch_bounds__(256, 1)
softmax(int x_n0,
    const unsigned short* __restrict__ x,
    i64 x_s0,
    unsigned short* y,
    i64 y_s0,
    int y_n0,
    int y_n1) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32;
#line 14 "03_softmax.py"
    // (block,) = pk.grid(pk.cdiv(x.rows, 8))
    const int block = (int)blockIdx.x;
    const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int thread = lane;
    const int w = warp_of_block;
#line 18 "03_softmax.py"
    // t = pk.load(x[block * 8 + w], cols=n, fill=-pk.inf).to(f32)
    u32 t1[16];
    UNROLL for (int i = 0; i < 32; i += 8) {
        const int at_row = block * 8 + w;
        const bool inside = is_below(at_row, x_n0) && is_below(vector_at<8, 32>(i, thread), 1000);
        load_chunk<8, true>(t1, i, row_at(x, at_row, x_s0) + vector_at<8, 32>(i, thread), 0, inside ? 8 : 0, 0xff80u);
    }
    float t[32];
    UNROLL for (int i = 0; i < 32; ++i) t[i] = from_bf16(t1[i / 2], i);
    float t2 = as_float(0xff800000u);
    UNROLL for (int i = 0; i < 24; ++i) t2 = max_nan(t2, t[i]);
    UNROLL for (int i = 24; i < 32; ++i) if (vector_at<8, 32>(i, thread) < 1000) t2 = max_nan(t2, t[i]);
    t2 = join_lanes<1, 16>(t2, [](float a, float b) { return max_nan(a, b); });
#line 19 "03_softmax.py"
    // t = pk.exp(t - pk.max(t))
    float t3[32];
    UNROLL for (int i = 0; i < 32; ++i) t3[i] = t[i] - t2;
    float t4[32];
    UNROLL for (int i = 0; i < 32; ++i) t4[i] = exp_fast(t3[i]);
    float t5 = 0.0f;
    UNROLL for (int i = 0; i < 24; ++i) t5 = t5 + t4[i];
    UNROLL for (int i = 24; i < 32; ++i) if (vector_at<8, 32>(i, thread) < 1000) t5 = t5 + t4[i];
    t5 = join_lanes<1, 16>(t5, [](float a, float b) { return a + b; });
#line 20 "03_softmax.py"
    // pk.store(y[block * 8 + w], (t / pk.sum(t)).to(y.dtype))
    float t6[32];
    {
        const float inverse = 1.0f / t5;
        UNROLL for (int i = 0; i < 32; ++i) t6[i] = t4[i] * inverse;
    }
    u32 t7[16];
    UNROLL for (int i = 0; i < 32; i += 2) t7[i / 2] = pack_bf16(t6[i], t6[i + 1]);
    UNROLL for (int i = 0; i < 32; i += 8) {
        const int at_row = block * 8 + w;
        const bool inside = is_below(at_row, y_n0) && is_below(vector_at<8, 32>(i, thread), min(y_n1, 1000));
        store_chunk<8, true>(t7, i, row_at(y, at_row, y_s0) + vector_at<8, 32>(i, thread), 0, inside ? 8 : 0);
    }
}
