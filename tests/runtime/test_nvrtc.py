"""NVRTC compiles, tells what costs speed and refuses in sentences."""

from __future__ import annotations

import pytest

from pykittens.errors import BackendError
from pykittens.runtime import least, nvrtc

needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")

STORE = 'extern "C" __global__ void store(float *p) { p[threadIdx.x] = 1.0f; }'

# 64 values a thread with two blocks of 1024 threads: 32 registers each.
SPILL = """
extern "C" __global__ void __launch_bounds__(1024, 2) spill(float *p) {
    float a[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) a[i] = p[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 64; i++) p[i * 1024 + threadIdx.x] = a[i] * a[(i * 7 + 3) % 64];
}
"""

LOCAL = """
extern "C" __global__ void local(float *p, int k) {
    float a[100];
    for (int i = 0; i < 100; i++) a[i] = p[i * 1024 + threadIdx.x];
    p[k] = a[p[k] > 0 ? k : int(p[3])];
}
"""

# Reads an accumulator between the product and its wait.
SERIALISED = """
extern "C" __global__ void __launch_bounds__(128, 1) early(float *p, unsigned long long d, int n) {
    float a[4] = {0, 0, 0, 0}, b = 0;
    for (int i = 0; i < n; i++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                     "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(a[0]), "+f"(a[1]), "+f"(a[2]), "+f"(a[3]) : "l"(d), "l"(d));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        b += a[0];
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    for (int i = 0; i < 4; i++) p[threadIdx.x + 128 * i] = a[i] + b;
}
"""

UNBOUNDED = """
extern "C" __global__ void unbounded(float *p) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    p[threadIdx.x] = 1.0f;
}
"""


@needs_nvrtc
def test_a_kernel_becomes_a_cubin_and_ptx_and_says_nothing() -> None:
    binary = nvrtc.compile(STORE, "sm_90a", "store.cu")
    assert binary.cubin.startswith(b"\x7fELF")
    assert ".target sm_90a" in binary.ptx
    assert not binary.ptx.endswith("\0")
    assert binary.log == ""
    assert nvrtc.performance_faults(binary.log) == []


@needs_nvrtc
def test_a_compilation_leaves_pythons_one_byte_objects_alone() -> None:
    nvrtc.compile(STORE, "sm_90a", "store.cu")
    assert [bytes([value])[0] for value in range(256)] == list(range(256))


@needs_nvrtc
def test_a_header_given_as_text_can_be_included() -> None:
    source = '#include "one.h"\nextern "C" __global__ void k(float *p) { *p = ONE; }'
    assert nvrtc.compile(source, "sm_90a", "k.cu", headers={"one.h": "#define ONE 1.0f"}).cubin


@needs_nvrtc
def test_an_option_reaches_the_compiler() -> None:
    source = 'extern "C" __global__ void k(float *p) { *p = ONE; }'
    assert nvrtc.compile(source, "sm_90a", "k.cu", options=("-DONE=1.0f",)).cubin


@needs_nvrtc
def test_bad_source_is_our_fault_and_carries_the_log() -> None:
    with pytest.raises(nvrtc.CompileFailure, match="expected an expression") as caught:
        nvrtc.compile("__device__ int x = ;", "sm_90a", "bad.cu")
    assert isinstance(caught.value, AssertionError)
    assert caught.value.log.startswith("bad.cu(1): error")
    assert "\0" not in caught.value.log
    assert caught.value.source == "__device__ int x = ;"


@needs_nvrtc
def test_line_directives_move_an_error_to_the_users_line() -> None:
    with pytest.raises(nvrtc.CompileFailure, match=r"matmul\.py\(31\): error"):
        nvrtc.compile('#line 31 "matmul.py"\n__device__ int x = ;', "sm_90a", "bad.cu")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_17", "sm_80a", "compute_90", "hopper", ""])
def test_an_unknown_architecture_is_refused_with_the_known_ones(arch: str) -> None:
    with pytest.raises(BackendError, match="does not know the architecture") as caught:
        nvrtc.compile(STORE, arch, "store.cu")
    assert "sm_90" in str(caught.value.operands["known"])


@needs_nvrtc
def test_a_spill_is_a_performance_fault() -> None:
    log = nvrtc.compile(SPILL, "sm_90a", "spill.cu").log
    assert any("spill stores" in line for line in nvrtc.performance_faults(log)), log


@needs_nvrtc
def test_an_array_indexed_at_run_time_is_a_performance_fault() -> None:
    log = nvrtc.compile(LOCAL, "sm_90a", "local.cu").log
    (line,) = nvrtc.performance_faults(log)
    assert "Local memory used for function 'local', size of stack frame: 400 bytes" in line


@needs_nvrtc
def test_an_accumulator_read_before_its_wait_is_a_performance_fault() -> None:
    log = nvrtc.compile(SERIALISED, "sm_90a", "early.cu").log
    assert any("(C7514)" in line for line in nvrtc.performance_faults(log)), log


@needs_nvrtc
def test_an_ignored_register_budget_is_a_performance_fault() -> None:
    log = nvrtc.compile(UNBOUNDED, "sm_90a", "unbounded.cu").log
    (line,) = nvrtc.performance_faults(log)
    assert "(C7508)" in line
    assert "'setmaxnreg' ignored" in line


def test_other_remarks_are_no_performance_faults() -> None:
    remark = "ptxas warning : For profile sm_90a adjusting per thread register count of 16 to 24"
    assert nvrtc.performance_faults(remark) == []
    assert nvrtc.performance_faults("") == []


@needs_nvrtc
def test_the_compiler_has_a_version_and_architectures() -> None:
    assert nvrtc.version() >= least.NVRTC
    assert "sm_90" in nvrtc.architectures()
