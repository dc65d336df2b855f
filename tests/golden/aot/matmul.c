// matmul for sm_90a: the functions of matmul.h, and the machine code.
#include "matmul.h"

#define OWN(name) matmul_##name
#define NAME "matmul"
#define ARCH "sm_90a"
enum { THREADS = 384, SHARED_BYTES = 213056, OVERLAPS = 0, IN_PLACE = 0, IS_PERSISTENT = 1,
        WAITS_FOR_BLOCKS = 0, CLUSTER = 1, CLUSTER_AXIS = -1 };
extern const unsigned char matmul_cubin[...];

[numbers.c]

[launcher.c]

int matmul_launch(const matmul_kernel *kernel, struct CUstream_st *stream, const pk_tensor *A,
        const pk_tensor *B, const pk_tensor *C) {
    int code;
    const argument arguments[3] = {
        {"A", "bf16", 2, 2, 9, ALIGNED, A},
        {"B", "bf16", 2, 2, 9, ALIGNED, B},
        {"C", "bf16", 2, 2, 9, ALIGNED | WHOLE_ROWS | WRITTEN, C},
    };
    if ((code = check_tensors(arguments, 3))) return code;

    // 06_matmul.py:13
    if (!((A->shape[1] == B->shape[1]) && ((C->shape[0] == A->shape[0]) && (C->shape[1] == B->shape[0]))))
        return refuse(PK_REQUIRE, "A is m x k, B n x k, C m x n");

    const int64_t extents[] = {ceil_div(C->shape[0], 128), ceil_div(C->shape[1], 256)};
    int64_t blocks;
    code = count_blocks(kernel, extents, 2, &blocks);
    if (code != PK_OK || blocks == 0) return code;
    if ((code = check_memory(arguments, 3))) return code;

    tensor_map maps[3];
    if ((code = encode(kernel, &maps[0], &arguments[0], 128, 64, 0, 3))) return code;
    if ((code = encode(kernel, &maps[1], &arguments[1], 256, 64, 0, 3))) return code;
    if ((code = encode(kernel, &maps[2], &arguments[2], 128, 64, 0, 3))) return code;
    int32_t C_n0 = (int32_t)C->shape[0];
    int32_t C_n1 = (int32_t)C->shape[1];
    int32_t A_n1 = (int32_t)A->shape[1];
    void *parameters[] = {&maps[0], &maps[1], &maps[2], &C_n0, &C_n1, &A_n1};
    return start(kernel, stream, blocks, parameters);
}

