"""benchmarks/gemm_shapes.py: it draws shapes of all strata, and tells how far a pick is from the fastest candidate."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pykittens.cli.arguments import load
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
    count = len(rows[0]["us"])
    assert f"| all | 4 | {count + 1:.3f} |" in told
    assert told.splitlines()[2].endswith("| 1.000 | 1.000 |")
    assert "20 x 33 x 70 | A.T @ B | drawn" in shapes.table(rows)


def test_a_fit_picks_by_the_estimate_among_what_was_measured(shapes, tmp_path, monkeypatch, capsys):
    limits = limits_of(torch.empty(0))
    case = shapes.Case.of(shapes.drawn(1, 6)[3], limits, 6)
    first, *others = case.ways
    assert {(c.cluster, c.cluster_axis) for c in case.ways.values()} >= {(4, 0), (4, 1)}
    us = {name: 10.0 for name in case.ways} | {others[-1]: 5.0}
    configs = {name: json.loads(json.dumps(vars(c))) for name, c in case.ways.items()}
    row = {
        **{"shape": vars(case.shape), "layout": "A @ B", "kind": "drawn", "work": 2e10},
        **{"pick": others[0], "us": us, "library_us": 10.0, "configs": configs},
    }
    (again,) = shapes.refitted([row], limits)
    assert again["pick"] == first
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"rows": [row]}))
    monkeypatch.setattr(sys, "argv", ["gemm_shapes.py", "--fit", str(path)])
    shapes.main()
    assert "| 1.000 | 1.000 | 1.000 | 0.500 | 0.500 |" in capsys.readouterr().out
