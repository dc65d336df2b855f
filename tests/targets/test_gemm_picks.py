"""What is picked for products of every size compiles without a spill, local memory or a serialised product."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from pykittens.kernels.gemm import gemm_tiles, gemm_vectors
from pykittens.kernels.gemm.choose import by_vectors, pick
from pykittens.kernels.limits import Limits
from pykittens.runtime import nvrtc
from pykittens.targets.architectures import TARGETS
from tests.gemm_problems import BLOCK_SCALES, Layout, Problem, arguments_of
from tests.targets.units import PER_UNIT, faults

pytestmark = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))

HOPPER = Limits("sm_90a", TARGETS["sm_90a"].shared_bytes, warpgroups=True)
ROWS = [2**i for i in range(15)]
ROWS += [3, 5, 7, 17, 24, 33, 48, 65, 80, 100, 129, 200, 300, 333, 777, 1111, 3000, 5000, 12345]
COLUMNS = (1, 100, 128, 512, 1000, 2048, 4096, 11008, 16384)
DEPTHS = (16, 128, 1000, 4096, 16384)

PLAIN = Problem(256, 256, 256)
FP8 = replace(PLAIN, dtypes=("e4m3", "e4m3"))
SCALES = {"row_scale": "f32", "column_scale": "f32"}
EVERY = SCALES | {"bias": "bf16", "residual": "bf16"}
GATE = {"gate": "bf16"}
ODD = Layout(lines="odd")
VARIANTS = {
    "bf16": PLAIN,
    "f16": replace(PLAIN, dtypes=("f16", "f16")),
    "f16-sums": replace(PLAIN, dtypes=("f16", "f16"), accumulate="f16"),
    "f32-out": replace(PLAIN, out_dtype="f32"),
    "AB": replace(PLAIN, transpose_b=False),
    "AtB": replace(PLAIN, transpose_b=False, layouts={"a": Layout(columns=True)}),
    "unaligned": replace(PLAIN, out=True, layouts=dict.fromkeys(("a", "b", "out"), ODD)),
    "batch": replace(PLAIN, m=64, leads=((2, 2), (2, 2))),
    "fp8": FP8,
    "fp8-mixed": replace(FP8, dtypes=("e4m3", "e5m2")),
    "fp8-AB": replace(FP8, transpose_b=False),
    "fp8-scales": replace(FP8, extras=SCALES),
    "fp8-out": replace(FP8, extras=SCALES, out_dtype="e4m3"),
    "blocks": replace(FP8, extras=BLOCK_SCALES),  # those of a row of B are no multiple of 16 bytes
    "blocks-in-stages": replace(FP8, k=512, extras=BLOCK_SCALES),
    "bias": replace(PLAIN, extras={"bias": "bf16"}),
    "bias-relu": replace(PLAIN, extras={"bias": "bf16"}, activation="relu"),
    "bias-gelu": replace(PLAIN, extras={"bias": "bf16"}, activation="gelu"),
    "silu": replace(PLAIN, activation="silu"),
    "residual": replace(PLAIN, extras={"residual": "bf16"}),
    "beta": replace(PLAIN, out=True, numbers={"beta": 1.0}),
    "beta-f32": replace(PLAIN, out=True, numbers={"beta": 1.0}, out_dtype="f32"),
    "alpha-array": replace(PLAIN, numbers={"alpha": 2.0}, arrays=("alpha",)),
    "every": replace(
        PLAIN, out=True, numbers={"alpha": 2.0, "beta": 1.0}, extras=EVERY, activation="gelu"
    ),
    "row-sums": replace(PLAIN, row_sums=True),
    "column-sums": replace(PLAIN, column_sums=True),
    "function": replace(
        PLAIN, function="shifted", extras=dict.fromkeys(("row", "column", "tile"), "bf16")
    ),
    "gate": replace(PLAIN, extras=GATE, activation="silu"),
    "gate-AB": replace(PLAIN, extras=GATE, activation="silu", transpose_b=False),
    "gate-every": replace(PLAIN, extras=GATE | EVERY, activation="silu"),
    "gate-fp8": replace(
        FP8,
        extras=SCALES | {"gate": "e4m3", "gate_column_scale": "f32"},
        activation="silu",
    ),
    "gate-blocks": replace(
        FP8, extras=BLOCK_SCALES | {"gate": "e4m3", "gate_blocks": "f32"}, activation="silu"
    ),
}


OFTEN = ("bf16", "blocks", "gate", "bias-gelu")  # the others with the soak


@functools.cache
def picked(name):
    """Every configuration that is picked for a variant at a size of the grid."""
    shape = VARIANTS[name].call().shape
    sizes = ((m, n, k) for m in ROWS for n in COLUMNS for k in DEPTHS)
    found = dict.fromkeys(pick(replace(shape, m=m, n=n, k=k), HOPPER) for m, n, k in sizes)
    return [c for c in found if not c.vectors]  # whose programs depend on the number of rows


def kind(config):
    """What the registers of a warpgroup are for: its part of the product, and the branches of the program."""
    rows = config.rows // config.consumers
    return rows, config.cols, config.swap, config.splits > 1, config.turns


def source(problem, config):
    arguments, constants = arguments_of(problem.call(), config)
    kernel = gemm_vectors if config.vectors else gemm_tiles
    emitted = kernel.emitted(*arguments, **constants)
    assert emitted.shared_bytes <= HOPPER.shared_bytes, config
    return emitted


@pytest.mark.units
@pytest.mark.parametrize("name", OFTEN)
def test_the_first_of_each_kind_that_is_picked_compiles_clean(name):
    assert_clean(VARIANTS[name], list({kind(c): c for c in reversed(picked(name))}.values()))


@pytest.mark.soak
@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_picked_compiles_clean(name):
    assert_clean(VARIANTS[name], picked(name))


@pytest.mark.parametrize("k", [937, 1024])
@pytest.mark.parametrize("name", ["bf16", "every", "gate-every"])
@pytest.mark.parametrize(
    "m",
    [
        pytest.param(m, marks=pytest.mark.units if m % 7 == 1 else pytest.mark.soak)
        for m in range(1, 9)
    ],
)
def test_all_ways_to_multiply_by_vectors_compile_clean(m, name, k):
    problem = replace(VARIANTS[name], m=m, k=k)
    configs = list(by_vectors(problem.call().shape, HOPPER))
    assert configs
    assert_clean(problem, configs)


def assert_clean(problem, configs):
    """Raise unless a problem compiles clean with each of these configurations."""
    sources = [source(problem, config) for config in configs]
    found = []
    for start in range(0, len(sources), PER_UNIT):
        part = slice(start, start + PER_UNIT)
        if faults(sources[part], "sm_90a"):  # of which of them they are: the names are all the same
            alone = zip(configs[part], (faults([x], "sm_90a") for x in sources[part]), strict=True)
            found += [f"{config}: {' '.join(told)}" for config, told in alone if told]
    assert not found, "\n".join(found)
