"""Tuning on a GPU: the faster way to share out the work is found, checked, and found again."""

from dataclasses import dataclass

import pytest

import pykittens as pk
from pykittens.runtime import driver, tuning_records
from pykittens.runtime.launch import current_stream
from pykittens.runtime.timing import Timer
from pykittens.runtime.tune import remembered, tune

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

DEVICE = ("cuda", 0)
KEY = {"rows": 256, "cols": 65536, "dtype": "f32"}


@dataclass(frozen=True)
class Shares:
    """Blocks that share a row of tiles, and what the numbers are multiplied by: 2 is right."""

    parts: int
    factor: float = 2.0


@pk.kernel
def doubled(x, y, *, config):
    """y = x * 2, some tiles of a row of tiles a block."""
    pk.require(y.cols % config.parts == 0, "the parts must divide the columns")
    row, part = pk.grid(pk.cdiv(y.rows, 64), config.parts)
    steps = pk.cdiv(pk.cdiv(y.cols, 64), config.parts)
    for i in pk.range(steps):
        t = pk.load(x[row, part * steps + i], rows=64, cols=64)
        pk.store(y[row, part * steps + i], t * config.factor)


ONE_BLOCK, MANY, WRONG, REFUSED = Shares(1), Shares(256), Shares(512, 3.0), Shares(7)


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    monkeypatch.setattr(tuning_records, "_found", {})


def tuned_shares(candidates, launches, **options):
    x, y = torch.randn(256, 65536, device="cuda"), torch.empty(256, 65536, device="cuda")

    def run(config):
        launches.append(config)
        doubled(x, y, config=config)

    def check(config):
        fresh, out = torch.randn_like(x), torch.full_like(y, torch.nan)
        doubled(fresh, out, config=config)
        wrong = int((out != fresh * 2).sum())
        return f"{wrong} of {out.numel()} elements are wrong" if wrong else None

    return tune("doubled", KEY, candidates, run, check, device=DEVICE, kernels=[doubled], **options)


def test_the_faster_of_two_is_found_and_remembered(memory):
    launches, candidates = [], (ONE_BLOCK, MANY)
    arch = driver.device(0).arch
    x = torch.empty(64, 64)
    steps = []
    chosen = tuned_shares(
        candidates,
        launches,
        compile=lambda config: doubled.compile(x, x, config=config, arch=arch),
        progress=steps.append,
    )
    assert chosen == MANY
    assert set(launches) == set(candidates)
    assert steps[-1].stage == "done"
    (record,) = tuning_records.records()
    times = {o.candidate: o.milliseconds for o in record.outcomes}
    # 128 MB go through four multiprocessors in one case and through all in the other.
    assert times[repr(ONE_BLOCK)] > 3 * times[repr(MANY)]
    assert record.seconds < 60
    launches.clear()
    tuning_records._found.clear()
    assert tuned_shares(candidates, launches) == MANY
    assert remembered("doubled", KEY, candidates, DEVICE, [doubled]) == MANY
    assert launches == []


def test_the_wrong_and_the_refused_are_not_chosen(memory):
    launches = []
    with pytest.warns(RuntimeWarning, match=r"factor=3.0\) computes something wrong"):
        chosen = tuned_shares((WRONG, REFUSED, ONE_BLOCK, MANY), launches)
    assert chosen == MANY
    (record,) = tuning_records.records()
    faults = {o.candidate: o.fault for o in record.outcomes}
    assert "elements are wrong" in faults[repr(WRONG)]
    assert "the parts must divide the columns" in faults[repr(REFUSED)]
    assert faults[repr(ONE_BLOCK)] is None


def test_nothing_is_measured_while_a_graph_is_captured(memory):
    x = torch.empty(64, device="cuda")

    def refuse(config):
        pytest.fail("launched")

    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.zero_()  # a graph of nothing is a warning
        with pytest.raises(pk.KernelError, match="captured"):
            tune(
                "doubled", KEY, (ONE_BLOCK, MANY), refuse, refuse, device=DEVICE, kernels=[doubled]
            )


def test_times_are_those_of_another_clock():
    x, y = torch.randn(8192, 8192, device="cuda"), torch.empty(8192, 8192, device="cuda")
    y.copy_(x)
    gpu = driver.device(0)
    with gpu.current(), Timer(gpu, current_stream(0)) as timer:
        ours = sorted(timer.times(lambda: y.copy_(x), 9))[4]
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(10):
        y.copy_(x)
    end.record()
    end.synchronize()
    theirs = start.elapsed_time(end) / 10
    assert theirs / 2 < ours < theirs * 2


def test_a_short_launch_is_timed_without_the_hosts_share():
    x = torch.zeros(1, device="cuda")
    gpu = driver.device(0)
    with gpu.current(), Timer(gpu, current_stream(0)) as timer:
        timer.times(lambda: x.add_(1), 5)
        times = sorted(timer.times(lambda: x.add_(1), 15))
    assert 0 < times[7] < 0.02  # one thread's addition, in milliseconds
