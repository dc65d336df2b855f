"""Products are tuned once, a wrong candidate is never chosen, and calls that do not tune use the result, too.

Tensors say they were on a GPU, whose driver is a stand-in with a clock; checks run in the emulator.
"""

from __future__ import annotations

import ctypes
import shutil
from collections import Counter

import pytest

import pykittens as pk
from pykittens.errors import BackendError, KernelError
from pykittens.kernels import library
from pykittens.kernels.gemm import gemm, tune
from pykittens.kernels.gemm.choose import candidates
from pykittens.kernels.gemm.config import Config, GemmShape
from pykittens.kernels.gemm.trial import GemmTrial
from pykittens.kernels.gemm.tune import MOST, contenders, found_before, key_of
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan, Prepared
from pykittens.runtime import nvrtc, tuning_records
from tests.kernels.test_gemm_check import bf16, biased, call, counted_in_tiles, e4m3
from tests.runtime.c_programs import Log, fake_driver, fake_library

torch = pytest.importorskip("torch")

needs_fake = pytest.mark.skipif(
    shutil.which("gcc") is None or nvrtc.available() is not None, reason="needs gcc and NVRTC"
)
M, N, K = 130, 144, 200
TILE = {"stages": 3, "consumers": 1, "out_cols": 48}
FIRST, SECOND = Config(64, 48, **TILE), Config(64, 96, **TILE)
SPLITS = Config(64, 144, splits=3, **TILE)
CONFIGS = (FIRST, SECOND, SPLITS)


def config_of(plan):
    """The configuration in which a product is launched."""
    return next(s.constants["config"] for s in plan.steps if "config" in s.constants)


class Gpu:
    """A GPU on which configurations take the milliseconds of a table.

    used: the configurations of calls, in their order. measured: how often each was launched to be measured.
    """

    def __init__(self, monkeypatch, fake):
        self.times = {FIRST: 3.0, SECOND: 2.0, SPLITS: 1.0}
        self.is_on = True
        self.used, self.measured, self.compiled = [], Counter(), Counter()
        self._pass = ctypes.CDLL(str(fake)).fake_pass
        self._pass.argtypes, self._pass.restype = (ctypes.c_double,), None
        self._watch(monkeypatch)
        device, get_device = torch.Tensor.device, torch.Tensor.get_device
        cuda = torch.device("cuda", 0)
        on = property(lambda x: cuda if self.is_on else device.__get__(x))
        monkeypatch.setattr(torch.Tensor, "device", on)
        monkeypatch.setattr(
            torch.Tensor, "get_device", lambda x: 0 if self.is_on else get_device(x)
        )
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda i: 7, raising=False)
        # Another GPU is the current one, so results come from the tensors of the call.
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1, raising=False)

    def _watch(self, monkeypatch):
        launch_of, compile_plan, fault = tune.launch_of, Plan.compile, GemmTrial.fault
        used = self.used

        def timed(made, config):
            launch = launch_of(made, config)

            def run():
                launch()
                self.measured[config] += 1
                self._pass(self.times[config])

            return run

        def compiled(plan, arch):
            self.compiled[config_of(plan), arch] += 1
            compile_plan(plan, arch)

        class Watched(Prepared):
            def __init__(self, plan, *rest):
                super().__init__(plan, *rest)
                self.config = config_of(plan)

            def launch(self, *given):
                used.append(self.config)
                return super().launch(*given)

        def emulated(trial, config):
            self.is_on = False
            try:
                return fault(trial, config)
            finally:
                self.is_on = True

        monkeypatch.setattr(tune, "launch_of", timed)
        monkeypatch.setattr(Plan, "compile", compiled)
        monkeypatch.setattr(library, "Prepared", Watched)
        monkeypatch.setattr(GemmTrial, "fault", emulated)

    @staticmethod
    def forget():
        """Forget all but the files on disk, as a new process does."""
        tuning_records._found.clear()
        gemm.forget()


@pytest.fixture(scope="session")
def fake(tmp_path_factory):
    return fake_library(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """Results of tuning are kept here; compiled kernels stay in their folder."""
    monkeypatch.setattr(tuning_records, "folder", lambda: tmp_path / "tuning")
    monkeypatch.setattr(tuning_records, "_found", {})
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    gemm.forget()
    yield tmp_path / "tuning"
    gemm.forget()


@pytest.fixture
def gpu(fake, memory, monkeypatch):
    monkeypatch.setattr(tune, "candidates", lambda shape, limits: CONFIGS)
    contenders.cache_clear()
    with fake_driver(monkeypatch, fake):
        yield Gpu(monkeypatch, fake)
    contenders.cache_clear()


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_LOG", str(tmp_path / "log"))
    return Log(tmp_path / "log")


# -- measuring -------------------------------------------------------------------------------------


@needs_fake
def test_the_fastest_is_used_from_then_on_with_and_without_tune(gpu):
    a, b = bf16(M, K), bf16(N, K)
    gemm(a, b)
    assert gpu.used[0] not in CONFIGS  # picked, not measured
    gemm(a, b, tune=True)
    gemm(a, b)
    gpu.forget()
    gpu.measured.clear()
    gemm(bf16(M, K), bf16(N, K))
    gemm(a, b, tune=True)
    assert gpu.used[1:] == [SPLITS] * 4
    assert not gpu.measured
    gemm(bf16(M, K), bf16(N + 16, K))  # another problem
    assert gpu.used[-1] not in CONFIGS


@needs_fake
def test_a_configuration_that_is_passed_is_taken_whatever_was_found(gpu):
    a, b = bf16(M, K), bf16(N, K)
    gemm(a, b, tune=True)
    gemm(a, b, config=FIRST)
    gemm(a, b, config=FIRST, tune=True)
    assert gpu.used == [SPLITS, FIRST, FIRST]


@needs_fake
def test_every_candidate_is_compiled_and_measured_as_a_kernel_alone(gpu, log):
    gemm(bf16(M, K), bf16(N, K), tune=True)
    assert gpu.compiled == Counter({(config, "sm_90a"): 1 for config in CONFIGS})
    # The last is the call itself; a launch of the check would be one of the emulator.
    assert len(log.take("launch")) == sum(gpu.measured.values()) + 1


@needs_fake
def test_sums_are_measured_with_the_product(gpu, log):
    gemm(bf16(M, K), bf16(N, K), row_sums=True, column_sums=True, tune=True)
    assert len(log.take("launch")) == 3 * (sum(gpu.measured.values()) + 1)


@needs_fake
@pytest.mark.parametrize("wrong", [0.0, float("nan")])
def test_a_candidate_with_a_wrong_result_is_never_returned(gpu, monkeypatch, wrong):
    run_with = Plan.run_with

    def damaged(self, memory):
        whole = run_with(self, memory)
        if config_of(self) == SPLITS:
            whole[64:, 96:] = wrong
        return whole

    monkeypatch.setattr(Plan, "run_with", damaged)
    with pytest.warns(RuntimeWarning, match="computes something wrong and is not used"):
        gemm(bf16(M, K), bf16(N, K), tune=True)
    (record,) = tuning_records.records()
    assert gpu.used == [SECOND]
    assert record.best == repr(SECOND)
    checked = {o.candidate: o.checked for o in record.outcomes}
    assert checked == {repr(SPLITS): False, repr(SECOND): True, repr(FIRST): True}
    gpu.measured.clear()
    gemm(bf16(M, 2 * K), bf16(N, 2 * K), tune=True)
    assert SPLITS not in gpu.measured
    assert gpu.used == [SECOND, SECOND]


@needs_fake
def test_where_all_are_wrong_the_call_ends_with_what_is_wrong(gpu, monkeypatch):
    run_with = Plan.run_with
    monkeypatch.setattr(Plan, "run_with", lambda self, memory: run_with(self, memory).zero_())
    with (
        pytest.warns(RuntimeWarning, match="computes something wrong"),
        pytest.raises(KernelError, match="none of 3 configurations can be used"),
    ):
        gemm(bf16(M, K), bf16(N, K), tune=True)
    assert gpu.used == []


@needs_fake
def test_a_function_of_the_users_that_depends_on_tiles_leaves_one_and_blames_none(gpu):
    gemm(bf16(M, K), bf16(N, K), epilogue=counted_in_tiles, tune=True)
    gpu.times[SPLITS] = 9.0
    gemm(bf16(M, K), bf16(N, K), tune=True)
    assert gpu.used == [SPLITS, SECOND]


@needs_fake
def test_the_callers_arrays_stay_what_they_are_while_others_are_measured(gpu):
    given = bf16(M, K), bf16(N, K), bf16(M, N), torch.randn(N)
    before = [x.clone() for x in given]
    *arrays, bias = given
    gemm(*arrays, beta=0.5, epilogue=biased, operands=(bias,), tune=True)
    assert gpu.used == [SPLITS]
    gpu.is_on = False
    assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True))


@needs_fake
def test_nothing_is_measured_while_a_graph_is_captured(gpu, monkeypatch):
    a, b = bf16(M, K), bf16(N, K)
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    with pytest.raises(BackendError, match="gemm would be tuned while a CUDA graph is captured"):
        gemm(a, b, tune=True)
    assert not gpu.measured
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "0")
    gemm(a, b, tune=True)
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    gpu.forget()
    assert found_before(call(a, b)) == SPLITS


# -- looking ---------------------------------------------------------------------------------------


@needs_fake
def test_where_nothing_was_ever_tuned_one_look_is_all(gpu, monkeypatch):
    monkeypatch.setattr(tune, "key_of", lambda made: pytest.fail("looked further"))
    gemm(bf16(M, K), bf16(N, K))
    assert len(gpu.used) == 1


def test_arrays_of_the_cpu_take_the_first_and_nothing_is_looked_up_or_kept(memory, monkeypatch):
    a, b = bf16(M, K), bf16(N, K)
    monkeypatch.setattr(tuning_records, "has_any", lambda kernel: pytest.fail("looked"))
    monkeypatch.setattr(tune, "launch_of", lambda *given: pytest.fail("measured"))
    made = call(a, b)
    assert tune.tuned(made) == candidates(made.shape, limits_of(a))[0]
    assert torch.equal(gemm(a, b, tune=True), gemm(a, b))
    assert not memory.exists()


def test_something_is_kept_for_a_kernel_where_its_folder_is_or_this_process_knows(memory):
    assert not tuning_records.has_any("gemm")
    tuning_records._found[memory / "other" / "x.json"] = ""
    (memory / "other").mkdir(parents=True)
    assert not tuning_records.has_any("gemm")
    tuning_records._found[memory / "gemm" / "x.json"] = ""
    assert tuning_records.has_any("gemm")
    tuning_records._found.clear()
    (memory / "gemm").mkdir()
    assert tuning_records.has_any("gemm")


# -- what a choice depends on ----------------------------------------------------------------------


def test_the_key_is_the_same_for_other_numbers_and_memory():
    key = key_of(call(bf16(M, K), bf16(N, K), alpha=2.0))
    assert key == key_of(call(bf16(M, K), bf16(N, K), alpha=3.0))
    assert key == key_of(call(bf16(M, K), bf16(N, K), bf16(M, N), alpha=3.0))
    assert key == key_of(call(bf16(M, K + 16)[:, 16:], bf16(N, K), bf16(N, M).T, alpha=3.0))
    other = key_of(call(bf16(M, K), bf16(K, N).T, alpha=3.0))
    assert key == other | {"transposed": [False, True], "b_by_rows": True, "b_step": 16}


DIFFERENT = {
    "plain": lambda: call(bf16(M, K), bf16(N, K)),
    "m": lambda: call(bf16(M + 1, K), bf16(N, K)),
    "n": lambda: call(bf16(M, K), bf16(N + 8, K)),
    "k": lambda: call(bf16(M, K + 8), bf16(N, K + 8)),
    "batch": lambda: call(bf16(2, M, K), bf16(2, N, K)),
    "batch of one b": lambda: call(bf16(2, M, K), bf16(N, K), row_sums=True),
    "sums of a batch": lambda: call(bf16(2, M, K), bf16(2, N, K), row_sums=True),
    "two axes of batches": lambda: call(bf16(1, 2, M, K), bf16(1, 2, N, K)),
    "f16": lambda: call(bf16(M, K).half(), bf16(N, K).half()),
    "sums in f16": lambda: call(bf16(M, K).half(), bf16(N, K).half(), accumulate=pk.f16),
    "fp8": lambda: call(e4m3(M, K), e4m3(N, K)),
    "two kinds of fp8": lambda: call(e4m3(M, K), e4m3(N, K).to(torch.float8_e5m2)),
    "out_dtype": lambda: call(bf16(M, K), bf16(N, K), out_dtype=pk.f32),
    "b": lambda: call(bf16(M, K), bf16(K, N), transpose_b=False),
    "a": lambda: call(bf16(K, M).T, bf16(N, K)),
    "both": lambda: call(bf16(K, M).T, bf16(K, N), transpose_b=False),
    "a that is not aligned": lambda: call(bf16(M, K + 1)[:, 1:], bf16(N, K)),
    "b that is not aligned": lambda: call(bf16(M, K), bf16(N, K + 1)[:, 1:]),
    "out that is not aligned": lambda: call(bf16(M, K), bf16(N, K), bf16(M, N + 1)[:, 1:]),
    "alpha": lambda: call(bf16(M, K), bf16(N, K), alpha=2.0),
    "alpha of an array": lambda: call(bf16(M, K), bf16(N, K), alpha=torch.tensor(2.0)),
    "beta": lambda: call(bf16(M, K), bf16(N, K), bf16(M, N), beta=0.5),
    "bias": lambda: call(bf16(M, K), bf16(N, K), bias=torch.randn(N)),
    "bias in bf16": lambda: call(bf16(M, K), bf16(N, K), bias=bf16(N)),
    "activation": lambda: call(bf16(M, K), bf16(N, K), activation="gelu"),
    "residual": lambda: call(bf16(M, K), bf16(N, K), residual=bf16(M, N)),
    "gate": lambda: call(bf16(M, K), bf16(N, K), gate=bf16(N, K)),
    "row_scale": lambda: call(e4m3(M, K), e4m3(N, K), row_scale=torch.rand(M)),
    "column_scale": lambda: call(e4m3(M, K), e4m3(N, K), column_scale=torch.rand(N)),
    "blocks": lambda: call(
        e4m3(M, K), e4m3(N, K), row_blocks=torch.rand(M, 2), column_blocks=torch.rand(2, 2)
    ),
    "row_sums": lambda: call(bf16(M, K), bf16(N, K), row_sums=True),
    "column_sums": lambda: call(bf16(M, K), bf16(N, K), column_sums=True),
    "epilogue": lambda: call(bf16(M, K), bf16(N, K), epilogue=counted_in_tiles),
    "operands": lambda: call(bf16(M, K), bf16(N, K), epilogue=biased, operands=(torch.randn(N),)),
}


def test_the_key_is_another_for_all_that_matters():
    keys = {name: key_of(make()) for name, make in DIFFERENT.items()}
    for name, key in keys.items():
        assert [other for other, found in keys.items() if found == key] == [name]
        assert tuning_records._plain("gemm", key) == tuning_records._plain(
            "gemm", key_of(DIFFERENT[name]())
        )


# -- candidates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [GemmShape(4096, 4096, 4096), GemmShape(1, 8192, 8192), GemmShape(64, 4096, 16384, gated=True)],
)
def test_few_are_measured_the_best_of_each_kind_among_them(shape):
    limits = limits_of(None)
    every, chosen = candidates(shape, limits), contenders(shape, limits)
    assert len(chosen) == len(set(chosen)) <= MOST
    assert chosen[0] == every[0]
    assert list(chosen) == [c for c in every if c in chosen]
    assert {(c.swap, c.splits > 1) for c in chosen} == {(c.swap, c.splits > 1) for c in every}
    assert set(every[: MOST // 2]) <= set(chosen)
