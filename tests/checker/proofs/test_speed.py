"""Lost speed is a note: it names its line, and the report is in order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, e4m3, f32, int8
from pykittens.checker.proofs.speed import remarks, slow_products
from pykittens.emulate.finding import Kind, Level
from pykittens.ir.nodes import calls
from pykittens.runtime import nvrtc
from pykittens.runtime.compiled import Compiled, RoleResources
from tests.planted.unwaited_product import activation_before_the_wait
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


PTX = """\t.file\t1 "/tmp/device.cuh"
\t.file\t2 "/tmp/{file}"
\t.loc\t2 {line} 5
\twgmma.fence;
\t.loc\t1 40 8, function_name $L__info_string3, inlined_at 2 {further} 5
\twgmma.wait_group 0;
"""


@pytest.mark.parametrize(
    ("number", "text", "named"),
    [
        (6, "    other();\n    wait();", True),  # counted on from the directive of the line
        (
            6,
            '    wait();\n    wait();\n#line {further} "{file}"\n    wait();',
            False,
        ),  # or another line's
        (6, "    wait();\n  wait();", False),  # no word begins at the column
        (4, "    wait();", True),
        (0, "    wait();", False),
        (1, "    wait();", False),
    ],
)
def test_a_remark_with_a_line_of_ptx_is_shown_at_the_line_of_the_kernel(number, text, named):
    kernel = recorded(
        multiplying(4), *(np.zeros((64, 64), bf16.numpy),) * 2, np.zeros((64, 64), np.float32)
    )
    loc = next(c.loc for c in calls(kernel.body) if c.op.shown == "store")
    here = {"file": Path(loc.file).name, "line": loc.line, "further": loc.line + 1}
    source = SimpleNamespace(text='#line {line} "{file}"\n'.format(**here) + text.format(**here))
    log = f"ptxas info : (C7517) wgmma.wait_group is injected in around line {number} by compiler to allow"
    compiled = Compiled(kernel, source, "sm_90a", b"", PTX.format(**here), log)  # type: ignore[arg-type]
    compiled.__dict__["resources"] = type("Resources", (), {"roles": ()})
    (note,) = remarks(kernel, compiled)
    assert note.message == "the compiler remarks: wgmma.wait_group is injected by compiler to allow"
    assert [s.who for s in note.steps] == ["the compiler"] * named + ["block"]
    assert not named or note.steps[0].loc is loc


@compiles
def test_the_compiler_s_line_of_a_product_is_found_in_a_kernel():
    x = np.zeros((64, 64), bf16.numpy)
    args = x, np.zeros((64, 64), np.float32)
    report = pk.check(activation_before_the_wait, *args, seed=0, costs=False, broken=True)
    (note,) = (f for f in report.notes if f.kind is Kind.SPEED)
    assert [s.loc.text.strip() for s in note.steps] == [
        "pk.store(C[0], pk.relu(acc))",
        "acc = pk.mma_ABt(a, a, managed=False)",
    ]
