"""Every example and kernel compiles for every target it fits, without local memory or a serialised product."""

import re
from dataclasses import replace

import numpy as np
import pytest

import pykittens as pk
from pykittens import settings
from pykittens.runtime import cubin, nvrtc
from pykittens.targets.architectures import TARGETS
from pykittens.targets.emit import emit
from tests.kernels_matmul import VARIANTS, tiled_matmul
from tests.running import recorded
from tests.speed import least_seconds
from tests.targets.assignment import BEFORE_HOPPER, compile_alike, is_assigned
from tests.targets.clean import frame, shared_bytes, spills
from tests.targets.compiling import BF16, CASES, F16, LIBRARY, matrix, together_for_targets

pytestmark = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


# More than the shared memory of a block.
TOO_LARGE = {
    "sm_80": ("matmul-", "lcsf_matmul", "attention-128"),
    "sm_89": ("matmul-", "lcsf_matmul", "attention-128", "attention-96"),
}
# Ten warps leave a thread 168 registers, whoever of them computes: some constants go to local memory, outside the
# loops, in attention and Hedgehog; add of unaligned f16 is held to 64 registers by the compiler's own choice.
SPILLED_BYTES = {"sm_80": 32, "sm_89": 32}
# Transforms of long convolutions take all registers of a thread where warpgroups do not share them out.
SPILLED_TRANSFORMS = 160
TRANSFORMS = (
    *(f"library_long_conv-case{i}-convolved_tiles" for i in range(3)),
    *(f"library_long_conv-case{i}-fused_tiles" for i in range(3, 5)),
)
PACKED = ("128x48x3-128", "128x48x2-128", "64x48x2-256")  # merging parts of packed heads
SPILLED = (
    *("attention", "add-f16-unaligned", "library_hedgehog_attention-case0-hedgehog_outputs"),
    *(f"library_attention-{size}-packed-split" for size in PACKED),
)
OLDER = [
    name
    for name, case in CASES.items()
    if name.startswith("library") and "sm_90a" not in case.targets
    if case.args[0].itemsize > 1  # what sm_80 multiplies: no fp8
]


def is_skipped(name, arch):
    """Whether another target compiles the same program of a case."""
    able = set(BEFORE_HOPPER) <= set(CASES[name].targets)
    refused = any(name.startswith(TOO_LARGE[target]) for target in BEFORE_HOPPER)
    return able and not refused and not is_assigned(name, arch)


def is_of_two(case):
    """Whether a case is one of two of its configuration of attention, which have different widths and masks."""
    widest = case.args[0].shape[-1] == case.constants["config"].widest
    return widest == bool(case.constants["form"].names)


def compilations():
    """Every case for each of its targets: the first of a kernel that is not rare by default, others in `units`.

    What waits for its turn at another target is for the soak, as are half of the cases of attention before Hopper.
    """
    made, known = [], set()
    for name, case in CASES.items():
        for arch in case.targets:
            marks = []
            halved = arch in BEFORE_HOPPER and name.startswith("library_attention-")
            if is_skipped(name, arch) or (halved and not is_of_two(case)):
                marks = [pytest.mark.soak]
            elif case.rare or (case.kernel, arch) in known:
                marks = [pytest.mark.units]
            else:
                known.add((case.kernel, arch))
            made.append(pytest.param(name, arch, marks=marks, id=f"{name}-{arch}"))
    return made


def test_a_target_that_compiles_in_place_of_another_compiles_the_same():
    for name in (
        n for n, case in CASES.items() if any(is_skipped(n, arch) for arch in case.targets)
    ):
        made = recorded(CASES[name].kernel, *CASES[name].args, **CASES[name].constants)
        assert compile_alike({arch: emit(made, arch) for arch in BEFORE_HOPPER}), name
    for tiles in (replace(VARIANTS[name], stages=2) for name in SMALL):
        made = recorded(tiled_matmul, *operands(tiles), tiles=tiles)
        assert compile_alike({arch: emit(made, arch) for arch in BEFORE_HOPPER}), tiles


@pytest.mark.parametrize(("name", "arch"), compilations())
def test_a_kernel_compiles_clean(name, arch):
    case = CASES[name]
    if name.startswith(TOO_LARGE.get(arch, ())):
        with pytest.raises(pk.KernelError, match=f"more than a block of {arch} has"):
            case.kernel.compile(*case.args, arch=arch, **case.constants)
        return
    compiled = case.kernel.compile(*case.args, arch=arch, **case.constants)
    allowed = SPILLED_BYTES.get(arch, 0) if name.startswith(SPILLED) else 0
    if arch in BEFORE_HOPPER and name.startswith(TRANSFORMS):
        allowed = SPILLED_TRANSFORMS
    assert frame(compiled) <= allowed
    assert allowed or spills(compiled) == []
    assert shared_bytes(compiled) <= TARGETS[arch].shared_bytes
    if any(budget for _, budget in compiled.source.budgets):
        for role in compiled.resources.roles:
            assert role.used <= (role.budget or 255), role


def test_every_configuration_of_the_library_is_compiled_for_a_target():
    assert all(CASES[name].targets for name in CASES)


def test_no_two_cases_have_one_name():
    made = [case.name for each in LIBRARY for case in together_for_targets(each())]
    assert len(set(made)) == len(made)


# The first of each kernel, and of each form of attention and of products.
OF_A_FORM = {(CASES[n].kernel, repr(CASES[n].constants.get("form"))): n for n in reversed(OLDER)}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.units if name in OF_A_FORM.values() else pytest.mark.soak
        )
        for name in OLDER
    ],
)
def test_a_configuration_for_older_gpus_compiles_clean_on_hopper(name, monkeypatch):
    monkeypatch.setattr(settings, "target", lambda: "sm_80")
    compiled = CASES[name].kernel.compile(*CASES[name].args, **CASES[name].constants)
    allowed = SPILLED_TRANSFORMS if name.startswith(TRANSFORMS) else 0
    assert frame(compiled) <= allowed
    assert allowed or spills(compiled) == []


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


SMALL = ("default", "narrow", "f16", "straight_96", "registers_straight", "two_products", "tall")


def operands(tiles):
    return [matrix(128, 128, dtype=F16 if tiles.half else BF16) for _ in range(3)]


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        pytest.param(name, arch, marks=[] if is_assigned(name, arch) else [pytest.mark.soak])
        for name in SMALL
        for arch in BEFORE_HOPPER
    ],
)
def test_a_pipelined_product_is_made_of_warp_products_and_asynchronous_copies(name, arch):
    tiles = replace(VARIANTS[name], stages=2)
    compiled = tiled_matmul.compile(*operands(tiles), arch=arch, tiles=tiles)
    assert spills(compiled) == []
    if cubin.disassembler() is None:
        return
    for instruction in ("HMMA.16816.F32", "LDGSTS.E.BYPASS.128", "LDSM.16.M", "ARRIVES.LDGSTSBAR"):
        assert instruction in compiled.sass, instruction
    assert "HGMMA" not in compiled.sass
    assert ("LDSM.16.MT88" in compiled.sass) is not tiles.transposed


def one_warp(groups: int):
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(2, pk.st(pk.bf16, 64, 64))
        tasks = pk.persistent(C.tiles(64, 64))
        with pk.producer():
            for row, col in tasks:
                with ring.fill() as t:
                    pk.load_async(t, A[row, col])
        with pk.warps(groups) as w:
            for row, _ in tasks:
                with ring.drain() as t:
                    c = pk.mma_ABt(t.tiles(16, 64)[w], t)
                pk.store(C[row * 4 + w], c)

    return kernel


def test_a_group_that_is_no_warpgroup_multiplies_as_single_warps_on_hopper():
    text = one_warp(4).source(matrix(64, 64), matrix(64, 64, dtype=np.dtype(np.float32)))
    kernel = text[text.index('extern "C"') :]
    assert "mma_sync_bf16_f32(" in kernel
    assert "copy_box(" in kernel
    assert "products_wait" not in kernel
    assert "__syncwarp();" in kernel[kernel.index("mma_sync_bf16_f32(") :]
    compiled = one_warp(4).compile(matrix(64, 64), matrix(64, 64, dtype=np.dtype(np.float32)))
    assert spills(compiled) == []


@pk.kernel
def mixed(A, B, C):
    """A product of warpgroups, and one onto its result that warpgroups cannot do: f32 read across its rows."""
    ring = pk.pipeline(
        1, a=pk.st(pk.bf16, 64, 64), b=pk.st(pk.bf16, 64, 64), c=pk.st(pk.f32, 64, 64)
    )
    pk.grid(1)
    with pk.producer(), ring.fill() as s:
        pk.load_async(s.a, A[0])
        pk.load_async(s.b, A[0])
        pk.load_async(s.c, B[0])
    with pk.consumers(1), ring.drain() as s:
        acc = pk.mma_ABt(s.a, s.b)
        acc = pk.mma_AB(s.c, s.c, acc)
        acc = pk.mma_ABt(s.a, s.b, acc)
        pk.store(C[0], acc)


def test_a_product_of_warps_waits_for_the_accumulator_of_a_warpgroup():
    f32 = np.dtype(np.float32)
    text = mixed.source(matrix(64, 64), matrix(64, 64, dtype=f32), matrix(64, 64, dtype=f32))
    kernel = text[text.index('extern "C"') :]
    first, second = kernel.index("products_commit"), kernel.index("mma_sync_f32_f32(")
    assert first < kernel.index("products_wait<0>();") < second
    # The next one of the warpgroup starts from registers that ordinary instructions wrote.
    assert re.search(r"pin\(acc\);\s+products_fence", kernel[second:])
    assert not re.search(r"products_wait<[1-9]", kernel)
    compiled = mixed.compile(matrix(64, 64), matrix(64, 64, dtype=f32), matrix(64, 64, dtype=f32))
    assert spills(compiled) == []


@pytest.mark.slow
def test_the_cold_compile_of_matmul_takes_less_than_a_second(monkeypatch):
    from pykittens.runtime.kernel import KernelFunction

    monkeypatch.setenv("PYKITTENS_NO_CACHE", "1")
    case = CASES["matmul-aaa"]

    def cold():
        KernelFunction(case.kernel.function, case.kernel.options).compile(*case.args)

    assert least_seconds(cold, 1.0, tries=5) < 1.0


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
    assert frame(pin.compile(*args)) == 0


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
    assert spills(two.compile(*args)) == []
