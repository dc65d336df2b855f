"""Products tuned on a GPU: all that is measured is right, and what is found is used."""

import itertools
import time

import pytest

import pykittens as pk
from pykittens.kernels import library
from pykittens.kernels.gemm import gemm, tune
from pykittens.kernels.gemm.trial import GemmTrial, spare_call
from pykittens.kernels.gemm.tune import contenders, found_before, launch_of
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan, Prepared
from pykittens.runtime import tuning_records
from tests.kernels.test_gemm_check import biased, call

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """Compiled kernels stay where they are; what tuning found is kept here."""
    monkeypatch.setattr(tuning_records, "folder", lambda: tmp_path)
    monkeypatch.setattr(tuning_records, "_found", {})
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    gemm.forget()
    yield
    gemm.forget()


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def positive(*shape):
    return torch.rand(*shape, device="cuda") + 0.5


E4M3 = torch.float8_e4m3fn
CALLS_TO_TUNE = {
    "square": lambda: call(normal(2048, 2048), normal(2048, 2048)),
    "uneven": lambda: call(normal(1111, 3333), normal(3333, 2222), transpose_b=False),
    "transposed": lambda: call(normal(1024, 2000).T, normal(1500, 1024)),
    "one row": lambda: call(normal(1, 4096), normal(4096, 4096)),
    "long": lambda: call(normal(128, 16384), normal(256, 16384)),
    "f16": lambda: call(
        normal(1000, 4096, dtype=torch.half),
        normal(1000, 4096, dtype=torch.half),
        accumulate=pk.f16,
    ),
    "fp8": lambda: call(
        normal(1024, 16384, dtype=E4M3),
        normal(1024, 16384, dtype=E4M3),
        row_scale=positive(1024),
        column_scale=positive(1024),
    ),
    "blocks": lambda: call(
        normal(512, 2048, dtype=E4M3),
        normal(1024, 2048, dtype=E4M3),
        row_blocks=positive(512, 16),
        column_blocks=positive(8, 16),
    ),
    "gated": lambda: call(
        normal(700, 1024),
        normal(2048, 1024),
        gate=normal(2048, 1024),
        activation="silu",
        bias=normal(2048),
        residual=normal(700, 2048),
    ),
    "beta": lambda: call(normal(500, 640), normal(320, 640), normal(500, 327)[:, 7:], beta=0.5),
    "batch": lambda: call(
        normal(6, 300, 512), normal(6, 400, 512), row_sums=True, column_sums=True
    ),
    "function": lambda: call(
        normal(512, 1024), normal(768, 1024), epilogue=biased, operands=(normal(768),)
    ),
}


@pytest.mark.parametrize("name", CALLS_TO_TUNE)
def test_every_configuration_that_is_measured_is_right(name):
    made = CALLS_TO_TUNE[name]()
    trial = GemmTrial(made)
    faults = {c: trial.fault(c) for c in contenders(made.shape, limits_of(made.arrays.like))}
    assert {c: fault for c, fault in faults.items() if fault is not None} == {}


def test_a_large_product_is_compared_in_some_rows():
    made = call(normal(16384, 8192), normal(16384, 8192))
    trial = GemmTrial(made)
    assert trial.rows is not None
    assert trial.fault(contenders(made.shape, limits_of(made.arrays.like))[0]) is None


@pytest.mark.parametrize("name", ["square", "fp8", "beta"])
def test_a_result_with_a_wrong_block_is_refused(name, monkeypatch):
    run_with = Plan.run_with

    def damaged(self, memory):
        whole = run_with(self, memory)
        whole[64:72, 128:136] = 0.0
        return whole

    monkeypatch.setattr(Plan, "run_with", damaged)
    made = CALLS_TO_TUNE[name]()
    fault = GemmTrial(made).fault(contenders(made.shape, limits_of(made.arrays.like))[0])
    assert "compared elements are wrong" in fault


@pytest.mark.parametrize("name", CALLS_TO_TUNE)
def test_the_choice_is_kept_and_is_among_the_fastest(name, memory):
    made = CALLS_TO_TUNE[name]()
    begin = time.monotonic()
    chosen = tune.tuned(made)
    assert time.monotonic() - begin < 120  # most of it the compiler's
    assert found_before(made) == chosen
    tuning_records._found.clear()
    assert found_before(made) == chosen
    (record,) = tuning_records.records()
    times = [o.milliseconds for o in record.outcomes if o.fault is None and o.milliseconds]
    best = next(o for o in record.outcomes if o.candidate == record.best)
    assert best.checked
    assert best.milliseconds < 1.2 * min(times)


def test_calls_with_and_without_tune_use_what_was_found(memory, monkeypatch):
    a, b = normal(1000, 2048), normal(3000, 2048)
    used = []

    def watched(plan, *given):
        used.append(plan.steps[0].constants["config"])
        return Prepared(plan, *given)

    monkeypatch.setattr(library, "Prepared", watched)
    first = gemm(a, b)
    second = gemm(a, b, tune=True)
    third = gemm(a, b)
    (record,) = tuning_records.records()
    assert [repr(c) for c in used[1:]] == [record.best] * 2
    exact = a.double() @ b.double().T
    for found in (first, second, third):
        assert float((found.double() - exact).abs().max()) < 0.01 * float(exact.abs().max())


def test_a_launch_that_is_measured_takes_little_time_on_the_host():
    made = spare_call(call(normal(64, 64), normal(64, 64), row_sums=True))
    launch = launch_of(made, contenders(made.shape, limits_of(made.arrays.like))[0])
    for _ in range(50):
        launch()
    torch.cuda.synchronize()
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        launch()
        times.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    assert sorted(times)[100] < 40e-6


def test_measuring_does_not_change_the_callers_arrays_and_random_numbers(memory):
    a, b, out, bias = normal(256, 512), normal(384, 512), normal(256, 384), normal(384)
    before = [x.clone() for x in (a, b, out, bias)]
    state = torch.cuda.get_rng_state()
    tune.tuned(call(a, b, out, beta=0.5, epilogue=biased, operands=(bias,)))
    assert torch.equal(torch.cuda.get_rng_state(), state)
    pairs = itertools.zip_longest((a, b, out, bias), before)
    assert all(torch.equal(x, y) for x, y in pairs)
