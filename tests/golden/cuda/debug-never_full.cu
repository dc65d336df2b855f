extern "C" __global__ void __launch_bounds__(384, 1)
never_full(const __grid_constant__ TensorMap A_map,
    const __grid_constant__ TensorMap A_map1,
    float* C,
    i64 C_s0,
    int C_n0,
    int C_n1,
    Report* report,
    i64 patience) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32;
    Debug debug = {report, patience, (Standing*)(shared + 49184), 3};
    debug.begin();
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    // pipeline inputs: 2 x (a: st<bf16, 128x64>, b: st<bf16, 64x64>)
    const u32 inputs = smem, inputs_full = smem + 49152, inputs_empty = smem + 49168;
    if (threadIdx.x == 0) {
        prefetch(A_map);
        prefetch(A_map1);
        for (int i = 0; i < 2; ++i) { barrier_init(inputs_full + 8 * i, 1); barrier_init(inputs_empty + 8 * i, 8); }
        barrier_init_done();
        fence_async();
    }
    __syncthreads();
    // pk.grid(2)
    const int t1 = (int)blockIdx.x;
    const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int warpgroup = warp_of_block / 4;
    if (warpgroup == 0) {
        registers_down<40>();
        if (warp_of_block == 0 && lane == 0) {  // producer
            debug.enter(0, lane == 0);
            Turn<2> inputs_fill;
            // for k in pk.range(3):
            NO_UNROLL for (int k = 0; k < 3; k += 1) {
                // with inputs.fill() as s:
                barrier_wait(inputs_empty + 8 * inputs_fill.stage, inputs_fill.phase ^ 1, debug, debug.at(0, inputs_fill.stage, inputs_fill.phase ^ 1));
                const u32 a = inputs + 24576 * inputs_fill.stage, b = inputs + 24576 * inputs_fill.stage + 16384;
                const u32 a_full = inputs_full + 8 * inputs_fill.stage;
                barrier_arrive_expect(a_full, 24576);
                inputs_fill.next();
                // pk.load_async(s.a, A[0, k])
                if (!(is_int32((i64)k * 64, 64))) debug.stop(1, (i64)k * 64);
                copy_box(a, A_map, a_full, k * 64, 0);
                // pk.load_async(s.b, A[0, k])
                if (!(is_int32((i64)k * 64, 64))) debug.stop(2, (i64)k * 64);
                copy_box(b, A_map1, a_full, k * 64, 0);
                // with inputs.fill() as s:
            }
            debug.end();
        }
    } else {  // consumers
        registers_up<232>();
        const int warp = (warp_of_block - 4) % 4;
        const int thread = warp * 32 + lane;
        const int w = (warp_of_block - 4) / 4;
        debug.enter(w + 1, thread == 0);
        Turn<2> inputs_back;
        Turn<2> inputs_drain;
        int inputs_held = 0;
        // acc = pk.zeros(f32, 64, 64)
        float acc[32];
        UNROLL for (int i = 0; i < 32; ++i) acc[i] = 0.0f;
        // for _ in pk.range(4):
        NO_UNROLL for (int _ = 0; _ < 4; _ += 1) {
            // with inputs.drain() as s:
            products_wait<0>();
            pin(acc);
            if (inputs_held > 0) { if (lane == 0) barrier_arrive(inputs_empty + 8 * inputs_back.stage); --inputs_held; inputs_back.next(); }  // inputs: give a stage back
            barrier_wait(inputs_full + 8 * inputs_drain.stage, inputs_drain.phase, debug, debug.at(3, inputs_drain.stage, inputs_drain.phase));
            const u32 a1 = inputs + 24576 * inputs_drain.stage, b1 = inputs + 24576 * inputs_drain.stage + 16384;
            ++inputs_held;
            inputs_drain.next();
            // acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
            {
                pin(acc);
                products_fence();
                const u64 matrix_b = matrix(b1, 16, 1024, 1);
                const u64 matrix_a0 = matrix(a1 + w * 8192, 16, 1024, 1);
                mma_ABt_bf16_shared_n64<1, 0>(acc, matrix_a0, matrix_b);
                mma_ABt_bf16_shared_n64<1, 0>(acc, matrix_a0 + 2, matrix_b + 2);
                mma_ABt_bf16_shared_n64<1, 0>(acc, matrix_a0 + 4, matrix_b + 4);
                mma_ABt_bf16_shared_n64<1, 0>(acc, matrix_a0 + 6, matrix_b + 6);
                products_commit();
            }
        }
        // pk.store(C[w], acc)
        products_wait<0>();
        pin(acc);
        // with inputs.drain() as s:
        if (inputs_held > 0) { if (lane == 0) barrier_arrive(inputs_empty + 8 * inputs_back.stage); --inputs_held; inputs_back.next(); }  // inputs: give a stage back
        // pk.store(C[w], acc)
        if (!(is_int32((i64)w * 64, 64))) debug.stop(4, (i64)w * 64);
        if (64 <= C_n1) {
            UNROLL for (int i = 0; i < 32; i += 2) {
                const int at_row = w * 64 + tile_row<64, 4>(i, warp, lane);
                const bool inside = at_row >= 0 && at_row < C_n0;
                store_chunk<2, true>(acc, i, C + (inside ? at_row * (i64)C_s0 : 0) + tile_col<64>(i, lane), 0, inside ? 2 : 0);
            }
        } else {
            UNROLL for (int i = 0; i < 32; i += 2) {
                const int at_row = w * 64 + tile_row<64, 4>(i, warp, lane);
                const bool inside = at_row >= 0 && at_row < C_n0;
                store_chunk<2, true>(acc, i, C + (inside ? at_row * (i64)C_s0 : 0), tile_col<64>(i, lane), inside ? C_n1 : 0);
            }
        }
        debug.end();
    }
}
