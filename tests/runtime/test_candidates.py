"""What may be a candidate of a kernel that is tuned, and the errors for what may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError, TypeMismatch
from pykittens.runtime import nvrtc, tuning_records
from tests.runtime import tuned_calls
from tests.runtime.c_programs import needs_compiler
from tests.runtime.tuned_calls import (
    CANDIDATES,
    TunedGpu,
    launches,
    matrices,
    tuned,
)

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason="needs NVRTC"),
]


@dataclass(frozen=True)
class Tiles:
    rows: int
    cols: int


def test_candidates_may_be_dataclasses_pairs_and_values_of_numpy(tuned_gpu: TunedGpu) -> None:
    given = [Tiles(64, 64), (("rows", 128), ("cols", 64)), {"rows": np.int64(64), "cols": 32}]
    assert tuned(candidates=given).candidates == tuple(CANDIDATES)


def test_constants_may_be_objects_and_functions(tuned_gpu: TunedGpu) -> None:
    @pk.kernel
    def k(x, y, *, tiles, function):  # type: ignore[no-untyped-def]
        row, col = pk.grid(pk.cdiv(y.rows, tiles.rows), pk.cdiv(y.cols, tiles.cols))
        t = pk.load(x[row, col], rows=tiles.rows, cols=tiles.cols)
        pk.store(y[row, col], function(t))

    both = [{"tiles": Tiles(64, 64), "function": f} for f in (pk.exp, pk.exp2)]
    x, y = matrices()
    reference = lambda x, y: torch.exp(x)  # noqa: E731
    with pytest.warns(RuntimeWarning, match="exp2"):
        tuned(k, both, reference=reference)(x, y)
    (record,) = tuning_records.records()
    assert "0x" not in record.best
    tuning_records._found.clear()
    again = lambda: tuned(k, both, reference=reference)(x, y)  # noqa: E731
    assert sum(launches(tuned_gpu, again).values()) == 1


def test_equal_numbers_of_two_kinds_are_two_candidates(tuned_gpu: TunedGpu) -> None:
    seen, run = [], tuned_gpu.run

    def watched(launch: Any, values: Any) -> None:
        seen.append(type(launch.arguments.constants["factor"]))
        run(launch, values)

    tuned_gpu.run = watched  # type: ignore[method-assign]
    multiplied = tuned(tuned_calls.multiplied, [{"factor": 2.0}, {"factor": 2}])
    multiplied.best(*matrices())
    assert set(seen) == {float, int}
    seen.clear()
    multiplied(*matrices(), factor=2)
    assert seen == [int]


@pytest.mark.parametrize("rows", [64.0, np.array([64, 64]), [64]])
def test_a_value_that_is_only_equal_to_that_of_a_candidate_is_refused(rows: Any) -> None:
    x, y = np.ones((70, 100), np.float32), np.zeros((70, 100), np.float32)
    with pytest.raises(ArgumentError, match=r"^doubled: no candidate has rows="):
        tuned()(x, y, rows=rows)


class Plain:
    """A value whose text is its address."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


def test_values_are_known_by_texts_without_addresses() -> None:
    @pk.kernel
    def k(x, y, *, tile):  # type: ignore[no-untyped-def]
        (row,) = pk.grid(pk.cdiv(y.rows, tile.rows))
        pk.store(y[row], pk.load(x[row], rows=tile.rows, cols=64))

    (candidate,) = tuned(k, [{"tile": Plain(64)}]).parameters.candidates
    assert repr(candidate) == "tile=<tests.runtime.test_candidates.Plain object>"
    with pytest.raises(ArgumentError, match="candidate 1 is given twice: tile=<") as error:
        tuned(k, [{"tile": Plain(64)}, {"tile": Plain(128)}])
    assert "__repr__" in (error.value.help or "")


class Config:
    """What triton.Config has."""

    def __init__(self, kwargs: Any, num_warps: int = 4) -> None:
        self.kwargs, self.num_warps = kwargs, num_warps


MISTAKES = {
    "none": ([], r"`candidates` must be a list of dicts.*, not \[\]"),
    "one dict": ({"rows": 64}, "`candidates` must be a list of dicts"),
    "a number": (3, "`candidates` must be a list of dicts .*, not a int"),
    "numbers": ([64, 128], "a candidate must be a dict, .* not 64"),
    "an unknown constant": ([{"row": 64}], "`row` is no constant of doubled"),
    "an argument": ([{"x": 64}], "`x` is no constant of doubled"),
    "empty": ([{}], "a candidate is empty"),
    "different constants": (
        [{"rows": 64}, {"cols": 64}],
        "all candidates must give the same constants",
    ),
    "twice": ([{"rows": 64}, {"rows": 64}], "candidate 1 is given twice: rows=64"),
    "not hashable": ([{"rows": [64]}], "a candidate must be .* hashable values, not"),
    "of triton": (
        [Config({"rows": 64})],
        "a candidate of pykittens is a dict, not a triton.Config",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_candidates_that_are_none_are_refused(mistake: str) -> None:
    given, text = MISTAKES[mistake]
    with pytest.raises(ArgumentError, match=f"^autotune: {text}"):
        tuned(candidates=given)


def test_what_is_no_kernel_is_refused() -> None:
    for given in (lambda x: x, 3):
        with pytest.raises(ArgumentError, match="autotune: takes a kernel, not a") as error:
            pk.autotune([{"rows": 64}])(given)  # type: ignore[arg-type]
        assert "stands above @pk.kernel" in (error.value.help or "")
    with pytest.raises(ArgumentError, match="autotune: the candidates are missing"):
        pk.autotune(tuned_calls.doubled)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="autotune: takes a kernel, not one that is tuned"):
        pk.autotune([{"rows": 64}])(tuned())


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), "0.1", True, [1]])
def test_a_tolerance_that_is_none_is_refused(tolerance: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^autotune: `tolerance` must be a number of 0 or"):
        pk.autotune([{"rows": 64}], tolerance=tolerance)


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("configs", "the candidates come first"),
        ("prune_configs_by", "`prune`"),
        ("reset_to_zero", "copies"),
        ("restore_value", "copies"),
        ("warmup", "how often"),
        ("rep", "how often"),
        ("check", "`reference`"),
    ],
)
def test_words_of_triton_are_answered(word: str, answer: str) -> None:
    with pytest.raises(pk.KernelError, match="^autotune: ") as error:
        pk.autotune(**{word: []})
    assert answer in (error.value.help or "")


def test_errors_of_calls_are_those_of_the_kernel() -> None:
    doubled = tuned()
    x = np.ones((70, 100), np.float32)
    for args, words in (((x,), {}), ((x, x, x), {}), ((x, x), {"rwos": 3}), ((x, "y"), {})):
        with pytest.raises(ArgumentError) as plain:
            tuned_calls.doubled(*args, **{**CANDIDATES[0], **words})  # type: ignore[arg-type]
        with pytest.raises(ArgumentError) as error:
            doubled(*args, **words)
        assert error.value.message == plain.value.message
    with pytest.raises(TypeMismatch, match="`rows` must be a multiple of 64"):
        tuned(tuned_calls.doubled, [{"rows": 5, "cols": 64}])(x, x.copy())
