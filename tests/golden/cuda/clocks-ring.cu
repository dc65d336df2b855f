extern "C" __global__ void __launch_bounds__(160, 1)
ring(const __grid_constant__ TensorMap x_map,
    float* y,
    i64 y_s0,
    int y_n0,
    int y_n1,
    u64* clock_records,
    int most_records,
    int most_blocks) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32;
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    // pipeline parts: 2 x (sv<f32, 128>)
    const u32 parts = smem, parts_full = smem + 1024, parts_empty = smem + 1040;
    if (threadIdx.x == 0) {
        prefetch(x_map);
        for (int i = 0; i < 2; ++i) { barrier_init(parts_full + 8 * i, 1); barrier_init(parts_empty + 8 * i, 1); }
        barrier_init_done();
        fence_async();
    }
    __syncthreads();
    // (block,) = pk.grid(2)
    const int block = (int)blockIdx.x;
    const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int warpgroup = warp_of_block / 4;
    if (warpgroup == 0) {
        if (warp_of_block == 0 && lane == 0) {  // producer
            Clocks clocks;
            clocks.begin(clock_records, most_records, most_blocks, 0, 2, lane == 0);
            clocks.read(0);
            Turn<2> parts_fill;
            // for k in pk.range(3):
            NO_UNROLL for (int k = 0; k < 3; k += 1) {
                // with parts.fill() as s:
                clocks.read(1);
                barrier_wait(parts_empty + 8 * parts_fill.stage, parts_fill.phase ^ 1);
                const u32 s = parts + 512 * parts_fill.stage;
                const u32 s_full = parts_full + 8 * parts_fill.stage;
                barrier_arrive_expect(s_full, 512);
                parts_fill.next();
                clocks.read(2);
                // pk.load_async(s, x[block, k])
                copy_box(s, x_map, s_full, k * 128, block);
                clocks.read(3);
                // with parts.fill() as s:
            }
            clocks.finish(4, most_records);
        }
    } else {  // warps
        const int thread = lane;
        Clocks clocks;
        clocks.begin(clock_records, most_records, most_blocks, warp_of_block - 4 + 1, 2, lane == 0);
        clocks.read(5);
        Turn<2> parts_drain;  // also parts_back
        // for k in pk.range(3):
        NO_UNROLL for (int k1 = 0; k1 < 3; k1 += 1) {
            // with parts.drain() as s:
            clocks.read(6);
            barrier_wait(parts_full + 8 * parts_drain.stage, parts_drain.phase);
            const u32 s1 = parts + 512 * parts_drain.stage;
            clocks.read(7);
            // pk.store(y[block, k], 2 * pk.load(s))
            float t1[4];
            UNROLL for (int i = 0; i < 4; i += 4) {
                load_chunk<4, true>(t1, i, (float*)(shared + (s1 - smem)), vector_at<4, 32>(i, thread), 128, 0.0f);
            }
            float t2[4];
            UNROLL for (int i = 0; i < 4; ++i) t2[i] = 2.0f * t1[i];
            UNROLL for (int i = 0; i < 4; i += 4) {
                const int at_row = block;
                const bool inside = is_below(at_row, y_n0) && is_below(k1 * 128 + vector_at<4, 32>(i, thread), y_n1);
                store_chunk<4, true>(t2, i, row_at(y, at_row, y_s0) + (k1 * 128 + vector_at<4, 32>(i, thread)), 0, inside ? 4 : 0);
            }
            // with parts.drain() as s:
            fence_async();  // what was loaded is there before the copy engine fills the memory
            __syncwarp();
            clocks.read(8); if (lane == 0) barrier_arrive(parts_empty + 8 * parts_drain.stage);  // parts: give the stage back
            parts_drain.next();
        }
        clocks.finish(4, most_records);
    }
}
