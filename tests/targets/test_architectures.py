"""The target that writes the programs of a card, and the architecture they are compiled for."""

from __future__ import annotations

import pytest

import pykittens as pk
from pykittens import settings
from pykittens.errors import BackendError
from pykittens.runtime import nvrtc
from pykittens.runtime.kernel import KernelFunction
from pykittens.targets.architectures import TARGETS, target_for
from tests.kernels_cluster import cluster_matmul
from tests.targets.compiling import CASES, matrix

needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def chosen(patch, name):
    """The setting as if it had been read in an environment that names this target."""
    patch.setenv("PYKITTENS_TARGET", name)
    read = settings.target.__wrapped__()
    patch.setattr(settings, "target", lambda: read)


def test_each_target_stands_on_the_older_ones():
    assert [t.name for t in TARGETS["sm_90a"].lineage()] == ["sm_90a", "sm_89", "sm_80", "simt"]


@pytest.mark.parametrize(
    ("arch", "lowerings", "shared"),
    [
        ("sm_80", "sm_80", 163),
        ("sm_86", "sm_80", 99),
        ("sm_87", "sm_80", 163),
        ("sm_89", "sm_89", 99),
        ("sm_90", "sm_89", 227),
        ("sm_90a", "sm_90a", 227),
        ("sm_110", "sm_89", 227),
        ("sm_120", "sm_89", 99),
        ("sm_121", "sm_89", 99),
    ],
)
def test_a_card_takes_the_newest_programs_it_runs(arch, lowerings, shared):
    found = target_for(arch)
    assert found.lowerings is TARGETS[lowerings].lowerings
    assert (found.arch, found.shared_bytes) == (arch, shared * 1024)


@pytest.mark.parametrize("arch", ["sm_75", "sm_8", "hopper", ""])
def test_a_card_that_runs_none_is_refused(arch):
    with pytest.raises(BackendError, match="no target for the architecture") as caught:
        target_for(arch)
    assert "sm_80" in str(caught.value.help)


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_86", "sm_90", "sm_110", "sm_120"])
def test_what_a_card_has_no_target_for_is_compiled_for_the_card(arch):
    case = CASES["attention-32"]
    compiled = case.kernel.compile(*case.args, arch=arch, **case.constants)
    assert compiled.arch == arch
    assert f".target {arch}" in compiled.ptx
    assert "mma_sync_bf16_f32(" in compiled.source.text


@needs_compiler
def test_the_setting_takes_older_programs_on_a_newer_card(monkeypatch):
    case = CASES["attention-32"]
    kernel = KernelFunction(case.kernel.function, case.kernel.options)
    own = kernel.compile(*case.args, **case.constants)
    with monkeypatch.context() as patch:
        chosen(patch, "sm_80")
        older = kernel.compile(*case.args, **case.constants)
    assert "copy_box(" in own.source.text[own.source.text.index('extern "C"') :]
    assert "start_copy<" in older.source.text[older.source.text.index('extern "C"') :]
    assert (older.arch, ".target sm_90a" in older.ptx) == ("sm_90a", True)
    assert kernel.compile(*case.args, **case.constants) is own


def test_older_programs_have_the_limits_of_their_target(monkeypatch):
    chosen(monkeypatch, "sm_80")
    case = CASES["matmul-aaa"]
    with pytest.raises(pk.KernelError, match="more than a block of sm_80 has"):
        case.kernel.source(*case.args)
    assert target_for("sm_86", "sm_80").shared_bytes == 99 * 1024


@pytest.mark.parametrize(
    ("arch", "chosen", "sentence"),
    [
        ("sm_80", "sm_90a", "cannot run programs for sm_90a"),
        ("sm_90a", "sm_10", "no target 'sm_10'"),
    ],
)
def test_programs_that_a_card_does_not_run_are_refused(arch, chosen, sentence):
    with pytest.raises(BackendError, match=sentence):
        target_for(arch, chosen)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_clusters_are_refused_where_there_are_none(arch):
    args = [matrix(256, 256) for _ in range(3)]
    with pytest.raises(BackendError, match=f"{arch} has no clusters of 2 blocks") as caught:
        cluster_matmul.source(*args, arch=arch)
    assert "cluster=1" in str(caught.value.help)


def test_register_budgets_are_a_hint_where_none_are_traded():
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(pk.bf16, 64, 64))
        pk.grid(1)
        with pk.producer(registers=24), ring.fill() as t:
            pk.load_async(t, x[0])
        with pk.storer(), ring.drain() as t:
            pk.store_async(y[0], t)

    assert "registers_down<" in kernel.source(matrix(64, 64), matrix(64, 64)).split("extern")[-1]
    text = kernel.source(matrix(64, 64), matrix(64, 64), arch="sm_80").split("extern")[-1]
    assert "registers_" not in text
    assert "__launch_bounds__(64, 1)" in kernel.source(matrix(64, 64), matrix(64, 64), arch="sm_80")


@pk.kernel
def float8(A, C):
    ring = pk.pipeline(1, pk.st(pk.e4m3, 64, 64))
    pk.grid(1)
    with ring.fill() as t:
        pk.load_async(t, A[0])
    with ring.drain() as t:
        pk.store(C[0], pk.mma_ABt(t, t))


def test_products_of_8_bit_floats_begin_with_ada():
    args = matrix(64, 64, dtype=pk.e4m3.numpy), matrix(64, 64, dtype="float32")
    with pytest.raises(BackendError, match="sm_80 cannot do it: .* do not multiply e4m3 by e4m3"):
        float8.source(*args, arch="sm_80")
    assert "mma_sync_e4m3_f32(" in float8.source(*args, arch="sm_89")
