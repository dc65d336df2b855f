// Device functions of programs with clock reads (analysis/timeline/clocks.py reads what they write).

// The nanoseconds of the device, which advance in steps, and the cycles of the multiprocessor. PTX ISA, "Special
// Registers: %globaltimer" and "%clock64".
DEVICE u64 nanoseconds() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory"); return t; }
DEVICE u64 cycles() { u64 t; asm volatile("mov.u64 %0, %%clock64;" : "=l"(t) :: "memory"); return t; }
// Both at the start of a step, or if none comes soon, at any time.
DEVICE void align(u64* to) {
    const u64 before = nanoseconds();
    u64 now = before;
    NO_UNROLL for (int i = 0; i < 1 << 16 && now == before; ++i) now = nanoseconds();
    to[0] = now;
    to[1] = cycles();
}

// Of a group: nanoseconds and cycles at its start and at its end, its reads, and the records of the first `most` reads:
// the place in the upper 16 bits, the cycles in the others. The first thread of the group writes them.
struct Clocks {
    static constexpr int HEAD = 5;
    u64* records;
    u32 next, end;  // places in the records; both are 0 in other threads and blocks

    DEVICE void begin(u64* all, int most, int blocks, int group, int groups, bool leads) {
        records = all;
        next = end = 0;
        if (!leads || blockIdx.x >= blocks) return;
        const u32 first = (blockIdx.x * groups + group) * (HEAD + most);
        align(all + first);
        next = first + HEAD;
        end = next + most;
    }
    DEVICE void note(u32 place, u64 what) {
        if (next < end) records[next] = (u64)place << 48 | what;
        ++next;
    }
    DEVICE void read(u32 place) { note(place, cycles() & ((1ull << 48) - 1)); }
    DEVICE void finish(u32 place, int most) {
        read(place);
        if (!end) return;
        const u32 first = end - most - HEAD;
        align(records + first + 2);
        records[first + 4] = next - first - HEAD;
    }
};
