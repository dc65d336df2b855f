// @TITLE@
//
// Compiled by pykittens for @ARCH@. To use it, compile @NAME@.c into the program with a C11 or C++17 compiler, without
// cuda.h or libcuda (some C libraries need -ldl). At run time it needs the CUDA driver and a GPU of this
// architecture; the machine code is in @NAME@.c.
//
//     @NAME@_kernel *kernel;
//     if (@NAME@_load(&kernel) != PK_OK || @NAME@_launch(kernel, stream, ...) != PK_OK)
//         puts(@NAME@_error_string());
//     @NAME@_unload(kernel);
#ifndef PK_KERNEL_@NAME@
#define PK_KERNEL_@NAME@

#include <stdbool.h>
#include <stdint.h>

@TENSOR@

struct CUstream_st; // CUstream and cudaStream_t point to it

#ifdef __cplusplus
extern "C" {
#endif

typedef struct @NAME@_kernel @NAME@_kernel;

// Loads the kernel into the CUDA context that is current on the calling thread. The CUDA runtime makes the context of
// a GPU current with the first call that needs one. *kernel is NULL if loading fails.
int @NAME@_load(@NAME@_kernel **kernel);

// Frees a loaded kernel; no launch may be running. NULL is allowed.
void @NAME@_unload(@NAME@_kernel *kernel);

// Launches the kernel and returns before it has run. The stream belongs to the kernel's context; NULL is its default
// stream. Any thread may call this function, and several threads at once.
//
@ARGUMENTS@
@SIGNATURE@;

// The description of the last error on this thread.
const char *@NAME@_error_string(void);

#ifdef __cplusplus
}
#endif

#endif
