// Device functions for semaphores with bytes, and for flags between blocks.

// -- semaphores ---------------------------------------------------------------

// An mbarrier and 8 bytes behind it. Barriers before Hopper count arrivals only, so there the bytes to come and the
// arrivals that wait for them stand in those 8 bytes, and who brings the bytes to nothing arrives for all.
#if __CUDA_ARCH__ >= 900
DEVICE void semaphore_init(u32 at, u32 arrivals) { barrier_init(at, arrivals); }
DEVICE void semaphore_expect(u32 at, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory"); }
DEVICE void semaphore_land(u32 at, u32 bytes) {
    __threadfence_block();
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
}
#else
DEVICE void semaphore_change(u32 at, u32 bytes, u32 arrivals) {
    u64* const held = (u64*)__cvta_shared_to_generic(at + 8);
    __threadfence_block();
    u64 was = *(volatile u64*)held, found;
    u32 waiting;
    while (true) {
        waiting = (u32)(was >> 32) + arrivals;
        const u32 left = (u32)was + bytes;
        found = atomicCAS(held, was, left ? (u64)waiting << 32 | left : 0);
        if (found == was) { if (left) waiting = 0; break; }
        was = found;
    }
    __threadfence_block();
    for (u32 i = 0; i < waiting; ++i) barrier_arrive(at);
}
DEVICE void semaphore_init(u32 at, u32 arrivals) { barrier_init(at, arrivals); *(u64*)__cvta_shared_to_generic(at + 8) = 0; }
DEVICE void semaphore_expect(u32 at, u32 bytes) { semaphore_change(at, bytes, 1); }
DEVICE void semaphore_land(u32 at, u32 bytes) { semaphore_change(at, 0u - bytes, 0); }
#endif
// The copies of pieces that this thread started.
DEVICE void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// -- flags --------------------------------------------------------------------

DEVICE void flag_store(int* flag, int value) { asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(__cvta_generic_to_global(flag)), "r"(value) : "memory"); }
DEVICE void flag_add(int* flag, int value) { asm volatile("red.release.gpu.global.add.s32 [%0], %1;" :: "l"(__cvta_generic_to_global(flag)), "r"(value) : "memory"); }
DEVICE void flag_wait(const int* flag, int value) {
    int found;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(__cvta_generic_to_global(flag)) : "memory");
    while (found < value);
}
// Orders ordinary accesses to global memory and those of the copy engine.
DEVICE void fence_engines() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// -- tagged elements ----------------------------------------------------------

// Of `missing`, the low 4 bits are 0 as long as all elements that it has seen have the tag.
DEVICE void see_tag(u32& missing, float x, int tag) { missing |= __float_as_uint(x) ^ tag; }
DEVICE float with_tag(float x, int tag) { return __uint_as_float((__float_as_uint(x) & ~15u) | (tag & 15)); }
// COUNT neighbours of a row that others may be reading.
template <int COUNT, bool VECTOR> DEVICE void store_tagged(const float* from, int i, float* row, int col, int cols, int tag) {
    from += i;
    if (VECTOR && COUNT % 2 == 0 && col >= 0 && col + COUNT <= cols) {
        constexpr int WIDE = COUNT % 4 == 0 ? 4 : 2;
        UNROLL for (int k = 0; k < COUNT / WIDE * WIDE; k += WIDE) {
            const u64 at = __cvta_generic_to_global(row + col + k);
            const float x = with_tag(from[k], tag), y = with_tag(from[k + 1], tag);
            if (WIDE == 4) asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(at), "f"(x), "f"(y), "f"(with_tag(from[(k + 2) % COUNT], tag)), "f"(with_tag(from[(k + 3) % COUNT], tag)) : "memory");
            else asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" :: "l"(at), "f"(x), "f"(y) : "memory");
        }
    } else {
        UNROLL for (int k = 0; k < COUNT; ++k)
            if (col + k >= 0 && col + k < cols) asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" :: "l"(__cvta_generic_to_global(row + col + k)), "f"(with_tag(from[k], tag)) : "memory");
    }
}
// COUNT neighbours of a row that others may be writing, unless they have the tag; those outside 0 <= col < cols are 0 with the tag.
template <int COUNT, bool VECTOR> DEVICE void load_tagged(float* to, int i, const float* row, int col, int cols, int tag) {
    to += i;
    u32 missing = 0;
    UNROLL for (int k = 0; k < COUNT; ++k) see_tag(missing, to[k], tag);
    if (!(missing & 15)) return;
    if (VECTOR && COUNT % 2 == 0 && col >= 0 && col + COUNT <= cols) {
        constexpr int WIDE = COUNT % 4 == 0 ? 4 : 2;
        UNROLL for (int k = 0; k < COUNT / WIDE * WIDE; k += WIDE) {
            const u64 at = __cvta_generic_to_global(row + col + k);
            if (WIDE == 4) asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to[k]), "=f"(to[k + 1]), "=f"(to[(k + 2) % COUNT]), "=f"(to[(k + 3) % COUNT]) : "l"(at) : "memory");
            else asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(to[k]), "=f"(to[k + 1]) : "l"(at) : "memory");
        }
    } else {
        UNROLL for (int k = 0; k < COUNT; ++k) {
            to[k] = with_tag(0.0f, tag);
            if (col + k >= 0 && col + k < cols) asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(to[k]) : "l"(__cvta_generic_to_global(row + col + k)) : "memory");
        }
    }
}

// -- tickets of tasks ---------------------------------------------------------

// The tasks that a block takes when it gets to them. One thread draws them from a counter, each before the block needs
// it, and hands them to the other warps through a slot of shared memory, with a full and an empty barrier.
DEVICE void tickets_init(u32 at, u32 readers) {
    barrier_init(at, 1);
    barrier_init(at + 8, readers);
    asm volatile("st.shared.b32 [%0], 1;" :: "r"(at + 20) : "memory");
}
// Read anew each time, because a role that copies has few registers.
DEVICE int grid_size() { int n; asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(n)); return n; }
struct Tickets {
    u32 phase = 0;
    int ahead = (int)blockIdx.x - (int)gridDim.x;
    // The first task of a block is its own number. Every block draws until there is no task, so there are as many draws
    // as tasks, and the counter goes back to 0 at the last.
    DEVICE int draw(u32 at, int* counter, int count) {
        const int task = grid_size() + ahead;
        if (task < count) asm volatile("{ .reg .u32 last; sub.u32 last, %2, 1; atom.relaxed.gpu.global.inc.u32 %0, [%1], last; }" : "=r"(ahead) : "l"(__cvta_generic_to_global(counter)), "r"(count) : "memory");
        u32 free;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(free) : "r"(at + 20) : "memory");
        barrier_wait(at + 8, free);
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" :: "r"(at + 16), "r"(task), "r"(free ^ 1) : "memory");
        barrier_arrive(at);
        return task;
    }
    DEVICE int read(u32 at) {
        int task;
        barrier_wait(at, phase);
        phase ^= 1;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(task) : "r"(at + 16) : "memory");
        return task;
    }
    DEVICE int read_alone(u32 at) {
        const int task = read(at);
        barrier_arrive(at + 8);
        return task;
    }
    DEVICE int read_together(u32 at, int lane) {
        const int task = read(at);
        __syncwarp();
        if (lane == 0) barrier_arrive(at + 8);
        return task;
    }
};
