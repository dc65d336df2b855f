"""Long convolutions on a GPU: random calls with all gradients, long sequences, spectra, and graphs."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pykittens.kernels.limits import limits_of  # noqa: E402
from pykittens.kernels.long_conv import filter_spectrum, long_conv  # noqa: E402
from pykittens.kernels.long_conv.config import FUSED, ConvConfig  # noqa: E402
from pykittens.kernels.long_conv.tables import Fourier  # noqa: E402
from tests.long_conv_random import ConvProblem, check, explicit, problem, tensors  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Attempting to run cuFFT")]


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(12):
        check(problem(draw, longest=2**20, most=2**22), "cuda")


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("n", [256, 1024, 4096, 8192, 32768])
def test_many_sequences(n, circular):
    """Blocks have many tasks, and stages are used again."""
    p = ConvProblem(16, 2**22 // n // 4, n, n, circular, (True, True), False, False)
    given = tensors(p, "cuda")
    wanted = explicit(*(x.double() for x in given), circular)
    gates = {"gate_before": given[2], "gate_after": given[3]}
    for config in (None, ConvConfig(1, 1), ConvConfig(1, 1, 1, parts=3)):
        found = long_conv(*given[:2], **gates, circular=circular, config=config)
        assert (found - wanted).abs().max() <= 2**-7 * wanted.abs().max()


@pytest.mark.parametrize("circular", [False, True])
@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize("n", [4097, 8192, 12_288, 16384, 20_001, 32768])
def test_sequences_in_one_launch(n, gates, circular):
    """Each configuration that fits, with more sequences than the multiprocessors take at once."""
    p = ConvProblem(3, 200, n, n, circular, (gates, gates), False, False)
    given = tensors(p, "cuda")
    wanted = explicit(*(None if x is None else x.double() for x in given), circular)
    names = {"gate_before": given[2], "gate_after": given[3]}
    limits, points = limits_of(given[0]), Fourier(n, False).outer[0].rows
    fitting = [c for c in FUSED if c.shared_bytes(points) <= limits.shared_bytes]
    for config in (None, *fitting):
        found = long_conv(*given[:2], **names, circular=circular, config=config)
        assert (found - wanted).abs().max() <= 2**-7 * wanted.abs().max()
    check(p, "cuda")


def test_a_spectrum_in_a_graph():
    p = ConvProblem(3, 16, 4096, 4096, False, (False, False), False, False)
    u, filters, *_ = tensors(p, "cuda")
    spectrum, out = filter_spectrum(filters, n=4096), torch.empty_like(u)
    long_conv(u, spectrum=spectrum, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        long_conv(u, spectrum=spectrum, out=out)
    u.copy_(torch.randn(u.shape, device="cuda"))
    graph.replay()
    assert torch.equal(out, long_conv(u, filters))
