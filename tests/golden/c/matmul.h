// matmul
// C = A @ B.T in bf16; 128x256 tiles of C, persistent blocks, three stages in flight.
//
// Compiled by pykittens for sm_90a. To use it, compile matmul.c into the program with a C11 or C++17 compiler;
// neither cuda.h nor libcuda is needed for that (link with -ldl where the C library asks for it). At run time the
// CUDA driver and such a GPU are; the machine code is in matmul.c.
//
//     matmul_kernel *kernel;
//     if (matmul_load(&kernel) != PK_OK || matmul_launch(kernel, stream, ...) != PK_OK)
//         puts(matmul_error_string());
//     matmul_unload(kernel);
#ifndef PK_KERNEL_matmul
#define PK_KERNEL_matmul

#include <stdbool.h>
#include <stdint.h>

// What the headers of all kernels share; it stands in each and counts once.
#ifndef PK_LAUNCH_VERSION
#define PK_LAUNCH_VERSION 1

// A tensor in the GPU's memory. shape and strides list its axes, the last innermost; strides count elements.
// A tensor of rank r uses the first r of them.
typedef struct pk_tensor {
    void *data;
    int64_t shape[5];
    int64_t strides[5];
} pk_tensor;

// What load and launch return. 1 to 999 are the CUDA driver's own, a CUresult.
enum pk_code {
    PK_OK = 0,
    PK_NO_DRIVER = 1001,     // no libcuda, or one older than CUDA 12
    PK_NO_CONTEXT = 1002,    // no CUDA context is current on the calling thread
    PK_NO_MEMORY = 1003,     // of the host
    PK_SHARED_MEMORY = 1004, // a block needs more shared memory than the GPU gives it
    PK_TENSOR = 1005,        // a tensor that no kernel takes: a null pointer, its extents, its strides
    PK_STATIC = 1006,        // the kernel was compiled for another extent or number
    PK_ALIGNMENT = 1007,     // the kernel was compiled for tensors that the copy engine reaches
    PK_REQUIRE = 1008,       // a condition that the kernel states does not hold
    PK_RANGE = 1009,         // a division by 0, or more work than an int32 counts
    PK_CLUSTER = 1010,       // work that clusters cannot share evenly
    PK_OVERLAP = 1011,       // an output shares memory with another argument
    PK_AT_ONCE = 1012        // blocks that wait for one another, more than the GPU runs at once
};

// A tensor without gaps: the strides follow from the shape.
static inline pk_tensor pk_packed(void *data, int rank, const int64_t *shape) {
    pk_tensor tensor = {data, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}};
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
        tensor.shape[axis] = shape[axis];
        tensor.strides[axis] = stride;
        stride *= shape[axis];
    }
    return tensor;
}
#elif PK_LAUNCH_VERSION != 1
#error "the headers of these kernels come from different versions of pykittens: compile all with one"
#endif

struct CUstream_st; // CUstream and cudaStream_t point to it

#ifdef __cplusplus
extern "C" {
#endif

typedef struct matmul_kernel matmul_kernel;

// Loads the kernel into the CUDA context that is current on the calling thread: that of its GPU, which the CUDA
// runtime makes current with the first call that needs one. *kernel is NULL where it fails.
int matmul_load(matmul_kernel **kernel);

// Frees what load made; no launch may be running. NULL is let pass.
void matmul_unload(matmul_kernel *kernel);

// Launches the kernel and returns before it has run. The stream belongs to the kernel's context; NULL is its default
// stream. Any thread may call this, several at once.
//
// A: bf16, rank 2, base and strides multiples of 16 bytes
// B: bf16, rank 2, base and strides multiples of 16 bytes
// C: bf16, rank 2, written, base and strides multiples of 16 bytes, rows, too
int matmul_launch(const matmul_kernel *kernel,
                  struct CUstream_st *stream,
                  const pk_tensor *A,
                  const pk_tensor *B,
                  const pk_tensor *C);

// What was wrong with the call that failed last on this thread.
const char *matmul_error_string(void);

#ifdef __cplusplus
}
#endif

#endif
