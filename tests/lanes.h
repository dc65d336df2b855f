// CUDA C++ for the blocks of a grid, one after another, on a CPU: every thread is a fiber of its own, which goes on to the next place where lanes or
// warps meet. Threads that should meet and do not are told, and whoever is woken first is chosen by a seed.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };

constexpr int MOST_THREADS = 1024, MOST_BARRIERS = 16;
alignas(1024) unsigned char shared[232448];

struct Thread { unsigned x; } threadIdx, blockIdx, gridDim;
struct Meeting { int come, turn; } block_meets, warps_meet[MOST_THREADS / 32], groups_meet[MOST_BARRIERS];
int block_threads;
ucontext_t fibers[MOST_THREADS], scheduler;
bool done[MOST_THREADS], went_on[MOST_THREADS];

inline void meet(Meeting& here, int threads) {
    const int turn = here.turn;
    const unsigned self = threadIdx.x;
    if (++here.come == threads) {
        here.come = 0;
        ++here.turn;
    }
    went_on[self] = true;
    while (here.turn == turn) {
        swapcontext(&fibers[self], &scheduler);
        if (here.turn != turn) went_on[self] = true;
    }
}
inline void meet_warp() { meet(warps_meet[threadIdx.x / 32], 32); }
inline void __syncwarp() { meet_warp(); }
inline void __syncthreads() { meet(block_meets, block_threads); }

// A barrier in shared memory: arrivals of a phase, those to come, and the parity of the phase.
struct Barrier { unsigned short count, left; unsigned parity; };
inline Barrier& barrier_at(unsigned at) { return *(Barrier*)(shared + at); }
inline void arrive(unsigned at) {
    Barrier& here = barrier_at(at);
    if (--here.left == 0) here.left = here.count, here.parity ^= 1;
    went_on[threadIdx.x] = true;
}
inline void wait_for(unsigned at, unsigned parity) {
    const unsigned self = threadIdx.x;
    while (barrier_at(at).parity == parity) swapcontext(&fibers[self], &scheduler);
    went_on[self] = true;
}
inline unsigned __cvta_generic_to_shared(const void* at) { return (const unsigned char*)at - shared; }

// What each lane of a warp puts in and another takes out.
unsigned char hands[MOST_THREADS][16];
template <class T> T exchanged(T x, int lane) {
    const unsigned self = threadIdx.x;
    std::memcpy(hands[self], &x, sizeof(T));
    meet_warp();
    T y;
    std::memcpy(&y, hands[self / 32 * 32 + lane], sizeof(T));
    meet_warp();
    return y;
}
inline int own_lane() { return threadIdx.x % 32; }
template <class T> T __shfl_sync(unsigned, T x, int from, int width = 32) { return exchanged(x, own_lane() / width * width + (from & (width - 1))); }
template <class T> T __shfl_xor_sync(unsigned, T x, int mask) { return exchanged(x, own_lane() ^ mask); }
template <class T> T __shfl_up_sync(unsigned, T x, int by, int width = 32) { return exchanged(x, own_lane() % width < by ? own_lane() : own_lane() - by); }

// Values side by side in shared memory.
inline void keep_values(unsigned) {}
template <class T, class... Others> void keep_values(unsigned at, T x, Others... others) {
    std::memcpy(shared + at, &x, sizeof(T));
    keep_values(at + sizeof(T), others...);
}

// 8x8 matrices of 16 bits, one after another: lane 8 m + r has the address of row r of matrix m; each lane moves two
// neighbours of row lane / 4.
inline unsigned in_matrix(unsigned at, int matrix) { return __shfl_sync(~0u, at, 8 * matrix + own_lane() / 4) + own_lane() % 4 * 4; }
template <class... T> void load_matrices(unsigned at, T&... x) {
    int matrix = 0;
    (std::memcpy(&x, shared + in_matrix(at, matrix++), 4), ...);
}
template <class... T> void store_matrices(unsigned at, T... x) {
    int matrix = 0;
    (std::memcpy(shared + in_matrix(at, matrix++), &x, 4), ...);
}

template <class To, class From> To same_bits(From x) {
    To y;
    std::memcpy(&y, &x, sizeof(To));
    return y;
}
inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
inline float __int_as_float(int x) { return same_bits<float>(x); }
inline int __float_as_int(float x) { return same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline unsigned __float2uint_rn(float x) { return (unsigned)std::nearbyint(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) { return ((uint64_t)high << 32 | low) >> (by & 31); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return ((uint64_t)high << 32 | low) << (by & 31) >> 32; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

inline unsigned bf16_bits(float x) {
    const unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned f16_bits(float x) { return same_bits<uint16_t>((_Float16)x); }

template <class... A, size_t... I> void call(void (*kernel)(A...), void** args, std::index_sequence<I...>) { kernel(*(std::remove_cv_t<std::remove_reference_t<A>>*)args[I]...); }
template <class... A> void call(void (*kernel)(A...), void** args) { call(kernel, args, std::make_index_sequence<sizeof...(A)>()); }

void (*running)(void**);
void** arguments;
inline void fiber() {
    running(arguments);
    done[threadIdx.x] = went_on[threadIdx.x] = true;
}

// Runs a block; 0, or 1 where threads wait for others that do not come.
inline int run_block(void (*kernel)(void**), int threads, void** args, unsigned seed) {
    constexpr size_t STACK = 512 * 1024;
    static char* stacks = (char*)std::malloc(MOST_THREADS * STACK);
    running = kernel, arguments = args, block_threads = threads, block_meets = {};
    std::memset(warps_meet, 0, sizeof warps_meet);
    std::memset(groups_meet, 0, sizeof groups_meet);
    std::memset(shared, 0xff, sizeof shared);
    for (int i = 0; i < threads; ++i) {
        done[i] = false;
        getcontext(&fibers[i]);
        fibers[i].uc_stack.ss_sp = stacks + i * STACK;
        fibers[i].uc_stack.ss_size = STACK;
        fibers[i].uc_link = &scheduler;
        makecontext(&fibers[i], fiber, 0);
    }
    for (int left = threads; left > 0;) {
        bool moved = false;
        // A warp goes on as far as it can before the next: what runs ahead of a missing barrier shows.
        seed = seed * 1664525u + 1013904223u;
        const int first = seed >> 16;
        for (int k = 0; k < threads / 32; ++k) {
            const int warp = (first + k) % (threads / 32);
            for (bool again = true; again;) {
                again = false;
                for (int lane = 0; lane < 32; ++lane) {
                    const int i = warp * 32 + lane;
                    if (done[i]) continue;
                    went_on[i] = false;
                    threadIdx.x = i;
                    swapcontext(&scheduler, &fibers[i]);
                    again |= went_on[i];
                    left -= done[i];
                }
                moved |= again;
            }
        }
        if (!moved && left) return 1;
    }
    return 0;
}
inline int run(void (*kernel)(void**), int blocks, int threads, void** args, unsigned seed) {
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
        if (run_block(kernel, threads, args, seed + blockIdx.x)) return 1;
    return 0;
}
