"""benchmarks/gemm.py: it checks results, leaves out wrong ones, and its tables show the figures."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from pykittens.cli.arguments import load
from pykittens.errors import KernelError
from pykittens.kernels.gemm.choose import pick
from pykittens.kernels.gemm.config import Config, GemmShape
from pykittens.kernels.limits import limits_of
from pykittens.runtime import nvrtc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
ABOUT = {
    "card": "A Card",
    "driver": "1.2",
    "date": "2026-01-31",
    "torch": "3",
    "cuda": "4",
    "protocol": "burst",
    "rest": 0.4,
}
MILLISECONDS = {"pykittens": 2.0, "pykittens, tuned": 1.0}
LIBRARY = 3.0  # milliseconds of all others


@pytest.fixture
def bench(monkeypatch):
    """The program as a module, with the import path as it was afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = load(BENCHMARKS / "gemm.py")
    monkeypatch.setattr(torch, "compile", lambda **_: lambda f: f)  # needs a C++ compiler here
    return found


def timed(contenders, buffers):
    """Calls each contender once with each set of buffers, and returns the times of MILLISECONDS."""
    from protocol import Figure

    for call in contenders.values():
        for i in range(buffers):
            call(i)
    return [Figure(name, (MILLISECONDS.get(name, LIBRARY),) * 3) for name in contenders]


@pytest.fixture
def on_the_host(bench):
    """How figures are taken without a GPU."""
    return bench.GemmBench(measure=timed, device="cpu", count=lambda tensors: 2)


def one_of_a_kind(problems):
    """The first of each section, layout and epilogue."""
    found = {}
    for p in problems:
        found.setdefault((p.section, p.transpose_b, p.fused), p)
    return list(found.values())


def some(bench, m=70, n=128, k=64):
    """A small one of each section, layout and epilogue."""
    return [replace(p, m=m, n=n, k=k) for p in one_of_a_kind(bench.problems())]


def plain(bench):
    return some(bench)[0]


# -- measuring -------------------------------------------------------------------------------------


def test_every_product_has_a_name_of_its_own(bench):
    names = [p.name for p in bench.problems()]
    assert len(set(names)) == len(names)
    assert {p.section for p in bench.problems()} == set(bench.SECTIONS)


def test_the_layers_of_llama_are_measured_in_both_layouts(bench):
    found = [p for p in bench.problems() if p.kind.startswith("Llama")]
    assert len(found) == 8 * 6 * 2
    assert {(p.n, p.k) for p in found} >= {(28672, 4096), (57344, 8192), (8192, 28672)}


def without_a_library_on_the_host(problem):
    """PyTorch scales blocks on a GPU only."""
    from gemm_problems import reference

    def product(d):
        return reference(d.a, d.b, True, **d.extras).bfloat16()

    return {"cuBLASLt": product}


def test_each_section_layout_and_epilogue_is_measured(bench, on_the_host, monkeypatch):
    import gemm_measure

    taken, once = gemm_measure.libraries, replace(on_the_host, count=lambda tensors: 1)
    rows = []
    for p in some(bench):
        is_fp8 = p.section in ("fp8", "blocks")
        way = without_a_library_on_the_host if is_fp8 else taken
        monkeypatch.setattr(gemm_measure, "libraries", way)
        rows.append(bench.measured(p, once))
    sections = (
        ["bf16"] * 2 + ["fp8", "blocks"] + ["epilogues"] * 5 + ["few tiles"] * 2 + ["random"] * 2
    )
    assert [r["section"] for r in rows] == sections
    assert all(0 < r["error"] <= 2.0**-8 for r in rows)
    assert all(r["ratio"] == LIBRARY / MILLISECONDS["pykittens"] for r in rows)
    others = {name for r in rows for name in r["others"]}
    assert others == {"cuBLASLt, fused"}


def test_a_row_has_the_rates_the_times_and_the_configuration_that_is_picked(bench, on_the_host):
    p = plain(bench)
    row = bench.measured(p, on_the_host)
    assert row["ours"] == pytest.approx(2 * 70 * 128 * 64 / 2e-3 / 1e12)
    assert row["library"] == pytest.approx(2 * 70 * 128 * 64 / 3e-3 / 1e12)
    assert (row["us"], row["library_us"]) == (2000.0, 3000.0)
    picked = pick(GemmShape(70, 128, 64), limits_of(torch.empty(0)))
    assert row["config"].startswith(f"{picked.rows}x{picked.cols}, {picked.stages} stages")


def test_a_gated_product_counts_both_products(bench):
    gated = next(p for p in some(bench) if p.is_gated)
    assert gated.work == 2 * 2 * 70 * 128 * 64


def test_the_tuned_choice_stands_beside_the_picked_one(bench, on_the_host, monkeypatch):
    import gemm_measure

    other = Config(64, 64, stages=2, consumers=1)
    monkeypatch.setattr(gemm_measure, "tuned", lambda call: other)
    row = bench.measured(plain(bench), replace(on_the_host, tune=True))
    assert row["tuned"] == LIBRARY / MILLISECONDS["pykittens, tuned"]
    assert row["tuned_config"] == "64x64, 2 stages, out 64, consumers 1"
    assert row["ratio"] == LIBRARY / MILLISECONDS["pykittens"]


def test_a_tuned_choice_that_is_the_picked_one_is_measured_once(bench, on_the_host, monkeypatch):
    import gemm_measure

    def same(call):
        return pick(call.shape, limits_of(call.arrays.like))

    monkeypatch.setattr(gemm_measure, "tuned", same)
    row = bench.measured(plain(bench), replace(on_the_host, tune=True))
    assert row["tuned"] == row["ratio"]
    assert list(row["rounds"]) == ["pykittens", "cuBLAS"]


def test_where_tuning_fails_the_picked_choice_is_measured(bench, on_the_host, monkeypatch, capsys):
    import gemm_measure

    def fails(call):
        raise KernelError("all candidates fail")

    monkeypatch.setattr(gemm_measure, "tuned", fails)
    row = bench.measured(plain(bench), replace(on_the_host, tune=True))
    assert "tuned" not in row
    assert "all candidates fail" in capsys.readouterr().err


# -- wrong results ---------------------------------------------------------------------------------


def last_row_unwritten(a, b, out, **words):
    out[:-1] = (a.double() @ b.double().T)[:-1]


def one_element_off(a, b, out, **words):
    out[:] = a.double() @ b.double().T
    out[-1, 3] += 1.0


def refuses(a, b, out, **words):
    raise RuntimeError("no such instruction\nand more")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (last_row_unwritten, "error inf"),
        (one_element_off, "and 3.91e-03 is allowed"),
        (refuses, "RuntimeError: no such instruction"),
    ],
)
def test_a_product_that_is_wrong_is_left_out_and_the_next_is_measured(
    bench, on_the_host, monkeypatch, capsys, tmp_path, wrong, told
):
    import gemm_problems

    right = gemm_problems.gemm

    def at_times(a, b, out, **words):
        (wrong if len(a) == 70 else right)(a, b, out, **words)

    monkeypatch.setattr(gemm_problems, "gemm", at_times)
    wanted = [(4, plain(bench)), (7, replace(plain(bench), m=64))]
    results = bench.measure_all(wanted, on_the_host, ABOUT, tmp_path, "-a")
    assert [r["number"] for r in results["rows"]] == [7]
    assert [told in fault for fault in results["faults"].values()] == [True]
    assert told in capsys.readouterr().err
    kept = json.loads((tmp_path / "a-card-2026-01-31-gemm-burst-a.json").read_text("utf-8"))
    assert kept == json.loads(json.dumps(results))
    assert "## Left out" in (tmp_path / "a-card-2026-01-31-gemm-burst-a.md").read_text("utf-8")


def test_a_library_that_is_wrong_is_no_rival(bench, on_the_host, monkeypatch):
    import gemm_measure

    fused = next(p for p in some(bench) if p.fused == "bias + relu")
    right = gemm_measure.libraries(fused)
    name = "cuBLAS + torch.compile"
    ways = {name: right[name], "forgets the bias": lambda d: torch.mm(d.a, d.b.T)}
    monkeypatch.setattr(gemm_measure, "libraries", lambda p: ways)
    assert bench.measured(fused, on_the_host)["others"] == {}
    monkeypatch.setattr(gemm_measure, "libraries", lambda p: dict(reversed(ways.items())))
    with pytest.raises(gemm_measure.Wrong, match="forgets the bias: error"):
        bench.measured(fused, on_the_host)


# -- choosing --------------------------------------------------------------------------------------


def test_parts_make_up_the_whole(bench):
    whole = bench.chosen("bf16", "", "1/1")
    parts = [bench.chosen("bf16", "", f"{i}/3") for i in (1, 2, 3)]
    assert sorted((x for part in parts for x in part), key=lambda x: x[0]) == whole
    assert len(whole) == 116


def test_sections_kinds_and_parts_of_names_choose(bench):
    some = bench.chosen("Llama m = 1,fp8", "", "1/1")
    assert {p.kind for _, p in some} == {"Llama m = 1", "fast accumulation"}
    assert len(bench.chosen("bf16", "8B down", "1/1")) == 12
    with pytest.raises(SystemExit, match="--only 'x' is none of: bf16, fp8"):
        bench.chosen("x", "", "1/1")
    for part in ("0/2", "3/2", "1", "a/b"):
        with pytest.raises(SystemExit, match="--part is which of how many"):
            bench.chosen("bf16", "", part)


# -- how it is measured ----------------------------------------------------------------------------


class Event:
    """An event of a GPU on which each launch takes a millisecond."""

    launches: ClassVar[list[int]] = []

    def __init__(self, **_):
        self.at = 0

    def record(self):
        self.at = len(self.launches)

    def elapsed_time(self, later):
        return float(later.at - self.at)


class Graph:
    """A CUDA graph of the ten launches since it was created."""

    def __init__(self):
        self.begin, self.captured = len(Event.launches), None

    def replay(self):
        if self.captured is None:
            self.captured = Event.launches[self.begin : self.begin + 10]
        Event.launches.extend(self.captured)


@pytest.fixture
def card(bench, monkeypatch):
    """A GPU that counts; the rests that are taken."""
    rests = []
    monkeypatch.setattr(Event, "launches", [])
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(bench.protocol.time, "sleep", rests.append)
    return rests


@pytest.mark.parametrize("protocol", ["burst", "graphs"])
def test_a_figure_is_the_time_of_one_launch_after_a_rest(bench, card, protocol):
    options = SimpleNamespace(protocol=protocol, rounds=2, rest=0.1, tune=False)
    way = bench.bench_of(options)
    contenders = dict.fromkeys(("first", "second"), Event.launches.append)
    assert [(f.name, f.rounds) for f in way.measure(contenders, 3)] == [
        ("first", (1.0, 1.0)),
        ("second", (1.0, 1.0)),
    ]
    assert card == [0.1] * 4
    assert set(Event.launches) == {0, 1, 2}


def test_each_protocol_has_rounds_of_its_own_unless_they_are_said(bench):
    options = SimpleNamespace(protocol="isolated", rounds=None, rest=0.1, tune=True)
    way = bench.bench_of(options)
    assert way.measure.keywords == {"rounds": 15}
    assert (way.protocol, way.tune) == ("isolated", True)


# -- tables ----------------------------------------------------------------------------------------


def invented(number=0, ratio=1.0, kind="squares", shape="1 x 2 x 3", **more):
    return {
        "number": number,
        "kernel": "gemm A @ B.T bf16",
        "section": "bf16",
        "kind": kind,
        "panel": "m = n = k",
        "at": f"{number}",
        "layout": "A @ B.T",
        "shape": shape,
        "protocol": "burst",
        "ours": 100.0 * ratio,
        "library": 100.0,
        "against": "cuBLAS",
        "unit": "TFLOP/s",
        "ratio": ratio,
        "us": 10.0 / ratio,
        "library_us": 10.0,
        "error": 0.001,
        "config": "128x256, 4 stages",
        "others": {},
        "rounds": {"pykittens": [0.01]},
        **more,
    }


def results(*rows, **about):
    return {"about": {**ABOUT, **about}, "rows": list(rows), "faults": {}}


def test_means_are_geometric_and_name_the_worst(bench):
    rows = [invented(0, 0.5), invented(1, 2.0, "small k"), invented(2, 8.0, "small k")]
    from gemm_report import means

    lines = means(rows).splitlines()[2:]
    assert lines == [
        "| **bf16, burst** | 3 | 2.000 | 0.500 | gemm A @ B.T bf16, 1 x 2 x 3 |",
        "| squares | 1 | 0.500 | 0.500 | gemm A @ B.T bf16, 1 x 2 x 3 |",
        "| small k | 2 | 4.000 | 2.000 | gemm A @ B.T bf16, 1 x 2 x 3 |",
    ]


def test_a_table_has_the_configuration_and_columns_for_what_there_is(bench):
    from gemm_report import table

    row = invented(0, 1.25)
    assert table([row]).splitlines()[0].count("|") == 10
    assert table([row]).splitlines()[2] == (
        "| gemm A @ B.T bf16 | 1 x 2 x 3 | 8.0 | 125 | cuBLAS | 100 | 1.250 | 128x256, 4 stages | 1.0e-03 |"
    )
    more = {**row, "tuned": 1.5, "tuned_config": "64x64", "others": {"fused": 90.0}}
    heads, _, first, second = table([more, row]).splitlines()
    assert "| Tuned | Other ways |" in heads
    assert "| 1.500: 64x64 | fused 90 |" in first
    assert "| - | - |" in second


def test_two_runs_become_one_table_with_both_ratios(bench):
    from gemm_report import merged, report

    first = results(invented(1, 1.00, shape="b"), invented(0, 0.90, shape="a"))
    again = results(invented(0, 0.91, shape="a"), invented(1, 1.10, shape="b"), date="2026-02-01")
    both = merged([first, again])
    assert both["about"]["date"] == "2026-01-31 2026-02-01"
    assert [r["shape"] for r in both["rows"]] == ["a", "b"]
    assert [r["ratio"] for r in both["rows"]] == pytest.approx([0.819**0.5, 1.1**0.5])
    text = report(both)
    assert "| 0.900, 0.910 |" in text
    assert "| 1.000, 1.100* |" in text
    assert "the ratios of 1 agree within 2%" in text


def test_parts_of_one_run_become_one_table_without_a_second_ratio(bench):
    from gemm_report import merged, report

    whole = merged([results(invented(1, shape="b")), results(invented(0, shape="a"))])
    assert [r["number"] for r in whole["rows"]] == [0, 1]
    assert "more than one run" not in report(whole)


def test_a_merged_table_takes_a_third_run(bench):
    from gemm_report import merged, ratios_of

    two = merged([results(invented(0, 1.0)), results(invented(0, 2.0))])
    three = merged([two, results(invented(0, 4.0))])
    assert ratios_of(three["rows"][0]) == [1.0, 2.0, 4.0]
    assert three["rows"][0]["ratio"] == pytest.approx(2.0)


def test_runs_of_two_cards_are_not_put_together(bench):
    from gemm_report import merged

    with pytest.raises(SystemExit, match="a different card"):
        merged([results(invented()), results(invented(), card="Another")])


def test_what_another_protocol_measured_is_another_row(bench):
    from gemm_report import merged

    both = merged([results(invented()), results(invented(protocol="graphs"))])
    assert [r["protocol"] for r in both["rows"]] == ["burst", "graphs"]


# -- the program -----------------------------------------------------------------------------------


def run(bench, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["gemm.py", *map(str, words)])
    bench.main()


def test_merging_writes_the_figures_and_the_tables(bench, monkeypatch, tmp_path, capsys):
    drawn = []
    monkeypatch.setattr(bench, "plot", drawn.append)
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, ratio in zip(paths, (1.0, 1.01), strict=True):
        path.write_text(json.dumps(results(invented(0, ratio))), encoding="utf-8")
    run(bench, monkeypatch, "--merge", *paths, "--out", tmp_path)
    target = tmp_path / "a-card-2026-01-31-gemm-burst-merged.json"
    assert drawn == [target]
    assert "1.000, 1.010" in capsys.readouterr().out
    assert "1.000, 1.010" in target.with_suffix(".md").read_text("utf-8")


def test_without_a_gpu_it_lists_and_measures_nothing(bench, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run(bench, monkeypatch, "--list", "--only", "fp8")
    assert len(capsys.readouterr().out.splitlines()) == 4
    with pytest.raises(SystemExit, match="no CUDA device"):
        run(bench, monkeypatch, "--only", "fp8")


def test_a_run_with_a_gpu_measures_writes_and_names_what_is_left_out(
    bench, on_the_host, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(bench, "gpu", lambda: (limits_of(torch.empty(0)), "sm_90a"))
    monkeypatch.setattr(bench, "compile_ahead", lambda *_: [])
    monkeypatch.setattr(bench, "about", lambda options: ABOUT)
    monkeypatch.setattr(bench, "plot", None)

    def measured(problem, way):
        if problem.n == 4096:
            raise RuntimeError("the card is full")
        return invented(0, 1.5, shape=problem.shape)

    monkeypatch.setattr(bench, "measured", measured)
    with pytest.raises(SystemExit, match="1 left out"):
        run(bench, monkeypatch, "--only", "fp8", "--out", tmp_path)
    said = capsys.readouterr()
    assert "the card is full" in said.err
    assert "matplotlib is not installed" in said.out
    kept = json.loads((tmp_path / "a-card-2026-01-31-gemm-burst.json").read_text("utf-8"))
    assert [r["ratio"] for r in kept["rows"]] == [1.5] * 3


@pytest.mark.units
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of processes that fork
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
def test_the_programs_of_problems_compile_ahead(bench):
    limits, problems = limits_of(torch.empty(0)), one_of_a_kind(bench.problems())
    assert bench.compile_ahead(problems, limits, "sm_90a") == []


def test_the_picture_has_a_panel_a_layer_and_marks_both_layouts(bench, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    rows = [
        invented(2 * i + turned, 1 + i / 10, panel=panel, layout=layout)
        for i, panel in enumerate(("8B o", "8B down"))
        for turned, layout in enumerate(("A @ B.T", "A @ B"))
    ]
    path = tmp_path / "found.json"
    path.write_text(json.dumps(results(*rows)), encoding="utf-8")
    text = bench.plot(path).read_text("utf-8")
    assert all(f"<!-- {panel} -->" in text for panel in ("8B o", "8B down"))
