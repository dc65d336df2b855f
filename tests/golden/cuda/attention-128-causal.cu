extern "C" __global__ void __launch_bounds__(384, 1)
attention(const __grid_constant__ TensorMap K_map,
    const __grid_constant__ TensorMap Q_map,
    const __grid_constant__ TensorMap V_map,
    const __grid_constant__ TensorMap O_map,
    int Q_n2,
    int Q_n0,
    int Q_n1) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32;
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    // pipeline q: 1 x (st<bf16, 128x128>)
    const u32 q = smem, q_full = smem + 196608, q_empty = smem + 196616;
    // pipeline out: 1 x (st<bf16, 128x128>)
    const u32 out = smem + 32768, out_full = smem + 196624, out_empty = smem + 196632;
    // pipeline k: 2 x (st<bf16, 128x128>)
    const u32 k = smem + 65536, k_full = smem + 196640, k_empty = smem + 196656;
    // pipeline v: 2 x (st<bf16, 128x128>)
    const u32 v = smem + 131072, v_full = smem + 196672, v_empty = smem + 196688;
    if (threadIdx.x == 0) {
        prefetch(K_map);
        prefetch(Q_map);
        prefetch(V_map);
        prefetch(O_map);
        for (int i = 0; i < 1; ++i) { barrier_init(q_full + 8 * i, 1); barrier_init(q_empty + 8 * i, 8); }
        for (int i = 0; i < 1; ++i) { barrier_init(out_full + 8 * i, 8); barrier_init(out_empty + 8 * i, 1); }
        for (int i = 0; i < 2; ++i) { barrier_init(k_full + 8 * i, 1); barrier_init(k_empty + 8 * i, 8); }
        for (int i = 0; i < 2; ++i) { barrier_init(v_full + 8 * i, 1); barrier_init(v_empty + 8 * i, 8); }
        barrier_init_done();
        fence_async();
    }
    __syncthreads();
#line 16 "07_attention.py"
    // scale, blocks = pk.log2e / d**0.5, pk.cdiv(n, 128)
    const int blocks = ceil_div(Q_n2, 128);
    const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int warpgroup = warp_of_block / 4;
    if (warpgroup == 0) {
        registers_down<40>();
        if (warp_of_block == 0 && lane == 0) {  // producer
            Turn<2> k_fill;
            Turn<2> v_fill;
            Turn<1> q_fill;
#line 25 "07_attention.py"
            // for b, h, block in tasks:
            NO_UNROLL for (int task = blockIdx.x; task < Q_n0 * Q_n1 * blocks; task = (task / gridDim.x + 1) * gridDim.x * 2 - 1 - task) {
                const int section = task / blocks / 16 * 16;
                const int width = min(16, Q_n0 * Q_n1 - section), turn = task - section * blocks;
                const int head = section + turn % width, block = blocks - 1 - turn / width;
                const int h = head % Q_n1;
                const int b = head / Q_n1;
#line 26 "07_attention.py"
                // with k.fill() as t: pk.load_async(t, K[b, h, last(block), 0])
                barrier_wait(k_empty + 8 * k_fill.stage, k_fill.phase ^ 1);
                const u32 t = k + 32768 * k_fill.stage;
                const u32 t_full = k_full + 8 * k_fill.stage;
                barrier_arrive_expect(t_full, 32768);
                k_fill.next();
                copy_box(t, K_map, t_full, 0, block * 128, h, b);
                copy_box(t + 16384, K_map, t_full, 64, block * 128, h, b);
#line 27 "07_attention.py"
                // with q.fill() as t: pk.load_async(t, Q[b, h, block, 0])
                barrier_wait(q_empty + 8 * q_fill.stage, q_fill.phase ^ 1);
                const u32 t1 = q + 32768 * q_fill.stage;
                const u32 t1_full = q_full + 8 * q_fill.stage;
                barrier_arrive_expect(t1_full, 32768);
                q_fill.next();
                copy_box(t1, Q_map, t1_full, 0, block * 128, h, b);
                copy_box(t1 + 16384, Q_map, t1_full, 64, block * 128, h, b);
#line 28 "07_attention.py"
                // for j in pk.range(last(block), 0, -1):
                NO_UNROLL for (int j = block; j > 0; j -= 1) {
#line 29 "07_attention.py"
                    // with k.fill() as t: pk.load_async(t, K[b, h, j - 1, 0])
                    barrier_wait(k_empty + 8 * k_fill.stage, k_fill.phase ^ 1);
                    const u32 t2 = k + 32768 * k_fill.stage;
                    const u32 t2_full = k_full + 8 * k_fill.stage;
                    barrier_arrive_expect(t2_full, 32768);
                    k_fill.next();
                    copy_box(t2, K_map, t2_full, 0, (j - 1) * 128, h, b);
                    copy_box(t2 + 16384, K_map, t2_full, 64, (j - 1) * 128, h, b);
#line 30 "07_attention.py"
                    // with v.fill() as t: pk.load_async(t, V[b, h, j, 0])
                    barrier_wait(v_empty + 8 * v_fill.stage, v_fill.phase ^ 1);
                    const u32 t3 = v + 32768 * v_fill.stage;
                    const u32 t3_full = v_full + 8 * v_fill.stage;
                    barrier_arrive_expect(t3_full, 32768);
                    v_fill.next();
                    copy_box(t3, V_map, t3_full, 0, j * 128, h, b);
                    copy_box(t3 + 16384, V_map, t3_full, 64, j * 128, h, b);
                }
#line 31 "07_attention.py"
                // with v.fill() as t: pk.load_async(t, V[b, h, 0, 0])
                barrier_wait(v_empty + 8 * v_fill.stage, v_fill.phase ^ 1);
                const u32 t4 = v + 32768 * v_fill.stage;
                const u32 t4_full = v_full + 8 * v_fill.stage;
                barrier_arrive_expect(t4_full, 32768);
                v_fill.next();
                copy_box(t4, V_map, t4_full, 0, 0, h, b);
                copy_box(t4 + 16384, V_map, t4_full, 64, 0, h, b);
            }
        }
        if (warp_of_block == 1 && lane == 0) {  // storer
            Turn<1> out_drain;  // also out_back
#line 49 "07_attention.py"
            // for b, h, block in tasks:
            NO_UNROLL for (int task = blockIdx.x; task < Q_n0 * Q_n1 * blocks; task = (task / gridDim.x + 1) * gridDim.x * 2 - 1 - task) {
                const int section = task / blocks / 16 * 16;
                const int width = min(16, Q_n0 * Q_n1 - section), turn = task - section * blocks;
                const int head = section + turn % width, block1 = blocks - 1 - turn / width;
                const int h1 = head % Q_n1;
                const int b1 = head / Q_n1;
#line 50 "07_attention.py"
                // with out.drain() as t: pk.store_async(O[b, h, block, 0], t)
                barrier_wait(out_full + 8 * out_drain.stage, out_drain.phase);
                const u32 t5 = out + 32768 * out_drain.stage;
                store_box(O_map, t5, 0, block1 * 128, h1, b1);
                store_box(O_map, t5 + 16384, 64, block1 * 128, h1, b1);
                stores_commit();
                stores_wait_read();
                barrier_arrive(out_empty + 8 * out_drain.stage);  // out: give the stage back
                out_drain.next();
            }
            stores_wait();
        }
    } else {  // consumers
        registers_up<232>();
        const int warp = (warp_of_block - 4) % 4;
        const int w = (warp_of_block - 4) / 4;
        Turn<1> q_drain;  // also q_back, out_fill
        Turn<2> k_drain;
        Turn<2> k_back;
        Turn<2> v_drain;
        Turn<2> v_back;
#line 34 "07_attention.py"
        // for b, h, block in tasks:
        NO_UNROLL for (int task = blockIdx.x; task < Q_n0 * Q_n1 * blocks; task = (task / gridDim.x + 1) * gridDim.x * 2 - 1 - task) {
            const int section = task / blocks / 16 * 16;
            const int width = min(16, Q_n0 * Q_n1 - section), turn = task - section * blocks;
            const int head = section + turn % width, block2 = blocks - 1 - turn / width;
            const int h2 = head % Q_n1;
            const int b2 = head / Q_n1;
#line 35 "07_attention.py"
            // with q.drain() as qs:
            barrier_wait(q_full + 8 * q_drain.stage, q_drain.phase);
            const u32 qs = q + 32768 * q_drain.stage;
#line 36 "07_attention.py"
            // qw, o = qs.tiles(64, d)[w], pk.zeros(f32, 64, d)
            float o[64];
            UNROLL for (int i = 0; i < 64; ++i) o[i] = 0.0f;
#line 37 "07_attention.py"
            // with k.drain() as kt: s = pk.mma_ABt(qw, kt)
            barrier_wait(k_full + 8 * k_drain.stage, k_drain.phase);
            const u32 kt = k + 32768 * k_drain.stage;
            k_drain.next();
            float s[64];
            {
                products_fence();
                const u64 matrix_b = matrix(kt, 16, 1024, 1);
                const u64 matrix_a0 = matrix(qs + w * 8192, 16, 1024, 1);
                mma_ABt_bf16_shared_n128<0, 0>(s, matrix_a0, matrix_b);
                mma_ABt_bf16_shared_n128<1, 0>(s, matrix_a0 + 2, matrix_b + 2);
                mma_ABt_bf16_shared_n128<1, 0>(s, matrix_a0 + 4, matrix_b + 4);
                mma_ABt_bf16_shared_n128<1, 0>(s, matrix_a0 + 6, matrix_b + 6);
                mma_ABt_bf16_shared_n128<1, 0>(s, matrix_a0 + 1024, matrix_b + 1024);
                mma_ABt_bf16_shared_n128<1, 0>(s, matrix_a0 + 1026, matrix_b + 1026);
                mma_ABt_bf16_shared_n128<1, 0>(s, matrix_a0 + 1028, matrix_b + 1028);
                mma_ABt_bf16_shared_n128<1, 0>(s, matrix_a0 + 1030, matrix_b + 1030);
                products_commit();
            }
#line 38 "07_attention.py"
            // s = pk.mask(s, row=block * 128 + w * 64, col=last(block) * 128, cols=n, causal=causal)
            products_wait<0>();
            pin(s);
#line 37 "07_attention.py"
            // with k.drain() as kt: s = pk.mma_ABt(qw, kt)
            if (lane == 0) barrier_arrive(k_empty + 8 * k_back.stage);  // k: give the stage back
            k_back.next();
#line 38 "07_attention.py"
            // s = pk.mask(s, row=block * 128 + w * 64, col=last(block) * 128, cols=n, causal=causal)
            float s1[64];
            {
                u32 hidden[2];
                UNROLL for (int at_row = 0; at_row < 2; ++at_row) {
                    hidden[at_row] = bits_from(min(Q_n2 - block2 * 128, block2 * 128 + w * 64 + row_position<4>(at_row, warp, lane) + 1 - block2 * 128), lane);
                }
                UNROLL for (int at_row = 0; at_row < 2; ++at_row)
                UNROLL for (int at_col = 0; at_col < 32; ++at_col) {
                    const int i = at_row / 2 * 64 + at_row % 2 * 2 + at_col / 2 * 4 + at_col % 2;
                    s1[i] = hidden[at_row] & 1u << at_col ? as_float(0xff800000u) : s[i];
                }
            }
#line 39 "07_attention.py"
            // p, m, l, _ = pk.online_softmax(s, scale, to=bf16)
            float highest[2];
            {
                UNROLL for (int i = 0; i < 2; ++i) highest[i] = as_float(0xff800000u);
                UNROLL for (int i = 0; i < 64; ++i) highest[row_of<128>(i)] = max_nan(highest[row_of<128>(i)], s1[i]);
                UNROLL for (int i = 0; i < 2; ++i) highest[i] = join_lanes<1, 2>(highest[i], [](float a, float b) { return max_nan(a, b); });
            }
            bool t6[2];
            UNROLL for (int i = 0; i < 2; ++i) t6[i] = highest[i] == as_float(0xff800000u);
            float t7[2];
            UNROLL for (int i = 0; i < 2; ++i) t7[i] = t6[i] ? 0.0f : highest[i];
            float shift[2];
            UNROLL for (int i = 0; i < 2; ++i) shift[i] = t7[i] * 0.127517431974411f;
            float t8[64];
            UNROLL for (int i = 0; i < 64; ++i) t8[i] = s1[i] * 0.127517431974411f;
            float t9[64];
            UNROLL for (int i = 0; i < 64; ++i) t9[i] = t8[i] - shift[row_of<128>(i)];
            float p[64];
            UNROLL for (int i = 0; i < 64; ++i) p[i] = exp2_fast(t9[i]);
            u32 p1[32];
            UNROLL for (int i = 0; i < 64; i += 2) p1[i / 2] = pack_bf16(p[i], p[i + 1]);
            float l[2];
            {
                UNROLL for (int i = 0; i < 2; ++i) l[i] = 0.0f;
                UNROLL for (int i = 0; i < 64; ++i) l[row_of<128>(i)] = l[row_of<128>(i)] + p[i];
            }
#line 40 "07_attention.py"
            // for j in pk.range(last(block)):
            NO_UNROLL for (int j1 = 0; j1 < block2; j1 += 1) {
#line 41 "07_attention.py"
                // with k.drain() as kt: s = pk.mma_ABt(qw, kt)  # in flight
                barrier_wait(k_full + 8 * k_drain.stage, k_drain.phase);
                const u32 kt1 = k + 32768 * k_drain.stage;
                k_drain.next();
                float s2[64];
                {
                    products_fence();
                    const u64 matrix_b = matrix(kt1, 16, 1024, 1);
                    const u64 matrix_a0 = matrix(qs + w * 8192, 16, 1024, 1);
                    mma_ABt_bf16_shared_n128<0, 0>(s2, matrix_a0, matrix_b);
                    mma_ABt_bf16_shared_n128<1, 0>(s2, matrix_a0 + 2, matrix_b + 2);
                    mma_ABt_bf16_shared_n128<1, 0>(s2, matrix_a0 + 4, matrix_b + 4);
                    mma_ABt_bf16_shared_n128<1, 0>(s2, matrix_a0 + 6, matrix_b + 6);
                    mma_ABt_bf16_shared_n128<1, 0>(s2, matrix_a0 + 1024, matrix_b + 1024);
                    mma_ABt_bf16_shared_n128<1, 0>(s2, matrix_a0 + 1026, matrix_b + 1026);
                    mma_ABt_bf16_shared_n128<1, 0>(s2, matrix_a0 + 1028, matrix_b + 1028);
                    mma_ABt_bf16_shared_n128<1, 0>(s2, matrix_a0 + 1030, matrix_b + 1030);
                    products_commit();
                }
#line 42 "07_attention.py"
                // with v.drain() as vt: o = pk.mma_AB(p, vt, o)  # in flight behind it
                barrier_wait(v_full + 8 * v_drain.stage, v_drain.phase);
                const u32 vt = v + 32768 * v_drain.stage;
                v_drain.next();
                {
                    pin(o);
                    pin(p1);
                    products_fence();
                    const u64 matrix_b = matrix(vt, 16384, 1024, 1);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[0], p1[1], p1[2], p1[3], matrix_b);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[4], p1[5], p1[6], p1[7], matrix_b + 128);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[8], p1[9], p1[10], p1[11], matrix_b + 256);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[12], p1[13], p1[14], p1[15], matrix_b + 384);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[16], p1[17], p1[18], p1[19], matrix_b + 512);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[20], p1[21], p1[22], p1[23], matrix_b + 640);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[24], p1[25], p1[26], p1[27], matrix_b + 768);
                    mma_AB_bf16_registers_n128<1, 0>(o, p1[28], p1[29], p1[30], p1[31], matrix_b + 896);
                    products_commit();
                }
#line 43 "07_attention.py"
                // p, m, l, alpha = pk.online_softmax(s, scale, m, l, to=bf16)  # waits for s alone
                products_wait<1>();
                pin(s2);
#line 41 "07_attention.py"
                // with k.drain() as kt: s = pk.mma_ABt(qw, kt)  # in flight
                if (lane == 0) barrier_arrive(k_empty + 8 * k_back.stage);  // k: give the stage back
                k_back.next();
#line 43 "07_attention.py"
                // p, m, l, alpha = pk.online_softmax(s, scale, m, l, to=bf16)  # waits for s alone
                float t10[2];
                {
                    UNROLL for (int i = 0; i < 2; ++i) t10[i] = as_float(0xff800000u);
                    UNROLL for (int i = 0; i < 64; ++i) t10[row_of<128>(i)] = max_nan(t10[row_of<128>(i)], s2[i]);
                    UNROLL for (int i = 0; i < 2; ++i) t10[i] = join_lanes<1, 2>(t10[i], [](float a, float b) { return max_nan(a, b); });
                }
                float highest1[2];
                UNROLL for (int i = 0; i < 2; ++i) highest1[i] = max_nan(highest[i], t10[i]);
                bool t11[2];
                UNROLL for (int i = 0; i < 2; ++i) t11[i] = highest1[i] == as_float(0xff800000u);
                float t12[2];
                UNROLL for (int i = 0; i < 2; ++i) t12[i] = t11[i] ? 0.0f : highest1[i];
                float shift1[2];
                UNROLL for (int i = 0; i < 2; ++i) shift1[i] = t12[i] * 0.127517431974411f;
                float t13[64];
                UNROLL for (int i = 0; i < 64; ++i) t13[i] = s2[i] * 0.127517431974411f;
                float t14[64];
                UNROLL for (int i = 0; i < 64; ++i) t14[i] = t13[i] - shift1[row_of<128>(i)];
                float p2[64];
                UNROLL for (int i = 0; i < 64; ++i) p2[i] = exp2_fast(t14[i]);
                float t15[2];
                UNROLL for (int i = 0; i < 2; ++i) t15[i] = highest[i] * 0.127517431974411f;
                float t16[2];
                UNROLL for (int i = 0; i < 2; ++i) t16[i] = t15[i] - shift1[i];
                float alpha[2];
                UNROLL for (int i = 0; i < 2; ++i) alpha[i] = exp2_fast(t16[i]);
                float t17[2];
                UNROLL for (int i = 0; i < 2; ++i) t17[i] = l[i] * alpha[i];
                float t18[2];
                {
                    UNROLL for (int i = 0; i < 2; ++i) t18[i] = 0.0f;
                    UNROLL for (int i = 0; i < 64; ++i) t18[row_of<128>(i)] = t18[row_of<128>(i)] + p2[i];
                }
                UNROLL for (int i = 0; i < 2; ++i) l[i] = t17[i] + t18[i];
#line 44 "07_attention.py"
                // o = o * alpha  # and here for o
                products_wait<0>();
                pin(o);
                pin(p1);
#line 43 "07_attention.py"
                // p, m, l, alpha = pk.online_softmax(s, scale, m, l, to=bf16)  # waits for s alone
                UNROLL for (int i = 0; i < 64; i += 2) p1[i / 2] = pack_bf16(p2[i], p2[i + 1]);
#line 42 "07_attention.py"
                // with v.drain() as vt: o = pk.mma_AB(p, vt, o)  # in flight behind it
                if (lane == 0) barrier_arrive(v_empty + 8 * v_back.stage);  // v: give the stage back
                v_back.next();
#line 44 "07_attention.py"
                // o = o * alpha  # and here for o
                UNROLL for (int i = 0; i < 64; ++i) o[i] = o[i] * alpha[row_of<128>(i)];
                UNROLL for (int i = 0; i < 2; ++i) highest[i] = highest1[i];
            }
#line 40 "07_attention.py"
            // for j in pk.range(last(block)):
            float l1[2];
            UNROLL for (int i = 0; i < 2; ++i) l1[i] = join_lanes<1, 2>(l[i], [](float a, float b) { return a + b; });
#line 35 "07_attention.py"
            // with q.drain() as qs:
            if (lane == 0) barrier_arrive(q_empty + 8 * q_drain.stage);  // q: give the stage back
#line 45 "07_attention.py"
            // with v.drain() as vt: o = pk.mma_AB(p, vt, o)
            barrier_wait(v_full + 8 * v_drain.stage, v_drain.phase);
            const u32 vt1 = v + 32768 * v_drain.stage;
            v_drain.next();
            {
                pin(o);
                pin(p1);
                products_fence();
                const u64 matrix_b = matrix(vt1, 16384, 1024, 1);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[0], p1[1], p1[2], p1[3], matrix_b);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[4], p1[5], p1[6], p1[7], matrix_b + 128);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[8], p1[9], p1[10], p1[11], matrix_b + 256);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[12], p1[13], p1[14], p1[15], matrix_b + 384);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[16], p1[17], p1[18], p1[19], matrix_b + 512);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[20], p1[21], p1[22], p1[23], matrix_b + 640);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[24], p1[25], p1[26], p1[27], matrix_b + 768);
                mma_AB_bf16_registers_n128<1, 0>(o, p1[28], p1[29], p1[30], p1[31], matrix_b + 896);
                products_commit();
            }
#line 46 "07_attention.py"
            // with out.fill() as t: pk.store(t.tiles(64, d)[w], pk.normalize(o, l).to(bf16))
            barrier_wait(out_empty + 8 * q_drain.stage, q_drain.phase ^ 1);
            const u32 t19 = out + 32768 * q_drain.stage;
            const u32 t19_full = out_full + 8 * q_drain.stage;
            q_drain.next();
            bool empty[2];
            UNROLL for (int i = 0; i < 2; ++i) empty[i] = l1[i] == 0.0f;
            float t20[2];
            UNROLL for (int i = 0; i < 2; ++i) t20[i] = empty[i] ? 1.0f : l1[i];
            float t21[2];
            UNROLL for (int i = 0; i < 2; ++i) t21[i] = 1.0f / t20[i];
            float inverse1[2];
            UNROLL for (int i = 0; i < 2; ++i) inverse1[i] = empty[i] ? 0.0f : t21[i];
            products_wait<0>();
            pin(o);
            pin(p1);
#line 45 "07_attention.py"
            // with v.drain() as vt: o = pk.mma_AB(p, vt, o)
            if (lane == 0) barrier_arrive(v_empty + 8 * v_back.stage);  // v: give the stage back
            v_back.next();
#line 46 "07_attention.py"
            // with out.fill() as t: pk.store(t.tiles(64, d)[w], pk.normalize(o, l).to(bf16))
            float t22[64];
            UNROLL for (int i = 0; i < 64; ++i) t22[i] = o[i] * inverse1[row_of<128>(i)];
            u32 t23[32];
            UNROLL for (int i = 0; i < 64; i += 2) t23[i / 2] = pack_bf16(t22[i], t22[i + 1]);
            UNROLL for (int i = 0; i < 8; ++i) store_matrix(t19 + w * 8192 + shared_at<128>((i / 8 * 4 + warp) * 16 + lane % 16, i % 8 * 32 + lane / 16 * 16, 16384), t23[4 * i], t23[4 * i + 1], t23[4 * i + 2], t23[4 * i + 3]);
            fence_async();
            __syncwarp();
            if (lane == 0) barrier_arrive(t19_full);
        }
    }
}
