"""The library's attention on a GPU, in every configuration for its target, against float64.

With PYKITTENS_TARGET=sm_80 or sm_89 they are the configurations and the lowerings of that target.
"""

import pytest

from pykittens.errors import KernelError
from pykittens.kernels.attention import attention
from pykittens.kernels.attention.config import CONFIGS
from pykittens.kernels.limits import limits_of

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # of one rounding
UNIT_F32 = 2.0**-24
SUBNORMAL = 2.0**-24  # the smallest number of f16; of bf16 it is less
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def assert_within(found, exact, bound):
    """Every element lies within its bound; NaN lies nowhere."""
    assert found.shape == exact.shape
    wrong = ~((found.double() - exact).abs() <= bound)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} elements are wrong"


def weights(q, k, causal):
    """The softmax of the scores, and the largest that the terms of one can add up to."""
    s = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    largest = (q.double().abs() @ k.double().abs().mT).max() / q.shape[-1] ** 0.5
    if causal:
        s.masked_fill_(
            torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -torch.inf
        )
    return torch.softmax(s, -1), largest


def assert_attention(found, q, k, v, causal):
    """Rounded weights and sums in f32: the bound of tests/tolerance.py."""
    p, largest = weights(q, k, causal)
    exact, magnitude, unit = p @ v.double(), p @ v.double().abs(), UNIT[found.dtype]
    exponent = 2 * (q.shape[-1] + 4) * UNIT_F32 * largest
    relative = 2 * unit + 2 * exponent + 2 * (q.shape[-2] + 8) * UNIT_F32
    assert_within(found, exact, 2 * (unit * exact.abs() + SUBNORMAL) + relative * magnitude)


def attention_configs(d):
    limits = limits_of(torch.empty(0, device="cuda"))
    return [
        c
        for c in CONFIGS
        if c.warpgroups == limits.warpgroups
        and d <= c.widest
        and c.shared_bytes(d) <= limits.shared_bytes
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [16, 48, 64, 80, 112, 128, 192, 240, 256])
def test_attention_in_every_configuration(d, causal):
    assert attention_configs(d)
    for config in attention_configs(d):
        for n in (1, 47, 65, 128, 129, 1000):
            q, k, v = (normal(2, 3, n, d) for _ in range(3))
            out = torch.full((2, 3, n, d), torch.nan, device="cuda", dtype=torch.bfloat16)
            attention(q, k, v, out, causal=causal, config=config)
            assert_attention(out, q, k, v, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [64, 128, 256])
def test_attention_of_long_sequences(d, dtype, causal):
    q, k, v = (normal(2, 8, 4096 + 77, d, dtype=DTYPES[dtype]) for _ in range(3))
    assert_attention(attention(q, k, v, causal=causal), q, k, v, causal)


def test_attention_of_heads_packed_in_one_tensor():
    packed = normal(2, 300, 3, 4, 64)  # batch, length, qkv, heads, width
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    for config in attention_configs(64):
        out = torch.full((2, 300, 4, 64), torch.nan, device="cuda", dtype=torch.bfloat16)
        attention(q, k, v, out.transpose(1, 2), causal=True, config=config)
        assert_attention(out.transpose(1, 2), q, k, v, True)


def test_repeated_launches_give_the_same_bits():
    q, k, v = (normal(4, 8, 1000, 128) for _ in range(3))
    first = attention(q, k, v, causal=True)
    for _ in range(20):
        assert torch.equal(attention(q, k, v, causal=True), first)


def test_a_configuration_that_does_not_fit_is_refused():
    limits = limits_of(torch.empty(0, device="cuda"))
    large = [c for c in CONFIGS if c.shared_bytes(c.widest) > limits.shared_bytes]
    if not large:
        pytest.skip("every configuration fits this GPU")
    with pytest.raises(KernelError, match="bytes of shared memory"):
        attention(*(normal(1, 1, 64, large[0].widest) for _ in range(3)), config=large[0])
