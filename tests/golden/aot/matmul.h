// matmul
// C = A @ B.T in bf16; 128x256 tiles of C, persistent blocks, three stages in flight.
//
// Compiled by pykittens for sm_90a. To use it, compile matmul.c into the program with a C11 or C++17 compiler, without
// cuda.h or libcuda (some C libraries need -ldl). At run time it needs the CUDA driver and a GPU of this
// architecture; the machine code is in matmul.c.
//
//     matmul_kernel *kernel;
//     if (matmul_load(&kernel) != PK_OK || matmul_launch(kernel, stream, ...) != PK_OK)
//         puts(matmul_error_string());
//     matmul_unload(kernel);
#ifndef PK_KERNEL_matmul
#define PK_KERNEL_matmul

#include <stdbool.h>
#include <stdint.h>

[tensor.h]

struct CUstream_st; // CUstream and cudaStream_t point to it

#ifdef __cplusplus
extern "C" {
#endif

typedef struct matmul_kernel matmul_kernel;

// Loads the kernel into the CUDA context that is current on the calling thread. The CUDA runtime makes the context of
// a GPU current with the first call that needs one. *kernel is NULL if loading fails.
int matmul_load(matmul_kernel **kernel);

// Frees a loaded kernel; no launch may be running. NULL is allowed.
void matmul_unload(matmul_kernel *kernel);

// Launches the kernel and returns before it has run. The stream belongs to the kernel's context; NULL is its default
// stream. Any thread may call this function, and several threads at once.
//
// A: bf16, rank 2, base and strides multiples of 16 bytes
// B: bf16, rank 2, base and strides multiples of 16 bytes
// C: bf16, rank 2, written, base and strides multiples of 16 bytes, rows, too
int matmul_launch(const matmul_kernel *kernel, struct CUstream_st *stream, const pk_tensor *A,
        const pk_tensor *B, const pk_tensor *C);

// The description of the last error on this thread.
const char *matmul_error_string(void);

#ifdef __cplusplus
}
#endif

#endif
