#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread char message[1024];

// Stores the sentence that error_string returns; returns the code.
static int refuse(int code, const char *format, ...) {
    const int start = snprintf(message, sizeof message, "%s: ", NAME);
    va_list values;
    va_start(values, format);
    vsnprintf(message + start, sizeof message - (size_t)start, format, values);
    va_end(values);
    return code;
}

const char *OWN(error_string)(void) {
    return message;
}

// -- the driver ---------------------------------------------------------------------------------------------------

// The functions of libcuda are declared here, and libcuda is opened by name when a kernel is loaded, so the program
// builds without cuda.h and without libcuda. -DPK_LIBCUDA='"path"' names another library.
#ifndef PK_LIBCUDA
#define PK_LIBCUDA "libcuda.so.1"
#endif

typedef struct {
    uint64_t words[16] __attribute__((aligned(64)));
} tensor_map;

typedef struct {
    unsigned id;
    uint64_t value[8];
} launch_attribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    const launch_attribute *attributes;
    unsigned attribute_count;
} launch_config;

#define DRIVER(FUNCTION) \
    FUNCTION(cuInit, (unsigned flags)) \
    FUNCTION(cuGetErrorName, (int code, const char **name)) \
    FUNCTION(cuGetErrorString, (int code, const char **text)) \
    FUNCTION(cuCtxGetCurrent, (void **context)) \
    FUNCTION(cuCtxGetDevice, (int *device)) \
    FUNCTION(cuCtxPushCurrent_v2, (void *context)) \
    FUNCTION(cuCtxPopCurrent_v2, (void **context)) \
    FUNCTION(cuDeviceGetAttribute, (int *value, int attribute, int device)) \
    FUNCTION(cuModuleLoadData, (void **module, const void *image)) \
    FUNCTION(cuModuleUnload, (void *module)) \
    FUNCTION(cuModuleGetFunction, (void **function, void *module, const char *name)) \
    FUNCTION(cuFuncGetAttribute, (int *value, int attribute, void *function)) \
    FUNCTION(cuFuncSetAttribute, (void *function, int attribute, int value)) \
    FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, void *function, int threads, size_t shared)) \
    FUNCTION(cuOccupancyMaxActiveClusters, (int *clusters, void *function, const launch_config *config)) \
    FUNCTION(cuTensorMapEncodeTiled, \
             (tensor_map *map, int dtype, uint32_t rank, void *address, const uint64_t *extents, \
              const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, \
              int promotion, int fill)) \
    FUNCTION(cuLaunchKernelEx, (const launch_config *config, void *function, void **parameters, void **extra))

typedef struct {
#define DECLARE(name, parameters) int (*name) parameters;
    DRIVER(DECLARE)
#undef DECLARE
} driver;

// CU_DEVICE_ATTRIBUTE_..., CU_FUNC_ATTRIBUTE_..., CU_LAUNCH_ATTRIBUTE_... and CU_TENSOR_MAP_L2_PROMOTION_... of cuda.h.
enum { MULTIPROCESSOR_COUNT = 16, SHARED_MEMORY_PER_BLOCK_OPTIN = 97 };
enum { SHARED_SIZE_BYTES = 1, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
enum { COOPERATIVE = 2, PROGRAMMATIC_STREAM_SERIALIZATION = 6, L2_PROMOTION_128B = 2 };

// Adds the driver's description of an error code to the stored sentence; returns the code.
static int failed(const driver *cuda, int code) {
    const char *name = NULL, *text = NULL;
    const size_t length = strlen(message);
    cuda->cuGetErrorName(code, &name);
    cuda->cuGetErrorString(code, &text);
    snprintf(message + length, sizeof message - length, " failed: %s: %s", name ? name : "a CUDA error",
             text ? text : "unknown");
    return code;
}

// Returns from the function if a call of the driver failed. The other arguments describe the purpose of the call.
#define CHECK(cuda, call, ...) \
    do { \
        const int returned = (call); \
        if (returned) return refuse(returned, __VA_ARGS__), failed(cuda, returned); \
    } while (0)

// Opens the driver. It is never closed, because other parts of the process may use it.
static int open_driver(driver *cuda) {
    void *symbol, *library = dlopen(PK_LIBCUDA, RTLD_NOW);
    if (library == NULL) return refuse(PK_NO_DRIVER, "the CUDA driver was not found: %s", dlerror());
    bool complete = true;
    // C has no conversion from a data pointer to a function pointer, so the bytes are copied.
#define FIND(name, parameters) \
    symbol = dlsym(library, #name), memcpy(&cuda->name, &symbol, sizeof symbol), complete = complete && symbol;
    DRIVER(FIND)
#undef FIND
    if (!complete) return refuse(PK_NO_DRIVER, "the CUDA driver is older than CUDA 12");
    CHECK(cuda, cuda->cuInit(0), "starting the CUDA driver");
    return PK_OK;
}

// -- loading ------------------------------------------------------------------------------------------------------

struct OWN(kernel) {
    driver cuda;
    void *context, *module, *function;
    int blocks_at_once; // of this kernel on the whole GPU
};

// Loads the machine code into the current context and computes how many blocks run at once.
static int load_module(OWN(kernel) *kernel) {
    const driver *cuda = &kernel->cuda;
    int device = 0, processors = 0, limit = 0, fixed = 0, blocks = 0;
    CHECK(cuda, cuda->cuCtxGetCurrent(&kernel->context), "reading the current context");
    if (kernel->context == NULL)
        return refuse(PK_NO_CONTEXT, "no CUDA context is current: call cuCtxSetCurrent or cudaSetDevice first");
    CHECK(cuda, cuda->cuCtxGetDevice(&device), "reading the current GPU");
    CHECK(cuda, cuda->cuDeviceGetAttribute(&processors, MULTIPROCESSOR_COUNT, device), "counting its multiprocessors");
    CHECK(cuda, cuda->cuDeviceGetAttribute(&limit, SHARED_MEMORY_PER_BLOCK_OPTIN, device), "reading its shared memory");
    CHECK(cuda, cuda->cuModuleLoadData(&kernel->module, OWN(cubin)), "loading the machine code for " ARCH);
    CHECK(cuda, cuda->cuModuleGetFunction(&kernel->function, kernel->module, NAME), "finding the kernel");
    CHECK(cuda, cuda->cuFuncGetAttribute(&fixed, SHARED_SIZE_BYTES, kernel->function), "reading its shared memory");
    if (fixed + SHARED_BYTES > limit)
        return refuse(PK_SHARED_MEMORY, "it needs %d bytes of shared memory a block, and the GPU has %d",
                      fixed + SHARED_BYTES, limit);
    if (SHARED_BYTES > 0)
        CHECK(cuda, cuda->cuFuncSetAttribute(kernel->function, MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED_BYTES),
              "requesting %d bytes of shared memory", SHARED_BYTES);
    if (CLUSTER == 1) {
        CHECK(cuda, cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel->function, THREADS, SHARED_BYTES),
              "computing the occupancy");
        kernel->blocks_at_once = processors * (blocks > 1 ? blocks : 1);
        return PK_OK;
    }
    // A cluster runs within a group of multiprocessors, so fewer blocks may run than all of them hold.
    const launch_config config = {{CLUSTER, 1, 1}, {THREADS, 1, 1}, SHARED_BYTES, NULL, NULL, 0};
    CHECK(cuda, cuda->cuOccupancyMaxActiveClusters(&blocks, kernel->function, &config), "computing the occupancy");
    kernel->blocks_at_once = CLUSTER * (blocks > 1 ? blocks : 1);
    return PK_OK;
}

int OWN(load)(OWN(kernel) **kernel) {
    *kernel = (OWN(kernel) *)calloc(1, sizeof **kernel);
    int code = *kernel ? open_driver(&(*kernel)->cuda) : refuse(PK_NO_MEMORY, "out of memory");
    if (code == PK_OK) code = load_module(*kernel);
    if (code == PK_OK) return PK_OK;
    OWN(unload)(*kernel);
    *kernel = NULL;
    return code;
}

void OWN(unload)(OWN(kernel) *kernel) {
    if (kernel != NULL && kernel->module != NULL && kernel->cuda.cuCtxPushCurrent_v2(kernel->context) == 0) {
        void *context;
        kernel->cuda.cuModuleUnload(kernel->module);
        kernel->cuda.cuCtxPopCurrent_v2(&context);
    }
    free(kernel);
}

// -- arguments ----------------------------------------------------------------------------------------------------

// A tensor argument and its requirements. ALIGNED: the copy engine can address it; WHOLE_ROWS: rows are multiples of 16 bytes.
enum { ALIGNED = 1, WHOLE_ROWS = 2, WRITTEN = 4 };
typedef struct {
    const char *name, *dtype;
    int rank, bytes, map_dtype; // bytes of an element, and CU_TENSOR_MAP_DATA_TYPE_...
    unsigned kind;
    const pk_tensor *tensor;
} argument;

static bool is_empty(const argument *a) {
    for (int axis = 0; axis < a->rank; ++axis)
        if (a->tensor->shape[axis] == 0) return true;
    return false;
}

// Bytes from the first element of a tensor to the end of the last one; -1 if they exceed the address space. An axis of
// extent 1 has no stride.
static int64_t span(const argument *a) {
    int64_t bytes = a->bytes;
    for (int axis = 0; axis < a->rank; ++axis) {
        int64_t step = 0;
        if (a->tensor->shape[axis] > 1 && (__builtin_mul_overflow(a->tensor->strides[axis], a->bytes, &step) ||
                                           __builtin_mul_overflow(step, a->tensor->shape[axis] - 1, &step)))
            return -1;
        if (__builtin_add_overflow(bytes, step, &bytes) || bytes > (int64_t)1 << 60) return -1;
    }
    return bytes;
}

// The requirements of every kernel: extents fit an int32, the last stride is 1, no stride is negative, the address is a
// multiple of an element, and the elements lie in the address space, so that sums of their distances are int64.
static int check_tensors(const argument *arguments, int count) {
    for (const argument *a = arguments; a < arguments + count; ++a) {
        if (a->tensor == NULL) return refuse(PK_TENSOR, "`%s` is NULL", a->name);
        const int64_t *shape = a->tensor->shape, *strides = a->tensor->strides;
        for (int axis = 0; axis < a->rank; ++axis)
            if (shape[axis] < 0 || shape[axis] > INT32_MAX)
                return refuse(PK_TENSOR, "`%s` has an extent of %lld, which is outside the range of int32", a->name,
                              (long long)shape[axis]);
        if (is_empty(a)) continue;
        if (a->tensor->data == NULL) return refuse(PK_TENSOR, "`%s` has no memory", a->name);
        for (int axis = 0; axis < a->rank; ++axis) {
            const bool last = axis == a->rank - 1;
            if (shape[axis] > 1 && (last ? strides[axis] != 1 : strides[axis] < 0))
                return refuse(PK_TENSOR, "`%s` has a stride of %lld along axis %d: %s", a->name,
                              (long long)strides[axis], axis, last ? "the last must be 1" : "none may be negative");
        }
        if ((uintptr_t)a->tensor->data % (unsigned)a->bytes)
            return refuse(PK_TENSOR, "`%s` starts at the address %p, which is no multiple of its %d-byte elements",
                          a->name, a->tensor->data, a->bytes);
        if (span(a) < 0) return refuse(PK_TENSOR, "`%s` has strides that lead beyond the address space", a->name);
    }
    return PK_OK;
}

// The requirements of the copy engine: base and strides are multiples of 16 bytes, no axis is empty, no stride is 0.
static int check_aligned(const argument *a) {
    if ((uintptr_t)a->tensor->data % 16)
        return refuse(PK_ALIGNMENT, "`%s` must start at a multiple of 16 bytes, not at %p", a->name, a->tensor->data);
    if (is_empty(a))
        return refuse(PK_ALIGNMENT, "`%s` is empty, and the kernel was compiled for tensors that are not", a->name);
    for (int axis = 0; axis < a->rank - 1; ++axis) {
        const int64_t stride = a->tensor->strides[axis];
        const bool is_addressable = stride > 0 && stride < ((int64_t)1 << 40) / a->bytes && stride * a->bytes % 16 == 0;
        if (a->tensor->shape[axis] != 1 && !is_addressable)
            return refuse(PK_ALIGNMENT,
                          "`%s` has a stride of %lld elements of %d bytes along axis %d: it must be above 0, "
                          "below 2^40 bytes and a multiple of 16 bytes",
                          a->name, (long long)stride, a->bytes, axis);
    }
    return PK_OK;
}

// coefficient * x for x from 0 to `most`.
typedef struct {
    int64_t coefficient, most;
} term;

// Inserts a term in descending order and merges terms of equal coefficients. Returns the number of terms.
static int add_term(term *terms, int count, int64_t coefficient, int64_t most) {
    int at = 0;
    if (coefficient == 0 || most == 0) return count;
    while (at < count && terms[at].coefficient > coefficient) ++at;
    if (at < count && terms[at].coefficient == coefficient) {
        terms[at].most += most;
        return count;
    }
    memmove(terms + at + 1, terms + at, (size_t)(count - at) * sizeof *terms);
    terms[at].coefficient = coefficient;
    terms[at].most = most;
    return count + 1;
}

// Whether the terms can sum to the target; `reach` is the largest sum. The answer is yes if the steps run out.
static bool sums_to(const term *terms, int count, int64_t reach, int64_t target, int *steps) {
    if (target < 0 || target > reach) return false;
    if (target == 0) return true;
    if (count == 0) return false;
    if (--*steps < 0) return true;
    const int64_t coefficient = terms->coefficient, rest = reach - coefficient * terms->most;
    int64_t x = target / coefficient < terms->most ? target / coefficient : terms->most;
    for (; x >= 0 && target - x * coefficient <= rest; --x)
        if (sums_to(terms + 1, count - 1, rest, target - x * coefficient, steps)) return true;
    return false;
}

// Whether two elements of a tensor share an address. Their distance is a step of one axis, plus or minus steps of the
// axes after it. The negative steps are counted from their end, so the distance is 0 if the terms sum to that end.
static bool repeats(const argument *a) {
    const int64_t *shape = a->tensor->shape, *strides = a->tensor->strides;
    term terms[5];
    int64_t end = 0, reach = 0;
    int count = 0, steps = 100000;
    for (int axis = a->rank - 1; axis >= 0; --axis) {
        if (shape[axis] < 2) continue;
        end += strides[axis] * (shape[axis] - 1);
        term with[5];
        memcpy(with, terms, (size_t)count * sizeof *terms);
        const int further = add_term(with, count, strides[axis], shape[axis] - 2);
        if (sums_to(with, further, reach + strides[axis] * (shape[axis] - 2), end, &steps)) return true;
        count = add_term(terms, count, strides[axis], 2 * (shape[axis] - 1));
        reach += 2 * strides[axis] * (shape[axis] - 1);
    }
    return false;
}

// No two elements of an output share an address, and the copy engine stores multiples of 16 bytes only.
static int check_written(const argument *a) {
    const int64_t columns = a->tensor->shape[a->rank - 1];
    for (int axis = 0; axis < a->rank && !is_empty(a); ++axis)
        if (a->tensor->shape[axis] > 1 && a->tensor->strides[axis] == 0)
            return refuse(PK_TENSOR, "`%s` is written and has a stride of 0 along axis %d", a->name, axis);
    if (!is_empty(a) && repeats(a))
        return refuse(PK_TENSOR, "`%s` is written and has elements that share an address", a->name);
    if (a->kind & WHOLE_ROWS && columns * a->bytes % 16)
        return refuse(PK_ALIGNMENT, "`%s` has rows of %lld elements of %d bytes: they must be multiples of 16 bytes",
                      a->name, (long long)columns, a->bytes);
    return PK_OK;
}

// Adds a term for each axis; returns the distance in bytes from the first byte to the last.
static int64_t add_axes(term *terms, int *count, const argument *a) {
    for (int axis = 0; axis < a->rank; ++axis)
        if (a->tensor->shape[axis] > 1)
            *count = add_term(terms, *count, a->tensor->strides[axis] * a->bytes, a->tensor->shape[axis] - 1);
    return span(a) - 1;
}

// Whether two tensors share a byte. Views of one tensor may interleave without sharing any, so the indices at which
// they would meet are searched for. With the indices of b counted from its end, the distance between the first byte of
// a and the last byte of b is a sum of terms.
static bool share_memory(const argument *a, const argument *b) {
    const int64_t distance = (int64_t)((uintptr_t)b->tensor->data - (uintptr_t)a->tensor->data);
    term terms[11];
    int count = 0, steps = 100000;
    if (is_empty(a) || is_empty(b)) return false;
    const int64_t last = add_axes(terms, &count, a), other_last = add_axes(terms, &count, b);
    if (distance > last || distance < -other_last) return false;
    count = add_term(terms, count, 1, a->bytes - 1 + b->bytes - 1);
    return sums_to(terms, count, last + other_last, distance + other_last, &steps);
}

static bool are_same(const argument *a, const argument *b) {
    const size_t size = (size_t)a->rank * sizeof(int64_t);
    return a->rank == b->rank && strcmp(a->dtype, b->dtype) == 0 && a->tensor->data == b->tensor->data &&
           memcmp(a->tensor->shape, b->tensor->shape, size) == 0 &&
           memcmp(a->tensor->strides, b->tensor->strides, size) == 0;
}

// Requires the alignment that the kernel was compiled for, outputs that can be written, and no output that overlaps.
static int check_memory(const argument *arguments, int count) {
    const argument *end = arguments + count;
    int code;
    for (const argument *a = arguments; a < end; ++a) {
        if (a->kind & WRITTEN && (code = check_written(a))) return code;
        if (a->kind & ALIGNED && (code = check_aligned(a))) return code;
    }
    for (const argument *a = arguments; a < end; ++a)
        for (const argument *b = arguments; a->kind & WRITTEN && b < end; ++b)
            if (a != b && !(IN_PLACE && are_same(a, b)) && share_memory(a, b))
                return refuse(PK_OVERLAP, "the output `%s` shares memory with `%s`", a->name, b->name);
    return PK_OK;
}

// -- launching ----------------------------------------------------------------------------------------------------

// The number of blocks: one per point of the grid, or as many persistent blocks as run at once; 0 if there is no work.
static int count_blocks(const OWN(kernel) *kernel, const int64_t *extents, int rank, int64_t *blocks) {
    int64_t points = 1;
    *blocks = 0;
    for (int axis = 0; axis < rank - 2; ++axis)
        if (axis == CLUSTER_AXIS && extents[axis] % CLUSTER)
            return refuse(PK_CLUSTER, "the tasks along axis %d cannot be shared by clusters of %d", axis, CLUSTER);
    for (int axis = 0; axis < rank; ++axis)
        if (extents[axis] <= 0) return PK_OK;
    for (int axis = 0; axis < rank; ++axis) {
        const int64_t extent = axis == CLUSTER_AXIS ? (extents[axis] - 1) / CLUSTER + 1 : extents[axis];
        if (extent > INT32_MAX / points)
            return refuse(PK_RANGE, "it has more tiles of work than an int32 counts");
        points *= extent;
    }
    if (!IS_PERSISTENT && points % CLUSTER)
        return refuse(PK_CLUSTER, "its grid cannot be divided into clusters of %d", CLUSTER);
    if (WAITS_FOR_BLOCKS && !IS_PERSISTENT && points > kernel->blocks_at_once)
        return refuse(PK_AT_ONCE, "its blocks wait for one another, and this GPU runs fewer at once");
    const int64_t at_once = kernel->blocks_at_once / CLUSTER;
    *blocks = !IS_PERSISTENT ? points : (points < at_once ? points : at_once) * CLUSTER;
    return PK_OK;
}

// Encodes a tensor map of a tensor and of boxes of rows x cols. Axes are listed innermost first: that of the columns,
// which is the last, that of the rows, and the others from the last.
UNUSED static int encode(const OWN(kernel) *kernel, tensor_map *map, const argument *a, uint32_t rows, uint32_t cols,
                         int row_axis, int swizzle) {
    const pk_tensor *tensor = a->tensor;
    const uint32_t box[5] = {cols, rows, 1, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
    uint64_t extents[5], strides[5], least = (uint64_t)(tensor->shape[a->rank - 1] * a->bytes);
    for (int i = 0, other = a->rank - 2; i < a->rank; ++i) {
        if (other == row_axis) --other;
        const int axis = i == 0 ? a->rank - 1 : i == 1 ? row_axis : other--;
        extents[i] = (uint64_t)tensor->shape[axis];
        if (i == 0) continue;
        // The driver checks the stride of an axis of extent 1, although it is never used.
        if (tensor->shape[axis] > 1) least = (uint64_t)(tensor->strides[axis] * a->bytes);
        strides[i - 1] = tensor->shape[axis] > 1 ? least : (least + 15) / 16 * 16;
    }
    CHECK(&kernel->cuda,
          kernel->cuda.cuTensorMapEncodeTiled(map, a->map_dtype, (uint32_t)a->rank, tensor->data, extents, strides, box,
                                              steps, 0, swizzle, L2_PROMOTION_128B, 0),
          "encoding a tensor map of `%s`", a->name);
    return PK_OK;
}

// Launches in the kernel's context, not in the context of the calling thread. If OVERLAPS, the kernel may start before
// the previous one on the stream has ended, and waits for that end itself. If WAITS_FOR_BLOCKS, it starts when there is
// room for all its blocks at once.
static int start(const OWN(kernel) *kernel, struct CUstream_st *stream, int64_t blocks, void **parameters) {
    const driver *cuda = &kernel->cuda;
    const launch_attribute how = {WAITS_FOR_BLOCKS ? COOPERATIVE : PROGRAMMATIC_STREAM_SERIALIZATION, {1}};
    const launch_config config = {{(unsigned)blocks, 1, 1}, {THREADS, 1, 1}, SHARED_BYTES,
                                  stream, &how, OVERLAPS || WAITS_FOR_BLOCKS};
    void *context;
    CHECK(cuda, cuda->cuCtxPushCurrent_v2(kernel->context), "making its context current");
    const int code = cuda->cuLaunchKernelEx(&config, kernel->function, parameters, NULL);
    cuda->cuCtxPopCurrent_v2(&context);
    CHECK(cuda, code, "launching %lld blocks of %d threads with %d bytes of shared memory", (long long)blocks, THREADS,
          SHARED_BYTES);
    return PK_OK;
}
