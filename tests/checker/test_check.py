"""`pk.check` tells what is wrong with a call, raises nothing for it, and changes nothing of the caller's."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.calls import checked_calls
from pykittens.emulate.finding import Kind, Scope
from pykittens.errors import ArgumentError


@pk.kernel
def copied(x, y):
    pk.require(x.shape == y.shape, "x and y must have one shape")
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64))


@pk.kernel(inplace=True)
def doubled(x, y, *, by: int = 2):
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    pk.store(y[row, 0], pk.load(x[row, 0], rows=64, cols=64) * float(by))


@pk.kernel
def stuck(x):
    full = pk.semaphore(1)
    pk.grid(1)
    with pk.producer():
        full.arrive()
    with pk.warpgroups(1):
        full.wait(0)
        full.wait(1)
        pk.store(x[0, 0], pk.zeros(pk.f32, 64, 64))


@pk.kernel
def beyond(x):
    (block,) = pk.grid(1)
    pk.store(x[block + 5, 0, 0], pk.zeros(pk.f32, 64, 64))


@pk.kernel
def misspelt(x):
    (block,) = pk.grid(1)
    pk.store(x[block, 0], undefined_name)  # noqa: F821


@pk.kernel
def halves(x, y):
    (row,) = pk.grid(pk.cdiv(x.rows, 64))
    pk.store(y[row, 0], pk.load(x[row, 0], rows=64, cols=64))


@pk.kernel
def wide(x):
    (block,) = pk.grid(1)
    pk.store(x[block, 0], pk.zeros(pk.bf16, 64, 64))


@pk.kernel
def seeded(x, *, seed: int = 1, device: int = 2):
    pk.grid(1)
    pk.store(x[0, 0], pk.zeros(pk.f32, 64, 64) + float(seed + device))


@pk.kernel
def summed(y, *terms, by):
    row, col = pk.grid(1, 2)
    total = pk.zeros(pk.f32, 64, 64)
    for term in terms:
        total = total + pk.load(term[row, col], rows=64, cols=64)
    pk.store(y[row, col * by], total)


@pk.kernel
def of_a_kernel(kernel):
    pk.grid(1)
    pk.store(kernel[0, 0], pk.zeros(pk.f32, 64, 64))


@pk.kernel
def both(x, y):
    pk.grid(2)
    [pk.store(t[0, 0], pk.zeros(pk.f32, 64, 64)) for t in (x, y)]


@pk.kernel
def talking(x):
    (block,) = pk.grid(1)
    pk.print("block {}", block)
    pk.store(x[block, 0], pk.zeros(pk.f32, 64, 64))


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_a_call_without_faults_is_told_with_its_arguments_and_schedules() -> None:
    report = pk.check(doubled, ones(64, 64), np.full((64, 64), np.nan, np.float32), by=3)
    assert report.ok
    assert report.findings == ()
    assert report.seeds == tuple(range(20))
    assert report.arguments == {"x": "f32[64, 64]", "y": "f32[64, 64]"}
    assert report.constants == {"by": "3"}
    assert report.holds == (
        "nothing was found in the 20 schedules tried, seeds 0 to 19; with these arguments the order of accesses is "
        "the same in every schedule, because no wait depends on timing"
    )


def test_nothing_of_the_callers_is_written() -> None:
    x, y = ones(64, 64), np.zeros((64, 64), np.float32)
    assert pk.check(copied, x, y, schedules=3).ok
    assert not y.any()
    assert pk.check(doubled, x, x, schedules=3).ok
    assert (x == 1).all()


def test_strides_numbers_and_places_that_matter_are_told() -> None:
    whole = np.zeros(64 * 80 + 1, np.float32)
    first = -whole.ctypes.data // 4 % 4 + 1  # an element 4 bytes past a 16-byte boundary
    view = whole[first : first + 64 * 70].reshape(64, 70)[:, :64]
    report = pk.check(copied, view, ones(64, 64), schedules=1)
    assert report.ok
    assert (
        report.arguments["x"]
        == "f32[64, 64], strides (70, 1), address is 4 bytes past a 16-byte boundary"
    )


@pytest.mark.parametrize(
    ("kernel", "args", "kind", "is_found_running", "text"),
    [
        (stuck, (ones(64, 64),), Kind.DEADLOCK, True, "full.wait(1)"),
        (beyond, (ones(2, 64, 64),), Kind.OUT_OF_RANGE, True, "x[block + 5, 0, 0]"),
        (misspelt, (ones(64, 64),), Kind.FAULT, False, "undefined_name"),
        (wide, (ones(64, 64),), Kind.FAULT, False, "pk.store(x[block, 0]"),
        (copied, (ones(64, 64), ones(64, 65)), Kind.FAULT, False, "pk.require("),
        (copied, (ones(64, 64),), Kind.FAULT, False, ""),
        (copied, (ones(64, 64), "a"), Kind.FAULT, False, ""),
    ],
    ids=["deadlock", "index", "name", "dtype", "require", "missing", "no array"],
)
def test_a_fault_is_a_finding_with_its_line(kernel, args, kind, is_found_running, text) -> None:
    report = pk.check(kernel, *args, schedules=4)
    (finding,) = report.errors
    assert finding.kind is kind
    assert finding.help
    (step,) = finding.steps
    assert step.loc is not None
    assert text in step.loc.text
    if is_found_running:
        assert (finding.seed, finding.schedules, report.seeds) == (0, 4, (0, 1, 2, 3))
    else:
        assert (finding.seed, report.seeds) == (None, ())
        assert finding.scope is Scope.EVERY_SCHEDULE
        assert report.holds == "no schedule was tried because the call is refused"


def test_an_output_that_shares_memory_is_a_finding_of_that_kind() -> None:
    whole = ones(100, 64)
    for args in ((whole[:64], whole[:64]), (whole[:64], whole[36:])):
        (finding,) = pk.check(copied, *args).errors
        assert finding.kind is Kind.ALIASING
        assert finding.message == "copied: the output `y` shares memory with `x`"
    assert not pk.check(doubled, whole[:64], whole[36:]).ok


def test_a_read_only_output_is_a_finding() -> None:
    y = ones(64, 64)
    y.flags.writeable = False
    (finding,) = pk.check(copied, ones(64, 64), y).errors
    assert finding.message == "copied: `y` is written and is read-only"


def test_a_seed_is_the_one_schedule_that_is_tried() -> None:
    report = pk.check(stuck, ones(64, 64), seed=17)
    assert report.seeds == (17,)
    assert report.errors[0].seed == 17
    assert report.holds == (
        "the one schedule tried, seed 17, ended at a fault; nothing after it was checked"
    )
    assert "replay: pk.check(stuck, x, seed=17)" in str(report)


def test_the_schedules_are_those_of_their_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def tried(kernel, arguments, seeds, **others):
        seen.extend(seeds)
        return []

    monkeypatch.setattr("pykittens.checker.check.run_schedules", tried)
    pk.check(copied, ones(64, 64), ones(64, 64), schedules=3)
    pk.check(copied, ones(64, 64), ones(64, 64), schedules=3, seed=9)
    assert seen == [0, 1, 2, 9]


def test_a_kind_that_is_ignored_is_counted() -> None:
    report = pk.check(stuck, ones(64, 64), ignore={"deadlock"}, schedules=2)
    assert report.ok
    assert report.ignored == {"deadlock": 1}
    assert "ignored: 1 of deadlock" in str(report)


def test_a_wrong_use_of_check_itself_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no kind of finding `races`"):
        pk.check(stuck, ones(64, 64), ignore=["races"])
    with pytest.raises(
        ArgumentError, match="`schedules` must be a whole number of 1 or more, not 0"
    ):
        pk.check(stuck, ones(64, 64), schedules=0)
    with pytest.raises(
        ArgumentError, match="`schedules` must be a whole number of 1 or more, not '3'"
    ):
        pk.check(stuck, ones(64, 64), schedules="3")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`seed` must be a whole number, not 1.5"):
        pk.check(stuck, ones(64, 64), seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no argument of stuck `y`") as refused:
        pk.check(stuck, ones(64, 64), undefined=["y"])
    assert refused.value.loc is not None
    assert refused.value.loc.file == __file__
    with pytest.raises(ArgumentError, match="no device `H2000`"):
        pk.check(stuck, ones(64, 64), device="H2000")
    with pytest.raises(ArgumentError, match="must be a kernel, not function"):
        pk.check(ones, ones(64, 64))  # type: ignore[arg-type]


def test_a_check_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert pk.check(talking, ones(64, 64)).ok
    assert capsys.readouterr().out == ""
    talking(ones(64, 64))
    assert capsys.readouterr().out == "block 0\n"


def test_checks_in_several_threads_leave_the_output_of_the_others_alone() -> None:
    before, seen = sys.stdout, []

    def some() -> None:
        for _ in range(5):
            assert pk.check(talking, ones(64, 64), schedules=2, costs=False).ok
            seen.append(sys.stdout is before)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(some) for _ in range(4)]:
            done.result()
    assert sys.stdout is before
    assert seen == [True] * 20


def test_what_a_kernel_takes_by_the_name_of_an_option_is_given_apart() -> None:
    report = pk.check(seeded, ones(64, 64), seed=2, constants={"seed": 7, "device": 3}, costs=False)
    assert report.ok
    assert report.seeds == (2,)
    assert report.constants == {"seed": "7", "device": "3"}
    with pytest.raises(ArgumentError, match="`by` is given twice"):
        pk.check(doubled, ones(64, 64), ones(64, 64), by=3, constants={"by": 3})


def test_an_argument_may_be_called_kernel() -> None:
    assert pk.check(of_a_kernel, kernel=ones(64, 64), schedules=1, costs=False).ok


def test_further_arguments_are_told_by_their_names() -> None:
    args = ones(64, 128), ones(64, 128), ones(64, 100)
    report = pk.check(summed, *args, by=1, schedules=2)
    assert report.ok
    assert report.arguments == {
        "y": "f32[64, 128]",
        "terms0": "f32[64, 128]",
        "terms1": "f32[64, 100]",
    }
    found = pk.check(summed, *args, by=0, schedules=2, costs=False).findings
    assert "`y` is written by two blocks" in [f.message for f in found]
    assert pk.check(summed, *args, by=1, undefined="terms1", schedules=1, costs=False).ok
    with pytest.raises(ArgumentError, match="no argument of summed `terms2`"):
        pk.check(summed, *args, by=1, undefined="terms2", costs=False)


def test_a_tensor_may_be_said_to_keep_its_values() -> None:
    args = ones(128, 64), ones(256, 64)
    (found,) = pk.check(halves, *args, schedules=1, costs=False).errors
    assert found.kind is Kind.UNWRITTEN_MEMORY
    assert not pk.check(halves, *args, schedules=1, costs=False, kept="y").findings
    with pytest.raises(ArgumentError, match="no argument of halves `z`"):
        pk.check(halves, *args, kept="z")


def test_one_word_stands_for_itself_and_not_for_its_letters() -> None:
    report = pk.check(stuck, ones(64, 64), ignore="deadlock", undefined="x", schedules=1)
    assert report.ignored == {"deadlock": 1}


def test_two_tensors_that_one_line_writes_are_two_findings() -> None:
    report = pk.check(both, ones(64, 64), ones(64, 64), schedules=2, costs=False)
    assert [f.message for f in report.findings] == [
        "`x` is written by two blocks",
        "`y` is written by two blocks",
    ]


def test_an_array_without_elements_has_no_strides_to_tell_of() -> None:
    report = pk.check(copied, ones(0, 64), ones(0, 64), schedules=1, costs=False)
    assert report.arguments["x"] == "f32[0, 64]"


def test_every_call_of_a_program_is_seen_and_runs() -> None:
    seen, failed = [], []
    x, y = ones(64, 64), np.zeros((64, 64), np.float32)

    def look(kernel: Any, args: Any, constants: Any) -> None:
        seen.append((kernel, args, constants))

    with checked_calls(look, lambda kernel, error: failed.append(error.message)):
        doubled(x, y, by=5)
        copied(x, y=y)
    assert failed == []
    assert [(k.parameters.name, len(a), c.keys()) for k, a, c in seen] == [
        ("doubled", 2, {"by"}),
        ("copied", 1, {"y"}),
    ]
    doubled(x, y)
    assert len(seen) == 2
    assert (y == 2).all()
    with checked_calls(look, lambda kernel, error: failed.append(error.message)):
        copied(x)
    assert failed == ["copied: `y` is missing"]


def test_a_call_by_which_a_compiler_learns_shapes_is_not_examined() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.ones(64, 64, device="meta")
    seen: list[Any] = []
    with checked_calls(lambda *call: seen.append(call), lambda kernel, error: None):
        copied(x, torch.empty_like(x))
    assert seen == []


def test_the_checker_is_loaded_when_it_is_first_asked_for() -> None:
    program = (
        "import sys, pykittens as pk; assert not [m for m in sys.modules if 'checker' in m]; "
        "pk.check; assert 'pykittens.checker.check' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], timeout=60, check=False)
    assert done.returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'chekc'"):
        pk.chekc  # type: ignore[attr-defined]  # noqa: B018
