// Launches kernels from C on the first GPU and holds each result against a plain loop. A line a check; exit code 1 if
// one failed. It has no CUDA headers and no library of CUDA to link with, as a machine to build on may have neither.
#include "add.h"
#include "cluster_matmul.h"
#include "matmul.h"
#include "rms_norm_rows.h"
#include "scaled.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int faults;

static void report(const char *what, bool right, const char *said) {
    printf("%s: %s%s%s\n", what, right ? "right" : "WRONG", right ? "" : ": ", right ? "" : said);
    faults += !right;
}

// -- the GPU's memory ---------------------------------------------------------------------------

static void *driver;

static int (*find(const char *name))() {
    int (*function)();
    void *symbol = dlsym(driver, name);
    memcpy(&function, &symbol, sizeof function);
    if (symbol == NULL) {
        printf("libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return function;
}

static void must(int code, const char *what) {
    if (code) {
        printf("%s: CUDA error %d\n", what, code);
        exit(1);
    }
}

static void *device_memory(size_t bytes) {
    void *address = NULL;
    must(find("cuMemAlloc_v2")(&address, bytes), "cuMemAlloc");
    return address;
}

static void *to_device(const void *from, size_t bytes) {
    void *address = device_memory(bytes);
    must(find("cuMemcpyHtoD_v2")(address, from, bytes), "cuMemcpyHtoD");
    return address;
}

static void *to_host(const void *from, size_t bytes) {
    void *copy = malloc(bytes);
    must(find("cuCtxSynchronize")(), "a kernel");
    must(find("cuMemcpyDtoH_v2")(copy, from, bytes), "cuMemcpyDtoH");
    return copy;
}

// -- numbers ------------------------------------------------------------------------------------

static float from_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16); // ties to even
}

// Between -1 and 1, always the same.
static float some_number(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static uint16_t *some_bf16(size_t count) {
    uint16_t *values = malloc(count * 2);
    for (size_t i = 0; i < count; ++i) values[i] = to_bf16(some_number());
    return values;
}

static float *some_f32(size_t count) {
    float *values = malloc(count * 4);
    for (size_t i = 0; i < count; ++i) values[i] = some_number();
    return values;
}

// A matrix whose rows stand `stride` elements apart.
static pk_tensor matrix(void *data, int64_t rows, int64_t cols, int64_t stride) {
    const int64_t shape[] = {rows, cols};
    pk_tensor made = pk_packed(data, 2, shape);
    made.strides[0] = stride;
    return made;
}

static const double BF16_ROUNDING = 1.0 / 256, F32_ROUNDING = 1.0 / 16777216;

// -- checks -------------------------------------------------------------------------------------

typedef int (*product)(const void *kernel, const pk_tensor *a, const pk_tensor *b, const pk_tensor *c);

static int launch_matmul(const void *kernel, const pk_tensor *a, const pk_tensor *b, const pk_tensor *c) {
    return matmul_launch((const matmul_kernel *)kernel, NULL, a, b, c);
}

static int launch_cluster_matmul(const void *kernel, const pk_tensor *a, const pk_tensor *b, const pk_tensor *c) {
    return cluster_matmul_launch((const cluster_matmul_kernel *)kernel, NULL, a, b, c);
}

// C = A @ B.T, C inside a larger matrix whose other elements must stay as they are.
static void check_product(const char *what, const char *(*said)(void), const void *kernel, product launch, int m, int n,
                          int k) {
    const int wide = n + 8;
    const uint16_t untouched = 0x1234;
    uint16_t *a = some_bf16((size_t)m * k), *b = some_bf16((size_t)n * k), *c = malloc((size_t)m * wide * 2);
    for (int i = 0; i < m * wide; ++i) c[i] = untouched;
    pk_tensor A = matrix(to_device(a, (size_t)m * k * 2), m, k, k), B = matrix(to_device(b, (size_t)n * k * 2), n, k, k);
    pk_tensor C = matrix(to_device(c, (size_t)m * wide * 2), m, n, wide);
    bool right = launch(kernel, &A, &B, &C) == PK_OK;
    if (right) {
        const uint16_t *found = to_host(C.data, (size_t)m * wide * 2);
        for (int row = 0; row < m; ++row)
            for (int col = 0; col < wide; ++col) {
                const uint16_t bits = found[row * wide + col];
                double sum = 0, size = 0;
                for (int i = 0; col < n && i < k; ++i) {
                    const double term = (double)from_bf16(a[row * k + i]) * from_bf16(b[col * k + i]);
                    sum += term;
                    size += fabs(term);
                }
                // One rounding to bf16 of a sum that was rounded to f32 at most k times.
                const double bound = (fabs(sum) + k * F32_ROUNDING * size) * BF16_ROUNDING + k * F32_ROUNDING * size;
                right = right && (col < n ? fabs(from_bf16(bits) - sum) <= bound : bits == untouched);
            }
    }
    report(what, right, said());
}

static void check_add(const add_kernel *kernel, int rows, int cols) {
    const size_t count = (size_t)rows * cols;
    float *a = some_f32(count), *b = some_f32(count);
    pk_tensor A = matrix(to_device(a, count * 4), rows, cols, cols), B = matrix(to_device(b, count * 4), rows, cols, cols);
    pk_tensor out = matrix(device_memory(count * 4), rows, cols, cols);
    bool right = add_launch(kernel, NULL, &A, &B, &out) == PK_OK;
    const float *found = to_host(out.data, count * 4);
    for (size_t i = 0; i < count; ++i) right = right && found[i] == a[i] + b[i];
    report("add", right, add_error_string());
}

static void check_scaled(const scaled_kernel *kernel, float factor, int32_t times, bool negated) {
    const int rows = 70, cols = 100;
    const size_t count = (size_t)rows * cols;
    float *x = some_f32(count);
    pk_tensor X = matrix(to_device(x, count * 4), rows, cols, cols), Y = matrix(device_memory(count * 4), rows, cols, cols);
    bool right = scaled_launch(kernel, NULL, &X, &Y, factor, times, negated) == PK_OK;
    const float *found = to_host(Y.data, count * 4);
    for (size_t i = 0; i < count; ++i) {
        float expected = x[i];
        for (int32_t t = 0; t < times; ++t) expected *= factor;
        right = right && found[i] == (negated ? -expected : expected);
    }
    report("scaled", right, scaled_error_string());
}

static void check_rms_norm(const rms_norm_rows_kernel *kernel, int rows, int cols, double eps) {
    const size_t count = (size_t)rows * cols;
    uint16_t *x = some_bf16(count), *weight = some_bf16((size_t)cols);
    pk_tensor X = matrix(to_device(x, count * 2), rows, cols, cols), Y = matrix(device_memory(count * 2), rows, cols, cols);
    const int64_t width[] = {cols};
    pk_tensor W = pk_packed(to_device(weight, (size_t)cols * 2), 1, width);
    bool right = rms_norm_rows_launch(kernel, NULL, &X, &W, &Y, (float)eps) == PK_OK;
    const uint16_t *found = to_host(Y.data, count * 2);
    for (int row = 0; row < rows; ++row) {
        double squares = 0;
        for (int col = 0; col < cols; ++col) squares += pow(from_bf16(x[row * cols + col]), 2);
        for (int col = 0; col < cols; ++col) {
            const double expected =
                from_bf16(x[row * cols + col]) / sqrt(squares / cols + eps) * from_bf16(weight[col]);
            // One rounding to bf16; the f32 sum of `cols` squares counts half, behind the root.
            const double bound = fabs(expected) * (BF16_ROUNDING + cols * F32_ROUNDING);
            right = right && fabs(from_bf16(found[row * cols + col]) - expected) <= bound;
        }
    }
    report("rms_norm", right, rms_norm_rows_error_string());
}

static void *add_in_a_thread(void *kernel) {
    static const int64_t shape[] = {64, 64};
    static pk_tensor tensors[3];
    for (int i = 0; i < 3; ++i) tensors[i] = pk_packed(((void **)kernel)[i + 1], 2, shape);
    const int code = add_launch(*(add_kernel **)kernel, NULL, tensors, tensors + 1, tensors + 2);
    return code == PK_OK ? NULL : (void *)add_error_string();
}

// A new thread has no context of its own.
static void check_thread(const add_kernel *kernel) {
    float *a = some_f32(4096);
    void *work[] = {(void *)kernel, to_device(a, 16384), to_device(a, 16384), device_memory(16384)};
    pthread_t thread;
    void *said = NULL;
    pthread_create(&thread, NULL, add_in_a_thread, work);
    pthread_join(thread, &said);
    const float *found = to_host(work[3], 16384);
    bool right = said == NULL;
    for (int i = 0; i < 4096; ++i) right = right && found[i] == 2 * a[i];
    report("a thread", right, said ? "it was refused" : "wrong numbers");
}

static void check_refusals(const matmul_kernel *kernel) {
    void *memory = device_memory(1 << 16);
    pk_tensor a = matrix(memory, 64, 64, 64), c = matrix((char *)memory + 32768, 64, 64, 64);
    pk_tensor short_one = matrix(memory, 64, 32, 64), odd = matrix((char *)memory + 2, 64, 64, 64);
    report("a requirement", matmul_launch(kernel, NULL, &a, &short_one, &c) == PK_REQUIRE, matmul_error_string());
    report("an alignment", matmul_launch(kernel, NULL, &a, &odd, &c) == PK_ALIGNMENT, matmul_error_string());
    report("an overlap", matmul_launch(kernel, NULL, &a, &a, &a) == PK_OVERLAP, matmul_error_string());
}

#define LOAD(name) \
    name##_kernel *name; \
    if (name##_load(&name) != PK_OK) { \
        printf("%s\n", name##_error_string()); \
        return 1; \
    }

int main(void) {
    void *context;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    must(find("cuInit")(0), "cuInit");
    add_kernel *early;
    report("no context", add_load(&early) == PK_NO_CONTEXT && early == NULL, "it was loaded");
    must(find("cuDevicePrimaryCtxRetain")(&context, 0), "cuDevicePrimaryCtxRetain");
    must(find("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
    LOAD(add)
    LOAD(matmul)
    LOAD(cluster_matmul)
    LOAD(scaled)
    LOAD(rms_norm_rows)
    check_product("matmul, ragged", matmul_error_string, matmul, launch_matmul, 300, 504, 200);
    check_product("matmul, more tiles than blocks", matmul_error_string, matmul, launch_matmul, 4096, 2048, 64);
    check_product("clusters, ragged", cluster_matmul_error_string, cluster_matmul, launch_cluster_matmul, 300, 504, 200);
    check_product("clusters, more tiles than blocks", cluster_matmul_error_string, cluster_matmul, launch_cluster_matmul,
                  4096, 2048, 64);
    check_add(add, 100, 132);
    check_add(add, 1, 4);
    check_scaled(scaled, 0.1f, 3, false);
    check_scaled(scaled, -1.5f, 0, true);
    check_rms_norm(rms_norm_rows, 33, 2048, 1e-6);
    check_thread(add);
    check_refusals(matmul);
    add_unload(add);
    matmul_unload(matmul);
    cluster_matmul_unload(cluster_matmul);
    scaled_unload(scaled);
    rms_norm_rows_unload(rms_norm_rows);
    return faults != 0;
}
