// matmul for sm_90a: the launch of matmul.h, and the machine code behind it.
#include "matmul.h"

#include <dlfcn.h>
#include <math.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __cplusplus
#define thread_local _Thread_local
#endif

static thread_local char message[1024];

// Keeps a sentence for matmul_error_string and hands the code on.
static int refuse(int code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return code;
}

// The driver's functions, found when a kernel is loaded. They are declared here and libcuda is opened by name, so
// the same text builds on machines that have cuda.h and libcuda to link with and on those that have neither.
// -DPK_LIBCUDA='"path"' names another library.
#ifndef PK_LIBCUDA
#define PK_LIBCUDA "libcuda.so.1"
#endif

typedef struct {
    alignas(64) uint64_t words[16];
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

typedef struct {
    int (*cuInit)(unsigned flags);
    int (*cuGetErrorName)(int code, const char **name);
    int (*cuGetErrorString)(int code, const char **text);
    int (*cuCtxGetCurrent)(void **context);
    int (*cuCtxGetDevice)(int *device);
    int (*cuCtxPushCurrent_v2)(void *context);
    int (*cuCtxPopCurrent_v2)(void **context);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int (*cuModuleLoadData)(void **module, const void *image);
    int (*cuModuleUnload)(void *module);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuFuncGetAttribute)(int *value, int attribute, void *function);
    int (*cuFuncSetAttribute)(void *function, int attribute, int value);
    int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, void *function, int threads, size_t shared);
    int (*cuTensorMapEncodeTiled)(tensor_map *map, int dtype, uint32_t rank, void *address, const uint64_t *extents,
                                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int fill);
    int (*cuLaunchKernelEx)(const launch_config *config, void *function, void **parameters, void **extra);
} driver;

enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

// What the driver says of a code it returned.
static int failed(const driver *cuda, int code, const char *what) {
    const char *name = NULL, *text = NULL;
    cuda->cuGetErrorName(code, &name);
    cuda->cuGetErrorString(code, &text);
    return refuse(code, "matmul: %s failed: %s: %s", what, name ? name : "a CUDA error", text ? text : "unknown");
}

// A function pointer and a pointer to data are different things in C, so the bytes are copied.
static bool find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

// Opens the driver; it is never closed, since the process may have other uses for it.
static int open_driver(driver *cuda) {
    void *library = dlopen(PK_LIBCUDA, RTLD_NOW);
    if (library == NULL) return refuse(PK_NO_DRIVER, "matmul: the CUDA driver was not found: %s", dlerror());
#define FIND(function) find(library, #function, &cuda->function)
    const bool complete =
        FIND(cuInit) && FIND(cuGetErrorName) && FIND(cuGetErrorString) && FIND(cuCtxGetCurrent) &&
        FIND(cuCtxGetDevice) && FIND(cuCtxPushCurrent_v2) && FIND(cuCtxPopCurrent_v2) && FIND(cuDeviceGetAttribute) &&
        FIND(cuModuleLoadData) && FIND(cuModuleUnload) && FIND(cuModuleGetFunction) && FIND(cuFuncGetAttribute) &&
        FIND(cuFuncSetAttribute) && FIND(cuOccupancyMaxActiveBlocksPerMultiprocessor) &&
        FIND(cuTensorMapEncodeTiled) && FIND(cuLaunchKernelEx);
#undef FIND
    if (!complete) return refuse(PK_NO_DRIVER, "matmul: the CUDA driver is older than CUDA 12");
    const int code = cuda->cuInit(0);
    return code ? failed(cuda, code, "starting the CUDA driver") : PK_OK;
}

alignas(64) extern const unsigned char matmul_cubin[...];

struct matmul_kernel {
    driver cuda;
    void *context, *module, *function;
    int blocks_at_once; // of this kernel on the whole GPU
};

// Loads the machine code into the current context and asks how many blocks run at once.
static int load_module(matmul_kernel *kernel) {
    const driver *cuda = &kernel->cuda;
    int code, device = 0, processors = 0, limit = 0, fixed = 0, blocks = 0;
    if ((code = cuda->cuCtxGetCurrent(&kernel->context))) return failed(cuda, code, "asking for the current context");
    if (kernel->context == NULL)
        return refuse(PK_NO_CONTEXT, "matmul: no CUDA context is current: call cuCtxSetCurrent or cudaSetDevice first");
    if ((code = cuda->cuCtxGetDevice(&device)) ||
        (code = cuda->cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)) ||
        (code = cuda->cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device)))
        return failed(cuda, code, "asking for the GPU's size");
    if ((code = cuda->cuModuleLoadData(&kernel->module, matmul_cubin)))
        return failed(cuda, code, "loading the machine code for sm_90a");
    if ((code = cuda->cuModuleGetFunction(&kernel->function, kernel->module, "matmul")) ||
        (code = cuda->cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->function)))
        return failed(cuda, code, "finding the kernel");
    if (fixed + 213056 > limit)
        return refuse(PK_SHARED_MEMORY, "matmul: it needs %d bytes of shared memory a block, and the GPU has %d",
                      fixed + 213056, limit);
    if (213056 > 0 &&
        (code = cuda->cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 213056)))
        return failed(cuda, code, "asking for 213056 bytes of shared memory");
    code = cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel->function, 384, 213056);
    if (code) return failed(cuda, code, "asking for the occupancy");
    kernel->blocks_at_once = processors * (blocks > 1 ? blocks : 1);
    return PK_OK;
}

int matmul_load(matmul_kernel **kernel) {
    *kernel = NULL;
    matmul_kernel *loaded = (matmul_kernel *)calloc(1, sizeof *loaded);
    if (loaded == NULL) return refuse(PK_NO_MEMORY, "matmul: out of memory");
    int code = open_driver(&loaded->cuda);
    if (code == PK_OK) code = load_module(loaded);
    if (code == PK_OK)
        *kernel = loaded;
    else
        matmul_unload(loaded);
    return code;
}

void matmul_unload(matmul_kernel *kernel) {
    if (kernel != NULL && kernel->module != NULL && kernel->cuda.cuCtxPushCurrent_v2(kernel->context) == 0) {
        void *context;
        kernel->cuda.cuModuleUnload(kernel->module);
        kernel->cuda.cuCtxPopCurrent_v2(&context);
    }
    free(kernel);
}

const char *matmul_error_string(void) {
    return message;
}

// The smallest integer not below a / b.
static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0 && (a < 0) == (b < 0));
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// Whether any kernel takes the tensor: extents of an int32, the last stride 1 and none below 0.
static int check_tensor(const char *name, const pk_tensor *tensor, int rank) {
    if (tensor == NULL) return refuse(PK_TENSOR, "matmul: `%s` is NULL", name);
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] < 0 || tensor->shape[axis] > INT32_MAX)
            return refuse(PK_TENSOR, "matmul: `%s` has an extent of %lld, which is outside the range of int32", name,
                          (long long)tensor->shape[axis]);
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] == 0) return PK_OK; // the strides of nothing say nothing
    if (tensor->data == NULL) return refuse(PK_TENSOR, "matmul: `%s` has no memory", name);
    for (int axis = 0; axis < rank; ++axis) {
        const bool last = axis == rank - 1;
        if (tensor->shape[axis] > 1 && (last ? tensor->strides[axis] != 1 : tensor->strides[axis] < 0))
            return refuse(PK_TENSOR, "matmul: `%s` has a stride of %lld along axis %d: %s", name,
                          (long long)tensor->strides[axis], axis, last ? "the last must be 1" : "none may be negative");
    }
    return PK_OK;
}

// An output has no axis along which all elements are one.
static int check_written(const char *name, const pk_tensor *tensor, int rank) {
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] == 0) return PK_OK;
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] > 1 && tensor->strides[axis] == 0)
            return refuse(PK_TENSOR, "matmul: `%s` is written and has a stride of 0 along axis %d", name, axis);
    return PK_OK;
}

// Whether the copy engine reaches the tensor, as the kernel was compiled for: base and strides are multiples of 16
// bytes, no axis is empty and none repeats. `size` is that of an element.
static int check_aligned(const char *name, const pk_tensor *tensor, int rank, int size) {
    if ((uintptr_t)tensor->data % 16)
        return refuse(PK_ALIGNMENT, "matmul: `%s` must start at a multiple of 16 bytes, not at %p", name, tensor->data);
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] == 0)
            return refuse(PK_ALIGNMENT, "matmul: `%s` is empty, and the kernel was compiled for tensors that are not",
                          name);
    for (int axis = 0; axis < rank - 1; ++axis) {
        const int64_t stride = tensor->strides[axis];
        if (tensor->shape[axis] == 1) continue;
        if (stride <= 0 || stride >= ((int64_t)1 << 40) / size || stride * size % 16)
            return refuse(PK_ALIGNMENT,
                          "matmul: `%s` has a stride of %lld elements of %d bytes along axis %d: it must be above 0, "
                          "below 2^40 bytes and a multiple of 16 bytes",
                          name, (long long)stride, size, axis);
    }
    return PK_OK;
}

// Whether rows end at a multiple of 16 bytes: the copy engine stores no less.
static int check_whole_rows(const char *name, const pk_tensor *tensor, int rank, int size) {
    const int64_t columns = tensor->shape[rank - 1];
    if (columns * size % 16 == 0) return PK_OK;
    return refuse(PK_ALIGNMENT, "matmul: `%s` has rows of %lld elements of %d bytes: they must be multiples of 16 bytes",
                  name, (long long)columns, size);
}

// coefficient * x for x from 0 to `most`.
typedef struct {
    int64_t coefficient, most;
} term;

// Keeps terms in descending order; two of one coefficient are one. Returns how many there are.
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

// Whether the terms can sum to the target; `reach` is the largest sum. Out of steps, the answer is yes.
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

// Bytes from the first byte to the last, which a tensor without elements does not have.
static int64_t last_byte(const pk_tensor *tensor, int rank, int size) {
    int64_t reach = 0;
    for (int axis = 0; axis < rank; ++axis) {
        if (tensor->shape[axis] == 0) return -1;
        reach += (tensor->shape[axis] - 1) * tensor->strides[axis];
    }
    return reach * size + size - 1;
}

// Refuses an output that has a byte in common with another tensor. Views of one tensor may interleave without
// touching, so it is solved for which indices the two could meet: the other's are counted from its end, and the
// distance between the first byte of the output and the last of the other is then a sum of terms.
static int check_apart(const char *name, const pk_tensor *output, int rank, int size, const char *other_name,
                       const pk_tensor *other, int other_rank, int other_size) {
    const int64_t last = last_byte(output, rank, size), other_last = last_byte(other, other_rank, other_size);
    const int64_t distance = (int64_t)((uintptr_t)other->data - (uintptr_t)output->data);
    term terms[12];
    int count = 0, steps = 100000;
    if (last < 0 || other_last < 0 || distance > last || -distance > other_last) return PK_OK;
    for (int axis = 0; axis < rank; ++axis)
        count = add_term(terms, count, output->strides[axis] * size, output->shape[axis] - 1);
    for (int axis = 0; axis < other_rank; ++axis)
        count = add_term(terms, count, other->strides[axis] * other_size, other->shape[axis] - 1);
    count = add_term(terms, count, 1, size - 1 + other_size - 1);
    if (!sums_to(terms, count, last + other_last, distance + other_last, &steps)) return PK_OK;
    return refuse(PK_OVERLAP, "matmul: the output `%s` shares memory with `%s`", name, other_name);
}

// The product of the extents, which an int32 must count; 0 where one is not above 0.
static int count_work(const int64_t *extents, int rank, int64_t *product) {
    *product = 0;
    for (int axis = 0; axis < rank; ++axis)
        if (extents[axis] <= 0) return PK_OK;
    int64_t points = 1;
    for (int axis = 0; axis < rank; ++axis) {
        if (extents[axis] > INT32_MAX / points)
            return refuse(PK_RANGE, "matmul: it has more tiles of work than an int32 counts");
        points *= extents[axis];
    }
    *product = points;
    return PK_OK;
}

// CU_TENSOR_MAP_DATA_TYPE_..., CU_TENSOR_MAP_SWIZZLE_...B and CU_TENSOR_MAP_L2_PROMOTION_L2_128B in cuda.h.
enum { MAP_UINT8, MAP_UINT16, MAP_UINT32, MAP_INT32, MAP_UINT64, MAP_INT64, MAP_FLOAT16, MAP_FLOAT32, MAP_FLOAT64,
       MAP_BFLOAT16 };
enum { MAP_SWIZZLE_0, MAP_SWIZZLE_32, MAP_SWIZZLE_64, MAP_SWIZZLE_128 };
enum { MAP_L2_PROMOTION_128 = 2 };

// How the copy engine knows a tensor and the box of rows x cols it moves; the driver lists axes innermost first.
static int encode(const driver *cuda, tensor_map *map, const char *name, const pk_tensor *tensor, int rank, int size,
                  int dtype, uint32_t rows, uint32_t cols, int swizzle) {
    uint64_t extents[5], strides[5];
    uint32_t box[5] = {cols, rows, 1, 1, 1};
    const uint32_t steps[5] = {1, 1, 1, 1, 1};
    uint64_t least = (uint64_t)(tensor->shape[rank - 1] * size);
    extents[0] = (uint64_t)tensor->shape[rank - 1];
    for (int i = 1; i < rank; ++i) {
        const int axis = rank - 1 - i;
        extents[i] = (uint64_t)tensor->shape[axis];
        // The stride of an axis of extent 1 is never used, yet it must be one that the driver takes.
        if (tensor->shape[axis] > 1) least = (uint64_t)(tensor->strides[axis] * size);
        strides[i - 1] = tensor->shape[axis] > 1 ? least : (least + 15) / 16 * 16;
    }
    const int code = cuda->cuTensorMapEncodeTiled(map, dtype, (uint32_t)rank, tensor->data, extents, strides, box, steps,
                                                  0, swizzle, MAP_L2_PROMOTION_128, 0);
    if (code == 0) return PK_OK;
    char what[128];
    snprintf(what, sizeof what, "encoding a tensor map of `%s`", name);
    return failed(cuda, code, what);
}

// Launches in the kernel's context, whatever the calling thread's is. With the attribute it may start before the launch
// before it on the stream has ended: the kernel waits for that itself.
static int start(const matmul_kernel *kernel, struct CUstream_st *stream, unsigned blocks, void **parameters) {
    const driver *cuda = &kernel->cuda;
    const launch_attribute overlap = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, {1}};
    const launch_config config = {{blocks, 1, 1}, {384, 1, 1}, 213056, stream, &overlap, 0};
    void *context;
    int code = cuda->cuCtxPushCurrent_v2(kernel->context);
    if (code) return failed(cuda, code, "choosing its context");
    code = cuda->cuLaunchKernelEx(&config, kernel->function, parameters, NULL);
    cuda->cuCtxPopCurrent_v2(&context);
    if (code == 0) return PK_OK;
    char what[128];
    snprintf(what, sizeof what, "launching %u blocks of 384 threads with 213056 bytes of shared memory", blocks);
    return failed(cuda, code, what);
}

int matmul_launch(const matmul_kernel *kernel,
                  struct CUstream_st *stream,
                  const pk_tensor *A,
                  const pk_tensor *B,
                  const pk_tensor *C) {
    int code;
    if ((code = check_tensor("A", A, 2))) return code;
    if ((code = check_tensor("B", B, 2))) return code;
    if ((code = check_tensor("C", C, 2))) return code;

    // 06_matmul.py:13
    if (!(A->shape[1] == B->shape[1] && C->shape[0] == A->shape[0] && C->shape[1] == B->shape[0]))
        return refuse(PK_REQUIRE, "matmul: A is m x k, B n x k, C m x n");

    const int64_t grid_extents[] = {ceil_div(C->shape[0], 128), ceil_div(C->shape[1], 256)};
    int64_t grid_points;
    if ((code = count_work(grid_extents, 2, &grid_points))) return code;
    if (grid_points == 0) return PK_OK; // nothing to do
    // Persistent blocks share the tasks: as many as run at once, no more than there are tasks.
    const int64_t grid_blocks = smaller(grid_points, kernel->blocks_at_once);

    if ((code = check_aligned("A", A, 2, 2))) return code;
    if ((code = check_aligned("B", B, 2, 2))) return code;
    if ((code = check_written("C", C, 2))) return code;
    if ((code = check_aligned("C", C, 2, 2))) return code;
    if ((code = check_whole_rows("C", C, 2, 2))) return code;
    if ((code = check_apart("C", C, 2, 2, "A", A, 2, 2))) return code;
    if ((code = check_apart("C", C, 2, 2, "B", B, 2, 2))) return code;

    tensor_map A_map; // boxes of 128 x 64 elements
    code = encode(&kernel->cuda, &A_map, "A", A, 2, 2, MAP_BFLOAT16, 128, 64, MAP_SWIZZLE_128);
    if (code) return code;
    tensor_map B_map; // boxes of 256 x 64 elements
    code = encode(&kernel->cuda, &B_map, "B", B, 2, 2, MAP_BFLOAT16, 256, 64, MAP_SWIZZLE_128);
    if (code) return code;
    tensor_map C_map; // boxes of 128 x 64 elements
    code = encode(&kernel->cuda, &C_map, "C", C, 2, 2, MAP_BFLOAT16, 128, 64, MAP_SWIZZLE_128);
    if (code) return code;
    int32_t C_n0 = (int32_t)C->shape[0];
    int32_t C_n1 = (int32_t)C->shape[1];
    int32_t A_n1 = (int32_t)A->shape[1];
    void *parameters[] = {&A_map, &B_map, &C_map, &C_n0, &C_n1, &A_n1};
    return start(kernel, stream, (unsigned)grid_blocks, parameters);
}

