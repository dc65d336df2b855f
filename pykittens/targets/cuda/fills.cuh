// Tiles of tensors whose rows start at any address to shared memory.

DEVICE void put(u32* to, int i, u64 x) { to[2 * i] = (u32)x, to[2 * i + 1] = (u32)(x >> 32); }
// A mask of the bytes of a word from `low` on and before `high`.
DEVICE u32 bytes_between(int low, int high) {
    const u32 from = low <= 0 ? ~0u : low < 4 ? ~0u << low * 8 : 0, before = high >= 4 ? ~0u : high > 0 ? ~(~0u << high * 8) : 0;
    return from & before;
}
// How a tile lies in its matrix. INSIDE: all elements are there, and all granules around them are in the matrix. CUT: rows or
// columns lie outside, but all granules around the others are in the matrix.
// STARTED: copies of narrow pieces are on their way.
enum Fit { EDGE, CUT, INSIDE, STARTED };
template <int ROWS, int COLS, class T> DEVICE Fit fit_of(const T* from, i64 stride, int row, int col, int rows, int cols) {
    const int first = max(row, 0), last = min(row + ROWS, rows) - 1, left = max(col, 0), right = min(col + COLS, cols);
    const u64 start = (u64)(from + (first * stride + left)), stop = (u64)(from + (last * stride + right));
    const u64 end = (u64)(from + ((rows - 1) * stride + cols));
    // A piece that is cut starts up to 16 bytes before its first element, and its granules are 32 bytes.
    if ((left > col ? start - 32 : start / 16 * 16) < (u64)from || (right < col + COLS ? stop + 32 : (stop + 15) / 16 * 16) > end) return EDGE;
    return last - first == ROWS - 1 && right - left == COLS ? INSIDE : CUT;
}
// The pieces of a lane of a tile of ROWS x COLS that THREADS, which are ALIKE, copy to shared memory. At an EDGE elements next
// to the ends of the matrix are copied last. The granules of MOST pieces, from piece i on, are loaded before the first is
// shifted. `at` goes on with the loads: to hold its first value as well would take registers.
template <Fit FIT, int ROWS, int COLS, int SWIZZLE, int THREADS, int MOST, class T> struct Alike {
    static_assert(Shares<COLS, SWIZZLE, THREADS, sizeof(T)>::ALIKE, "pieces at several skews or places of the swizzle");
    static constexpr int SIZE = sizeof(T), ELEMENTS = 16 / SIZE;
    static constexpr int PIECES = Shares<COLS, SWIZZLE, THREADS, SIZE>::PIECES, BETWEEN = Shares<COLS, SWIZZLE, THREADS, SIZE>::BETWEEN;
    static constexpr int TIMES = (ROWS + BETWEEN - 1) / BETWEEN, TOGETHER = TIMES < MOST ? TIMES : MOST;
    const char *from, *end, *at;
    i64 step;
    int top, low, high, row, rows;
    u32 to, skew, inside[4];

    DEVICE Alike(u32 tile, u32 byte, u32 panel_bytes, const T* matrix, i64 stride, int first, int col, int height, int cols, int thread) {
        thread = unknown(thread), rows = unknown(height), row = first, top = thread / PIECES;
        const int c = thread % PIECES * ELEMENTS;
        low = max(-(col + c), 0) * SIZE, high = min(cols - (col + c), ELEMENTS) * SIZE;
        from = (const char*)matrix, at = (const char*)(matrix + ((row + top) * stride + (col + c))), end = (const char*)(matrix + ((rows - 1) * stride + cols));
        skew = (u32)(u64)at % 16, at -= skew, step = BETWEEN * stride * SIZE;
        to = tile + shared_at<SWIZZLE>(top, byte + c * SIZE, panel_bytes);
        UNROLL for (int k = 0; k < 4; ++k) inside[k] = bytes_between(low - 4 * k, high - 4 * k);
    }
    DEVICE bool is_held(int i) const { return ROWS % (BETWEEN * TOGETHER) == 0 || top + i * BETWEEN < ROWS; }
    DEVICE bool is_there(int i) const { return is_held(i) && (FIT == INSIDE || low < high && is_below(row + top + i * BETWEEN, rows)); }
    DEVICE bool is_reached(const char* granule) const { return granule >= from && granule + (skew ? 32 : 16) <= end; }
    DEVICE u32 load(u32 (&x)[TOGETHER][8], int i) {
        u32 loaded = 0;
        UNROLL for (int j = 0; j < TOGETHER; ++j, at += step) {
            if (is_there(i + j) && (FIT != EDGE || is_reached(at))) {
                loaded |= 1u << j;
                move_in<16>(x[j], at);
                if (skew) move_in<16>(x[j] + 4, at + 16);
            }
        }
        return loaded;
    }
    DEVICE void keep(u32 (&x)[TOGETHER][8], u32 loaded, int i) const {
        UNROLL for (int j = 0; j < TOGETHER; ++j) {
            shift_down<SIZE, 16>(x[j], skew);
            if (FIT != INSIDE) UNROLL for (int k = 0; k < 4; ++k) x[j][k] = loaded >> j & 1 ? x[j][k] & inside[k] : 0;
            if (is_held(i + j)) keep_piece(to + (i + j) * BETWEEN * SWIZZLE, x[j][0], x[j][1], x[j][2], x[j][3]);
        }
    }
    DEVICE void keep_rest(const char* granule) const {
        NO_UNROLL for (int i = 0; i < TIMES; ++i, granule += step) {
            if (!is_there(i) || is_reached(granule)) continue;
            NO_UNROLL for (int k = low; k < high; k += SIZE) store_shared(to + i * BETWEEN * SWIZZLE + k, *(const T*)(granule + skew + k));
        }
    }
    DEVICE void copy() {
        NO_UNROLL for (int i = 0; i < TIMES; i += TOGETHER) {
            u32 x[TOGETHER][8];
            const u32 loaded = load(x, i);
            keep(x, loaded, i);
        }
        if (FIT == EDGE) keep_rest(at - (TIMES + TOGETHER - 1) / TOGETHER * TOGETHER * step);
    }
};
// The copy of a tile by THREADS that are ALIKE, in two halves: loads start where it is declared, and `keep` ends it. A lane
// has the pieces of several tiles in flight between them.
template <int ROWS, int COLS, int SWIZZLE, int THREADS, class T> struct InFlight {
    template <Fit FIT> using Own = Alike<FIT, ROWS, COLS, SWIZZLE, THREADS, ROWS, T>;
    u32 to, byte, panel_bytes;
    const T* from;
    i64 stride;
    int row, col, rows, cols, thread;
    Fit fit;
    u32 loaded, x[Own<EDGE>::TIMES][8];

    template <Fit FIT> DEVICE Own<FIT> own() const { return Own<FIT>(to, byte, panel_bytes, from, stride, row, col, rows, cols, thread); }
    DEVICE InFlight(u32 to, u32 byte, u32 panel_bytes, const T* from, i64 stride, int row, int col, int rows, int cols, int thread)
        : to(to), byte(byte), panel_bytes(panel_bytes), from(from), stride(stride), row(row), col(col), rows(rows), cols(cols), thread(thread) {
        fit = STARTED;
        if (ROWS > 1 && start_narrow<ROWS, COLS, SWIZZLE, THREADS, ROWS>(to, byte, panel_bytes, from, stride, row, col, rows, cols, thread)) return;
        fit = fit_of<ROWS, COLS>(from, stride, row, col, rows, cols);
        loaded = fit == INSIDE ? own<INSIDE>().load(x, 0) : fit == CUT ? own<CUT>().load(x, 0) : own<EDGE>().load(x, 0);
    }
    DEVICE void keep() {
        if (fit == INSIDE) {
            own<INSIDE>().keep(x, loaded, 0);
        } else if (fit != STARTED) {
            const Own<EDGE> edge = own<EDGE>();
            edge.keep(x, loaded, 0);
            if (fit == EDGE) edge.keep_rest(edge.at);
        }
    }
};
// A tile of ROWS x COLS of a tensor to shared memory by THREADS, zeros outside the matrix; T has the size of an element,
// `byte` is where a row starts in its panel. A row of the tile consists of pieces of 16 bytes, each from two granules,
// which are loaded only between the first and the last element of the matrix.
template <int ROWS, int COLS, int SWIZZLE, int THREADS, int MOST, class T>
DEVICE void copy_in_skewed(u32 to, u32 byte, u32 panel_bytes, const T* from, i64 stride, int row, int col, int rows, int cols, int thread) {
    constexpr int SIZE = sizeof(T), PIECES = COLS * SIZE / 16, ELEMENTS = 16 / SIZE, TIMES = (ROWS * PIECES + THREADS - 1) / THREADS;
    if constexpr (Shares<COLS, SWIZZLE, THREADS, SIZE>::ALIKE) {
        if (fit_of<ROWS, COLS>(from, stride, row, col, rows, cols) == INSIDE)
            Alike<INSIDE, ROWS, COLS, SWIZZLE, THREADS, MOST, T>(to, byte, panel_bytes, from, stride, row, col, rows, cols, thread).copy();
        else
            Alike<EDGE, ROWS, COLS, SWIZZLE, THREADS, MOST, T>(to, byte, panel_bytes, from, stride, row, col, rows, cols, thread).copy();
        return;
    }
    const char* const end = (const char*)(from + ((rows - 1) * stride + cols));
    const bool whole = fit_of<ROWS, COLS>(from, stride, row, col, rows, cols) == INSIDE;
    // Of pieces that are not alike lanes hold addresses, too: with more of them in flight, registers are spilled.
    constexpr int MANY = MOST < 4 ? MOST : 4, TOGETHER = TIMES < MANY ? TIMES : MANY;
    constexpr bool EVEN = ROWS * PIECES % (THREADS * TOGETHER) == 0;
    NO_UNROLL for (int first = thread; first < ROWS * PIECES; first += THREADS * TOGETHER) {
        u32 x[TOGETHER][8], loaded = 0;
        UNROLL for (int j = 0; j < TOGETHER; ++j) {
            const int i = first + j * THREADS, r = row + i / PIECES, c = col + i % PIECES * ELEMENTS;
            const char* const at = (const char*)(from + (r * stride + c));
            const u32 skew = (u32)(u64)at % 16;
            const bool reached = at - skew >= (const char*)from && at - skew + (skew ? 32 : 16) <= end;
            if ((EVEN || i < ROWS * PIECES) && (whole || r >= 0 && r < rows && c > -ELEMENTS && c < cols && reached)) {
                loaded |= 1u << j;
                move_in<16>(x[j], at - skew);
                if (skew) move_in<16>(x[j] + 4, at - skew + 16);
            }
        }
        UNROLL for (int j = 0; j < TOGETHER; ++j) {
            const int i = first + j * THREADS, r = i / PIECES, c = i % PIECES * ELEMENTS;
            const T* const at = from + ((row + r) * stride + (col + c));
            shift_down<SIZE, 16>(x[j], (u32)(u64)at % 16);
            u32 piece[4] = {x[j][0], x[j][1], x[j][2], x[j][3]};
            if (!whole) UNROLL for (int k = 0; k < ELEMENTS; ++k) {
                const bool inside = row + r >= 0 && row + r < rows && col + c + k >= 0 && col + c + k < cols && (EVEN || i < ROWS * PIECES);
                T element = pick(x[j], k, from);
                if (inside && !(loaded >> j & 1)) element = at[k];
                put(piece, k, inside ? element : (T)0);
            }
            if (EVEN || i < ROWS * PIECES) keep_piece(to + shared_at<SWIZZLE>(r, byte + c * SIZE, panel_bytes), piece[0], piece[1], piece[2], piece[3]);
        }
    }
}
