"""Candidates are compared on copies: wrong ones are excluded, and the arguments are as after one call."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError, KernelError
from pykittens.runtime import nvrtc, trial, tuning_records
from tests.runtime import tuned_calls
from tests.runtime.c_programs import needs_compiler
from tests.runtime.tuned_calls import (
    CANDIDATES,
    COLS,
    FASTEST,
    TunedGpu,
    forget,
    matrices,
    tuned,
    twice,
)

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason="needs NVRTC"),
]

# -- wrong candidates, and those that cannot be used -----------------------------------------------


def test_a_wrong_candidate_is_excluded_with_a_warning(tuned_gpu: TunedGpu) -> None:
    tuned_gpu.milliseconds = {(2.0, 64): 2.0, (3.0, 64): 1.0}
    both = [{"factor": 2.0}, {"factor": 3.0}]
    x, y = matrices()
    for options in ({}, {"reference": twice}):
        forget()
        multiplied = tuned(tuned_calls.multiplied, both, **options)
        with pytest.warns(
            RuntimeWarning,
            match=r"factor=3.0 computes something wrong.*`y` is not that .*: 69.. of",
        ) as warned:
            multiplied(x, y)
        assert [w.filename for w in warned] == [__file__]
        assert (y == 2 * x).all()
        assert multiplied.best(x, y) == {"factor": 2.0}


def test_without_a_reference_the_first_candidate_is_right(tuned_gpu: TunedGpu) -> None:
    multiplied = tuned(tuned_calls.multiplied, [{"factor": 3.0}, {"factor": 2.0}])
    with pytest.warns(RuntimeWarning, match=r"factor=2.0 computes .* not that of factor=3.0"):
        assert multiplied.best(*matrices()) == {"factor": 3.0}


def test_a_candidate_that_writes_too_little_is_wrong_even_if_the_output_was_right(
    tuned_gpu: TunedGpu,
) -> None:
    @pk.kernel
    def some(x, y, *, tiles):  # type: ignore[no-untyped-def]
        row, col = pk.grid(pk.cdiv(y.rows, 64), tiles)
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * 2)

    tuned_gpu.milliseconds = {(2,): 2.0, (1,): 1.0}
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        x, _ = matrices(dtype=dtype)
        y = 2 * x
        with pytest.warns(RuntimeWarning, match="tiles=1 computes something wrong"):
            assert tuned(some, [{"tiles": 2}, {"tiles": 1}]).best(x, y) == {"tiles": 2}
        forget()


def test_candidates_that_a_target_cannot_have_are_skipped_and_listed(tuned_gpu: TunedGpu) -> None:
    too_large = {"rows": 1024, "cols": 4096}
    no_tile = {"rows": 32, "cols": 64}
    doubled, (x, y) = (
        tuned(candidates=[too_large, no_tile, *CANDIDATES], reference=twice),
        matrices(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled(x, y)
    assert doubled.best(x, y) == FASTEST
    (record,) = tuning_records.records()
    faults = {o.candidate: o.fault for o in record.outcomes if o.fault}
    assert set(faults) == {"rows=1024, cols=4096", "rows=32, cols=64"}


def test_if_none_can_be_used_the_error_is_that_of_the_first(tuned_gpu: TunedGpu) -> None:
    @pk.autotune([{"rows": 64}, {"rows": 128}])
    @pk.kernel
    def strict(x, y, *, rows):  # type: ignore[no-untyped-def]
        pk.require(x.rows == y.rows, "x and y have as many rows")
        (row,) = pk.grid(pk.cdiv(y.rows, rows))
        pk.store(y[row], pk.load(x[row], rows=rows, cols=64))

    x, _ = matrices()
    with pytest.raises(ArgumentError, match="x and y have as many rows"):
        strict(x, torch.zeros(10, 100))
    strict(x, torch.zeros(70, 100))


def test_a_candidate_that_a_requirement_leaves_out_is_skipped_and_an_error_names_its_candidate(
    tuned_gpu: TunedGpu,
) -> None:
    @pk.kernel
    def divided(x, y, *, cols, asserted):  # type: ignore[no-untyped-def]
        if asserted:
            assert cols != 32, "not 32"
        pk.require(cols != 32, "not 32")
        row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, cols))
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=cols))

    kernel, (x, y) = tuned(divided, COLS), matrices()
    assert kernel.best(x, y, asserted=False) == {"cols": 64}
    with pytest.raises(AssertionError, match="not 32") as error:
        kernel(x, y, asserted=True)
    assert error.value.__notes__ == ["in cols=32; pk.require leaves a candidate out"]


def test_a_tolerance_decides_what_is_wrong(tuned_gpu: TunedGpu) -> None:
    both = [{"factor": 2.0}, {"factor": 2.01}]
    tuned_gpu.milliseconds = {(2.01, 64): 1.0}
    loose = tuned(tuned_calls.multiplied, both, reference=twice, tolerance=0.1)
    assert loose.best(*matrices()) == {"factor": 2.01}
    tuned_gpu.milliseconds = {(2.01, 64): 1.0}
    tuning_records._found.clear()
    x, y = matrices(71, 72)
    with pytest.warns(RuntimeWarning, match="factor=2.01"):
        assert tuned(tuned_calls.multiplied, both, reference=twice).best(x, y) == {"factor": 2.0}


def test_a_reference_may_be_of_numpy_and_leave_outputs_out(tuned_gpu: TunedGpu) -> None:
    def reference(x: Any, y: Any, total: Any) -> Any:
        return y.numpy().astype(np.float64) + x.numpy(), None

    added = tuned(tuned_calls.added, COLS, reference=reference)
    x, y = matrices()
    added(x, y, torch.zeros(1, dtype=torch.int32))
    assert torch.allclose(y, x)


def test_a_reference_of_the_wrong_form_is_an_error(tuned_gpu: TunedGpu) -> None:
    x, y = matrices()
    wrong = {
        lambda x, y: (x, y): "`reference` returns 2 arrays, and the kernel writes 1: y",
        lambda x, y: x[
            1:
        ]: r"returns an array of shape \(69, 100\) for `y`, which has shape \(70, 100\)",
        lambda x, y: 3.0: "`reference` returns float for `y`",
        lambda x, y: None: "`reference` returns nothing to compare, and the kernel writes 1: y",
        lambda x, y: {"y": 2 * x}: "`reference` returns dict for `y`",
        lambda x, y: tuned_calls.doubled(x): "`reference` fails: doubled: `y` is missing",
    }
    for reference, text in wrong.items():
        with pytest.raises(ArgumentError, match=f"^doubled: .*{text}"):
            tuned(reference=reference)(x, y)
    with pytest.raises(ZeroDivisionError):
        tuned(reference=lambda x, y: 1 / 0)(x, y)


def factors(*tried: float) -> list[dict[str, float]]:
    return [{"factor": factor} for factor in tried]


def ignoring_warnings(call: Any, *args: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(*args)


def test_a_candidate_is_right_again_once_the_reference_or_the_tolerance_is_mended(
    tuned_gpu: TunedGpu,
) -> None:
    x, y = matrices()
    mistaken = tuned(tuned_calls.multiplied, factors(2.0, 2.001), reference=lambda x, y: 3 * x)
    for _ in range(2):
        with pytest.raises(KernelError, match="none of 2 configurations(.|\n)*`reference`"):
            ignoring_warnings(mistaken, x, y)
    mended = tuned(tuned_calls.multiplied, factors(2.0, 2.001), reference=twice, tolerance=1e-5)
    with pytest.warns(RuntimeWarning, match="factor=2.001 computes something wrong"):
        assert mended.best(x, y) == {"factor": 2.0}
    tuned_gpu.milliseconds = {(2.001, 64): 1.0}
    loose = tuned(tuned_calls.multiplied, factors(2.0, 2.001), reference=twice, tolerance=0.1)
    assert loose.best(x, y) == {"factor": 2.001}


def test_a_candidate_is_wrong_for_its_own_program_only(tuned_gpu: TunedGpu) -> None:
    """Of functions of one name, of other constants, and of other arguments: the last are of the same program."""

    def made(wrong: int) -> Any:
        @pk.kernel
        def times(x, y, *, rows, factor):  # type: ignore[no-untyped-def]
            row, col = pk.grid(pk.cdiv(y.rows, rows), pk.cdiv(y.cols, 64))
            error = 1.0 if rows == wrong and factor == 2.0 else 0.0
            pk.store(y[row, col], pk.load(x[row, col], rows=rows, cols=64) * (factor + error))

        return tuned(
            times, [{"rows": 64}, {"rows": 128}], reference=lambda x, y, factor: factor * x
        )

    tuned_gpu.milliseconds = {(128, 2.0): 1.0, (128, 3.0): 1.0}
    x, y = matrices()
    with pytest.warns(RuntimeWarning, match="rows=128 computes"):
        assert made(128).best(x, y, factor=2.0) == {"rows": 64}
    assert made(128).best(x, y, factor=3.0) == {"rows": 128}
    assert made(0).best(x, y, factor=2.0) == {"rows": 128}
    tuned_gpu.launched.clear()
    assert made(128).best(*matrices(80), factor=2.0) == {"rows": 64}
    assert {rows for rows, factor in tuned_gpu.launched} == {64}


def test_a_reference_may_return_a_list_and_write_to_its_outputs(tuned_gpu: TunedGpu) -> None:
    def reference(x: Any, y: Any) -> Any:
        torch.mul(x, 2, out=y)
        return [y]

    tuned_gpu.milliseconds = {(3.0, 64): 1.0}
    x, y = matrices()
    with pytest.warns(RuntimeWarning, match="factor=3.0"):
        tuned(tuned_calls.multiplied, factors(2.0, 3.0), reference=reference)(x, y)
    assert torch.equal(y, 2 * x)


def test_a_reference_is_computed_without_autocast(tuned_gpu: TunedGpu) -> None:
    """In bf16 it would be wrong by more than the tolerance of f32."""
    inside = []

    def reference(x: Any, y: Any) -> Any:
        inside.append(torch.is_autocast_enabled("cuda"))
        return 2 * x

    x, y = matrices()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch finds no GPU here
        autocast = torch.autocast("cuda", torch.bfloat16)
    autocast._enabled = True
    with autocast:
        assert torch.is_autocast_enabled("cuda")
        tuned(reference=reference)(x, y)
    assert inside == [False]


def test_a_wrong_whole_number_is_shown(tuned_gpu: TunedGpu) -> None:
    x = torch.arange(7000, dtype=torch.int32).view(70, 100)
    text = r"1 of 7000 compared elements are wrong; that at \(12, 34\) is 2468 instead of 2469"
    with pytest.raises(KernelError, match=text):
        ignoring_warnings(tuned(reference=lambda x, y: 2 * x + (x == 1234)), x, x.clone())


def test_truth_values_and_8_bits_are_compared(tuned_gpu: TunedGpu) -> None:
    @pk.kernel
    def copied(x, y, *, cols):  # type: ignore[no-untyped-def]
        row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, cols))
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=cols))

    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float8_e4m3fn):
        x = torch.ones(70, 128).to(dtype)
        copy = tuned(copied, [{"cols": 128}, {"cols": 64}], reference=lambda x, y: x)
        assert copy.best(x, torch.zeros(70, 128).to(dtype)) == {"cols": 128}
        (record,) = tuning_records.records()
        assert all(o.checked for o in record.outcomes)
        forget()


# -- what launches write ---------------------------------------------------------------------------


def test_sums_and_counters_are_as_after_one_call(tuned_gpu: TunedGpu) -> None:
    """A launch that is measured begins with the caller's contents: without, all but the first would do nothing."""
    x, y = matrices()
    y += 1
    total = torch.zeros(1, dtype=torch.int32)
    seen = []
    run = tuned_gpu.run

    def watched(launch: Any, values: Any) -> None:
        (counter,) = (
            a for n, a in launch.arguments.at(values[:-1]).tensors.items() if n == "total"
        )
        seen.append(ctypes.c_int.from_address(counter.address).value)
        run(launch, values)

    tuned_gpu.run = watched  # type: ignore[method-assign]
    tuned(tuned_calls.added, COLS, reference=lambda x, y, total: (x + y, None))(x, y, total)
    assert len(seen) > 20
    assert set(seen) == {0}
    assert torch.allclose(y, x + 1)
    assert total.item() in (4, 8)


def test_a_kernel_in_place_is_measured_in_place_on_a_copy(
    tuned_gpu: TunedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(70, 100)
    before = x.clone()
    shared = []
    run = tuned_gpu.run

    def watched(launch: Any, values: Any) -> None:
        shared.append(values[0] == values[1])
        run(launch, values)

    tuned_gpu.run = watched  # type: ignore[method-assign]
    copies = []
    copy_like = trial.copy_like
    monkeypatch.setattr(trial, "copy_like", lambda x: (copies.append(x), copy_like(x))[1])
    tuned(tuned_calls.raised, COLS, reference=lambda x, y: x + 1)(x, x)
    assert len(copies) == 1, "of what is written there is one copy"
    assert set(shared) == {True}
    assert torch.equal(x, before + 1)


def test_tensors_with_gradients_and_views_are_unharmed(tuned_gpu: TunedGpu) -> None:
    x = torch.randn(70, 100, requires_grad=True)
    whole = torch.zeros(80, 120)
    y = whole[3:73, 8:108]
    tuned(reference=twice)(x, y)
    assert torch.equal(y, 2 * x.detach())
    y.zero_()
    assert (whole == 0).all()
    assert x.grad is None
