"""A kernel of the user is measured once for a kind of call, and calls use the fastest candidate."""

from __future__ import annotations

import threading
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import settings
from pykittens.errors import ArgumentError, BackendError
from pykittens.runtime import nvrtc, tuning_records
from tests.runtime import tuned_calls
from tests.runtime.c_programs import needs_compiler
from tests.runtime.tuned_calls import (
    CANDIDATES,
    COLS,
    FASTEST,
    TunedGpu,
    forget,
    launches,
    matrices,
    tuned,
    twice,
)

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason="needs NVRTC"),
]

# -- the choice ------------------------------------------------------------------------------------


def test_the_first_call_measures_and_all_calls_use_the_fastest(tuned_gpu: TunedGpu) -> None:
    doubled, (x, y) = tuned(reference=twice), matrices()
    before = x.clone()
    assert sum(launches(tuned_gpu, lambda: doubled(x, y)).values()) > 30
    assert (y == 2 * x).all()
    assert (x == before).all()
    y.zero_()
    assert launches(tuned_gpu, lambda: doubled(x, y)) == {(128, 64): 1}
    assert (y == 2 * x).all()
    assert launches(tuned_gpu, lambda: doubled(*matrices())) == {(128, 64): 1}
    assert doubled.best(x, y) == FASTEST


def test_best_measures_and_launches_nothing_on_the_arguments(tuned_gpu: TunedGpu) -> None:
    doubled, (x, y) = tuned(reference=twice), matrices()
    assert doubled.best(x, y) == FASTEST
    assert (y == 0).all()
    assert launches(tuned_gpu, lambda: doubled(x, y)) == {(128, 64): 1}


def test_the_next_process_finds_the_choice_on_disk(tuned_gpu: TunedGpu) -> None:
    x, y = matrices()
    tuned(reference=twice)(x, y)
    (record,) = tuning_records.records()
    assert record.kernel == "doubled"
    assert record.best == "rows=128, cols=64"
    tuning_records._found.clear()
    assert launches(tuned_gpu, lambda: tuned(reference=twice)(x, y)) == {(128, 64): 1}


def test_kernels_of_one_name_with_other_numbers_around_them_have_their_own_choices(
    tuned_gpu: TunedGpu,
) -> None:
    def made(factor: float) -> Any:
        @pk.autotune(CANDIDATES)
        @pk.kernel
        def times(x, y, *, rows, cols):  # type: ignore[no-untyped-def]
            row, col = pk.grid(pk.cdiv(y.rows, rows), pk.cdiv(y.cols, cols))
            pk.store(y[row, col], pk.load(x[row, col], rows=rows, cols=cols) * factor)

        return times

    x, y = matrices()
    made(2.0)(x, y)
    assert len(launches(tuned_gpu, lambda: made(2.0)(x, y))) == 1
    assert len(launches(tuned_gpu, lambda: made(3.0)(x, y))) == 3
    assert {r.kernel for r in tuning_records.records()} == {
        "test_kernels_of_one_name_with_other_numbers_around_them_have_their_own_choices_made_times"
    }


# -- the key ---------------------------------------------------------------------------------------


def is_measured(tuned_gpu: TunedGpu, call: Any) -> bool:
    return sum(launches(tuned_gpu, call).values()) > 1


def test_by_default_shapes_dtypes_and_alignment_have_their_own_choices(tuned_gpu: TunedGpu) -> None:
    doubled = tuned()
    x, y = matrices()
    assert is_measured(tuned_gpu, lambda: doubled(x, y))
    assert not is_measured(tuned_gpu, lambda: doubled(*matrices()))
    assert is_measured(tuned_gpu, lambda: doubled(*matrices(71)))
    assert is_measured(tuned_gpu, lambda: doubled(*matrices(dtype=torch.float16)))
    odd = torch.zeros(7001)[1:].view(70, 100)
    assert is_measured(tuned_gpu, lambda: doubled(x, odd))


def test_numbers_are_not_in_the_key_unless_they_are_in_the_program(tuned_gpu: TunedGpu) -> None:
    scaled, (x, y) = tuned(tuned_calls.scaled, COLS), matrices()
    assert is_measured(tuned_gpu, lambda: scaled(x, y, 2.0))
    assert not is_measured(tuned_gpu, lambda: scaled(x, y, 3.0))
    assert torch.equal(y, 3 * x)
    whole = torch.zeros(70, 100, dtype=torch.int32)
    assert is_measured(tuned_gpu, lambda: scaled(whole, whole.clone(), 3))
    as_wide = tuned(tuned_calls.as_wide, [{"rows": 64}, {"rows": 128}])
    assert is_measured(tuned_gpu, lambda: as_wide(x, y, 64))
    assert is_measured(tuned_gpu, lambda: as_wide(x, y, 32))
    assert not is_measured(tuned_gpu, lambda: as_wide(x, y, 64))


def test_other_constants_are_in_the_key(tuned_gpu: TunedGpu) -> None:
    multiplied, (x, y) = tuned(tuned_calls.multiplied, COLS), matrices()
    assert is_measured(tuned_gpu, lambda: multiplied(x, y, factor=2.0))
    assert is_measured(tuned_gpu, lambda: multiplied(x, y, factor=3.0))
    assert not is_measured(tuned_gpu, lambda: multiplied(x, y, factor=2.0))
    assert torch.equal(y, 2 * x)


def test_a_key_of_the_user_says_what_is_alike(tuned_gpu: TunedGpu) -> None:
    Key = namedtuple("Key", "shape dtype large")
    keys = []

    def key(x: Any, y: Any, factor: float) -> Any:
        keys.append(Key(x.shape[1:], x.dtype, {"large": np.bool_(factor > 10)}))
        return keys[-1]

    scaled, (x, y) = tuned(tuned_calls.scaled, COLS, key=key), matrices()
    assert is_measured(tuned_gpu, lambda: scaled(x, y, 2.0))
    assert not is_measured(tuned_gpu, lambda: scaled(*matrices(90), 2.0))
    assert is_measured(tuned_gpu, lambda: scaled(x, y, 20.0))
    assert not is_measured(tuned_gpu, lambda: scaled(x, y, 30.0))
    assert not is_measured(tuned_gpu, lambda: scaled(x, y, 3.0))
    assert torch.equal(y, 3 * x)
    count = len(keys)
    scaled(x, y, 3.0)
    assert len(keys) == count, "a repeated call asks no key"
    assert is_measured(tuned_gpu, lambda: scaled(x, y, factor=40.0)) is False


def test_key_and_reference_take_the_constants_that_are_not_tuned(tuned_gpu: TunedGpu) -> None:
    def reference(x: Any, y: Any, *, factor: float) -> Any:
        return factor * x

    key = lambda x, y, factor: factor  # noqa: E731
    multiplied = tuned(tuned_calls.multiplied, COLS, reference=reference, key=key)
    x, y = matrices()
    multiplied(x, y, factor=3.0)
    assert torch.equal(y, 3 * x)


def test_a_key_with_a_tensor_in_it_is_refused(tuned_gpu: TunedGpu) -> None:
    for key, what in (
        (lambda x, y: x, "one is a Tensor"),
        (lambda x, y: {x.dtype}, "one is a set"),
        (lambda x, y: [1, float("nan")], "Out of range float values"),
    ):
        with pytest.raises(
            ArgumentError, match=f"^doubled: `key` must return shapes, .* and strings: {what}"
        ):
            tuned(key=key)(*matrices())


def test_numbers_in_the_program_of_any_candidate_are_in_the_key(tuned_gpu: TunedGpu) -> None:
    """The first candidate reads none, and is the fastest for the first number and not for the second."""

    @pk.kernel
    def copied(x, y, count, *, wide):  # type: ignore[no-untyped-def]
        n = pk.static(count) if wide else 32
        row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, n))
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=n))

    kernel, (x, y) = tuned(copied, [{"wide": False}, {"wide": True}]), matrices()
    assert launches(tuned_gpu, lambda: kernel(x, y, 100)) == {(False,): tuned_gpu.launched[False,]}
    tuned_gpu.milliseconds = {(True,): 1.0}
    assert is_measured(tuned_gpu, lambda: kernel(x, y, 64))
    for count, wide in ((64, True), (100, False), (64, True), (100, False)):
        assert launches(tuned_gpu, lambda count=count: kernel(x, y, count)) == {(wide,): 1}
        assert kernel.best(x, y, count) == {"wide": wide}


# -- constants that the caller gives ---------------------------------------------------------------


def test_candidates_that_disagree_with_the_call_are_not_tried(tuned_gpu: TunedGpu) -> None:
    doubled, (x, y) = tuned(), matrices()
    assert {c[0] for c in launches(tuned_gpu, lambda: doubled(x, y, rows=64))} == {64}
    assert launches(tuned_gpu, lambda: doubled(x, y, rows=64)) == {(64, 64): 1}
    assert launches(tuned_gpu, lambda: doubled(x, y, rows=128)) == {(128, 64): 1}
    assert launches(tuned_gpu, lambda: doubled(x, y, rows=64, cols=16)) == {(64, 16): 1}
    assert doubled.best(x, y, cols=np.int64(32)) == {"rows": 64, "cols": 32}
    with pytest.raises(ArgumentError, match=r"doubled: no candidate has rows=16") as error:
        doubled(x, y, rows=16)
    assert "rows=128, cols=64" in str(error.value)


# -- where nothing is measured ---------------------------------------------------------------------


def test_on_the_cpu_the_first_candidate_is_used() -> None:
    doubled = tuned(reference=twice)
    x, y = np.ones((70, 100), np.float32), np.zeros((70, 100), np.float32)
    doubled(x, y)
    assert (y == 2).all()
    assert doubled.best(x, y) == CANDIDATES[0]
    assert doubled.best(x, y, rows=128) == FASTEST
    assert pk.check(doubled, x, y).ok
    assert doubled.source(x, y) == tuned_calls.doubled.source(x, y, **CANDIDATES[0])
    assert doubled.candidates == tuple(CANDIDATES)


def test_launches_for_debugging_use_the_first(
    tuned_gpu: TunedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled, (x, y) = tuned(), matrices()
    monkeypatch.setattr(settings, "debug", lambda: True)
    assert doubled.best(x, y) == CANDIDATES[0]
    assert not tuned_gpu.launched


def test_nothing_is_measured_while_a_graph_is_captured(
    tuned_gpu: TunedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled, (x, y) = tuned(), matrices()
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    with pytest.raises(BackendError, match="while a CUDA graph is captured") as error:
        doubled(x, y)
    assert error.value.help == "call it once with these arguments before the capture, to warm up"
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "0")
    doubled(x, y)
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    assert launches(tuned_gpu, lambda: doubled(x, y)) == {(128, 64): 1}


def test_without_the_cache_the_process_remembers(
    tuned_gpu: TunedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKITTENS_NO_CACHE", "1")
    doubled, (x, y) = tuned(), matrices()
    doubled(x, y)
    assert launches(tuned_gpu, lambda: doubled(*matrices())) == {(128, 64): 1}
    assert list(tuning_records.records()) == []


def test_of_threads_one_measures_and_the_others_wait(tuned_gpu: TunedGpu) -> None:
    doubled, together = tuned(reference=twice), threading.Barrier(4)
    results, faults = [], []

    def once() -> None:
        try:
            x, y = matrices()
            together.wait(timeout=30)
            doubled(x, y)
            results.append(torch.equal(y, 2 * x))
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (faults, results) == ([], [True] * 4)
    assert len(list(tuning_records.records())) == 1
    assert tuned_gpu.launched[64, 32] == alone(tuned_gpu)


def alone(tuned_gpu: TunedGpu) -> int:
    """How often one tuning launches the slowest candidate."""
    forget()
    return launches(tuned_gpu, lambda: tuned(reference=twice)(*matrices()))[64, 32]
