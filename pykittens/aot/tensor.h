// The headers of all kernels share this part.
#ifndef PK_LAUNCH_VERSION
#define PK_LAUNCH_VERSION 1

// A tensor in the GPU's memory. data is a multiple of the size of an element. shape and strides list its axes, the last
// innermost; strides count elements. A tensor of rank r uses the first r of them.
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
    PK_NO_MEMORY = 1003,     // the host has no memory left
    PK_SHARED_MEMORY = 1004, // a block needs more shared memory than it can have
    PK_TENSOR = 1005,        // an invalid tensor: its address, an extent or a stride
    PK_STATIC = 1006,        // the kernel was compiled for another extent or number
    PK_ALIGNMENT = 1007,     // the kernel was compiled for tensors that the copy engine can address
    PK_REQUIRE = 1008,       // a condition that the kernel states does not hold
    PK_RANGE = 1009,         // a division by 0, or more work than an int32 counts
    PK_CLUSTER = 1010,       // work that clusters cannot share evenly
    PK_OVERLAP = 1011,       // an output shares memory with another argument
    PK_AT_ONCE = 1012        // more blocks wait for one another than the GPU runs at once
};

// A tensor without gaps: the strides follow from the shape. A launch refuses a tensor beyond the address space.
static inline pk_tensor pk_packed(void *data, int rank, const int64_t *shape) {
    pk_tensor tensor = {data, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}};
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
        tensor.shape[axis] = shape[axis];
        tensor.strides[axis] = stride;
        if (__builtin_mul_overflow(stride, shape[axis], &stride)) stride = INT64_MAX;
    }
    return tensor;
}
#elif PK_LAUNCH_VERSION != 1
#error "the headers of these kernels come from different versions of pykittens: compile all with one"
#endif
