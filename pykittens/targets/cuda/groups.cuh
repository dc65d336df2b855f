// What the lanes and warps of a group do together. `join` makes one of two partial results.

// -- layouts of vectors (types/layouts.py says the same) ----------------------

// Row of register i of a per-row vector, column of register i of a per-column one.
template <int WARPS> DEVICE int row_at(int i, int warp, int lane) { return (i / 2 * WARPS + warp) * 16 + lane / 4 + i % 2 * 8; }
DEVICE int col_at(int i, int lane) { return i / 2 * 8 + lane % 4 * 2 + i % 2; }

// -- elements as they lie in memory: two of 16 bits share a register, and four of 8 ----

DEVICE unsigned short half_at(const u32* x, int i) { return x[i / 2] >> i % 2 * 16; }
DEVICE unsigned char byte_at(const u32* x, int i) { return x[i / 4] >> i % 4 * 8; }
DEVICE u32 two_halves(u32 a, u32 b = 0) { return a | b << 16; }
DEVICE u32 four_bytes(u32 a, u32 b = 0, u32 c = 0, u32 d = 0) { return a | b << 8 | c << 16 | d << 24; }

// -- reductions ---------------------------------------------------------------

// The extreme element so far and where it stands: of equals the first; NaN counts as the extreme.
template <class T> struct Found { T value; int at; };
template <class T> DEVICE bool above(T a, T b) { return (a > b) | ((a != a) & (b == b)); }
template <class T> DEVICE bool below(T a, T b) { return (a < b) | ((a != a) & (b == b)); }
template <class T> DEVICE auto first_max(Found<T> a, Found<T> b) { return (a.at < b.at ? !above(b.value, a.value) : above(a.value, b.value)) ? a : b; }
template <class T> DEVICE auto first_min(Found<T> a, Found<T> b) { return (a.at < b.at ? !below(b.value, a.value) : below(a.value, b.value)) ? a : b; }

template <class T> DEVICE T of_other_lane(T x, int distance) { return __shfl_xor_sync(~0u, x, distance); }
template <class T> DEVICE auto of_other_lane(Found<T> x, int distance) { return Found<T>{of_other_lane(x.value, distance), of_other_lane(x.at, distance)}; }
// The lanes whose numbers differ in the bits FROM to TO: 1 to 2 hold a row of a tile, 4 to 16 its columns.
template <int FROM, int TO, class T, class J> DEVICE T join_lanes(T x, J join) {
    UNROLL for (int d = FROM; d <= TO; d *= 2) x = join(x, of_other_lane(x, d));
    return x;
}

// -- scans, inclusive, in place -----------------------------------------------

// Along the rows of a tile: a lane's two neighbours, the four lanes of a row, then eight columns after eight.
template <int COLS, int COUNT, class T, class J> DEVICE void scan_rows(T (&x)[COUNT], int lane, T nothing, J join) {
    T before[COUNT / (COLS / 2) * 2];
    UNROLL for (int i = 0; i < COUNT / (COLS / 2) * 2; ++i) before[i] = nothing;
    UNROLL for (int i = 0; i < COUNT; i += 2) {
        T& done = before[row_of<COLS>(i)];
        T last = join(x[i], x[i + 1]);
        UNROLL for (int d = 1; d < 4; d *= 2) {
            const T left = __shfl_up_sync(~0u, last, d, 4);
            if (lane % 4 >= d) last = join(left, last);
        }
        const T left = __shfl_up_sync(~0u, last, 1, 4);
        x[i] = join(lane % 4 ? join(done, left) : done, x[i]);
        x[i + 1] = join(x[i], x[i + 1]);
        done = join(done, __shfl_sync(~0u, last, 3, 4));
    }
}
// Along the columns of a tile: the eight lanes of a column, the two halves of a block of 16 rows, then the blocks, which
// the warps hold in turn. `held` has room for a value a column, block and warp.
template <int COLS, int WARPS, int COUNT, class T, class J> DEVICE void scan_columns(T (&x)[COUNT], T* held, int barrier, int warp, int lane, T nothing, J join) {
    constexpr int WIDTH = COLS / 4, BLOCKS = COUNT / 2 / WIDTH;  // WIDTH columns of a lane
    T all[BLOCKS * WIDTH];
    UNROLL for (int i = 0; i < BLOCKS * WIDTH; ++i) {
        T& upper = x[i / 2 * 4 + i % 2];
        T& lower = x[i / 2 * 4 + i % 2 + 2];
        UNROLL for (int d = 4; d < 32; d *= 2) {
            const T above_upper = __shfl_up_sync(~0u, upper, d), above_lower = __shfl_up_sync(~0u, lower, d);
            if (lane >= d) {
                upper = join(above_upper, upper);
                lower = join(above_lower, lower);
            }
        }
        lower = join(__shfl_sync(~0u, upper, 28 + lane % 4), lower);
        all[i] = __shfl_sync(~0u, lower, 28 + lane % 4);
        // All lanes of a column hold the same value: each of them writes some of the registers.
        if (WARPS > 1 && lane / 4 == i / 2 % 8) held[warp * BLOCKS * COLS + col_at(i, lane)] = all[i];
    }
    if (WARPS > 1) group_sync(barrier, WARPS * 32);
    UNROLL for (int c = 0; c < WIDTH; ++c) {
        T done = nothing;
        UNROLL for (int i = c; i < BLOCKS * WIDTH; i += WIDTH) {
            T before = done;
            if (WARPS == 1) done = join(done, all[i]);
            if (WARPS > 1) UNROLL for (int w = 0; w < WARPS; ++w) {
                const T part = held[w * BLOCKS * COLS + col_at(i, lane)];
                if (w < warp) before = join(before, part);
                done = join(done, part);
            }
            UNROLL for (int half = 0; half < 4; half += 2) x[i / 2 * 4 + i % 2 + half] = join(before, x[i / 2 * 4 + i % 2 + half]);
        }
    }
    if (WARPS > 1) group_sync(barrier, WARPS * 32);
}
// Along a plain vector: the neighbours of a lane, the lanes of a warp, then the warps, turn after turn. `held` has
// room for a value a turn and warp.
template <int CHUNK, int WARPS, int COUNT, class T, class J> DEVICE void scan_vector(T (&x)[COUNT], T* held, int barrier, int warp, int lane, T nothing, J join) {
    T left[COUNT / CHUNK], all[COUNT / CHUNK];
    UNROLL for (int t = 0; t < COUNT / CHUNK; ++t) {
        UNROLL for (int i = t * CHUNK + 1; i < (t + 1) * CHUNK; ++i) x[i] = join(x[i - 1], x[i]);
        T last = x[(t + 1) * CHUNK - 1];
        UNROLL for (int d = 1; d < 32; d *= 2) {
            const T other = __shfl_up_sync(~0u, last, d);
            if (lane >= d) last = join(other, last);
        }
        const T other = __shfl_up_sync(~0u, last, 1);
        left[t] = lane ? other : nothing;
        all[t] = __shfl_sync(~0u, last, 31);
        if (WARPS > 1 && lane == 0) held[t * WARPS + warp] = all[t];
    }
    if (WARPS > 1) group_sync(barrier, WARPS * 32);
    T done = nothing;
    UNROLL for (int t = 0; t < COUNT / CHUNK; ++t) {
        T before = done;
        if (WARPS == 1) done = join(done, all[t]);
        if (WARPS > 1) UNROLL for (int w = 0; w < WARPS; ++w) {
            const T part = held[t * WARPS + w];
            if (w < warp) before = join(before, part);
            done = join(done, part);
        }
        before = join(before, left[t]);
        UNROLL for (int i = t * CHUNK; i < (t + 1) * CHUNK; ++i) x[i] = join(before, x[i]);
    }
    if (WARPS > 1) group_sync(barrier, WARPS * 32);
}

// -- random bits --------------------------------------------------------------

// Philox4x32-10: the words of a counter become four random ones.
DEVICE void philox(u32 (&word)[4], u32 key, u32 key_high) {
    UNROLL for (int turn = 0; turn < 10; ++turn) {
        const u32 first = __umulhi(0xd2511f53u, word[0]), second = __umulhi(0xcd9e8d57u, word[2]);
        const u32 a = second ^ word[1] ^ (key + turn * 0x9e3779b9u), c = first ^ word[3] ^ (key_high + turn * 0xbb67ae85u);
        word[3] = 0xd2511f53u * word[0];
        word[1] = 0xcd9e8d57u * word[2];
        word[0] = a;
        word[2] = c;
    }
}
// Bits of COUNT neighbours of a row from column `col` to registers i and up; four columns share a counter.
template <int COUNT> DEVICE void random_chunk(int* to, int i, u32 key, u32 key_high, u32 row, int col, u32 stream) {
    u32 word[4];
    UNROLL for (int k = 0; k < COUNT; ++k) {
        const int at = (int)((u32)col + k);
        if (k == 0 || at % 4 == 0) {
            word[0] = at >> 2, word[1] = row, word[2] = stream, word[3] = 0;
            philox(word, key, key_high);
        }
        to[i + k] = at & 2 ? (at & 1 ? word[3] : word[2]) : (at & 1 ? word[1] : word[0]);
    }
}
