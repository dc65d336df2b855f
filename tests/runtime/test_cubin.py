"""A cubin tells what its kernel takes, and its disassembly what each role takes."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

from pykittens.errors import BackendError
from pykittens.runtime import cubin, nvrtc, toolkit

needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")
needs_nvdisasm = pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm was not found")

PLAIN = 'extern "C" __global__ void plain(float *p) { p[threadIdx.x] = 1.0f; }'

STATIC_SHARED = """
extern "C" __global__ void __launch_bounds__(256) mirror(float *p) {
    __shared__ float s[256];
    s[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = s[255 - threadIdx.x];
}
"""

DYNAMIC_SHARED = STATIC_SHARED.replace("__shared__ float s[256]", "extern __shared__ float s[]")

LOCAL = """
extern "C" __global__ void local(float *p, int k) {
    float a[100];
    for (int i = 0; i < 100; i++) a[i] = p[i * 1024 + threadIdx.x];
    p[k] = a[p[k] > 0 ? k : int(p[3])];
}
"""

TWO_FUNCTIONS = """
__device__ __noinline__ float many(float *p) {
    float a[40], total = 0;
    #pragma unroll
    for (int i = 0; i < 40; i++) a[i] = p[i * 32];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 40; i++) total += a[i] * a[(i * 7 + 3) % 40];
    return total;
}
extern "C" __global__ void caller(float *p) { p[threadIdx.x] = many(p); }
"""

# One warpgroup that copies, two that hold 100 values a thread.
ROLES = """
extern "C" __global__ void __launch_bounds__(384, 1) roles(float *p) {
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        p[threadIdx.x] = p[threadIdx.x + 128];
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        float a[100];
        #pragma unroll
        for (int i = 0; i < 100; i++) a[i] = p[i * 1024 + threadIdx.x];
        for (int k = 0; k < 10; k++)
            #pragma unroll
            for (int i = 0; i < 100; i++) a[i] = a[i] * a[(i * 7 + 3) % 100] + a[(i + 13) % 100];
        #pragma unroll
        for (int i = 0; i < 100; i++) p[i * 1024 + threadIdx.x] = a[i];
    }
}
"""


@functools.cache
def compiled(source: str, arch: str = "sm_90a") -> bytes:
    return nvrtc.compile(source, arch, "k.cu").cubin


@needs_nvrtc
def test_a_plain_kernel_takes_registers_and_nothing_else() -> None:
    found = cubin.resources(compiled(PLAIN))
    assert found.kernel == "plain"
    assert 4 <= found.registers <= 32
    assert (found.frame, found.stack, found.shared, found.max_threads) == (0, 0, 0, None)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a"])
def test_static_shared_memory_is_counted_without_the_systems_own(arch: str) -> None:
    found = cubin.resources(compiled(STATIC_SHARED, arch))
    assert (found.shared, found.max_threads) == (1024, 256)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_dynamic_shared_memory_is_not_counted(arch: str) -> None:
    assert cubin.resources(compiled(DYNAMIC_SHARED, arch)).shared == 0


@needs_nvrtc
def test_an_array_indexed_at_run_time_shows_as_frame_and_stack() -> None:
    found = cubin.resources(compiled(LOCAL))
    assert (found.frame, found.stack) == (400, 400)


@needs_nvrtc
def test_launch_bounds_give_the_registers_of_specialised_roles() -> None:
    found = cubin.resources(compiled(ROLES))
    assert (found.registers, found.max_threads) == (168, 384)


@needs_nvrtc
def test_a_device_function_does_not_hide_its_kernel() -> None:
    assert cubin.resources(compiled(TWO_FUNCTIONS)).kernel == "caller"


@needs_nvrtc
def test_two_kernels_in_a_cubin_are_our_fault() -> None:
    both = PLAIN + PLAIN.replace("plain", "other")
    with pytest.raises(AssertionError, match="must hold one kernel"):
        cubin.resources(compiled(both))


@needs_nvrtc
@pytest.mark.parametrize(
    "source", [PLAIN, STATIC_SHARED, DYNAMIC_SHARED, LOCAL, ROLES, TWO_FUNCTIONS]
)
def test_the_figures_are_those_of_cuobjdump(source: str, tmp_path: Path) -> None:
    tool = next((t for f in toolkit.folders() if (t := f / "bin" / "cuobjdump").is_file()), None)
    if tool is None:
        pytest.skip("cuobjdump was not found")
    file = tmp_path / "k.cubin"
    file.write_bytes(compiled(source))
    told = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True).stdout
    found = cubin.resources(compiled(source))
    usage = re.search(rf"Function {found.kernel}:\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", told)
    assert usage is not None, told
    registers, stack, shared = (int(number) for number in usage.groups())
    assert (found.registers, found.stack) == (registers, stack)
    assert found.shared == max(0, shared - 1024)  # cuobjdump counts the system's own


def test_what_is_no_cubin_is_our_fault() -> None:
    with pytest.raises(AssertionError, match="64-bit ELF"):
        cubin.resources(b"not a cubin at all")


@needs_nvrtc
@needs_nvdisasm
def test_each_role_shows_its_budget_and_its_registers() -> None:
    sass = cubin.disassemble(compiled(ROLES))
    entry, *roles = cubin.registers_by_region(sass)
    assert entry[0] == 0
    assert 1 <= entry[1] <= 32
    used = dict(roles)
    assert set(used) == {24, 240}
    assert used[24] <= 24
    assert 100 <= used[240] <= 168


@needs_nvrtc
@needs_nvdisasm
def test_a_kernel_without_roles_is_one_region_of_budget_0() -> None:
    sass = cubin.disassemble(compiled(PLAIN))
    ((budget, used),) = cubin.registers_by_region(sass)
    assert budget == 0
    assert 1 <= used <= cubin.resources(compiled(PLAIN)).registers


@pytest.mark.parametrize(
    ("instruction", "used"),
    [
        ("IADD3 R7, R2, UR9, RZ", 8),
        ("@!P0 LDG.E.128 R4, desc[UR6][R2.64+0x10]", 8),
        ("@P0 STS.128 [R9], R12", 16),
        ("LDG.E R3, desc[UR6][R20.64]", 22),
        ("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24, gsb0", 152),
        ("HGMMA.64x64x16.F16 R24, R4, gdesc[UR8], R24", 40),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", 0),
    ],
)
def test_wide_operands_count_whole(instruction: str, used: int) -> None:
    line = f"        /*00c0*/                   {instruction} ;"
    assert cubin.registers_by_region(line) == [(0, used)]


def test_functions_of_the_compilers_own_count_nowhere() -> None:
    sass = """
        /*00c0*/                   IADD3 R7, R2, UR9, RZ ;
$__internal_0_$__cuda_sm20_rcp_rn_f32_slowpath:
        /*00d0*/                   VIADD R152, R22, 0xffffff03 ;
"""
    assert cubin.registers_by_region(sass) == [(0, 8)]


def test_code_counts_where_it_is_reached_from() -> None:
    """A part of the first role stands behind the second; both go on at the same end."""
    sass = """
        /*0000*/                   IADD3 R7, R2, UR9, RZ ;
        /*0010*/               @P1 BRA `(.L_x_2) ;
        /*0020*/                   USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xb8 ;
        /*0030*/              @!P0 BRA `(.L_x_5) ;
.L_x_1:
        /*0040*/                   IADD3 R99, R2, UR9, RZ ;
        /*0050*/                   BRA `(.L_x_6) ;
.L_x_2:
        /*0060*/                   USETMAXREG.DEALLOC.CTAPOOL 0x48 ;
.L_x_3:
        /*0070*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R4+URZ+0x34010], R22 ;
        /*0080*/              @!P0 BRA `(.L_x_3) ;
        /*0090*/                   BRA `(.L_x_6) ;
.L_x_5:
        /*00a0*/                   IADD3 R152, R2, UR9, RZ ;
        /*00b0*/                   BRA `(.L_x_1) ;
.L_x_6:
        /*00c0*/                   IADD3 R30, R2, UR9, RZ ;
        /*00d0*/                   EXIT ;
        /*00e0*/                   IADD3 R200, R2, UR9, RZ ;
"""
    assert cubin.registers_by_region(sass) == [(0, 8), (0xB8, 153), (0x48, 31)]


def test_a_missing_disassembler_is_told_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cubin, "disassembler", lambda: None)
    with pytest.raises(BackendError, match="pip install nvidia-cuda-nvdisasm"):
        cubin.disassemble(b"")


@needs_nvdisasm
def test_a_file_the_disassembler_refuses_is_told() -> None:
    with pytest.raises(BackendError, match="nvdisasm failed"):
        cubin.disassemble(b"nothing")
