"""benchmarks/experiments.py: its kernels are right, its bytes are counted or simulated, its tables say which."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from pykittens.cli.arguments import load
from pykittens.runtime import nvrtc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
ABOUT = {"card": "A Card", "driver": "1.2", "date": "2026-01-31"}
MILLISECONDS = {"cuBLAS": 2.0, "1": 8.0, "4": 1.0}
COUNTED = """==PROF== Connected to process 17
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","tiles_in_order","dram__bytes_read.sum","byte","34,137,440,256"
"0","tiles_in_order","dram__bytes_write.sum","byte","536870912"
"1","tiles_in_order","dram__bytes_read.sum","byte","1000"
"1","tiles_in_order","dram__bytes_write.sum","byte","2000"
==PROF== Disconnected
"""


@pytest.fixture
def experiments(monkeypatch):
    """The program as a module, with the import path as it was afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load(BENCHMARKS / "experiments.py")


def timed(contenders, buffers):
    """Calls each contender once with each set of buffers, and returns the times of MILLISECONDS."""
    from protocol import Figure

    for call in contenders.values():
        for i in range(buffers):
            call(i)
    return [Figure(name, (MILLISECONDS.get(name, 4.0),) * 3) for name in contenders]


@pytest.fixture
def bench(experiments):
    """Figures without a GPU."""
    torch.manual_seed(0)
    return experiments.Bench(measure=timed, device="cpu", count=lambda tensors: 1)


# -- the experiments -------------------------------------------------------------------------------


def test_one_to_four_stages_are_measured_beside_the_library(experiments, bench):
    rows = experiments.stages(bench, (96, 160))
    assert [(r["name"], r["at"]) for r in rows] == [
        (name, n) for n in (96, 160) for name in ("1", "2", "3", "4", "cuBLAS")
    ]
    assert [r["ratio"] for r in rows[:5]] == [0.25, 0.5, 0.5, 2.0, 1.0]
    assert rows[0]["tflops"] == pytest.approx(2 * 96**3 / 8e-3 / 1e12)


def test_blocks_that_stay_and_a_block_a_tile_make_the_same_product(experiments, bench):
    rows = experiments.persistence(bench, (64, 100), size=300)
    assert [(r["name"], r["at"]) for r in rows] == [
        (name, k) for k in (64, 100) for name in ("persistent", "a block a tile", "cuBLAS")
    ]


def test_every_order_makes_the_product_and_has_its_bytes(experiments, bench):
    bytes_of = {
        name: experiments.Bytes(i, 7.0, "told") for i, name in enumerate(experiments.ORDERS)
    }
    rows = experiments.orders(bench, 300, lambda size: bytes_of)
    assert [r["name"] for r in rows] == [*experiments.ORDERS, "cuBLAS"]
    assert [r["read"] for r in rows[:-1]] == [0, 1, 2, 3, 4]
    assert "read" not in rows[-1]


def test_a_way_that_is_wrong_is_told_and_left_out(experiments, bench, capsys):
    def forgets_a_row(data):
        data.out[:-1] = (data.a @ data.b.T)[:-1]

    def right(data):
        data.out[:] = data.a @ data.b.T

    def refuses(data):
        raise RuntimeError("no such instruction")

    ways = {"wrong": forgets_a_row, "refuses": refuses, "right": right}
    rows = experiments.measured(bench, "stages", 64, experiments.square(64), ways)
    assert [r["name"] for r in rows] == ["right", "cuBLAS"]
    said = capsys.readouterr().err
    assert "stages at 64, wrong: Wrong: error inf" in said
    assert "stages at 64, refuses: RuntimeError: no such instruction" in said


@pytest.mark.units
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
def test_only_the_launch_differs_between_blocks_that_stay_and_a_block_a_tile(experiments):
    import pykittens as pk

    tensors = [torch.zeros(256, 256, dtype=torch.bfloat16) for _ in range(3)]
    taken = [
        experiments.tiles_in_order.resources(*tensors, persistent=p, order=pk.row_major)
        for p in (True, False)
    ]
    assert len({(r.threads, r.shared_bytes, r.frame, r.spills) for r in taken}) == 1


# -- bytes of memory -------------------------------------------------------------------------------


def ncu(monkeypatch, out="", err="", raises=None):
    """A ncu that says so; returns the commands it gets."""
    import experiments_traffic

    commands = []

    def run(command, **_):
        commands.append(command)
        if raises:
            raise raises
        return subprocess.CompletedProcess(command, 0, out, err)

    monkeypatch.setattr(experiments_traffic.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(experiments_traffic.subprocess, "run", run)
    return commands


def test_ncu_counts_the_launches_in_their_order(experiments, monkeypatch):
    commands = ncu(monkeypatch, COUNTED)
    found = experiments.counted(["python", "x.py"], "tiles_in_order", ["first", "second"])
    assert found == {
        "first": experiments.Bytes(34137440256.0, 536870912.0, "counted by ncu"),
        "second": experiments.Bytes(1000.0, 2000.0, "counted by ncu"),
    }
    (command,) = commands
    assert command[0] == "/bin/ncu"
    assert command[-2:] == ["python", "x.py"]
    assert command[command.index("--clock-control") + 1] == "none"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ({"err": "==ERROR== ERR_NVGPUCTRPERM: no permission"}, "ERR_NVGPUCTRPERM"),
        ({"out": COUNTED.replace('"byte"', '"Gbyte"')}, "ncu counts nothing"),
        ({}, "no output"),
        ({"raises": subprocess.TimeoutExpired("ncu", 3.0)}, "ncu fails"),
        ({"raises": OSError("no such file")}, "no such file"),
    ],
)
def test_where_ncu_counts_nothing_the_reason_is_known(experiments, monkeypatch, says, reason):
    ncu(monkeypatch, **says)
    assert reason in experiments.counted(["python"], "tiles_in_order", ["first", "second"])


def test_launches_that_are_missing_are_not_taken_for_others(experiments, monkeypatch):
    ncu(monkeypatch, COUNTED)
    found = experiments.counted(["python"], "tiles_in_order", ["first", "second", "third"])
    assert isinstance(found, str)


def test_without_ncu_the_bytes_are_simulated_and_it_is_said(experiments, monkeypatch, capsys):
    monkeypatch.setattr(experiments, "counted", lambda *_: "there is no ncu")
    found = experiments.moved_bytes(1024)
    assert list(found) == list(experiments.ORDERS)
    assert {x.source for x in found.values()} == {"simulated for H200"}
    # All of it fits into the cache: A and B are read once.
    assert {(x.read, x.written) for x in found.values()} == {(2.0 * 2 * 1024**2, 2.0 * 1024**2)}
    assert "simulated: there is no ncu" in capsys.readouterr().out


def test_groups_of_rows_should_read_less_than_row_after_row(experiments):
    def simulated(name):
        constants = {"persistent": True, "order": experiments.ORDERS[name]}
        card = "NVIDIA H100 80GB HBM3"
        return experiments.simulated(experiments.tiles_in_order, 8192, card, **constants)

    rows, grouped = map(simulated, ("row after row", "groups of 16 rows"))
    assert grouped.read < 0.8 * rows.read
    assert rows.source == "simulated for H100 SXM"


# -- writing ---------------------------------------------------------------------------------------


def invented(kind, name, at, tflops, **more):
    found = {"experiment": kind, "name": name, "at": at, "tflops": tflops, "ratio": tflops / 800}
    return {**found, "rounds": [1.0], **more}


def every(experiments):
    rows = [invented("stages", f"{s}", n, 100.0 * s) for n in (96, 128) for s in (1, 2)]
    rows += [invented("persistent", name, k, 50.0) for name in ("persistent",) for k in (64, 128)]
    moved = {"read": 3e10, "written": 1e9, "source": "counted by ncu"}
    rows.append(invented("orders", "row after row", 16384, 400.0, **moved))
    rows.append(invented("orders", "cuBLAS", 16384, 800.0))
    return rows


def test_the_tables_have_a_line_a_way_and_dashes_for_what_is_not_known(experiments):
    rows = every(experiments)
    del rows[3]
    stages, persistent, orders = experiments.table(rows).split("\n\n")
    assert stages.splitlines() == [
        "| stages | TFLOP/s, m = n = k = 96 | TFLOP/s, m = n = k = 128 |",
        "|---|---|---|",
        "| 1 | 100, 0.12 | 100, 0.12 |",
        "| 2 | 200, 0.25 | - |",
    ]
    assert persistent.splitlines()[2] == "| persistent | 50, 0.06 | 50, 0.06 |"
    seconds = 2 * 16384**3 / 400e12
    assert orders.splitlines()[2:] == [
        f"| row after row | 400, 0.50 | 30.0 | 1.0 | {31 / seconds:.0f} | counted by ncu |",
        "| cuBLAS | 800, 1.00 | - | - | - | - |",
    ]


def test_a_run_writes_after_each_experiment(experiments, monkeypatch, tmp_path, capsys):
    drawn = []

    def fails(bench):
        raise RuntimeError("the card has gone")

    known = {"stages": lambda bench: every(experiments)[:4], "persistent": fails}
    monkeypatch.setattr(experiments, "EXPERIMENTS", known)
    monkeypatch.setattr(experiments, "about", lambda: ABOUT)
    monkeypatch.setattr(experiments, "plot", drawn.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for only, error in (("stages", None), ("stages,persistent", RuntimeError), ("x", SystemExit)):
        monkeypatch.setattr("sys.argv", ["experiments.py", "--only", only, "--out", str(tmp_path)])
        if error is None:
            experiments.main()
        else:
            with pytest.raises(error):
                experiments.main()
    path = tmp_path / "a-card-2026-01-31-experiments.json"
    assert drawn == [path]
    assert len(json.loads(path.read_text("utf-8"))["rows"]) == 4
    assert "| 1 | 100, 0.12 | 100, 0.12 |" in path.with_suffix(".md").read_text("utf-8")
    assert "| 1 | 100, 0.12 |" in capsys.readouterr().out


def test_without_a_gpu_it_measures_nothing(experiments, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["experiments.py"])
    with pytest.raises(SystemExit, match="no CUDA device"):
        experiments.main()


def test_the_picture_has_a_panel_an_experiment(experiments, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"about": ABOUT, "rows": every(experiments)}), encoding="utf-8")
    text = experiments.plot(path).read_text("utf-8")
    assert all(f"<!-- {x} -->" in text for x in ("stages in flight", "row after row", "k"))
