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

// 16 bytes, of which the first `bytes` come from global memory and the rest are zero.
DEVICE void copy_piece(u32 to, const void* from, u32 bytes) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory"); }

// What thread `thread` of THREADS does for each piece of 16 bytes of a tile; row and column of its first element.
// Where the pieces of a row divide the threads, a thread keeps its column.
template <int ROWS, int COLS, int THREADS, int SIZE, class Move> DEVICE void each_piece(int thread, Move move) {
    constexpr int PIECES = COLS * SIZE / 16, ELEMENTS = 16 / SIZE;
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
// A tile of a tensor whose rows start at multiples of 16 bytes, to and from shared memory. Tiles start at multiples of
// 16 columns, so no piece lies on both sides of column 0.
template <int ROWS, int COLS, int SWIZZLE, int THREADS, class T>
DEVICE void start_copy(u32 to, u32 byte, u32 panel_bytes, const T* from, i64 stride, int row, int col, int rows, int cols, int thread) {
    constexpr int PIECES = COLS * sizeof(T) / 16, ELEMENTS = 16 / sizeof(T), STEP = THREADS / (PIECES < THREADS ? PIECES : THREADS);
    if constexpr (THREADS % PIECES == 0 && ROWS % STEP == 0) {
        if (row >= 0 && row + ROWS <= rows && col >= 0 && col + COLS <= cols) {
            // All of it is there. The swizzle repeats every 8 rows, so a lane has few places in a row, and its rows lie
            // a fixed distance apart.
            constexpr int TURNS = STEP < 8 ? 8 / STEP : 1;
            const int r = thread / PIECES, c = thread % PIECES * ELEMENTS;
            u32 at[TURNS];
            UNROLL for (int i = 0; i < TURNS; ++i) at[i] = to + shared_at<SWIZZLE>(r + i * STEP, byte + c * sizeof(T), panel_bytes);
            const char* next = (const char*)(from + (row + r) * stride + col + c);
            const i64 step = STEP * stride * sizeof(T);
            constexpr int TIMES = ROWS / STEP;
            UNROLL for (int i = 0; i < TIMES; ++i) {
                copy_piece(at[i % TURNS] + i / TURNS * TURNS * STEP * SWIZZLE, next, 16);
                next += step;
            }
            return;
        }
    }
    each_piece<ROWS, COLS, THREADS, sizeof(T)>(thread, [&](int r, int c) {
        const int left = cols - col - c;
        const bool inside = row + r >= 0 && row + r < rows && col + c >= 0 && left > 0;
        const u32 bytes = inside ? min(left, 16 / (int)sizeof(T)) * sizeof(T) : 0;
        copy_piece(to + shared_at<SWIZZLE>(r, byte + c * sizeof(T), panel_bytes), inside ? from + (row + r) * stride + col + c : from, bytes);
    });
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
