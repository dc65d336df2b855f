"""Debug programs: their checks and sites, and other programs, which have no checks."""

import itertools
import re

import numpy as np
import pytest

import pykittens as pk
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import check
from pykittens.runtime.compiled import compile_kernel
from pykittens.runtime.report import BYTES
from pykittens.targets.cuda.allocation import STANDING_BYTES
from pykittens.targets.cuda.program import text_of
from pykittens.targets.emit import emit
from tests import debugging
from tests.cases import CASES as OPERATIONS
from tests.debugging import program
from tests.targets.assignment import BEFORE_HOPPER, compile_alike, is_assigned
from tests.targets.clean import frame, spills
from tests.targets.compiling import CASES, matrix
from tests.tiers import sampled

F32 = np.dtype(np.float32)
needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def recorded(kernel, *args, **constants):
    return kernel.record(check(kernel.parameters, args, constants))


def test_the_text_of_a_program_for_debugging_is_the_reviewed_one(golden):
    text = program(debugging.never_full, *never_full_args()).program
    text = text[text.index('extern "C" __global__') :]
    golden("cuda/debug-never_full.cu", re.sub(r"#line .*\n", "", text))


def never_full_args():
    return matrix(128, 192), matrix(128, 64, dtype=F32)


def test_other_programs_check_nothing():
    kernel = recorded(debugging.untrue_tile, *[matrix(128, 64, dtype=F32) for _ in range(2)])
    source = emit(kernel, "sm_90a")
    assert source.sites is None
    assert "Debug" not in source.functions
    assert not re.search(r"\b(debug|report)\b", source.program.replace("debugging.py", ""))


def test_every_wait_names_what_it_waits_for():
    texts = [s.text for s in program(debugging.never_full, *never_full_args()).sites]
    assert [t for t in texts if "stage" in t] == [
        "inputs.fill() at {loc}: stage {0} to be free, phase {1}",
        "inputs.drain() at {loc}: stage {0} to be full, phase {1}",
    ]
    for kernel, args, text in (
        (debugging.wrong_phase, (matrix(64, 64), matrix(64, 64, dtype=F32)), "phase {0} of full[{1}]"),
        (debugging.turns_kept, (np.zeros(2, np.int32),), "the turn of group {0}"),
        (
            debugging.never_signalled,
            (np.zeros((2, 3), np.int32),),
            "flags[{0}, {1}] to be at least {2}, it is {3}",
        ),
    ):  # fmt: skip
        assert f"at {{loc}} for {text}" in [s.text for s in program(kernel, *args).sites]


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n.startswith("by_hand")])
def test_no_wait_is_without_a_limit(name):
    case = OPERATIONS[name]
    inputs, outputs = case.arrays()
    kernel = recorded(case.kernel, *inputs, *outputs, *case.scalars, **case.constants)
    for arch in ("sm_80", "sm_90a"):
        lines = emit(kernel, arch, debug=True).program.splitlines()
        waits = [line for line in lines if "_wait(" in line and "barrier" in line]
        assert all(", debug, debug.at(" in line for line in waits)
        assert waits or "wait_phase" not in case.ops


def test_an_index_that_is_a_group_s_own_number_is_not_checked():
    @pk.kernel
    def own(y, i):
        tile = pk.shared(pk.st(pk.f32, 128, 64))
        pk.grid(1)
        with pk.warpgroups(2) as w:
            pk.store(tile.tiles(64, 64)[w, 0], pk.zeros(pk.f32, 64, 64))
            pk.store(tile.tiles(64, 64)[w + i, 0], pk.zeros(pk.f32, 64, 64))

    found = program(own, matrix(64, 64, dtype=F32), 0).sites
    assert [s.text.split()[0] for s in found] == ["part"]


def test_a_part_of_a_vector_is_checked_where_its_index_may_be_outside():
    @pk.kernel
    def own(y, i):
        vector = pk.shared(pk.sv(pk.f32, 64))
        pk.grid(1)
        with pk.warps(2) as w:
            pk.store(vector.parts(32)[w], pk.zeros(pk.f32, 32))
            pk.store(vector.parts(32)[1], pk.zeros(pk.f32, 32))
            pk.store(vector.parts(64)[w], pk.zeros(pk.f32, 64))
            pk.store(vector.parts(32)[i], pk.zeros(pk.f32, 32))

    found = program(own, matrix(64, 64, dtype=F32), 0).sites
    texts = [s.text for s in found if s.text.startswith("part")]
    assert texts == [f"part {{0}} of {n} is outside a shared vector of 64" for n in (64, 32)]


def test_a_row_of_a_tile_is_checked_where_its_index_may_be_outside():
    @pk.kernel
    def own(y, i):
        tile = pk.shared(pk.st(pk.f32, 16, 64))
        pk.grid(1)
        with pk.warps(2) as w:
            pk.store(tile.row(w), pk.zeros(pk.f32, 64))
            pk.store(tile.row(15), pk.zeros(pk.f32, 64))
            pk.store(tile.row(w + i), pk.zeros(pk.f32, 64))

    found = program(own, matrix(64, 64, dtype=F32), 0).sites
    texts = [s.text for s in found if s.text.startswith("row")]
    assert texts == ["row {0} is outside a shared tile of 16x64"]


def test_names_of_a_kernel_do_not_clash_with_those_of_debugging():
    @pk.kernel
    def clash(report, patience, stopped):
        (debug,) = pk.grid(report.rows)
        stop = pk.load(report[debug], cols=64)
        pk.store(patience[debug], stop + pk.load(stopped[debug], cols=64))

    args = [matrix(8, 64, dtype=F32) for _ in range(3)]
    text = program(clash, *args).program
    assert "Report* report," in text
    if nvrtc.available() is None:
        compile_kernel(recorded(clash, *args), "sm_90a", debug=True)


@needs_compiler
def test_the_host_reads_the_report_as_the_device_writes_it():
    lines = [
        text_of("device.cuh"),
        text_of("debug.cuh"),
        f"static_assert(sizeof(Report) == {BYTES});",
        f"static_assert(sizeof(Standing) == {STANDING_BYTES});",
        "static_assert(__builtin_offsetof(Report, site) == 4);",
        "static_assert(__builtin_offsetof(Report, block) == 8);",
        "static_assert(__builtin_offsetof(Report, thread) == 12);",
        "static_assert(__builtin_offsetof(Report, numbers) == 16);",
        "static_assert(__builtin_offsetof(Report, groups) == 72);",
    ]
    nvrtc.compile("\n".join(lines), "sm_90a", "layout")


# One of each: lanes alone, warps that join, copies of both kinds, roles, products in flight.
EXAMPLES = ("add-f32", "softmax-1000", "matmul-aaa", "matmul-uuu", "attention-64-causal")
EXAMPLES += ("attention-128", "attention-128-causal", "attention-64-unaligned")
TOO_LARGE = ("matmul-", "attention-128")


def is_skipped(name, arch):
    """Whether another target compiles the same program of a kernel."""
    return not name.startswith(TOO_LARGE) and not is_assigned(name, arch)


def on_targets(names, kind):
    """Each kernel on each target, sampled; programs that another target compiles are left to the soak."""
    all_ = list(itertools.product(names, (*BEFORE_HOPPER, "sm_90a")))
    skipped = [pytest.param(*case, marks=pytest.mark.soak) for case in all_ if is_skipped(*case)]
    return sampled((case for case in all_ if not is_skipped(*case)), kind) + skipped


@needs_compiler
@pytest.mark.parametrize(
    ("name", "arch"), on_targets(EXAMPLES, lambda case: (CASES[case[0]].kernel, case[1]))
)
def test_an_example_compiles_for_debugging(name, arch):
    case = CASES[name]
    kernel = recorded(case.kernel, *case.args, **case.constants)
    if arch != "sm_90a" and name.startswith(TOO_LARGE):
        with pytest.raises(pk.KernelError, match=f"more than a block of {arch} has"):
            compile_kernel(kernel, arch, debug=True)
        return
    found = compile_kernel(kernel, arch, debug=True)
    assert found.cubin != compile_kernel(kernel, arch).cubin
    assert frame(found) <= 64, "constants of the checks may spill, tiles may not"


FAULTS = {
    "wrong_phase": (matrix(64, 64), matrix(64, 64, dtype=F32)),
    "turns_kept": (np.zeros(2, np.int32),),
    "never_signalled": (np.zeros((2, 3), np.int32),),
    "leading_index": (matrix(4, 64, 32, dtype=F32), matrix(4, 64, 32, dtype=F32)),
    "leading_index_of_a_copy": (matrix(4, 64, 32, dtype=F32), matrix(4, 64, 32, dtype=F32)),
    "index_of_a_view": (matrix(64, 4, 32, dtype=F32), matrix(64, 4, dtype=F32)),
    "flag_outside_a_column": (np.zeros((2, 3), np.int32), 2),
    "leading_index_of_a_window": (matrix(4, 64, 64, dtype=F32), matrix(64, 64, dtype=F32), 3),
    "untrue_scalar": (matrix(4, 8, dtype=F32), 2),
    "untrue_tile": (matrix(128, 64, dtype=F32), matrix(128, 64, dtype=F32)),
}


@needs_compiler
@pytest.mark.parametrize(("name", "arch"), on_targets(FAULTS, lambda case: case))
def test_a_kernel_that_goes_wrong_compiles_for_debugging(name, arch):
    kernel = recorded(getattr(debugging, name), *FAULTS[name])
    assert spills(compile_kernel(kernel, arch, debug=True)) == []


def test_a_target_that_compiles_in_place_of_another_compiles_the_same_for_debugging():
    examples = {n: (CASES[n].kernel, CASES[n].args, CASES[n].constants) for n in EXAMPLES}
    for name, (kernel, args, constants) in (
        examples | {n: (getattr(debugging, n), args, {}) for n, args in FAULTS.items()}
    ).items():
        if any(is_skipped(name, arch) for arch in BEFORE_HOPPER):
            made = recorded(kernel, *args, **constants)
            assert compile_alike({arch: emit(made, arch, debug=True) for arch in BEFORE_HOPPER}), (
                name
            )
