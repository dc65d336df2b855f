"""Launches for debugging on a GPU: what goes wrong is told, and what is right stays so.

Each kernel that goes wrong runs in a process of its own, since the trap that stops it ends the use of CUDA there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import debugging
from tests.cases import CASES

torch = pytest.importorskip("torch")

from tests.gpu.test_cases import on_gpu, on_host  # noqa: E402  (needs PyTorch)
from tests.gpu.test_examples import (  # noqa: E402
    EPS,
    assert_close,
    assert_product,
    attention_reference,
    normal,
    poisoned,
)

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import os, sys, torch
import pykittens as pk
from tests import debugging

def bf16(*shape): return torch.zeros(shape, dtype=torch.bfloat16, device="cuda")
def f32(*shape): return torch.full(shape, 3.0, device="cuda")
def int32(*shape): return torch.zeros(shape, dtype=torch.int32, device="cuda")

try:
    {call}
    torch.cuda.synchronize()
except pk.KernelError as error:
    print(f"{{type(error).__name__}}: {{error}}")
else:
    print("nothing")
sys.stdout.flush()
os._exit(0)  # destructors of PyTorch would find the context gone
"""


def told(call: str, **environment: str) -> str:
    """What a process prints that runs this, by `kernel.debug` or with PYKITTENS_DEBUG."""
    own = {n: v for n, v in os.environ.items() if not n.startswith("PYKITTENS_DEBUG")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)],
        cwd=ROOT,
        env={**own, "PYTHONPATH": str(ROOT), "PYKITTENS_DEBUG_SECONDS": "0.5", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return re.sub(r"debugging\.py:\d+", "debugging.py:LINE", done.stdout)


GONE = "the kernel was stopped by a trap, after which this process cannot use the GPU"

FAULTS = {
    "debugging.flag_outside.debug(int32(2, 3), 3)": [
        "AccessError: flags[0, 3] is outside `flags`, whose shape is (2, 3)",
        "pk.signal(flags[0, i], 1)",
    ],
    "debugging.leading_index.debug(f32(4, 64, 32), f32(4, 64, 32))": [
        "AccessError: index 4 of axis 0 is outside `x`, whose shape is (4, 64, 32)",
        "    block : 3",
        "pk.load(x.at(block + 1)[0, 0], rows=64, cols=64)",
    ],
    "debugging.leading_index_of_a_copy.debug(f32(4, 64, 32), f32(4, 64, 32))": [
        "AccessError: index -1 of axis 0 is outside `x`, whose shape is (4, 64, 32)",
        "    block : 0\n    group : producer",
    ],
    "debugging.leading_index_of_a_scalar.debug(int32(2, 4, 4), int32(64, 64))": [
        "AccessError: index 2 of axis 0 is outside `lengths`, whose shape is (2, 4, 4)",
    ],
    "debugging.index_of_a_view.debug(f32(64, 4, 32), f32(64, 4))": [
        "AccessError: index 4 of axis 1 is outside `x`, whose shape is (64, 4, 32)",
        "    block : 3",
    ],
    "debugging.flag_outside_a_column.debug(int32(2, 3), 2)": [
        "AccessError: flags[2, 1] is outside `flags`, whose shape is (2, 3)",
    ],
    "debugging.leading_index_of_a_window.debug(f32(4, 64, 64), f32(64, 64), 3)": [
        "AccessError: index 2 of axis 0 is outside the window from 1 to 3 of `x`",
    ],
    "debugging.far_coordinate.debug(f32(64, 64), f32(64, 64), 2**30)": [
        "AccessError: the coordinate 68719476736 in `x` overflows an int32",
    ],
    "debugging.view_outside.debug(f32(64, 64), 2)": [
        "AccessError: part (2, 0) of 64x64 is outside a shared tile of 128x64",
    ],
    "debugging.row_outside.debug(f32(1, 64), 16)": [
        "AccessError: row 16 is outside a shared tile of 16x64",
    ],
    "debugging.semaphore_outside.debug(f32(1, 8), 3)": [
        "AccessError: index 3 is outside the 3 of `full`",
    ],
    "debugging.untrue_scalar.debug(f32(4, 8), 2)": [
        "AssertError: {n} is too large",
        "    block : 3",
    ],
}


@pytest.mark.parametrize(
    ("call", "parts"), FAULTS.items(), ids=[call.split(".")[1] for call in FAULTS]
)
def test_a_fault_stops_the_kernel_and_is_told(call, parts):
    text = told(call)
    for part in (*parts, GONE):
        assert part in text


def test_an_assertion_names_the_element_and_the_group():
    call = "x = f32(128, 64); x[:64] = 0; x[64:] = 2; x[64 + 5, 7] = 3; "
    text = told(call + "debugging.untrue_tile.debug(x, f32(128, 64))")
    assert "AssertError: less than three\n" in text
    assert "    fails at : [5, 7]\n    block    : 0\n    group    : warpgroups 1\n" in text


def test_a_stage_that_is_never_full_is_told_with_all_roles():
    text = told("debugging.never_full.debug(bf16(128, 192), f32(128, 64))")
    start = r"DeadlockError: deadlock: consumers [01] of block [01] has waited for 0\.5 seconds\n"
    assert re.match(start, text), text
    waits = "inputs.drain() at tests/debugging.py:LINE: stage 1 to be full, phase 1"
    assert "    producer    : has ended\n" in text
    assert f"    consumers 0 : {waits}\n    consumers 1 : {waits}\n" in text
    assert "with inputs.drain() as s:" in text
    assert GONE in text


def test_a_phase_that_never_comes():
    text = told("debugging.wrong_phase.debug(bf16(64, 64), f32(64, 64))")
    assert "deadlock: block 0 has waited" in text
    assert "at tests/debugging.py:LINE for phase 1 of full[1]\n" in text


def test_a_turn_that_never_comes():
    text = told("debugging.turns_kept.debug(int32(2))")
    assert "    warps 0 : has ended\n" in text
    assert "    warps 1 : at tests/debugging.py:LINE for the turn of group 1\n" in text


def test_a_flag_that_nobody_signals():
    text = told("debugging.never_signalled.debug(int32(2, 3))")
    assert "for flags[1, 2] to be at least 4, it is 3\n" in text


def test_the_setting_makes_every_launch_one_for_debugging():
    call = "debugging.untrue_scalar(f32(4, 8), 2)"
    assert told(call) == "nothing\n"
    assert "AssertError: {n} is too large" in told(call, PYKITTENS_DEBUG="1")


def test_waiting_ends_when_it_was_said_to():
    call = "debugging.never_signalled.debug(int32(2, 3))"
    told(call)  # compiles
    start = time.perf_counter()
    told(call)
    short = time.perf_counter() - start
    start = time.perf_counter()
    assert "has waited for 3 seconds" in told(call, PYKITTENS_DEBUG_SECONDS="3")
    assert time.perf_counter() - start > short + 1.5


def test_a_right_kernel_may_be_launched_again_and_again():
    for n in (0, 1):
        y = torch.full((4, 8), torch.nan, device="cuda")
        debugging.untrue_scalar.debug(y, n)
        assert (y == 0).all()


@pytest.mark.parametrize("aligned", [True, False])
def test_a_matrix_product_is_right(example, aligned):
    kernel = example(stem("matmul")).matmul
    for m, n, k in ((1, 1, 1), (300, 500, 200), (1024, 2048, 512)):
        size = k if aligned else k + 1
        a, b, c = normal(m, size)[:, :k], normal(n, size)[:, :k], poisoned(m, n)
        kernel.debug(a, b, c)
        assert_product(c, a, b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_attention_is_right(example, d, causal):
    kernel = example(stem("attention")).attention
    for n in (1, 129, 1000):
        q, k, v = (normal(2, 3, n, d) for _ in range(3))
        o = poisoned(2, 3, n, d)
        kernel.debug(q, k, v, o, causal=causal)
        assert_close(o, attention_reference(q, k, v, causal), 4 * EPS)


def stem(name: str) -> str:
    """The file of an example, whatever its number."""
    (path,) = (p for p in (ROOT / "examples").glob("*.py") if p.stem.partition("_")[2] == name)
    return path.stem


BY_HAND = [
    *("by_hand-ring-bf16-320x64", "by_hand-ring-f32-150x37", "by_hand-product-bf16-100x200x333"),
    *("by_hand-two-bf16-64x64", "by_hand-turns-warps-3-4", "by_hand-turns-consumers-2-5"),
    *("by_hand-chain-f32-7x64", "by_hand-exchange-int32-1001", "by_hand-inline-f32-f32-50x37"),
]


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_done_by_hand_is_right(name):
    case = CASES[name]
    inputs, outputs = case.arrays()
    tensors = [on_gpu(a) for a in (*inputs, *outputs)]
    case.kernel.debug(*tensors, *case.scalars, **case.constants)
    found = [on_host(t, a) for t, a in zip(tensors[len(inputs) :], outputs, strict=True)]
    case.check(inputs, found)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_program_names_the_instruction_in_which_it_stopped(dynamic):
    setup = f"from tests.mega.test_debug import stuck; program, t = stuck(dynamic={dynamic})"
    run = "program.debug(**{name: torch.from_numpy(x).cuda() for name, x in t.items()})"
    found = told(f"{setup}; {run}")
    assert "DeadlockError: deadlock: producer of block 1 has waited" in found
    assert re.search(
        r"producer : ring.fill\(\) at .*: stage 0 to be free, .*, in copy\(part=3\)\n", found
    )
