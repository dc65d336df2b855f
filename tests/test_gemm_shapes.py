"""benchmarks/gemm_shapes.py: it draws shapes of all strata, and tells how far a pick is from the fastest candidate."""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from statistics import geometric_mean

import pytest

from pykittens.cli.arguments import load
from pykittens.kernels.gemm.estimate import RATES, estimate
from pykittens.kernels.limits import limits_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def shapes(monkeypatch):
    """The program as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load(BENCHMARKS / "gemm_shapes.py")


def milliseconds(contenders, buffers):
    """The n-th contender takes n ms; each is called with each set of buffers."""
    from protocol import Figure

    for call in contenders.values():
        for i in range(buffers):
            call(i)
    return [Figure(name, (float(i),) * 3) for i, name in enumerate(contenders, 1)]


def test_a_seed_draws_as_many_shapes_of_each_stratum(shapes):
    for odd in (False, True):
        found = shapes.drawn(3, 30, odd=odd)
        assert found == shapes.drawn(3, 30, odd=odd) != shapes.drawn(4, 30, odd=odd)
        assert set(Counter(shapes.stratum(p.work) for p in found).values()) == {5}
        assert {p.layout for p in found} == {"A @ B.T", "A @ B", "A.T @ B", "A.T @ B.T"}
        is_aligned = [p.n % 8 == p.k % 8 == 0 for p in found]
        assert not all(is_aligned) if odd else all(is_aligned)
    assert {p.layout for p in shapes.drawn(3, 30, "fp8")} == {"A @ B.T"}
    assert all(p.n % 64 == p.k % 64 == 0 for p in shapes.drawn(3, 30, unit=64))


def test_slow_products_of_results_are_drawn_again(shapes, tmp_path):
    drawn = [p for s in ("bf16", "fp8", "blocks") for p in shapes.drawn(5, 24, s)]
    rows = [
        {
            "shape": {"m": p.m, "n": p.n, "k": p.k}
            | {"blocks": p.section == "blocks", "bytes": 2 - (p.section != "bf16")},
            "layout": p.layout,
            "kind": p.kind,
            "pick": "a tile",
            "us": {"a tile": 10.0 + i % 2},
            "library_us": 9.5,
        }
        for i, p in enumerate(drawn)
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rows": rows}))
    assert shapes.slow([path], 0.9) == drawn[1::2]
    assert shapes.slow([path, path], 1.0) == 2 * drawn


def test_every_layout_is_measured_and_the_pick_told_beside_the_fastest(shapes):
    from protocol import Bench

    bench, limits = (
        Bench("graphs", milliseconds, "cpu", lambda tensors: 2),
        limits_of(torch.empty(0)),
    )
    some = {p.layout: p for p in shapes.drawn(1, 60, odd=True)}
    small = [replace(p, m=20, n=33, k=70) for p in some.values()]
    rows = []
    for p in small:
        case = shapes.Case.of(p, limits, 3)
        row = shapes.measured(case, bench)
        assert row["faults"] == {}
        assert 0 < row["error"] <= 2.0**-8
        assert list(row["us"].values()) == [1e3 * (i + 1) for i in range(len(case.ways))]
        rows.append(row)
    told = shapes.summary(rows)
    mean = geometric_mean(len(row["us"]) + 1 for row in rows)
    assert f"| all | 4 | {mean:.3f} |" in told
    assert told.splitlines()[2].endswith("| 1.000 | 1.000 |")
    assert "20 x 33 x 70 | A.T @ B | drawn" in shapes.table(rows)
    for row in rows:
        row["us"] = {row["pick"]: row["us"][row["pick"]]}
    assert shapes.summary(rows).splitlines()[2].endswith("| - | - |")


def test_the_fastest_by_half_of_the_rounds_is_timed_in_the_other_half(shapes):
    rounds = {"pick": [10, 20, 10, 20], "lucky once": [5, 40, 5, 40], "slow": [30, 30, 30, 30]}
    assert shapes.part_of_fastest(rounds, "pick") == pytest.approx((40 / 20) ** 0.5)
    assert shapes.part_of_fastest(rounds, "slow") == pytest.approx((40 / 30 * 10 / 30) ** 0.5)
    assert shapes.part_of_fastest({"pick": [10, 20]}, "pick") == 1


def test_the_shape_that_programs_are_compiled_for_is_that_of_the_problem(shapes):
    import gemm_problems

    for p in (*gemm_problems.problems(), *shapes.drawn(2, 12, odd=True)):
        shape = shapes.shape_of(p)
        assert (shape.m, shape.n, shape.k) == (p.m, p.n, p.k)
        assert (shape.gated, shape.blocks) == (p.is_gated, p.section == "blocks")


def rows_of(shapes, truth, count):
    """Rows of drawn products whose candidates take what an estimate by other rates says."""
    rows, limits = [], limits_of(torch.empty(0))
    for p in shapes.drawn(1, count, odd=True):
        case = shapes.Case.of(p, limits, 4)
        us = {name: estimate(c, case.shape, limits, truth) for name, c in case.ways.items()}
        configs = json.loads(json.dumps({name: vars(c) for name, c in case.ways.items()}))
        rows.append({"shape": vars(case.shape), "us": us, "configs": configs})
    return rows


def test_a_fit_finds_the_rates_by_which_candidates_take_their_times(shapes, tmp_path, capsys):
    truth = replace(RATES, start=RATES.start * 1.3, copies=RATES.copies / 1.3)
    path, fit = tmp_path / "found.json", load(BENCHMARKS / "gemm_fit.py")
    limits = limits_of(torch.empty(0))
    path.write_text(json.dumps({"limits": asdict(limits), "rows": rows_of(shapes, truth, 24)}))
    rates = fit.main([str(path), "--folds", "2"])
    measured = fit.read([path])
    assert len(measured) == 24
    errors = [[x.losses(r)[1] for x in measured] for r in (truth, RATES, rates)]
    exact, before, after = map(max, errors)
    assert exact == 0
    assert after < before / 10
    told = capsys.readouterr().out
    assert "24 shapes, as it is: " in told
    assert "fitted to all: 1.000 of the fastest" in told
