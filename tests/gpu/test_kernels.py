"""The library's products and attention on a GPU, in every configuration for its target, against float64.

With PYKITTENS_TARGET=sm_80 or sm_89 they are the configurations and the lowerings of that target.
"""

import pytest

from pykittens.errors import KernelError
from pykittens.kernels import attention as attention_file
from pykittens.kernels import gemm as gemm_file
from pykittens.kernels.attention import attention
from pykittens.kernels.core import limits_of
from pykittens.kernels.gemm import gemm

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


def assert_product(found, a, b, transpose_b):
    """A sum in f32, rounded once: the bound of tests/tolerance.py."""
    a, b = a.double(), b.double().T if transpose_b else b.double()
    exact, magnitude = a @ b, a.abs() @ b.abs()
    rounding = UNIT[found.dtype] * exact.abs() + SUBNORMAL
    assert_within(found, exact, rounding + 2 * (a.shape[1] + 1) * UNIT_F32 * magnitude)


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


def gemm_configs():
    limits = limits_of(torch.empty(0, device="cuda"))
    return [
        c
        for c in gemm_file.CONFIGS
        if c.warpgroups == limits.warpgroups and c.shared_bytes <= limits.shared_bytes
    ]


def attention_configs(d):
    limits = limits_of(torch.empty(0, device="cuda"))
    return [
        c
        for c in attention_file.CONFIGS
        if c.warpgroups == limits.warpgroups
        and d <= c.widest
        and c.shared_bytes(d) <= limits.shared_bytes
    ]


@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1),
        (17, 129, 65),
        (300, 290, 100),
        (1111, 2222, 3333),
        (4096, 4096, 1024),
        (8, 16384, 64),
    ],
)
def test_gemm_in_every_configuration(shape, dtype, transpose_b):
    m, n, k = shape
    assert gemm_configs()
    a = normal(m, k, dtype=DTYPES[dtype])
    b = normal(*((n, k) if transpose_b else (k, n)), dtype=DTYPES[dtype])
    for config in gemm_configs():
        out = torch.full((m, n), torch.nan, device="cuda", dtype=DTYPES[dtype])
        gemm(a, b, out, transpose_b=transpose_b, config=config)
        assert_product(out, a, b, transpose_b)


def test_gemm_picks_a_configuration():
    a, b = normal(1000, 520), normal(777, 520)
    assert_product(gemm(a, b), a, b, True)


def test_gemm_of_views_out_of_the_copy_engines_reach():
    a, b = normal(290, 201)[:, 1:], normal(190, 203)[:, 2:202]
    for config in gemm_configs():
        assert_product(gemm(a, b, config=config), a, b, True)


def test_gemm_over_nothing_stores_zeros():
    for config in gemm_configs():
        out = torch.full((130, 70), torch.nan, device="cuda", dtype=torch.bfloat16)
        gemm(normal(130, 0), normal(70, 0), out, config=config)
        assert torch.equal(out, torch.zeros_like(out))


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
    a, b = normal(3000, 1000), normal(2000, 1000)
    first = attention(q, k, v, causal=True), gemm(a, b)
    for _ in range(20):
        assert torch.equal(attention(q, k, v, causal=True), first[0])
        assert torch.equal(gemm(a, b), first[1])


def test_a_configuration_that_does_not_fit_is_refused():
    limits = limits_of(torch.empty(0, device="cuda"))
    large = [c for c in gemm_file.CONFIGS if c.shared_bytes > limits.shared_bytes]
    if not large:
        pytest.skip("every configuration fits this GPU")
    with pytest.raises(KernelError, match="bytes of shared memory"):
        gemm(normal(64, 64), normal(64, 64), config=large[0])
