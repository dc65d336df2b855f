//: refuse
static thread_local char message[1024];

// Keeps a sentence for @NAME@_error_string and hands the code on.
static int refuse(int code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return code;
}

//: driver
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
    return refuse(code, "@NAME@: %s failed: %s: %s", what, name ? name : "a CUDA error", text ? text : "unknown");
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
    if (library == NULL) return refuse(PK_NO_DRIVER, "@NAME@: the CUDA driver was not found: %s", dlerror());
#define FIND(function) find(library, #function, &cuda->function)
    const bool complete =
        FIND(cuInit) && FIND(cuGetErrorName) && FIND(cuGetErrorString) && FIND(cuCtxGetCurrent) &&
        FIND(cuCtxGetDevice) && FIND(cuCtxPushCurrent_v2) && FIND(cuCtxPopCurrent_v2) && FIND(cuDeviceGetAttribute) &&
        FIND(cuModuleLoadData) && FIND(cuModuleUnload) && FIND(cuModuleGetFunction) && FIND(cuFuncGetAttribute) &&
        FIND(cuFuncSetAttribute) && FIND(cuOccupancyMaxActiveBlocksPerMultiprocessor) &&
        FIND(cuTensorMapEncodeTiled) && FIND(cuLaunchKernelEx);
#undef FIND
    if (!complete) return refuse(PK_NO_DRIVER, "@NAME@: the CUDA driver is older than CUDA 12");
    const int code = cuda->cuInit(0);
    return code ? failed(cuda, code, "starting the CUDA driver") : PK_OK;
}

//: load
alignas(64) extern const unsigned char @NAME@_cubin[@CUBIN_BYTES@];

struct @NAME@_kernel {
    driver cuda;
    void *context, *module, *function;
    int blocks_at_once; // of this kernel on the whole GPU
};

// Loads the machine code into the current context and asks how many blocks run at once.
static int load_module(@NAME@_kernel *kernel) {
    const driver *cuda = &kernel->cuda;
    int code, device = 0, processors = 0, limit = 0, fixed = 0, blocks = 0;
    if ((code = cuda->cuCtxGetCurrent(&kernel->context))) return failed(cuda, code, "asking for the current context");
    if (kernel->context == NULL)
        return refuse(PK_NO_CONTEXT, "@NAME@: no CUDA context is current: call cuCtxSetCurrent or cudaSetDevice first");
    if ((code = cuda->cuCtxGetDevice(&device)) ||
        (code = cuda->cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)) ||
        (code = cuda->cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device)))
        return failed(cuda, code, "asking for the GPU's size");
    if ((code = cuda->cuModuleLoadData(&kernel->module, @NAME@_cubin)))
        return failed(cuda, code, "loading the machine code for @ARCH@");
    if ((code = cuda->cuModuleGetFunction(&kernel->function, kernel->module, "@NAME@")) ||
        (code = cuda->cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->function)))
        return failed(cuda, code, "finding the kernel");
    if (fixed + @SHARED@ > limit)
        return refuse(PK_SHARED_MEMORY, "@NAME@: it needs %d bytes of shared memory a block, and the GPU has %d",
                      fixed + @SHARED@, limit);
    if (@SHARED@ > 0 &&
        (code = cuda->cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, @SHARED@)))
        return failed(cuda, code, "asking for @SHARED@ bytes of shared memory");
    code = cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel->function, @THREADS@, @SHARED@);
    if (code) return failed(cuda, code, "asking for the occupancy");
    kernel->blocks_at_once = processors * (blocks > 1 ? blocks : 1);
    return PK_OK;
}

int @NAME@_load(@NAME@_kernel **kernel) {
    *kernel = NULL;
    @NAME@_kernel *loaded = (@NAME@_kernel *)calloc(1, sizeof *loaded);
    if (loaded == NULL) return refuse(PK_NO_MEMORY, "@NAME@: out of memory");
    int code = open_driver(&loaded->cuda);
    if (code == PK_OK) code = load_module(loaded);
    if (code == PK_OK)
        *kernel = loaded;
    else
        @NAME@_unload(loaded);
    return code;
}

void @NAME@_unload(@NAME@_kernel *kernel) {
    if (kernel != NULL && kernel->module != NULL && kernel->cuda.cuCtxPushCurrent_v2(kernel->context) == 0) {
        void *context;
        kernel->cuda.cuModuleUnload(kernel->module);
        kernel->cuda.cuCtxPopCurrent_v2(&context);
    }
    free(kernel);
}

const char *@NAME@_error_string(void) {
    return message;
}

//: floor_div
// The largest integer not above a / b.
static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

//: floor_mod
// a - b * floor_div(a, b): it has the sign of b.
static int64_t floor_mod(int64_t a, int64_t b) {
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

//: ceil_div
// The smallest integer not below a / b.
static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0 && (a < 0) == (b < 0));
}

//: larger
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

//: smaller
static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

//: larger_float
// NaN where one of them is.
static float larger_float(float a, float b) {
    return a != a ? a : b != b ? b : a > b ? a : b;
}

//: smaller_float
// NaN where one of them is.
static float smaller_float(float a, float b) {
    return a != a ? a : b != b ? b : a < b ? a : b;
}

//: fits
// Whether a number that was computed in floating point is well inside an int64.
static bool fits(double value) {
    return value > -9e18 && value < 9e18;
}

//: check_tensor
// Whether any kernel takes the tensor: extents of an int32, the last stride 1 and none below 0.
static int check_tensor(const char *name, const pk_tensor *tensor, int rank) {
    if (tensor == NULL) return refuse(PK_TENSOR, "@NAME@: `%s` is NULL", name);
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] < 0 || tensor->shape[axis] > INT32_MAX)
            return refuse(PK_TENSOR, "@NAME@: `%s` has an extent of %lld, which is outside the range of int32", name,
                          (long long)tensor->shape[axis]);
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] == 0) return PK_OK; // the strides of nothing say nothing
    if (tensor->data == NULL) return refuse(PK_TENSOR, "@NAME@: `%s` has no memory", name);
    for (int axis = 0; axis < rank; ++axis) {
        const bool last = axis == rank - 1;
        if (tensor->shape[axis] > 1 && (last ? tensor->strides[axis] != 1 : tensor->strides[axis] < 0))
            return refuse(PK_TENSOR, "@NAME@: `%s` has a stride of %lld along axis %d: %s", name,
                          (long long)tensor->strides[axis], axis, last ? "the last must be 1" : "none may be negative");
    }
    return PK_OK;
}

//: check_written
// An output has no axis along which all elements are one.
static int check_written(const char *name, const pk_tensor *tensor, int rank) {
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] == 0) return PK_OK;
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] > 1 && tensor->strides[axis] == 0)
            return refuse(PK_TENSOR, "@NAME@: `%s` is written and has a stride of 0 along axis %d", name, axis);
    return PK_OK;
}

//: check_aligned
// Whether the copy engine reaches the tensor, as the kernel was compiled for: base and strides are multiples of 16
// bytes, no axis is empty and none repeats. `size` is that of an element.
static int check_aligned(const char *name, const pk_tensor *tensor, int rank, int size) {
    if ((uintptr_t)tensor->data % 16)
        return refuse(PK_ALIGNMENT, "@NAME@: `%s` must start at a multiple of 16 bytes, not at %p", name, tensor->data);
    for (int axis = 0; axis < rank; ++axis)
        if (tensor->shape[axis] == 0)
            return refuse(PK_ALIGNMENT, "@NAME@: `%s` is empty, and the kernel was compiled for tensors that are not",
                          name);
    for (int axis = 0; axis < rank - 1; ++axis) {
        const int64_t stride = tensor->strides[axis];
        if (tensor->shape[axis] == 1) continue;
        if (stride <= 0 || stride >= ((int64_t)1 << 40) / size || stride * size % 16)
            return refuse(PK_ALIGNMENT,
                          "@NAME@: `%s` has a stride of %lld elements of %d bytes along axis %d: it must be above 0, "
                          "below 2^40 bytes and a multiple of 16 bytes",
                          name, (long long)stride, size, axis);
    }
    return PK_OK;
}

//: check_whole_rows
// Whether rows end at a multiple of 16 bytes: the copy engine stores no less.
static int check_whole_rows(const char *name, const pk_tensor *tensor, int rank, int size) {
    const int64_t columns = tensor->shape[rank - 1];
    if (columns * size % 16 == 0) return PK_OK;
    return refuse(PK_ALIGNMENT, "@NAME@: `%s` has rows of %lld elements of %d bytes: they must be multiples of 16 bytes",
                  name, (long long)columns, size);
}

//: check_apart
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
    return refuse(PK_OVERLAP, "@NAME@: the output `%s` shares memory with `%s`", name, other_name);
}

//: is_same
// Whether two arguments are one tensor.
static bool is_same(const pk_tensor *a, const pk_tensor *b, int rank) {
    return a->data == b->data && memcmp(a->shape, b->shape, (size_t)rank * sizeof *a->shape) == 0 &&
           memcmp(a->strides, b->strides, (size_t)rank * sizeof *a->strides) == 0;
}

//: count_work
// The product of the extents, which an int32 must count; 0 where one is not above 0.
static int count_work(const int64_t *extents, int rank, int64_t *product) {
    *product = 0;
    for (int axis = 0; axis < rank; ++axis)
        if (extents[axis] <= 0) return PK_OK;
    int64_t points = 1;
    for (int axis = 0; axis < rank; ++axis) {
        if (extents[axis] > INT32_MAX / points)
            return refuse(PK_RANGE, "@NAME@: it has more tiles of work than an int32 counts");
        points *= extents[axis];
    }
    *product = points;
    return PK_OK;
}

//: encode
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

//: start
// Launches in the kernel's context, whatever the calling thread's is. With the attribute it may start before the launch
// before it on the stream has ended: the kernel waits for that itself.
static int start(const @NAME@_kernel *kernel, struct CUstream_st *stream, unsigned blocks, void **parameters) {
    const driver *cuda = &kernel->cuda;
    const launch_attribute overlap = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, {1}};
    const launch_config config = {{blocks, 1, 1}, {@THREADS@, 1, 1}, @SHARED@, stream, &overlap, @OVERLAPS@};
    void *context;
    int code = cuda->cuCtxPushCurrent_v2(kernel->context);
    if (code) return failed(cuda, code, "choosing its context");
    code = cuda->cuLaunchKernelEx(&config, kernel->function, parameters, NULL);
    cuda->cuCtxPopCurrent_v2(&context);
    if (code == 0) return PK_OK;
    char what[128];
    snprintf(what, sizeof what, "launching %u blocks of @THREADS@ threads with @SHARED@ bytes of shared memory", blocks);
    return failed(cuda, code, what);
}
