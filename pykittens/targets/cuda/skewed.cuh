// Rows that start at any address. A granule is what one instruction of a lane moves, at a multiple of its size; the
// skew of an address is its distance from the granule that holds it. It is the same for all chunks of a row.

// -- shifts -------------------------------------------------------------------

// One of two words. A choice between two places of an array would put the array into local memory.
DEVICE u32 either(bool first, u32 a, u32 b) { return first ? a : b; }
// Words that lie `skew` bytes further on, a multiple of SIZE below GRANULE; the last GRANULE bytes become undefined.
template <int SIZE, int GRANULE, int N> DEVICE void shift_down(u32 (&x)[N], u32 skew) {
    if constexpr (GRANULE > 8 && SIZE <= 8) UNROLL for (int i = 0; i + 2 < N; ++i) x[i] = either(skew & 8, x[i + 2], x[i]);
    if constexpr (GRANULE > 4 && SIZE <= 4) UNROLL for (int i = 0; i + 1 < N; ++i) x[i] = either(skew & 4, x[i + 1], x[i]);
    if constexpr (SIZE < 4) UNROLL for (int i = 0; i + 1 < N; ++i) x[i] = __funnelshift_r(x[i], x[i + 1], skew * 8);
}
// Words that lie `skew` bytes further back; the first GRANULE bytes become undefined.
template <int SIZE, int GRANULE, int N> DEVICE void shift_up(u32 (&x)[N], u32 skew) {
    if constexpr (GRANULE > 8 && SIZE <= 8) UNROLL for (int i = N - 1; i > 1; --i) x[i] = either(skew & 8, x[i - 2], x[i]);
    if constexpr (GRANULE > 4 && SIZE <= 4) UNROLL for (int i = N - 1; i > 0; --i) x[i] = either(skew & 4, x[i - 1], x[i]);
    if constexpr (SIZE < 4) UNROLL for (int i = N - 1; i > 0; --i) x[i] = __funnelshift_l(x[i - 1], x[i], skew * 8);
}

// -- parts of granules --------------------------------------------------------

// The word of BYTES that holds a byte. An index known at run time only would put the words into local memory.
template <int BYTES> DEVICE u32 word_at(const u32* x, int byte) {
    if constexpr (BYTES <= 4) return x[0];
    else return either(byte & BYTES / 2, word_at<BYTES / 2>(x + BYTES / 8, byte), word_at<BYTES / 2>(x, byte));
}
// Of words, the BYTES at `at`, a multiple of these, to memory.
template <int BYTES, int OF> DEVICE void store_piece(char* to, const u32* x, int at) {
    const u32 words[2] = {word_at<OF>(x, at) >> at % 4 * 8, BYTES > 4 ? word_at<OF>(x, at + 4) : 0};
    move_out<BYTES>(to, words);
}
// Bytes FROM to END of a granule, as few pieces as alignment permits; nothing outside the granule.
template <int SIZE, int GRANULE> DEVICE void store_part(char* to, const u32* x, int from, int end) {
    if (from <= 0 && end >= GRANULE) {
        move_out<GRANULE>(to, x);
    } else if (from < GRANULE && end > 0 && from < end) {
        from = max(from, 0), end = min(end, GRANULE);
        if constexpr (SIZE <= 1) if (from & 1) store_piece<1, GRANULE>(to + from, x, from), from += 1;
        if constexpr (SIZE <= 2 && GRANULE > 2) if (from & 2 && from + 2 <= end) store_piece<2, GRANULE>(to + from, x, from), from += 2;
        if constexpr (SIZE <= 4 && GRANULE > 4) if (from & 4 && from + 4 <= end) store_piece<4, GRANULE>(to + from, x, from), from += 4;
        if constexpr (GRANULE > 8) if (from + 8 <= end) store_piece<8, GRANULE>(to + from, x, from), from += 8;
        if constexpr (SIZE <= 4 && GRANULE > 4) if (from + 4 <= end) store_piece<4, GRANULE>(to + from, x, from), from += 4;
        if constexpr (SIZE <= 2 && GRANULE > 2) if (from + 2 <= end) store_piece<2, GRANULE>(to + from, x, from), from += 2;
        if constexpr (SIZE <= 1) if (from < end) store_piece<1, GRANULE>(to + from, x, from);
    }
}

// Elements of registers out of words as they lie in memory, and those words.
DEVICE float pick(const u32* from, int i, const float*) { return __uint_as_float(from[i]); }
DEVICE int pick(const u32* from, int i, const int*) { return (int)from[i]; }
DEVICE i64 pick(const u32* from, int i, const i64*) { return (i64)(from[2 * i] | (u64)from[2 * i + 1] << 32); }
DEVICE u64 pick(const u32* from, int i, const u64*) { return from[2 * i] | (u64)from[2 * i + 1] << 32; }
DEVICE u32 word_of(const u32* from, int i) { return from[i]; }
DEVICE u32 word_of(const float* from, int i) { return __float_as_uint(from[i]); }
DEVICE u32 word_of(const int* from, int i) { return (u32)from[i]; }
DEVICE u32 word_of(const i64* from, int i) { return (u32)(from[i / 2] >> i % 2 * 32); }

// -- plain vectors ------------------------------------------------------------

// A number of bytes as an int, if it is too large the nearest that cannot overflow.
DEVICE int bounded(i64 x) { return (int)(x > 1 << 30 ? 1 << 30 : x < -(1 << 30) ? -(1 << 30) : x); }

// LENGTH elements of a row to the chunks that the threads of a group hold; outside the matrix they read as `fill`. Each
// lane loads the granules in which its chunks start and takes the rest from the next lane. Loads only granules that lie
// between the first and the last element of the matrix; next to its ends elements are loaded.
// WHOLE: the row has all elements, and the matrix all granules around them, so that only the end of the row is tested.
// There a lane of few chunks loads the rest as well, from the first-level cache: registers suffice, and a load takes the
// place of eight instructions.
template <bool WHOLE, int CHUNK, int THREADS, class T, class R, int N, class F>
DEVICE void load_chunks(R (&to)[N], const T* matrix, i64 stride, int row, int col, int rows, int cols, int length, F fill, int thread) {
    constexpr int SIZE = sizeof(T), BYTES = CHUNK * SIZE, GRANULE = BYTES < 16 ? BYTES : 16, EACH = BYTES / sizeof(R);
    constexpr int WORDS = BYTES / 4, EXTRA = GRANULE / 4, CHUNKS = N / EACH;
    const int lane = thread % 32, end = row >= 0 && row < rows ? min(cols, col + length) : 0;
    col += thread * CHUNK;
    const T* const elements = matrix + (row * stride + col);
    const int skew = (u32)(u64)elements % GRANULE;
    const char* const granules = (const char*)elements - skew;
    // The bounds of the matrix and of the row, in bytes from the lane's first granule.
    const int start = bounded((const char*)matrix - granules), stop = bounded((const char*)(matrix + ((rows - 1) * stride + cols)) - granules);
    const int low = bounded(-(i64)col * SIZE) + skew, high = WHOLE ? (length - thread * CHUNK) * SIZE + skew : bounded((i64)(end - col) * SIZE) + skew;
    const auto loads = [&](int at) { return at < high && (WHOLE || end > 0 && at + BYTES > low && at >= start && at + BYTES <= stop); };
    const auto is_full = [&](int j) { return WHOLE && (j + 1) * THREADS * CHUNK <= length; };
    constexpr bool FEW = WHOLE && CHUNKS * EXTRA <= 8;
    u32 x[CHUNKS][WORDS], rest[CHUNKS][EXTRA], after[EXTRA];
    UNROLL for (int j = 0; j < CHUNKS; ++j) {
        const int at = j * THREADS * BYTES;
        if (is_full(j) || loads(at)) {
            UNROLL for (int k = 0; k < BYTES; k += GRANULE) move_in<GRANULE>(x[j] + k / 4, granules + at + k);
            if (FEW && skew) move_in<GRANULE>(rest[j], granules + at + BYTES);
        }
    }
    // The granule after the chunks of a warp, which are neighbours, or lane i has that after chunks i.
    const int past = THREADS == 32 ? CHUNKS * 32 * BYTES : (32 - lane + lane * THREADS) * BYTES;
    if (!FEW && skew && lane < (THREADS == 32 ? 1 : CHUNKS) && loads(past)) move_in<GRANULE>(after, granules + past);
    UNROLL for (int j = 0; j < CHUNKS; ++j) {
        const int at = j * THREADS * BYTES, next = at + BYTES;
        u32 words[WORDS + EXTRA] = {};
        UNROLL for (int k = 0; k < WORDS; ++k) words[k] = x[j][k];
        UNROLL for (int k = 0; k < EXTRA; ++k) {
            if constexpr (FEW) {
                words[WORDS + k] = rest[j][k];
            } else if constexpr (THREADS == 32) {
                words[WORDS + k] = __shfl_sync(~0u, lane ? x[j][k] : j + 1 < CHUNKS ? x[(j + 1) % CHUNKS][k] : after[k], lane + 1);
            } else {
                const u32 of_lane = __shfl_sync(~0u, x[j][k], lane + 1), of_warp = __shfl_sync(~0u, after[k], j);
                words[WORDS + k] = lane == 31 ? of_warp : of_lane;
            }
        }
        shift_down<SIZE, GRANULE>(words, skew);
        R* const own = to + j * EACH;
        UNROLL for (int k = 0; k < EACH; ++k) own[k] = pick(words, k, own);
        if (is_full(j)) continue;
        if constexpr (WHOLE) {
            // Compared with numbers known here, of which neighbouring elements mostly share one.
            const auto threads = [&](int k) { return (length - k + CHUNK - 1) / CHUNK - j * THREADS; };
            UNROLL for (int k = 0; k < CHUNK; ++k) put(own, k, thread < threads(k) ? pick(words, k, matrix) : (T)fill);
            continue;
        }
        const bool known = (loads(at) || max(at + skew, low) >= min(next, high)) && (loads(next) || max(next, low) >= min(next + skew, high));
        if (!known || at + skew < low || next + skew > high) {
            UNROLL for (int k = 0; k < CHUNK; ++k) {
                const int byte = at + skew + k * SIZE;
                const bool inside = end > 0 && byte >= low && byte < high;
                T element = pick(words, k, matrix);
                if (inside && !known) element = elements[j * THREADS * CHUNK + k];
                put(own, k, inside ? element : (T)fill);
            }
        }
    }
}
// Whether a row has LENGTH elements, as many as a group holds, from a column that is aligned: then no chunk is cut, and
// none is shifted.
template <int CHUNK, int THREADS, int CHUNKS, class T> DEVICE bool is_straight(const T* elements, bool there, int col, int cols, int length) {
    constexpr int BYTES = CHUNK * (int)sizeof(T);
    return length == CHUNKS * THREADS * CHUNK && there && col >= 0 && col + length <= cols && (u64)elements % (BYTES < 16 ? BYTES : 16) == 0;
}
// ONE_ROW: the matrix has no other row.
template <int CHUNK, int THREADS, bool ONE_ROW = false, class T, class R, int N, class F>
DEVICE void load_skewed(R (&to)[N], const T* matrix, i64 stride, int row, int col, int rows, int cols, int length, F fill, int thread) {
    constexpr int BYTES = CHUNK * (int)sizeof(T);
    const bool there = row >= 0 && row < rows, inside = col >= 0 && col + length <= cols;
    const T* const elements = matrix + (row * stride + col);
    constexpr int GRANULE = BYTES < 16 ? BYTES : 16, EACH = BYTES / (int)sizeof(R), CHUNKS = N / EACH;
    if (is_straight<CHUNK, THREADS, CHUNKS>(elements, there, col, cols, length)) {
        UNROLL for (int j = 0; j < CHUNKS; ++j) {
            u32 words[BYTES / 4];
            UNROLL for (int k = 0; k < BYTES; k += GRANULE) move_in<GRANULE>(words + k / 4, (const char*)(elements + (j * THREADS + thread) * CHUNK) + k);
            UNROLL for (int k = 0; k < EACH; ++k) to[j * EACH + k] = pick(words, k, to);
        }
        return;
    }
    const char* const end = (const char*)(matrix + ((rows - 1) * stride + cols));
    // Rows before and after it hold the granules around it, if they are long enough; else the bounds of the matrix decide.
    const bool between = row > 0 && row < rows - 1 && stride * (int)sizeof(T) >= (BYTES > 8 ? 2 * BYTES : 16);
    const bool around = between || there && (const char*)elements - 15 >= (const char*)matrix && (const char*)(elements + length) + 2 * BYTES <= end;
    if (inside && around) {
        load_chunks<true, CHUNK, THREADS>(to, matrix, stride, row, col, rows, cols, length, fill, thread);
    } else if (!ONE_ROW && inside) {
        // The first or the last of the rows, or none: they are few, and the others should hold no registers for them.
        UNROLL for (int i = 0; i < N * (int)sizeof(R) / (int)sizeof(T); ++i) {
            const int at = vector_at<CHUNK, THREADS>(i, thread);
            put(to, i, there && at < length ? elements[at] : (T)fill);
        }
    } else {
        load_chunks<false, CHUNK, THREADS>(to, matrix, stride, row, col, rows, cols, length, fill, thread);
    }
}
// What each lane stores of a run of neighbouring chunks of a warp: a lane has its own granules at x[GRANULE / 4] and up,
// and before them the last granule of the lane before it. FIRST and LAST bound the run, in bytes from its first granule.
template <int SIZE, int BYTES, int GRANULE, int N> DEVICE void store_granules(char* to, u32 (&x)[N], u32 skew, int lane, int first, int last) {
    shift_up<SIZE, GRANULE>(x, skew);
    if (last >= 32 * BYTES && (first <= 0 || first == GRANULE)) {  // no granule of the warp is cut
        UNROLL for (int k = 0; k < BYTES; k += GRANULE) if (lane * BYTES + k >= first) move_out<GRANULE>(to + k, x + (k + GRANULE) / 4);
        return;
    }
    UNROLL for (int k = 0; k < BYTES; k += GRANULE) store_part<SIZE, GRANULE>(to + k, x + (k + GRANULE) / 4, first - lane * BYTES - k, last - lane * BYTES - k);
}
// LENGTH elements from the chunks of a warp to a row that has them all: the granules that they fill, and of those at
// its ends each element by a lane.
template <int CHUNK, class T, class R, int N> DEVICE void store_whole_row(const R (&from)[N], T* row, int length, int lane) {
    constexpr int SIZE = sizeof(T), BYTES = CHUNK * SIZE, GRANULE = BYTES < 16 ? BYTES : 16;
    constexpr int WORDS = BYTES / 4, EXTRA = GRANULE / 4, CHUNKS = N * (int)sizeof(R) / BYTES, PER = GRANULE / SIZE;
    const int skew = (u32)(u64)row % GRANULE, end = skew + length * SIZE;
    char* const to = (char*)row - skew + lane * BYTES;
    if (length % PER == 0 && !skew) {  // no granule is cut
        UNROLL for (int i = 0; i < CHUNKS; ++i) UNROLL for (int k = 0; k < BYTES; k += GRANULE) {
            u32 x[EXTRA];
            UNROLL for (int w = 0; w < EXTRA; ++w) x[w] = word_of(from, i * WORDS + k / 4 + w);
            const int at = i * 32 * BYTES + k;
            if (lane * BYTES + at < end) move_out<GRANULE>(to + at, x);
        }
        return;
    }
    UNROLL for (int i = 0; i <= CHUNKS; ++i) {
        const int at = i * 32 * BYTES;
        if (at + SIZE > length * SIZE) continue;  // no granule that starts there is filled, whatever the skew
        u32 x[EXTRA + WORDS];
        UNROLL for (int k = 0; k < WORDS; ++k) x[EXTRA + k] = i < CHUNKS ? word_of(from, i * WORDS + k) : 0;
        UNROLL for (int k = 0; k < EXTRA; ++k) x[k] = __shfl_sync(~0u, lane == 31 && i > 0 ? word_of(from, i * WORDS - EXTRA + k) : x[WORDS + k], lane + 31);
        shift_up<SIZE, GRANULE>(x, skew);
        UNROLL for (int k = 0; k < BYTES; k += GRANULE) {
            const int byte = at + lane * BYTES + k;
            if (byte >= skew && byte + GRANULE <= end) move_out<GRANULE>(to + at + k, x + (k + GRANULE) / 4);
        }
    }
    // Lanes below PER have the first elements, and the next ones the last, which lie in at most two chunks.
    const bool is_first = lane < PER;
    const int element = is_first ? lane : max(length - 2 * PER, -PER) + lane;
    const int before = max(length - PER, 0) / CHUNK, last = (length - 1) / CHUNK;
    const bool apart = before % 32 && last % 32;  // the first lane has none of them, so one shuffle brings both ends
    u32 x[WORDS];
    UNROLL for (int k = 0; k < WORDS; ++k) {
        const u32 of_end = lane == last % 32 ? word_of(from, last / 32 * WORDS + k) : word_of(from, before / 32 * WORDS + k);
        const u32 of_start = k < EXTRA ? word_of(from, k) : 0;
        if (apart) {
            x[k] = __shfl_sync(~0u, lane ? of_end : of_start, is_first ? 0 : element / CHUNK);
        } else {
            const u32 end_word = __shfl_sync(~0u, of_end, element / CHUNK), start_word = __shfl_sync(~0u, of_start, 0);
            x[k] = is_first ? start_word : end_word;
        }
    }
    const int byte = skew + element * SIZE;
    const bool is_cut = is_first ? skew && byte < GRANULE : byte >= end - end % GRANULE;
    if (lane < 2 * PER && element < length && is_cut) store_piece<SIZE, BYTES>((char*)(row + element), x, element % CHUNK * SIZE);
}
// LENGTH elements from the chunks of a group to a row; nothing outside the matrix. Each lane passes what lies past its
// last granule to the next lane.
template <int CHUNK, int THREADS, class T, class R, int N>
DEVICE void store_skewed(const R (&from)[N], T* matrix, i64 stride, int row, int col, int rows, int cols, int length, int thread) {
    constexpr int SIZE = sizeof(T), BYTES = CHUNK * SIZE, GRANULE = BYTES < 16 ? BYTES : 16;
    constexpr int WORDS = BYTES / 4, EXTRA = GRANULE / 4, CHUNKS = N * (int)sizeof(R) / BYTES;
    const int lane = thread % 32, end = row >= 0 && row < rows ? min(cols, col + length) : 0;
    if (is_straight<CHUNK, THREADS, CHUNKS>(matrix + (row * stride + col), row >= 0 && row < rows, col, cols, length)) {
        UNROLL for (int j = 0; j < CHUNKS; ++j) {
            u32 words[WORDS];
            UNROLL for (int k = 0; k < WORDS; ++k) words[k] = word_of(from, j * WORDS + k);
            UNROLL for (int k = 0; k < BYTES; k += GRANULE) move_out<GRANULE>((char*)(matrix + (row * stride + col) + (j * THREADS + thread) * CHUNK) + k, words + k / 4);
        }
        __syncwarp();
        return;
    }
    if (THREADS == 32 && end > 0 && col >= 0 && end == col + length) {
        store_whole_row<CHUNK>(from, matrix + (row * stride + col), length, lane);
        __syncwarp();
        return;
    }
    col += (thread - lane) * CHUNK;
    char* to = (char*)(matrix + (row * stride + col));
    const u32 skew = (u32)(u64)to % GRANULE;
    to -= skew;
    u32 x[EXTRA + WORDS];
    if constexpr (THREADS == 32) {
        // The chunks of a warp are neighbours: the last lane passes its granule to the first lane's next chunk.
        const int first = max(-col, 0) * SIZE + skew, last = min(end - col, CHUNKS * 32 * CHUNK) * SIZE + skew;
        UNROLL for (int i = 0; i <= CHUNKS; ++i) {
            const int at = i * 32 * BYTES;
            if (at >= last || first >= last) continue;
            UNROLL for (int k = 0; k < WORDS; ++k) x[EXTRA + k] = i < CHUNKS ? word_of(from, i * WORDS + k) : 0;
            UNROLL for (int k = 0; k < EXTRA; ++k) x[k] = __shfl_sync(~0u, lane == 31 && i > 0 ? word_of(from, i * WORDS - EXTRA + k) : x[WORDS + k], lane + 31);
            store_granules<SIZE, BYTES, GRANULE>(to + at + lane * BYTES, x, skew, lane, first - at, last - at);
        }
    } else {
        // The last lane passes its granule to the first lane, which then has both ends of the chunks of the warp. Lane i
        // stores those of chunks i.
        const auto bounds = [&](int i, int& first, int& last) {
            const int at = col + i * THREADS * CHUNK;
            first = max(-at, 0) * SIZE + skew, last = min(end - at, 32 * CHUNK) * SIZE + skew;
        };
        u32 ends[EXTRA] = {};
        int first, last;
        UNROLL for (int i = 0; i < CHUNKS; ++i) {
            bounds(i, first, last);
            if (first >= last) continue;
            UNROLL for (int k = 0; k < WORDS; ++k) x[EXTRA + k] = word_of(from, i * WORDS + k);
            UNROLL for (int k = 0; k < EXTRA; ++k) x[k] = __shfl_sync(~0u, x[WORDS + k], lane + 31);
            store_granules<SIZE, BYTES, GRANULE>(to + i * THREADS * BYTES + lane * BYTES, x, skew, lane, max(first, GRANULE), last);
            UNROLL for (int k = 0; k < EXTRA; ++k) {
                const u32 word = __shfl_sync(~0u, x[EXTRA + k], 0);
                ends[k] = lane == i ? word : ends[k];
            }
        }
        bounds(lane, first, last);
        to += lane * THREADS * BYTES;
        if (lane < CHUNKS && first < last) {
            store_part<SIZE, GRANULE>(to, ends, first, last);
            store_part<SIZE, GRANULE>(to + 32 * BYTES, ends, first - 32 * BYTES, last - 32 * BYTES);
        }
    }
    __syncwarp();  // a lane may load next what another has stored for it
}

// -- tiles in shared memory ---------------------------------------------------

// How THREADS share the pieces of 16 bytes of a tile. ALIKE: those of a lane lie BETWEEN rows apart, at one skew and at one
// place of the swizzle, so that one of them tells where the others are.
template <int COLS, int SWIZZLE, int THREADS, int SIZE> struct Shares {
    static constexpr int PIECES = COLS * SIZE / 16, BETWEEN = THREADS / PIECES;
    static constexpr bool ALIKE = THREADS % PIECES == 0 && BETWEEN * SIZE % 16 == 0 && BETWEEN * SWIZZLE % 1024 == 0;
};
// A number that the compiler does not know: what depends on it is computed where it is used, and not held in registers
// from before a loop.
DEVICE int unknown(int x) { asm volatile("" : "+r"(x)); return x; }
// A tile in shared memory to a tensor by THREADS, nothing outside the matrix. The lanes of a row store whole granules, each
// from the ends of a lane's piece and the one before it, and an element each of those at both ends of the row. The rows of
// a lane have one skew and one place of the swizzle; up to MOST of them are loaded before the first is stored.
template <int ROWS, int COLS, int SWIZZLE, int THREADS, int MOST, class T>
DEVICE void copy_out_skewed(T* to, i64 stride, int row, int col, int rows, int cols, u32 from, u32 byte, u32 panel_bytes, int thread) {
    constexpr int SIZE = sizeof(T), PIECES = COLS * SIZE / 16, SHARES = PIECES * SIZE < 16 ? 16 / SIZE : PIECES;
    // What lanes share of a row, pieces and elements at its ends. The rows of a lane are multiples of UNIT apart; all lanes
    // have BETWEEN rows at a time, as many as leave the fewest turns.
    constexpr int ALIKE = SIZE > 1 ? 8 : 16, UNIT = ROWS < ALIKE ? ROWS : ALIKE, UNITS = (ROWS - 1) / UNIT + 1, TURNS = (SHARES - 1) / (THREADS / UNIT) + 1;
    constexpr int AT_ONCE = THREADS / ((SHARES - 1) / TURNS + 1) / UNIT, BETWEEN = (AT_ONCE < UNITS ? AT_ONCE : UNITS) * UNIT, ACROSS = THREADS / BETWEEN;
    constexpr int TIMES = (ROWS - 1) / BETWEEN + 1, TOGETHER = (TIMES - 1) / ((TIMES - 1) / (MOST < 4 ? MOST : 4) + 1) + 1;
    constexpr bool EVEN = ROWS % (BETWEEN * TOGETHER) == 0;
    thread = unknown(thread);
    const int top = thread / ACROSS, bottom = EVEN ? rows : min(rows, row + ROWS);
    char* const elements = (char*)(to + ((row + top) * stride + col));
    const int skew = (u32)(u64)elements % 16;
    // In bytes from the first granule: the elements that the row has, and the granules that they fill.
    const int start = max(-col, 0) * SIZE + skew, stop = min(cols - col, COLS) * SIZE + skew;
    const int first = min((start + 15) / 16 * 16, stop), last = max(stop / 16 * 16, first), ends = first - start + stop - last;
    if (top >= BETWEEN || start >= stop) return;
    const i64 step = BETWEEN * stride * SIZE;
    // A lane without a granule or an element loads another of the row.
    const auto at_byte = [&](int at) { return from + shared_at<SWIZZLE>(top, byte + (u32)at % (COLS * SIZE), panel_bytes); };
    NO_UNROLL for (int p = thread % ACROSS; p * 16 < last || p * SIZE < ends; p += ACROSS) {
        const bool is_filled = p * 16 >= first && p * 16 < last, is_end = p * SIZE < ends;
        const int place = (p * SIZE < first - start ? start : last - (first - start)) + p * SIZE - skew;
        const u32 before = at_byte((p + PIECES - 1) * 16), own = at_byte(p * 16), end = at_byte(place);
        char *granule = elements - skew + p * 16, *element = elements + place;
        NO_UNROLL for (int i = 0; i < TIMES; i += TOGETHER) {
            uint4 a[TOGETHER], b[TOGETHER];
            T x[TOGETHER];
            UNROLL for (int j = 0; j < TOGETHER; ++j) {
                const int further = (i + j) * BETWEEN * SWIZZLE;
                if (EVEN || top + (i + j) * BETWEEN < ROWS) a[j] = load_piece(before + further), b[j] = load_piece(own + further), fetch(end + further, x[j]);
            }
            UNROLL for (int j = 0; j < TOGETHER; ++j, granule += step, element += step) {
                u32 words[8] = {a[j].x, a[j].y, a[j].z, a[j].w, b[j].x, b[j].y, b[j].z, b[j].w};
                shift_up<SIZE, 16>(words, skew);
                const bool is_there = is_below(row + top + (i + j) * BETWEEN, bottom);
                if (is_there && is_filled) move_out<16>(granule, words + 4);
                if (is_there && is_end) *(T*)element = x[j];
            }
        }
    }
}
