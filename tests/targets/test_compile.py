"""Every example and kernel compiles for its target without a spill, a stack frame or a serialised product."""

import re

import pytest

import pykittens as pk
from pykittens.runtime import cubin, nvrtc
from tests.targets.compiling import CASES, matrix

pytestmark = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_compiles_clean_for_hopper(name):
    case = CASES[name]
    compiled = case.kernel.compile(*case.args, arch="sm_90a", **case.constants)
    found = compiled.resources
    assert found.spills == ()
    assert found.frame == 0
    assert found.shared_bytes <= 227 * 1024
    for role in found.roles:
        assert role.used <= (role.budget or 255), role


@pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm is not installed")
def test_matmul_is_made_of_warpgroup_products_and_bulk_copies():
    sass = CASES["matmul-aaa"].kernel.compile(*CASES["matmul-aaa"].args).sass
    for instruction in (
        "HGMMA.64x256x16.F32.BF16",
        "UTMALDG.2D",
        "UTMASTG.2D",
        "USETMAXREG",
        "STSM.16.M88.4",
    ):
        assert instruction in sass, instruction
    assert "HMMA." not in sass
    assert not re.search(r"\b(LDL|STL)\b", sass)


@pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm is not installed")
def test_attention_takes_its_weights_from_registers():
    case = CASES["attention-128"]
    sass = case.kernel.compile(*case.args, **case.constants).sass
    assert re.search(r"HGMMA\.64x128x16\.F32\.BF16 R\d+, R\d+, ", sass)
    assert "UTMALDG.4D" in sass


@pytest.mark.slow
def test_the_cold_compile_of_matmul_takes_less_than_a_second(monkeypatch):
    import time

    from pykittens.runtime.kernel import KernelFunction

    monkeypatch.setenv("PYKITTENS_NO_CACHE", "1")
    case = CASES["matmul-aaa"]
    cold = KernelFunction(case.kernel.function, case.kernel.options)
    begin = time.perf_counter()
    cold.compile(*case.args)
    assert time.perf_counter() - begin < 1.0


def test_compiling_writes_machine_code_and_text(tmp_path):
    case = CASES["add-f32"]
    case.kernel.compile(*case.args, out=tmp_path)
    assert (tmp_path / "add.sm_90a.cubin").read_bytes()[:4] == b"\x7fELF"
    assert ".visible .entry add" in (tmp_path / "add.sm_90a.ptx").read_text()
    assert "out = a + b" in (tmp_path / "add.sm_90a.cu").read_text()


def test_names_of_the_user_cannot_clash_with_those_of_the_compiler():
    @pk.kernel
    def pin(x, y, prefetch):
        row, lane = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
        t = pk.load(x[row, lane], rows=64, cols=64)
        for i in pk.range(prefetch):
            inside = t * 2.0
            t = pk.where(inside > 0.0, inside, t) + i.to(pk.f32)
        größe = t + 1.0
        pk.store(y[row, lane], größe)

    args = (matrix(64, 64, dtype="float32"), matrix(64, 64, dtype="float32"), 3)
    assert pin.compile(*args).resources.frame == 0


def test_large_register_tiles_of_two_warpgroups_compile():
    @pk.kernel
    def two(A, B, C):
        tasks = pk.persistent(C.tiles(256, 64))
        a = pk.pipeline(2, pk.st(pk.bf16, 256, 64))
        b = pk.pipeline(2, pk.st(pk.bf16, 64, 64))
        with pk.producer():
            for row, col in tasks:
                with a.fill() as t:
                    pk.load_async(t, A[row, 0])
                with b.fill() as t:
                    pk.load_async(t, B[0, col])
        with pk.warpgroups(1):
            for row, col in tasks:
                with a.drain() as x, b.drain() as y:
                    acc = pk.mma_AB(x, y)
                pk.store(C[row, col], acc.to(pk.bf16))

    args = (matrix(256, 64), matrix(64, 64), matrix(256, 64))
    assert two.compile(*args).resources.spills == ()
