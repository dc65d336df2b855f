"""benchmarks/pitch.py: its kernels are right at every pitch, and its rows compare what they name."""

from __future__ import annotations

import pytest

from pykittens.runtime import nvrtc
from tests.benches import by_letters, program
from tests.targets.clean import frame, spills
from tests.targets.compiling import matrix

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def pitch(monkeypatch):
    """The program as a module."""
    torch.manual_seed(0)
    return program("pitch", monkeypatch)


def test_rows_at_each_pitch_are_compared_with_aligned_ones(pitch):
    for rows in (pitch.softmax_rows, pitch.rms_norm_rows_of):
        odd, even = rows(by_letters(pitch), 333, 2**12)
        assert odd["shape"] == "6 x 333 odd"
        assert odd["ratio"] == len("aligned") / len("odd")
        assert even["ratio"] == len("aligned") / len("even")
        assert odd["against"] == "aligned"


def test_a_view_has_the_alignment_that_its_pitch_names(pitch):
    starts = {}
    for name in pitch.PITCHES:
        x = pitch.view(3, 100, name, "cpu")
        assert x.shape == (3, 100)
        starts[name] = x.storage_offset() * 2 % 16, x.stride(0) * 2 % 16
    assert starts == {"aligned": (0, 0), "odd": (2, 2), "even": (0, 4)}


def test_products_and_transpositions_are_checked_beside_pytorch(pitch):
    assert pitch.gemm_row(by_letters(pitch), 65, 67, 99)["against"] == "cuBLAS"
    for name in pitch.PITCHES:
        assert pitch.transposition_row(by_letters(pitch), 130, name)["error"] == 0


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_transposition_keeps_its_tiles_in_registers(pitch, arch):
    x, y = (matrix(8192, 8192, aligned=False) for _ in range(2))
    compiled = pitch.transposed.compile(x, y, arch=arch)
    assert spills(compiled) == []
    assert frame(compiled) == 0
    assert "copy_in_skewed<64, 64, 128, 128, 4," in compiled.source.program
    assert "copy_out_skewed<64, 64, 128, 128," in compiled.source.program
