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
// The columns of a tile, of which a lane has joined its own rows. With several warps lanes share the columns: at each of
// the distances 4, 8, 16 a lane gives half of its blocks of 8 columns away, if they are even in number. `held` has room
// for a value a column and warp.
template <int DISTANCE, bool HALVES, int COUNT, class T, class J> DEVICE void join_distance(T* x, int lane, J join) {
    const bool second = lane & DISTANCE;
    UNROLL for (int i = 0; i < (HALVES ? COUNT / 2 : COUNT); ++i) {
        const int at = HALVES ? i / 2 * 4 + i % 2 : i, other = HALVES ? at + 2 : i;
        const T given = second ? x[at] : x[other], kept = second ? x[other] : x[at];
        x[i] = join(kept, of_other_lane(given, DISTANCE));
    }
}
template <int COLS, int WARPS, int COUNT, class T, class J> DEVICE void join_columns(T (&x)[COUNT], T* held, int barrier, int warp, int lane, J join) {
    constexpr int HALVINGS = WARPS == 1 ? 0 : COLS % 64 == 0 ? 3 : COLS % 32 == 0 ? 2 : 1;
    join_distance<4, (HALVINGS > 0), COUNT>(x, lane, join);
    join_distance<8, (HALVINGS > 1), (HALVINGS > 0 ? COUNT / 2 : COUNT)>(x, lane, join);
    join_distance<16, (HALVINGS > 2), (HALVINGS > 1 ? COUNT / 4 : HALVINGS > 0 ? COUNT / 2 : COUNT)>(x, lane, join);
    if (WARPS == 1) return;
    UNROLL for (int i = 0; i < (COUNT >> HALVINGS); ++i) {
        const int block = i / 2 << HALVINGS | (lane / 4 & (1 << HALVINGS) - 1);
        held[warp * COLS + block * 8 + lane % 4 * 2 + i % 2] = x[i];
    }
    group_sync(barrier, WARPS * 32);
    UNROLL for (int first = 0; first < COLS; first += WARPS * 32) {
        const int col = first + warp * 32 + lane;
        if (col >= COLS) continue;
        T done = held[col];
        UNROLL for (int w = 1; w < WARPS; ++w) done = join(done, held[w * COLS + col]);
        held[col] = done;
    }
    group_sync(barrier, WARPS * 32);
    UNROLL for (int i = 0; i < COUNT; ++i) x[i] = held[col_at(i, lane)];
    group_sync(barrier, WARPS * 32);
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

// Element i - BY of a plain vector of one warp, of which lanes hold CHUNK neighbours each; `other` is the vector before
// it, or behind it if BY < 0. Elements that change their lane come from its neighbour, and at the end of the warp from
// the next turn or the other vector. The result may share its registers with an operand.
template <int CHUNK, int BY, int COUNT, class T> DEVICE void shift_vector(T (&y)[COUNT], const T (&x)[COUNT], const T (&other)[COUNT], int lane) {
    T moved[COUNT];
    UNROLL for (int i = 0; i < COUNT; ++i) {
        const int from = i - BY, in_lane = i % CHUNK - BY;
        if (in_lane >= 0 && in_lane < CHUNK) {
            moved[i] = x[from];
            continue;
        }
        const T ours = x[from + (BY > 0 ? CHUNK : -CHUNK)];
        const T theirs = from < 0 ? other[(from + COUNT) % COUNT] : from < COUNT ? x[from] : other[from - COUNT];
        const T sent = lane == (BY > 0 ? 31 : 0) ? theirs : ours;
        moved[i] = __shfl_sync(~0u, sent, lane + (BY > 0 ? 31 : 1));
    }
    UNROLL for (int i = 0; i < COUNT; ++i) y[i] = moved[i];
}

// -- orders -------------------------------------------------------------------

// The integer that stands where a float stands among floats, and back. Adding 0 makes -0 0 and any NaN 0x7fffffff, which
// is above infinity (CUDA C++ Programming Guide, "Floating-Point Standard"). SHIFT low bits are left out, which no number
// of a narrow dtype uses.
template <int SHIFT> DEVICE int rank_of(float x) {
    const int bits = (int)__float_as_uint(x + 0.0f) >> SHIFT;
    return bits ^ (bits >> 31 & 0x7fffffff >> SHIFT);
}
template <int SHIFT> DEVICE float of_rank(int rank) { return __uint_as_float((u32)(rank ^ (rank >> 31 & 0x7fffffff >> SHIFT)) << SHIFT); }

template <class K> DEVICE bool precedes(K a, K b) { return a < b; }
template <class T> DEVICE bool precedes(Found<T> a, Found<T> b) { return (a.value < b.value) | ((a.value == b.value) & (a.at < b.at)); }
// The second key by exclusive or: written as a choice it would be a maximum, which compares once more.
template <class K> DEVICE void put_in_order(K& a, K& b) {
    const K first = precedes(b, a) ? b : a;
    b = a ^ b ^ first;
    a = first;
}
template <class T> DEVICE void put_in_order(Found<T>& a, Found<T>& b) {
    const bool swap = precedes(b, a);
    const Found<T> first = swap ? b : a;
    b = swap ? a : b;
    a = first;
}
// Bitonic networks (Batcher, "Sorting networks and their applications", 1968): of N keys that rise and then fall or fall
// and then rise, and of any N.
template <int N, class K> DEVICE void merge_keys(K* x) {
    UNROLL for (int d = N / 2; d > 0; d /= 2) {
        UNROLL for (int i = 0; i < N; ++i) if (!(i & d)) put_in_order(x[i], x[i + d]);
    }
}
template <int N, class K> DEVICE void sort_keys(K* x) {
    if constexpr (N > 1) {
        sort_keys<N / 2>(x);
        sort_keys<N / 2>(x + N / 2);
        UNROLL for (int i = 0; i < N / 2; ++i) put_in_order(x[i], x[N - 1 - i]);
        merge_keys<N / 2>(x);
        merge_keys<N / 2>(x + N / 2);
    }
}
// Of the sorted keys of two lanes the first N; with `upper` the others. REVERSED: the order of the other lane's keys is
// turned round, so that what is left has to be merged.
template <bool REVERSED, int N, class K> DEVICE void share_keys(K* x, int distance, bool upper) {
    UNROLL for (int i = 0; i < (N + 1) / 2; ++i) {
        const int j = N - 1 - i;
        const K a = of_other_lane(x[REVERSED ? j : i], distance), b = of_other_lane(x[REVERSED ? i : j], distance);
        x[i] = precedes(a, x[i]) != upper ? a : x[i];
        x[j] = precedes(b, x[j]) != upper ? b : x[j];
    }
}
// Item m of lane l becomes item l of lane m, among the four lanes of a row.
template <class K> DEVICE void transpose_lanes(K (&x)[4], int lane) {
    UNROLL for (int d = 1; d < 4; d *= 2) {
        UNROLL for (int m = 0; m < 4; ++m) if (!(m & d)) {
            const K other = of_other_lane(lane & d ? x[m] : x[m + d], d);
            x[m + d] = lane & d ? x[m + d] : other;
            x[m] = lane & d ? other : x[m];
        }
    }
}

// Register j of a lane in its row r of a tile.
template <int COLS> DEVICE constexpr int in_row(int r, int j) { return r / 2 * (COLS / 2) + j / 2 * 4 + r % 2 * 2 + j % 2; }

// The first KEEP keys of each row. A lane sorts its own keys KEEP at a time and keeps the first KEEP of those so far: for
// 64 keys and KEEP = 8 that is 332 comparisons; taking the extreme eight times is 512, and as many to strike it out. All four lanes of a row get the same KEEP keys in two steps.
template <int COLS, int KEEP, int COUNT, class K, class F> DEVICE void top_rows(K (&to)[COUNT], int lane, K last, F key) {
    constexpr int OWN = COLS / 4, WIDTH = KEEP < 16 ? 16 : KEEP;
    UNROLL for (int r = 0; r < COUNT / (WIDTH / 4); ++r) {
        K best[KEEP];
        UNROLL for (int first = 0; first < OWN; first += KEEP) {
            K next[KEEP];
            UNROLL for (int i = 0; i < KEEP; ++i) next[i] = first + i < OWN ? key(in_row<COLS>(r, first + i)) : last;
            sort_keys<KEEP>(next);
            UNROLL for (int i = 0; i < KEEP; ++i) {
                const K rival = next[KEEP - 1 - i];
                best[i] = first == 0 ? next[i] : precedes(rival, best[i]) ? rival : best[i];
            }
            if (first) merge_keys<KEEP>(best);
        }
        UNROLL for (int d = 1; d < 4; d *= 2) {
            share_keys<true, KEEP>(best, d, false);
            merge_keys<KEEP>(best);
        }
        UNROLL for (int j = 0; j < WIDTH / 4; ++j) {
            K mine = last;
            UNROLL for (int i = j / 2 * 8 + j % 2; i < j / 2 * 8 + 8 && i < KEEP; i += 2) mine = lane % 4 == i % 8 / 2 ? best[i] : mine;
            to[in_row<WIDTH>(r, j)] = mine;
        }
    }
}
// All keys of each row in order; COLS is a power of two from 64 on. Lane l gets quarter l of the row by merges, of which
// only three steps shuffle, and then its columns by an exchange. In the layout of the tile every step over two or four
// columns would shuffle: 13 of the 36 for 256 columns.
template <int COLS, int COUNT, class K, class F> DEVICE void sort_rows(K (&to)[COUNT], int lane, K, F key) {
    constexpr int OWN = COLS / 4;
    UNROLL for (int r = 0; r < COUNT / OWN; ++r) {
        K x[OWN];
        UNROLL for (int j = 0; j < OWN; ++j) x[j] = key(in_row<COLS>(r, j));
        sort_keys<OWN>(x);
        share_keys<true, OWN>(x, 1, lane & 1);
        merge_keys<OWN>(x);
        share_keys<true, OWN>(x, 3, lane & 2);
        share_keys<false, OWN>(x, 1, lane & 1);
        merge_keys<OWN>(x);
        UNROLL for (int i = 0; i < OWN / 4; ++i) {
            const int from = i / 2 * 8 + i % 2;
            K item[4] = {x[from], x[from + 2], x[from + 4], x[from + 6]};
            transpose_lanes(item, lane);
            UNROLL for (int l = 0; l < 4; ++l) to[in_row<COLS>(r, l * OWN / 4 + i)] = item[l];
        }
    }
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
