"""The check of a configuration passes right results and names faults, on random data of the call's form."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import KernelError
from pykittens.kernels.gemm import gemm_tiles
from pykittens.kernels.gemm import trial as check
from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.trial import GemmTrial, slack
from pykittens.kernels.plan import Plan
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.verify import deviation, sample

torch = pytest.importorskip("torch")

M, N, K = 130, 144, 200
ROWS = Config(64, 48, stages=3, consumers=1, out_cols=48)
SPLITS = Config(128, 48, stages=3, consumers=2, out_cols=48, splits=2)
CONFIGS = (ROWS, SPLITS)


def call(a, b, out=None, kernel=gemm_tiles, transpose_b=True, **further):
    """The call of `gemm` with these arguments."""
    return GemmCall.of(kernel, a, b, out, transpose_b=transpose_b, **further)


def bf16(*shape):
    return torch.randn(*shape).bfloat16()


def e4m3(*shape):
    return torch.randn(*shape).to(torch.float8_e4m3fn)


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)


@pk.function
def biased(x, at, bias):
    return x + at.per_column(bias)


@pk.function
def counted_in_tiles(x, at):
    """A function whose result depends on the tiles, which is not allowed."""
    return x * (1.0 + at.cols / 1024)


@pk.function
def sign(x, at):
    """A function with a step: rounding may move a sum across it."""
    return pk.where(x > 0.0, x + 1.0, x - 1.0)


CALLS = {
    "plain": lambda: call(bf16(M, K), bf16(N, K)),
    "numpy": lambda: call(numbers(M, K), numbers(N, K)),
    "upside down": lambda: call(numbers(M, K)[::-1], numbers(N, K)),
    "transposed": lambda: call(bf16(K, M).T, bf16(K, N), transpose_b=False),
    "sums in f16": lambda: call(bf16(M, K).half(), bf16(N, K).half(), accumulate=pk.f16),
    "fp8": lambda: call(e4m3(M, K), e4m3(N, K), row_scale=torch.rand(M), alpha=torch.tensor(3.0)),
    "fp8 to fp8": lambda: call(e4m3(M, K), e4m3(N, K), out_dtype=pk.e4m3),
    "blocks": lambda: call(
        e4m3(M, K), e4m3(N, K), row_blocks=torch.rand(M, 2), column_blocks=torch.rand(2, 2)
    ),
    "beta": lambda: call(bf16(M, K), bf16(N, K), bf16(M, N), beta=0.5, alpha=0.01),
    "beta in columns": lambda: call(bf16(M, K), bf16(N, K), bf16(N, M).T, beta=0.5),
    "a view": lambda: call(bf16(M, K), bf16(N, K), bf16(M, N + 9)[:, 3 : N + 3]),
    "gated": lambda: call(
        bf16(M, K),
        bf16(N, K),
        gate=bf16(N, K),
        activation="silu",
        bias=torch.randn(N),
        residual=bf16(M, N),
    ),
    "sums": lambda: call(bf16(M, K), bf16(N, K), row_sums=True, column_sums=True),
    "batch": lambda: call(bf16(2, 70, K), bf16(2, N, K), row_sums=True),
    "one b": lambda: call(bf16(2, 3, 20, K), bf16(N, K)),
    "one a": lambda: call(bf16(70, K).expand(2, 70, K), bf16(2, N, K)),
    "nothing": lambda: call(bf16(M, 0), bf16(N, 0)),
    "no rows": lambda: call(bf16(0, K), bf16(N, K)),
    "function": lambda: call(bf16(M, K), bf16(N, K), epilogue=biased, operands=(torch.randn(N),)),
    "a step": lambda: call(bf16(M, K), bf16(N, K), epilogue=sign),
}


def for_scales(config: Config, made: GemmCall) -> Config:
    """The configuration with tiles that scales of blocks allow."""
    return config if not made.shape.blocks else Config(64, 32, consumers=1, out_cols=32, stages=3)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_right_passes(name):
    made = CALLS[name]()
    trial = GemmTrial(made)
    assert [trial.fault(for_scales(c, made)) for c in CONFIGS] == [None, None]


def test_the_callers_arrays_are_not_touched():
    given = [bf16(M, K), bf16(N, K), bf16(M, N), torch.randn(N)]
    before = [x.clone() for x in given]
    made = call(*given[:3], beta=0.5, epilogue=biased, operands=(given[3],))
    assert GemmTrial(made).fault(ROWS) is None
    assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True))


# -- what is wrong ---------------------------------------------------------------------------------


class Damaging(KernelFunction):
    """The kernel of products, whose result is damaged after each launch."""

    def __init__(self, damage):
        super().__init__(gemm_tiles.function, gemm_tiles.options)
        self.damage = damage

    def __call__(self, *args, **constants):
        super().__call__(*args, **constants)
        self.damage(args)


def fault_with(damage, **options):
    kernel = Damaging(lambda args: damage(args[2]))
    return GemmTrial(call(bf16(M, K), bf16(N, K), kernel=kernel, **options)).fault(ROWS)


def zeroed(out):
    out[64:72, 8:16] = 0.0


def a_step_too_few(out):
    """As if eight of the numbers along k had been left out in a few elements."""
    out[100:108, 120:128] *= 0.95


def one_too_large(out):
    out[M - 1, N - 1] += 1.0


def left_out(out):
    out[128:, 96:] = torch.nan


def exchanged(out):
    out[0:8], out[8:16] = out[8:16].clone(), out[0:8].clone()


@pytest.mark.parametrize("damage", [zeroed, a_step_too_few, one_too_large, exchanged])
def test_elements_that_are_wrong_are_reported(damage):
    fault = fault_with(damage)
    assert "compared elements are wrong" in fault


def test_a_fault_says_where_and_what():
    fault = fault_with(one_too_large)
    assert fault.startswith(
        f"1 of {M * N} compared elements are wrong; that at ({M - 1}, {N - 1}) is "
    )


def test_elements_that_are_not_written_are_reported():
    assert fault_with(left_out) == f"{2 * 48} of {M * N} elements are NaN"


def test_writing_beside_the_result_is_reported():
    def damage(out):
        # The memory of the result extends past its last row.
        torch.as_strided(out, (1,), (1,), out.storage_offset() + out.numel())[0] = 0.0

    assert fault_with(damage) == "something is written beside the result"


def test_a_term_of_the_epilogue_that_is_left_out_is_reported():
    for name in ("bias", "residual"):
        with_it = call(
            bf16(M, 4096),
            bf16(N, 4096),
            **{name: torch.randn(*((N,) if name == "bias" else (M, N)))},
        )
        trial = GemmTrial(with_it)
        exact, given = trial.exact, trial.call.given
        less = exact - given[name].double()
        assert deviation(less, exact, pk.bf16, slack(with_it), None) is not None


def test_sums_that_are_wrong_are_reported(monkeypatch):
    run_with = Plan.run_with

    def damaged(self, memory):
        whole, rows, columns = run_with(self, memory)
        columns[7] *= 1.5
        return whole, rows, columns

    monkeypatch.setattr(Plan, "run_with", damaged)
    assert GemmTrial(CALLS["sums"]()).fault(ROWS) == f"1 of {N} column_sums are wrong"


def test_states_that_stay_set_are_reported(monkeypatch):
    run_with = Plan.run_with

    def forgetful(self, memory):
        whole = run_with(self, memory)
        memory["flags"][0] = 1
        return whole

    monkeypatch.setattr(Plan, "run_with", forgetful)
    fault = GemmTrial(CALLS["plain"]()).fault(SPLITS)
    assert fault == "states of split tiles are not 0 after the launch"


def test_a_function_that_depends_on_the_tiles_is_reported_and_not_held_against_the_configuration():
    trial = GemmTrial(call(bf16(M, K), bf16(N, K), epilogue=counted_in_tiles))
    assert trial.fault(ROWS) is None
    with pytest.raises(KernelError, match="with `epilogue` its results are not those of Config"):
        trial.fault(Config(64, 144, stages=3, consumers=1, out_cols=144))
    assert trial.fault(ROWS) is None


# -- large products --------------------------------------------------------------------------------


def test_some_rows_of_a_large_product_are_compared(monkeypatch):
    monkeypatch.setattr(check, "MOST_RESULTS", 1000)
    made = call(
        bf16(2, 700, K), bf16(2, N, K), bf16(2, 700, N), beta=0.5, row_scale=torch.rand(2, 700)
    )
    trial = GemmTrial(made)
    assert trial.fault(ROWS) is None
    assert tuple(trial.exact.shape) == (2, len(trial.rows), N)
    assert len(trial.rows) < 40


def test_rows_that_are_not_compared_are_looked_at_for_nan(monkeypatch):
    monkeypatch.setattr(check, "MOST_PRODUCTS", 1000)
    row = next(i for i in range(M) if i not in sample(M))

    def damage(out):
        out[row, 5] = torch.nan

    assert fault_with(damage) == f"1 of {M * N} elements are NaN"
