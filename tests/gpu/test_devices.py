"""Launches go to the device of the arguments, whichever is current."""

import pytest

import pykittens as pk

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pk.kernel
def doubled(x, y):
    """y = x + x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    pk.store(y[row, col], t + t)


@pytest.mark.parametrize("ordinal", [1, 0])
def test_arrays_decide_the_device(ordinal):
    for current in (0, 1):
        with torch.cuda.device(current):
            x = torch.randn(300, 200, device=f"cuda:{ordinal}")
            y = torch.full_like(x, torch.nan)
            for _ in range(2):
                doubled(x, y)
            assert torch.equal(y, x + x)
            assert torch.cuda.current_device() == current


def test_each_device_has_its_own_stream():
    x = torch.randn(4096, 4096, device="cuda:1")
    y = torch.full_like(x, torch.nan)
    side = torch.cuda.Stream(device=1)
    side.wait_stream(torch.cuda.current_stream(1))
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        doubled(x, y)
        assert not side.query()
    side.synchronize()
    assert torch.equal(y, x + x)


def test_arrays_of_two_gpus_are_refused():
    with pytest.raises(pk.KernelError, match="one device"):
        doubled(torch.randn(64, 64, device="cuda:0"), torch.empty(64, 64, device="cuda:1"))


def test_matmul_on_the_second_gpu(example):
    a, b = (torch.randn(300, 200, device="cuda:1").bfloat16() for _ in range(2))
    c = torch.full((300, 300), torch.nan, device="cuda:1", dtype=torch.bfloat16)
    example("06_matmul").matmul(a, b, c)
    expected = a.double() @ b.double().T
    assert float((c.double() - expected).norm() / expected.norm()) < 4e-3
