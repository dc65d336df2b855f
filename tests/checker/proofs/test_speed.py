"""Lost speed is a note: it names its line, and the report is in order."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, e4m3, f32, int8
from pykittens.checker.proofs.speed import remarks, slow_products
from pykittens.emulate.finding import Kind, Level
from pykittens.runtime import nvrtc
from pykittens.runtime.compiled import Compiled, RoleResources
from tests.running import recorded

compiles = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")


def multiplying(warps):
    @pk.kernel(warps=warps)
    def product(A, B, C, *, in_registers=True, name="mma_ABt"):
        a, b = (pk.shared(pk.st(A.dtype, 16 * warps, 64)), pk.shared(pk.st(A.dtype, 64, 64)))
        pk.grid(1)
        t = pk.load(A[0], rows=16 * warps, cols=64)
        pk.store(a, t)
        if warps == 4:
            pk.store(b, pk.load(B[0], rows=64, cols=64))
        pk.fence_async()
        pk.sync()
        acc = getattr(pk, name)(t if in_registers else a, b)
        pk.store(C[0], acc)

    return product


def notes(dtype, warps=4, arch="sm_90a", **constants):
    A, B = np.zeros((16 * warps, 64), dtype.numpy), np.zeros((64, 64), dtype.numpy)
    C = np.zeros((16 * warps, 64), np.int32 if dtype is int8 else np.float32)
    return slow_products(recorded(multiplying(warps), A, B, C, **constants), arch)


@pytest.mark.parametrize("dtype", [f32, e4m3, int8])
def test_a_register_operand_that_loses_the_warpgroup_instruction_is_a_note(dtype):
    (note,) = notes(dtype)
    assert (note.kind, note.level) == (Kind.SPEED, Level.NOTE)
    assert f"warpgroups have {dtype} operands in registers in another order" in note.message
    assert note.steps[0].loc.text.strip().startswith("acc = getattr")
    assert "store `a` to a shared tile" in note.help


def test_a_layout_that_loses_the_warpgroup_instruction_is_a_note():
    (note,) = notes(e4m3, in_registers=False, name="mma_AB")
    assert "with k along the rows of memory only" in note.message
    assert "use pk.mma_ABt" in note.help


@pytest.mark.parametrize(
    ("dtype", "constants"),
    [
        (bf16, {}),
        (e4m3, {"in_registers": False}),
        (e4m3, {"warps": 1}),
        (e4m3, {"arch": "sm_89"}),
    ],
    ids=["bf16", "shared", "single-warp", "ada"],
)
def test_other_products_are_no_notes(dtype, constants):
    assert notes(dtype, **constants) == []


@pk.kernel
def crowded(x, y):
    (row,) = pk.grid(1)
    t = pk.load(x[row], rows=64, cols=512)
    pk.store(y[row], t - pk.row_sum(t * pk.load(x[row], rows=64, cols=512)))


@compiles
def test_a_spill_is_a_note_at_the_name_of_the_kernel():
    x = np.zeros((64, 512), np.float32)
    report = pk.check(crowded, x, x.copy(), schedules=1, costs=False)
    (note,) = report.notes
    assert report.ok
    assert report.findings == report.notes
    assert "a thread has too few registers: " in note.message
    assert note.steps[0].loc.text == "def crowded(x, y):"
    assert "use smaller tiles" in note.help


def made(log, roles=()):
    """The notes on the log of a compiler."""
    kernel = recorded(
        multiplying(4), *(np.zeros((64, 64), bf16.numpy),) * 2, np.zeros((64, 64), np.float32)
    )
    compiled = Compiled(kernel, None, "sm_90a", b"", "", log)  # type: ignore[arg-type]
    compiled.__dict__["resources"] = type("Resources", (), {"roles": roles})
    return remarks(kernel, compiled)


SPILLS = (
    "ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes spill stores, "
    "16 bytes spill loads\nptxas warning : Local memory used for function 'k', size of stack frame: 8 bytes"
)


def test_a_spill_names_the_roles_without_a_register_left():
    (note,) = made(
        SPILLS, (RoleResources("producer", 20, 40), RoleResources("consumers", 236, 240))
    )
    assert "8 bytes are spilled to local memory, and 16 are loaded again" in note.message
    assert note.missing == "registers: consumers uses 236 of 240"


def test_a_serialised_product_is_a_note_at_the_lines_of_products():
    reason = "wgmma.mma_async instructions are serialized due to insufficient register resources"
    (note,) = made(f"ptxas info : (C7514) Potential Performance Loss: {reason} in function 'k'")
    assert note.message == f"the compiler remarks: {reason}"
    assert [(s.who, s.loc.text.strip()[:13]) for s in note.steps] == [("block", "acc = getattr")]
    assert note.level is Level.NOTE


def test_an_ignored_register_budget_is_a_note():
    (note,) = made("ptxas info : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to keep")
    assert "'setmaxnreg' ignored" in note.message
    assert note.steps[0].who == "product"


def test_other_lines_of_the_compiler_are_no_notes():
    assert made("ptxas warning : For profile sm_90a adjusting per thread register count") == []
