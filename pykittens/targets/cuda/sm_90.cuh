// Device functions that need Hopper: bulk tensor copies and their barriers, warpgroup products, clusters.

// -- mbarrier -----------------------------------------------------------------

DEVICE void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrier_expect(u32 bar, u32 bytes) { asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(bytes) : "memory"); }
DEVICE void barrier_arrive_expect(u32 bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory"); }
DEVICE void barrier_arrive_at(u32 bar, u32 block) { asm volatile("{ .reg .b32 at; mapa.shared::cluster.u32 at, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [at]; }" :: "r"(bar), "r"(block) : "memory"); }

// Orders ordinary writes to shared memory before the copy engine's and the tensor cores' reads.
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void store_matrix(u32 at, u32 a, u32 b, u32 c, u32 d) { asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory"); }
DEVICE void store_matrix_transposed(u32 at, u32 a, u32 b, u32 c, u32 d) { asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory"); }

// -- bulk tensor copies -------------------------------------------------------

DEVICE void prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory"); }
// Boxes of a tensor; those of copy_box_first are the first to leave the L2 cache, by the policy that CUTLASS calls
// TMA::CacheHintSm90::EVICT_FIRST.
#define GIVEN(...) __VA_ARGS__
#define LEFT_OUT(...)
#define BOXES_IN(NAME, POLICY) \
    DEVICE void NAME(u32 to, const TensorMap& from, u32 bar, int x) { asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes" POLICY(".L2::cache_hint") " [%0], [%1, {%3}], [%2]" POLICY(", %4") ";" :: "r"(to), "l"(&from), "r"(bar), "r"(x) POLICY(, "l"(0x12f0000000000000ull)) : "memory"); } \
    DEVICE void NAME(u32 to, const TensorMap& from, u32 bar, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes" POLICY(".L2::cache_hint") " [%0], [%1, {%3, %4}], [%2]" POLICY(", %5") ";" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y) POLICY(, "l"(0x12f0000000000000ull)) : "memory"); } \
    DEVICE void NAME(u32 to, const TensorMap& from, u32 bar, int x, int y, int z) { asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes" POLICY(".L2::cache_hint") " [%0], [%1, {%3, %4, %5}], [%2]" POLICY(", %6") ";" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y), "r"(z) POLICY(, "l"(0x12f0000000000000ull)) : "memory"); } \
    DEVICE void NAME(u32 to, const TensorMap& from, u32 bar, int x, int y, int z, int w) { asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes" POLICY(".L2::cache_hint") " [%0], [%1, {%3, %4, %5, %6}], [%2]" POLICY(", %7") ";" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w) POLICY(, "l"(0x12f0000000000000ull)) : "memory"); } \
    DEVICE void NAME(u32 to, const TensorMap& from, u32 bar, int x, int y, int z, int w, int v) { asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes" POLICY(".L2::cache_hint") " [%0], [%1, {%3, %4, %5, %6, %7}], [%2]" POLICY(", %8") ";" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v) POLICY(, "l"(0x12f0000000000000ull)) : "memory"); }
BOXES_IN(copy_box, LEFT_OUT)
BOXES_IN(copy_box_first, GIVEN)
// Boxes to the L2 cache.
DEVICE void prefetch_box(const TensorMap& from, int x, int y) { asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" :: "l"(&from), "r"(x), "r"(y) : "memory"); }
DEVICE void prefetch_box(const TensorMap& from, int x, int y, int z) { asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" :: "l"(&from), "r"(x), "r"(y), "r"(z) : "memory"); }
DEVICE void prefetch_box(const TensorMap& from, int x, int y, int z, int w) { asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" :: "l"(&from), "r"(x), "r"(y), "r"(z), "r"(w) : "memory"); }
DEVICE void prefetch_box(const TensorMap& from, int x, int y, int z, int w, int v) { asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" :: "l"(&from), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v) : "memory"); }
// The same to all blocks whose bit is set in `blocks`, at the same place of their shared memory.
DEVICE void multicast_box(unsigned short blocks, u32 to, const TensorMap& from, u32 bar, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y), "h"(blocks) : "memory"); }
DEVICE void multicast_box(unsigned short blocks, u32 to, const TensorMap& from, u32 bar, int x, int y, int z) { asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y), "r"(z), "h"(blocks) : "memory"); }
DEVICE void multicast_box(unsigned short blocks, u32 to, const TensorMap& from, u32 bar, int x, int y, int z, int w) { asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "h"(blocks) : "memory"); }
DEVICE void multicast_box(unsigned short blocks, u32 to, const TensorMap& from, u32 bar, int x, int y, int z, int w, int v) { asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" :: "r"(to), "l"(&from), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "h"(blocks) : "memory"); }
// Boxes to a tensor, and boxes combined with what is there.
#define BOXES_OUT(NAME, START, END) \
    DEVICE void NAME(const TensorMap& to, u32 from, int x) { asm volatile(START ".1d.global.shared::cta" END " [%1, {%2}], [%0];" :: "r"(from), "l"(&to), "r"(x) : "memory"); } \
    DEVICE void NAME(const TensorMap& to, u32 from, int x, int y) { asm volatile(START ".2d.global.shared::cta" END " [%1, {%2, %3}], [%0];" :: "r"(from), "l"(&to), "r"(x), "r"(y) : "memory"); } \
    DEVICE void NAME(const TensorMap& to, u32 from, int x, int y, int z) { asm volatile(START ".3d.global.shared::cta" END " [%1, {%2, %3, %4}], [%0];" :: "r"(from), "l"(&to), "r"(x), "r"(y), "r"(z) : "memory"); } \
    DEVICE void NAME(const TensorMap& to, u32 from, int x, int y, int z, int w) { asm volatile(START ".4d.global.shared::cta" END " [%1, {%2, %3, %4, %5}], [%0];" :: "r"(from), "l"(&to), "r"(x), "r"(y), "r"(z), "r"(w) : "memory"); } \
    DEVICE void NAME(const TensorMap& to, u32 from, int x, int y, int z, int w, int v) { asm volatile(START ".5d.global.shared::cta" END " [%1, {%2, %3, %4, %5, %6}], [%0];" :: "r"(from), "l"(&to), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v) : "memory"); }
BOXES_OUT(store_box, "cp.async.bulk.tensor", ".bulk_group")
BOXES_OUT(add_box, "cp.reduce.async.bulk.tensor", ".add.tile.bulk_group")
BOXES_OUT(max_box, "cp.reduce.async.bulk.tensor", ".max.tile.bulk_group")
BOXES_OUT(min_box, "cp.reduce.async.bulk.tensor", ".min.tile.bulk_group")
// A run of bytes of a tensor, a multiple of 16 at multiples of 16.
DEVICE void copy_run(u32 to, const void* from, int bytes, u32 bar) { asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(bar) : "memory"); }
// A run of bytes to a tensor, a multiple of 16 at multiples of 16, and such a run combined with what is there.
#define RUN_OUT(NAME, T, START, END) \
    DEVICE void NAME(T* to, u32 from, int bytes) { asm volatile(START ".global.shared::cta.bulk_group" END " [%0], [%1], %2;" :: "l"(__cvta_generic_to_global(to)), "r"(from), "r"(bytes) : "memory"); }
RUN_OUT(store_run, void, "cp.async.bulk", "")
RUN_OUT(add_run, float, "cp.reduce.async.bulk", ".add.f32")
RUN_OUT(add_run, F16, "cp.reduce.async.bulk", ".add.noftz.f16")
RUN_OUT(add_run, BF16, "cp.reduce.async.bulk", ".add.noftz.bf16")
RUN_OUT(add_run, int, "cp.reduce.async.bulk", ".add.s32")
RUN_OUT(max_run, int, "cp.reduce.async.bulk", ".max.s32")
RUN_OUT(min_run, int, "cp.reduce.async.bulk", ".min.s32")
DEVICE void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING = 0> DEVICE void stores_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory"); }
template <int PENDING = 0> DEVICE void stores_wait() { asm volatile("cp.async.bulk.wait_group %0;" :: "n"(PENDING) : "memory"); }

// -- warpgroup products -------------------------------------------------------

// Descriptor of a swizzled shared matrix; offsets in bytes, `mode` 1, 2, 3 for 128, 64, 32 bytes.
DEVICE u64 matrix(u32 at, u32 leading, u32 stride, u64 mode) { return (u64)((at & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | mode << 62; }
DEVICE void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Behind it loads stay behind: in front of the products these would wait for them.
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); __syncwarp(); }
template <int PENDING> DEVICE void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory"); }

// -- launches -----------------------------------------------------------------

// Until the launches before this one have ended and what they wrote can be seen.
DEVICE void earlier_launches_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// The blocks of the next launch may take the room that is left, once all blocks of this one have come here.
DEVICE void next_launch_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// -- registers and clusters ---------------------------------------------------

template <int COUNT> DEVICE void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT)); }
template <int COUNT> DEVICE void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT)); }
DEVICE u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
// An address of this block's shared memory as the same place in a block of the cluster.
DEVICE u32 in_block(u32 at, u32 block) { u32 there; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block)); return there; }
// Stores whose bytes count towards a phase of a barrier of the same block.
DEVICE void send(u32 to, u32 a, u32 b, u32 bar) { asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" :: "r"(to), "r"(a), "r"(b), "r"(bar) : "memory"); }
DEVICE void send(u32 to, u32 a, u32 bar) { asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" :: "r"(to), "r"(a), "r"(bar) : "memory"); }
DEVICE void semaphore_arrive_at(u32 at, u32 block) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(in_block(at, block)) : "memory"); }
// What blocks of the cluster did before they signalled is seen after it.
DEVICE void barrier_wait_of_cluster(u32 bar, u32 phase) { asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1; @done bra passed; bra again; passed: }" :: "r"(bar), "r"(phase) : "memory"); }
// Blocks of a cluster have started: no memory is made visible by it but barriers, whose initialisation has its own fence.
DEVICE void cluster_start() { asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
