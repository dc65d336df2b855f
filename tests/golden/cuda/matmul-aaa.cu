extern "C" __global__ void __launch_bounds__(384, 1)
matmul(const __grid_constant__ TensorMap A_map,
    const __grid_constant__ TensorMap B_map,
    const __grid_constant__ TensorMap C_map,
    int C_n0,
    int C_n1,
    int A_n1) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32;
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    // pipeline inputs: 3 x (a: st<bf16, 128x64>, b: st<bf16, 256x64>)
    const u32 inputs = smem, inputs_full = smem + 212992, inputs_empty = smem + 213016;
    // pipeline outputs: 1 x (c: st<bf16, 128x256>)
    const u32 outputs = smem + 147456, outputs_full = smem + 213040, outputs_empty = smem + 213048;
    if (threadIdx.x == 0) {
        prefetch(A_map);
        prefetch(B_map);
        prefetch(C_map);
        for (int i = 0; i < 3; ++i) { barrier_init(inputs_full + 8 * i, 1); barrier_init(inputs_empty + 8 * i, 8); }
        for (int i = 0; i < 1; ++i) { barrier_init(outputs_full + 8 * i, 8); barrier_init(outputs_empty + 8 * i, 1); }
        barrier_init_done();
        fence_async();
    }
    __syncthreads();
#line 16 "06_matmul.py"
    // tasks = pk.persistent(C.tiles(128, 256), order=pk.supergroup(8))
    const int t1 = ceil_div(C_n0, 128);
    const int t2 = ceil_div(C_n1, 256);
#line 17 "06_matmul.py"
    // steps = pk.cdiv(A.cols, 64)
    const int steps = ceil_div(A_n1, 64);
    const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int warpgroup = warp_of_block / 4;
    if (warpgroup == 0) {
        registers_down<40>();
        if (warp_of_block == 0 && lane == 0) {  // producer
            Turn<3> inputs_fill;
#line 20 "06_matmul.py"
            // for row, col in tasks:
            NO_UNROLL for (int task = blockIdx.x; task < t1 * t2; task += gridDim.x) {
                const int turn = task % (t1 * t2), band = turn / (8 * t2) * 8;
                const int height = min(8, t1 - band), place = turn - band * t2;
                const int row = band + place % height, col = place / height;
#line 21 "06_matmul.py"
                // for k in pk.range(steps):
                NO_UNROLL for (int k = 0; k < steps; k += 1) {
#line 22 "06_matmul.py"
                    // with inputs.fill() as s:  # waits until the stage is free, arms its barrier
                    barrier_wait(inputs_empty + 8 * inputs_fill.stage, inputs_fill.phase ^ 1);
                    const u32 a = inputs + 49152 * inputs_fill.stage, b = inputs + 49152 * inputs_fill.stage + 16384;
                    const u32 a_full = inputs_full + 8 * inputs_fill.stage;
                    barrier_arrive_expect(a_full, 49152);
                    inputs_fill.next();
#line 23 "06_matmul.py"
                    // pk.load_async(s.a, A[row, k])
                    copy_box(a, A_map, a_full, k * 64, row * 128);
#line 24 "06_matmul.py"
                    // pk.load_async(s.b, B[col, k])
                    copy_box(b, B_map, a_full, k * 64, col * 256);
#line 22 "06_matmul.py"
                    // with inputs.fill() as s:  # waits until the stage is free, arms its barrier
                }
            }
        }
        if (warp_of_block == 1 && lane == 0) {  // storer
            Turn<1> outputs_drain;  // also outputs_back
#line 36 "06_matmul.py"
            // for row, col in tasks:
            NO_UNROLL for (int task = blockIdx.x; task < t1 * t2; task += gridDim.x) {
                const int turn = task % (t1 * t2), band = turn / (8 * t2) * 8;
                const int height = min(8, t1 - band), place = turn - band * t2;
                const int row1 = band + place % height, col1 = place / height;
#line 37 "06_matmul.py"
                // with outputs.drain() as s:
                barrier_wait(outputs_full + 8 * outputs_drain.stage, outputs_drain.phase);
                const u32 c = outputs + 65536 * outputs_drain.stage;
#line 38 "06_matmul.py"
                // pk.store_async(C[row, col], s.c)
                store_box(C_map, c, col1 * 256, row1 * 128);
                store_box(C_map, c + 16384, col1 * 256 + 64, row1 * 128);
                store_box(C_map, c + 32768, col1 * 256 + 128, row1 * 128);
                store_box(C_map, c + 49152, col1 * 256 + 192, row1 * 128);
                stores_commit();
#line 37 "06_matmul.py"
                // with outputs.drain() as s:
                stores_wait_read();
                barrier_arrive(outputs_empty + 8 * outputs_drain.stage);  // outputs: give the stage back
                outputs_drain.next();
            }
            stores_wait();
        }
    } else {  // consumers
        registers_up<232>();
        const int warp = (warp_of_block - 4) % 4;
        const int w = (warp_of_block - 4) / 4;
        Turn<1> outputs_fill;
        Turn<3> inputs_back;
        Turn<3> inputs_drain;
        int inputs_held = 0;
#line 27 "06_matmul.py"
        // for row, col in tasks:
        NO_UNROLL for (int task = blockIdx.x; task < t1 * t2; task += gridDim.x) {
#line 28 "06_matmul.py"
            // acc = pk.zeros(f32, 64, 256)
            float acc[128];
            UNROLL for (int i = 0; i < 128; ++i) acc[i] = 0.0f;
#line 29 "06_matmul.py"
            // for k in pk.range(steps):
            NO_UNROLL for (int k1 = 0; k1 < steps; k1 += 1) {
#line 30 "06_matmul.py"
                // with inputs.drain() as s:  # waits until the stage is full, frees it afterwards
                barrier_wait(inputs_full + 8 * inputs_drain.stage, inputs_drain.phase);
                const u32 a1 = inputs + 49152 * inputs_drain.stage, b1 = inputs + 49152 * inputs_drain.stage + 16384;
                ++inputs_held;
                inputs_drain.next();
#line 31 "06_matmul.py"
                // acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
                {
                    products_fence();
                    const u64 matrix_b = matrix(b1, 16, 1024, 1);
                    const u64 matrix_a0 = matrix(a1 + w * 8192, 16, 1024, 1);
                    mma_ABt_bf16_shared_n256<1, 0>(acc, matrix_a0, matrix_b);
                    mma_ABt_bf16_shared_n256<1, 0>(acc, matrix_a0 + 2, matrix_b + 2);
                    mma_ABt_bf16_shared_n256<1, 0>(acc, matrix_a0 + 4, matrix_b + 4);
                    mma_ABt_bf16_shared_n256<1, 0>(acc, matrix_a0 + 6, matrix_b + 6);
                    products_commit();
                }
                products_wait<1>();
#line 30 "06_matmul.py"
                // with inputs.drain() as s:  # waits until the stage is full, frees it afterwards
                if (inputs_held > 1) { if (lane == 0) barrier_arrive(inputs_empty + 8 * inputs_back.stage); --inputs_held; inputs_back.next(); }  // inputs: give a stage back
            }
#line 32 "06_matmul.py"
            // with outputs.fill() as s:
            barrier_wait(outputs_empty + 8 * outputs_fill.stage, outputs_fill.phase ^ 1);
            const u32 c1 = outputs + 65536 * outputs_fill.stage;
            const u32 c1_full = outputs_full + 8 * outputs_fill.stage;
            outputs_fill.next();
#line 33 "06_matmul.py"
            // pk.store(s.c.tiles(64, 256)[w], acc.to(bf16))
            products_wait<0>();
            pin(acc);
#line 30 "06_matmul.py"
            // with inputs.drain() as s:  # waits until the stage is full, frees it afterwards
            if (inputs_held > 0) { if (lane == 0) barrier_arrive(inputs_empty + 8 * inputs_back.stage); --inputs_held; inputs_back.next(); }  // inputs: give a stage back
#line 33 "06_matmul.py"
            // pk.store(s.c.tiles(64, 256)[w], acc.to(bf16))
            u32 t3[64];
            UNROLL for (int i = 0; i < 128; i += 2) t3[i / 2] = pack_bf16(acc[i], acc[i + 1]);
            UNROLL for (int i = 0; i < 16; ++i) store_matrix(c1 + w * 8192 + shared_at<128>((i / 16 * 4 + warp) * 16 + lane % 16, i % 16 * 32 + lane / 16 * 16, 16384), t3[4 * i], t3[4 * i + 1], t3[4 * i + 2], t3[4 * i + 3]);
#line 32 "06_matmul.py"
            // with outputs.fill() as s:
            fence_async();
            __syncwarp();
            if (lane == 0) barrier_arrive(c1_full);
        }
    }
}
