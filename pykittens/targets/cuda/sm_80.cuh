// Device functions that need Ampere: mbarriers, copies of 16 bytes a lane, products of a warp.

// -- mbarrier -----------------------------------------------------------------

DEVICE void barrier_init(u32 bar, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(arrivals) : "memory"); }
DEVICE void barrier_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory"); }
// Arrives when the copies that this thread started have landed.
DEVICE void barrier_arrive_copied(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(bar) : "memory"); }
DEVICE void barrier_wait(u32 bar, u32 phase) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @done bra passed; bra again; passed: }" :: "r"(bar), "r"(phase) : "memory");
#else
    asm volatile("{ .reg .pred done; again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1; @done bra passed; bra again; passed: }" :: "r"(bar), "r"(phase) : "memory");
#endif
}

// Whether a phase goes on for so many cycles; it returns when the phase ends.
DEVICE bool barrier_goes_on(u32 bar, u32 phase, u32 cycles) {
    const u32 start = clock();
    for (u32 past;;) {
        asm volatile("{ .reg .pred past; mbarrier.test_wait.parity.shared.b64 past, [%1], %2; selp.u32 %0, 1, 0, past; }" : "=r"(past) : "r"(bar), "r"(phase) : "memory");
        if (past || (u32)clock() - start >= cycles) return !past;
    }
}

// The place of a role in a ring of stages.
template <int STAGES> struct Turn {
    u32 stage = 0, phase = 0;
    DEVICE void next() { if (++stage == STAGES) { stage = 0; phase ^= 1; } }
    // The place COUNT stages before, at most a round.
    template <u32 COUNT> DEVICE Turn before() const { return stage >= COUNT ? Turn{stage - COUNT, phase} : Turn{stage + STAGES - COUNT, phase ^ 1}; }
};

// -- cp.async -----------------------------------------------------------------

// PIECE bytes, of which the first `bytes` come from global memory and the rest are zero.
template <int PIECE> DEVICE void copy_piece(u32 to, const void* from, u32 bytes) {
    const u64 at = (u64)__cvta_generic_to_global(from);
    if constexpr (PIECE == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(at), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(to), "l"(at), "n"(PIECE), "r"(bytes) : "memory");
}

// What thread `thread` of THREADS does for each piece of PIECE bytes of a tile; row and column of its first element.
// Where the pieces of a row divide the threads, a thread keeps its column.
template <int ROWS, int COLS, int THREADS, int SIZE, int PIECE = 16, class Move> DEVICE void each_piece(int thread, Move move) {
    constexpr int PIECES = COLS * SIZE / PIECE, ELEMENTS = PIECE / SIZE;
    // On Hopper, the lanes that copy are those of roles with few registers.
#if __CUDA_ARCH__ >= 900
    constexpr int AT_ONCE = 4;
#else
    constexpr int AT_ONCE = 8;
#endif
    if constexpr (THREADS % PIECES == 0) {
        const int col = thread % PIECES * ELEMENTS;
        _Pragma("unroll AT_ONCE") for (int row = thread / PIECES; row < ROWS; row += THREADS / PIECES) move(row, col);
    } else {
        _Pragma("unroll 4") for (int i = thread; i < ROWS * PIECES; i += THREADS) move(i / PIECES, i % PIECES * ELEMENTS);
    }
}
DEVICE constexpr int common_divisor(int a, int b) { return b ? common_divisor(b, a % b) : a; }
// A tile of a tensor whose rows start at multiples of PIECE bytes, and its first row too, to shared memory. The tile starts at
// such a multiple, so no piece lies on both sides of column 0. LEAN: places are computed for each piece, not held in registers.
template <int ROWS, int COLS, int SWIZZLE, int THREADS, class T, int PIECE = 16, bool LEAN = false>
DEVICE void start_copy(u32 to, u32 byte, u32 panel_bytes, const T* from, i64 stride, int row, int col, int rows, int cols, int thread) {
    constexpr int SIZE = sizeof(T), PIECES = COLS * SIZE / PIECE, ELEMENTS = PIECE / SIZE;
    const auto bytes_at = [&](int c) { return col + c < 0 ? 0 : max(min(cols - col - c, ELEMENTS), 0) * SIZE; };
    // A thread has some pieces of each STEP-th row.
    constexpr int ACROSS = common_divisor(PIECES, THREADS), EACH = PIECES / ACROSS, STEP = THREADS / ACROSS, TIMES = (ROWS - 1) / STEP + 1;
    if constexpr (!LEAN && (STEP % 8 == 0 || 8 % STEP == 0)) {
        // The swizzle repeats every 8 rows, so a thread has few places in a row, and its rows lie a fixed distance apart.
        constexpr int TURNS = STEP < 8 ? 8 / STEP : 1, AT_ONCE = TIMES < 4 ? TIMES : TURNS < 4 ? 4 : TURNS;
        const int r = thread / ACROSS, c = thread % ACROSS * ELEMENTS;
        const char* next = (const char*)(from + (row + r) * stride + col + c);
        const i64 step = STEP * stride * SIZE;
        // And if its pieces of a row lie whole panels apart, one of them tells where the others are.
        constexpr int PANELS = ACROSS * PIECE % SWIZZLE ? 0 : ACROSS * PIECE / SWIZZLE, PLACES = PANELS ? 1 : EACH;
        u32 at[TURNS][PLACES];
        UNROLL for (int i = 0; i < TURNS; ++i) UNROLL for (int k = 0; k < PLACES; ++k)
            at[i][k] = to + shared_at<SWIZZLE>(r + i * STEP, byte + (c + k * ACROSS * ELEMENTS) * SIZE, panel_bytes);
        int bytes[EACH];
        UNROLL for (int k = 0; k < EACH; ++k) bytes[k] = bytes_at(c + k * ACROSS * ELEMENTS);
        const auto copy = [&](bool whole) {
            NO_UNROLL for (int first = 0; first < TIMES; first += AT_ONCE) {
                UNROLL for (int i = 0; i < AT_ONCE; ++i, next += step) UNROLL for (int k = 0; k < EACH; ++k) {
                    if (ROWS % (STEP * AT_ONCE) && r + (first + i) * STEP >= ROWS) continue;
                    const u32 place = at[i % TURNS][k % PLACES] + k * PANELS * panel_bytes + (first + i / TURNS * TURNS) * STEP * SWIZZLE;
                    const bool is_there = whole || is_below(row + r + (first + i) * STEP, rows);
                    copy_piece<PIECE>(place, next + k * ACROSS * PIECE, whole ? PIECE : is_there ? bytes[k] : 0);
                }
            }
        };
        if (row >= 0 && row + ROWS <= rows && col >= 0 && col + COLS <= cols) copy(true);
        else copy(false);
    } else {
        each_piece<ROWS, COLS, THREADS, SIZE, PIECE>(thread, [&](int r, int c) {
            const int bytes = is_below(row + r, rows) ? bytes_at(c) : 0;
            copy_piece<PIECE>(to + shared_at<SWIZZLE>(r, byte + c * SIZE, panel_bytes), from + (row + r) * stride + col + c, bytes);
        });
    }
}
// The same for rows that start at multiples of 8 or 4 bytes; false if they do not. MOST: pieces of 16 bytes for which a thread
// has registers. Before Hopper it shares them with those who multiply.
template <int ROWS, int COLS, int SWIZZLE, int THREADS, int MOST, class T>
DEVICE bool start_narrow(u32 to, u32 byte, u32 panel_bytes, const T* from, i64 stride, int row, int col, int rows, int cols, int thread) {
#if __CUDA_ARCH__ >= 900
    constexpr bool LEAN = MOST < 2;
#else
    constexpr bool LEAN = true;
#endif
    thread = unknown(thread);
    const u32 places = (u32)(u64)from | ((u32)stride | (u32)col) * (u32)sizeof(T);
    if (places % 8 == 0) {
        start_copy<ROWS, COLS, SWIZZLE, THREADS, T, 8, LEAN>(to, byte, panel_bytes, from, stride, row, col, rows, cols, thread);
        return true;
    }
    if constexpr (sizeof(T) <= 4) if (places % 4 == 0) {
        start_copy<ROWS, COLS, SWIZZLE, THREADS, T, 4, LEAN>(to, byte, panel_bytes, from, stride, row, col, rows, cols, thread);
        return true;
    }
    return false;
}
template <int ROWS, int COLS, int SWIZZLE, int THREADS, class T>
DEVICE void copy_back(T* to, i64 stride, int row, int col, int rows, int cols, u32 from, u32 byte, u32 panel_bytes, int thread) {
    each_piece<ROWS, COLS, THREADS, sizeof(T)>(thread, [&](int r, int c) {
        constexpr int ELEMENTS = 16 / sizeof(T);
        if (row + r < 0 || row + r >= rows || col + c < 0 || col + c >= cols) return;
        const uint4 piece = load_piece(from + shared_at<SWIZZLE>(r, byte + c * sizeof(T), panel_bytes));
        T* const place = to + (row + r) * stride + col + c;
        if (col + c + ELEMENTS <= cols) {
            *(uint4*)place = piece;
        } else {
            const u32 words[4] = {piece.x, piece.y, piece.z, piece.w};
            UNROLL for (int i = 0; i < ELEMENTS; ++i) {
                constexpr int EACH = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // elements of a word
                if (col + c + i >= cols) continue;
                if constexpr (sizeof(T) == 8) place[i] = words[2 * i] | (T)words[2 * i + 1] << 32;
                else place[i] = (T)(words[i / EACH] >> i % EACH * 8 * (int)sizeof(T));
            }
        }
    });
}

// -- products of a warp -------------------------------------------------------

// Four matrices of eight rows of 16 bytes; lane 8 i + r has the address of row r of matrix i. Transposed, of 16-bit elements.
DEVICE void load_matrices(u32 (&x)[4], u32 at) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory"); }
DEVICE void load_matrices_transposed(u32 (&x)[4], u32 at) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory"); }
DEVICE u32 load_shared_8(u32 at) { u32 a; asm volatile("ld.shared.u8 %0, [%1];" : "=r"(a) : "r"(at) : "memory"); return a; }
// The address of a byte of a row that starts, unswizzled, at `start`; `turn` is what the swizzle exchanges in the row.
// Rows a multiple of 16 away are turned alike.
template <int SWIZZLE> DEVICE u32 turn_of(int row) {
    u32 turn = (row * SWIZZLE >> 7 & (SWIZZLE / 16 - 1)) << 4;
    asm volatile("" : "+r"(turn));  // else what follows from it is computed ahead, for registers that are not there
    return turn;
}
template <int SWIZZLE> DEVICE u32 row_at(u32 start, u32 turn, int byte, u32 panel_bytes) { return start + byte / SWIZZLE * panel_bytes + (byte % SWIZZLE ^ turn); }
DEVICE u32 tf32(u32 bits) { u32 y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(bits))); return y; }
