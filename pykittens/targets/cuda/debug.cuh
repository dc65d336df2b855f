// Device functions of programs for debugging: waits that end, and the report of what stopped the kernel.

// -- the report (runtime/report.py reads it) ----------------------------------

// Where a group of the block stands: 0 runs, -1 has ended, else it waits at the site of the number before.
struct Standing { int site, numbers[7]; };
struct Report {
    u32 written, site, block, thread;
    i64 numbers[7];
    Standing groups[32];
};
__device__ u32 stopped;  // by a thread of this program, for good: the trap ends the context

DEVICE i64 nanoseconds() { i64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }

// Nothing comes behind a trap: no register has to be kept for it.
DEVICE void quit() { asm volatile("trap; exit;"); __builtin_unreachable(); }

struct Debug {
    Report* report;
    i64 patience;      // nanoseconds that a wait may take
    Standing* groups;  // of the block, in shared memory
    int count;
    int group;
    bool leader;

    DEVICE void begin() const {
        for (int i = threadIdx.x; i < count; i += blockDim.x) groups[i].site = 0;
        __syncthreads();
    }
    DEVICE void enter(int its_group, bool leads) { group = its_group; leader = leads; }
    DEVICE void go_on() const { if (leader) *(volatile int*)&groups[group].site = 0; }
    DEVICE void end() const { if (leader) *(volatile int*)&groups[group].site = -1; }
    DEVICE void stand(const Standing& at) const {
        if (!leader) return;
        volatile Standing& mine = groups[group];
        UNROLL for (int i = 0; i < 7; ++i) mine.numbers[i] = at.numbers[i];
        mine.site = at.site;
    }
    template <class... N> DEVICE Standing at(int site, N... numbers) const { return {site + 1, {(int)numbers...}}; }

    // The first thread to come here writes the report; the others leave it the time.
    template <class... N> DEVICE void stop(int site, N... numbers) const {
        const i64 told[7] = {(i64)numbers...};
        if (atomicCAS(&stopped, 0u, 1u) == 0) {
            volatile Report& to = *report;
            to.site = site;
            to.block = blockIdx.x;
            to.thread = threadIdx.x;
            UNROLL for (int i = 0; i < 7; ++i) to.numbers[i] = told[i];
            NO_UNROLL for (int i = 0; i < count * 8; ++i) ((volatile int*)to.groups)[i] = ((volatile int*)groups)[i];
            __threadfence_system();
            to.written = 1;
            __threadfence_system();
            quit();
        }
        for (const i64 start = nanoseconds(); nanoseconds() - start < 1000000000;) __nanosleep(1000);
        quit();
    }
    DEVICE void give_up(const Standing& at) const {
        stop(at.site - 1, at.numbers[0], at.numbers[1], at.numbers[2], at.numbers[3], at.numbers[4], at.numbers[5], at.numbers[6]);
    }
};

// Whether the coordinates of `extent` elements are numbers of 32 bits.
DEVICE bool is_int32(i64 first, int extent) { return first >= -(1ll << 31) && first + extent <= 1ll << 31; }

// -- waits --------------------------------------------------------------------

DEVICE bool barrier_is_past(u32 bar, u32 phase) {
    u32 past;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred past; mbarrier.try_wait.parity.shared::cta.b64 past, [%1], %2; selp.u32 %0, 1, 0, past; }" : "=r"(past) : "r"(bar), "r"(phase) : "memory");
#else
    asm volatile("{ .reg .pred past; mbarrier.test_wait.parity.shared.b64 past, [%1], %2; selp.u32 %0, 1, 0, past; }" : "=r"(past) : "r"(bar), "r"(phase) : "memory");
#endif
    return past;
}
DEVICE void barrier_wait(u32 bar, u32 phase, const Debug& debug, const Standing& at) {
    debug.stand(at);
    const i64 start = nanoseconds();
    while (!barrier_is_past(bar, phase))
        if (nanoseconds() - start > debug.patience) debug.give_up(at);
    debug.go_on();
}
DEVICE void barrier_wait_of_cluster(u32 bar, u32 phase, const Debug& debug, const Standing& at) {
    barrier_wait(bar, phase, debug, at);
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
#endif
}
// A wait that began at a time goes on.
DEVICE void wait_on(i64 start, const Debug& debug, const Standing& at) {
    debug.stand(at);
    if (nanoseconds() - start > debug.patience) debug.give_up(at);
}
// The last of the numbers told is what the flag holds.
template <int LAST> DEVICE void flag_wait(const int* flag, int value, const Debug& debug, Standing at) {
    const i64 start = nanoseconds();
    while (true) {
        int& found = at.numbers[LAST];
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(__cvta_generic_to_global(flag)) : "memory");
        if (found >= value) break;
        debug.stand(at);
        if (nanoseconds() - start > debug.patience) debug.give_up(at);
    }
    debug.go_on();
}
