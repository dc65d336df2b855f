// A stand-in for libcuda: it loads nothing and launches nothing, and writes each call to the file that FAKE_CUDA_LOG
// names. The parameters of a launch are as many as FAKE_CUDA_SIZES has numbers, each of so many bytes.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *current = (void *)0xC0;
static void *pushed[16];
static int depth;

static int asked(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static FILE *log_file(void) {
    const char *path = getenv("FAKE_CUDA_LOG");
    return path ? fopen(path, "a") : NULL;
}

#define LOG(...) do { FILE *f = log_file(); if (f) { fprintf(f, __VA_ARGS__); fclose(f); } } while (0)

int cuInit(unsigned flags) { (void)flags; return asked("FAKE_CUDA_INIT", 0); }
int cuGetErrorName(int code, const char **name) {
    *name = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : NULL;
    return 0;
}
int cuGetErrorString(int code, const char **text) { *text = code == 1 ? "invalid argument" : NULL; return 0; }
int cuDriverGetVersion(int *version) { *version = asked("FAKE_CUDA_VERSION", 13000); return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    const char *given = getenv("FAKE_CUDA_NAME");
    (void)device;
    snprintf(name, (size_t)size, "%s", given ? given : "a GPU");
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = (size_t)141 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1: *value = 1024; break;
    case 16: *value = asked("FAKE_CUDA_MULTIPROCESSORS", 132); break;
    case 36: *value = 3125000; break;
    case 37: *value = 6144; break;
    case 38: *value = 50 << 20; break;
    case 75: *value = 9; break;
    case 76: *value = 0; break;
    case 97: *value = asked("FAKE_CUDA_SHARED", 232448); break;
    default: return 1;
    }
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = (void *)0xC0; return 0; }
int cuCtxGetCurrent(void **context) { *context = asked("FAKE_CUDA_NO_CONTEXT", 0) ? NULL : current; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxPushCurrent_v2(void *context) { pushed[depth++] = current; current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = pushed[--depth]; return 0; }
int cuModuleLoadData(void **module, const void *image) {
    *module = (void *)0xA0;
    // The ELF header says where the table of sections starts, which stands at the end of the image.
    const unsigned char *bytes = (const unsigned char *)image;
    uint64_t sections;
    uint16_t size, count;
    memcpy(&sections, bytes + 40, 8);
    memcpy(&size, bytes + 58, 2);
    memcpy(&count, bytes + 60, 2);
    uint32_t sum = 0;
    for (uint64_t i = 0; i < sections + (uint64_t)size * count; ++i) sum = sum * 31 + bytes[i];
    LOG("load %u\n", sum);
    return asked("FAKE_CUDA_LOAD", 0);
}
int cuModuleUnload(void *module) { LOG("unload %p\n", module); return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = (void *)0xF0;
    LOG("function %s\n", name);
    return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) { (void)function; *value = attribute == 1 ? 16 : 0; return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) {
    LOG("attribute %p %d %d\n", function, attribute, value);
    return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    LOG("occupancy %p %d %zu\n", function, threads, shared);
    *blocks = asked("FAKE_CUDA_OCCUPANCY", 1);
    return 0;
}
int cuPointerGetAttribute(void *value, int attribute, uint64_t address) { (void)attribute; (void)address; *(int *)value = 0; return 0; }
int cuStreamIsCapturing(void *stream, int *status) {
    (void)stream;
    *status = asked("FAKE_CUDA_CAPTURING", 0);
    return 0;
}
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }
int cuMemHostAlloc(void **host, size_t size, unsigned flags) {
    (void)flags;
    *host = calloc(1, size);
    return *host ? 0 : 2;
}
int cuMemHostGetDevicePointer_v2(uint64_t *there, void *host, unsigned flags) {
    (void)flags;
    *there = (uint64_t)(uintptr_t)host;
    return 0;
}

// The GPU's clock: a launch takes as long as the test says, the filling of memory a microsecond.
static double clock_now;

typedef struct { double at; } event;

void fake_pass(double milliseconds) { clock_now += milliseconds; }

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    const int most = asked("FAKE_CUDA_MEMORY", 1 << 30);
    LOG("alloc %zu\n", size);
    if (size > (size_t)most) return 2;
    *address = 0xB000;
    return 0;
}
int cuMemFree_v2(uint64_t address) { LOG("free %llx\n", (unsigned long long)address); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    const char *path = getenv("FAKE_CUDA_MEMORY_FILE");
    FILE *f = path ? fopen(path, "rb") : NULL;
    LOG("copy %llx %zu\n", (unsigned long long)from, size);
    memset(to, 0, size);
    if (f) {
        const size_t read = fread(to, 1, size, f);
        fclose(f);
        if (!read) return 1;
    }
    return 0;
}
int cuMemsetD32Async(uint64_t address, unsigned value, size_t count, void *stream) {
    LOG("memset %llx %u %zu stream %p\n", (unsigned long long)address, value, count, stream);
    fake_pass(1e-3);
    return 0;
}
int cuEventCreate(void **made, unsigned flags) {
    (void)flags;
    *made = calloc(1, sizeof(event));
    LOG("event\n");
    return *made ? 0 : 2;
}
int cuEventRecord(void *e, void *stream) { (void)stream; ((event *)e)->at = clock_now; return 0; }
int cuEventQuery(void *e) { (void)e; return asked("FAKE_CUDA_EVENT", 0); }
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    *milliseconds = (float)(((event *)end)->at - ((event *)start)->at);
    return 0;
}
int cuEventDestroy_v2(void *e) { free(e); LOG("event destroyed\n"); return 0; }

// A map holds its arguments, the address first.
int cuTensorMapEncodeTiled(void *map, int dtype, uint32_t rank, void *address, const uint64_t *extents,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill) {
    unsigned char *bytes = (unsigned char *)map;
    if ((uintptr_t)map % 64 || rank < 1 || rank > 5) return 1;
    memset(bytes, 0, 128);
    memcpy(bytes, &address, 8);
    memcpy(bytes + 8, extents, 8 * rank);
    memcpy(bytes + 48, strides, 8 * (rank - 1));
    memcpy(bytes + 80, box, 4 * rank);
    for (uint32_t i = 0; i < rank; ++i) bytes[100 + i] = (unsigned char)steps[i];
    const int rest[] = {dtype, (int)rank, interleave, swizzle, promotion, fill};
    for (int i = 0; i < 6; ++i) bytes[105 + i] = (unsigned char)rest[i];
    return asked("FAKE_CUDA_ENCODE", 0);
}
int cuTensorMapReplaceAddress(void *map, void *address) { memcpy(map, &address, 8); return 0; }

static int launched(void *function, const unsigned *grid, const unsigned *block, unsigned shared, void *stream,
                    void **parameters, const char *how) {
    FILE *f = log_file();
    const char *sizes = getenv("FAKE_CUDA_SIZES");
    if (f) {
        fprintf(f, "launch %p in %p: grid %u %u %u block %u %u %u shared %u stream %p%s", function, current, grid[0],
                grid[1], grid[2], block[0], block[1], block[2], shared, stream, how);
        for (int i = 0; sizes && *sizes; ++i) {
            char *end;
            const long size = strtol(sizes, &end, 10);
            const unsigned char *bytes = (const unsigned char *)parameters[i];
            sizes = *end ? end + 1 : end;
            fprintf(f, " ");
            if (size == 128 && (uintptr_t)bytes % 64) fprintf(f, "unaligned");
            for (long b = 0; b < size; ++b) fprintf(f, "%02x", bytes[b]);
        }
        fprintf(f, "\n");
        fclose(f);
    }
    return asked("FAKE_CUDA_LAUNCH", 0);
}

typedef struct {
    unsigned id;
    uint64_t value[8];
} launch_attribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    const launch_attribute *attributes;
    unsigned count;
} launch_config;

int cuOccupancyMaxActiveClusters(int *clusters, void *function, const launch_config *c) {
    const int blocks = asked("FAKE_CUDA_MULTIPROCESSORS", 132) * asked("FAKE_CUDA_OCCUPANCY", 1);
    if (c->count) return 1; // the cluster's size is part of the kernel
    LOG("clusters %p of %u: %u %u\n", function, c->grid[0], c->block[0], c->shared);
    *clusters = asked("FAKE_CUDA_CLUSTERS", blocks / (int)c->grid[0]);
    return 0;
}

// The attributes there may be, one at a time: the launch may start before the one before it has ended, or starts only
// when there is room for all its blocks.
int cuLaunchKernelEx(const launch_config *c, void *function, void **parameters, void **extra) {
    if (extra || c->count > 1) return 1;
    const unsigned id = c->count ? c->attributes->id : 0;
    if (c->count && ((id != 2 && id != 6) || (int)c->attributes->value[0] != 1)) return 1;
    const char *how = id == 6 ? " overlapping" : id == 2 ? " cooperative" : "";
    return launched(function, c->grid, c->block, c->shared, c->stream, parameters, how);
}
