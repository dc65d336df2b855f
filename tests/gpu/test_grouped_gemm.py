"""Grouped products on a GPU, against float64, at the shapes of mixtures of experts and at ragged ones.

With PYKITTENS_TARGET=sm_80 or sm_89 they are the configurations and the lowerings of that target.
"""

import pytest

from pykittens.errors import UnsupportedError
from pykittens.kernels.gemm.config import GemmShape
from pykittens.kernels.gemm.grouped_choose import pick_k, pick_rows
from pykittens.kernels.grouped_gemm import grouped_gemm
from pykittens.kernels.grouped_gemm_k import grouped_gemm_k
from pykittens.kernels.limits import limits_of

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
UNIT_F32 = 2.0**-24
SUBNORMAL = 2.0**-24  # the smallest number of f16; of bf16 it is less
SKEWS = ("even", "skewed", "one", "ends")


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def offsets_of(groups, rows, skew):
    """Where groups end: even ones, random ones of which some are empty, one that has all, or the first and the last."""
    if skew == "even":
        ends = torch.arange(1, groups + 1) * rows // groups
    elif skew == "skewed":
        sizes = torch.distributions.Exponential(1.0).sample((groups,)) ** 2
        sizes[::3] = 0
        ends = (sizes.cumsum(0) / sizes.sum() * rows).round()
        ends[-1] = rows
    elif skew == "one":
        ends = torch.where(torch.arange(groups) < groups // 2, 0, rows)
    else:
        ends = torch.where(torch.arange(groups) < groups - 1, rows // 3, rows)
    return ends.to(device="cuda", dtype=torch.int32)


def parts(offsets):
    ends = offsets.tolist()
    return [slice(b, e) for b, e in zip([0, *ends[:-1]], ends, strict=True)]


def assert_within(found, exact, magnitude, inner):
    """Sums in f32, rounded once: the bound of tests/tolerance.py; NaN lies nowhere."""
    bound = UNIT[found.dtype] * exact.abs() + SUBNORMAL + 2 * (inner + 5) * UNIT_F32 * magnitude
    wrong = ~((found.double() - exact).abs() <= bound)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} elements are wrong"


def assert_grouped(found, a, b, offsets):
    """b is groups x n x k; rows that are in no group are still NaN."""
    for group, part in enumerate(parts(offsets)):
        x, y = a[part].double(), b[group].double().T
        assert_within(found[part], x @ y, x.abs() @ y.abs(), a.shape[1])
    assert found[offsets[-1] :].isnan().all()


def untouched(*shape, dtype=torch.bfloat16):
    return torch.full(shape, torch.nan, device="cuda", dtype=dtype)


def configs(groups, n, k):
    """The configurations for many rows a group and for few."""
    limits = limits_of(torch.empty(0, device="cuda"))
    return [
        pick_rows(GemmShape(rows, n, k, may_swap=False), groups, limits)
        for rows in (1 << 16, groups)
    ]


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize(
    ("groups", "rows", "n", "k"),
    [
        (8, 4096, 2048, 1024),
        (64, 16384, 512, 1024),
        (64, 64, 1024, 512),
        (5, 1111, 333, 217),
        (3, 7, 40, 24),
        (300, 1000, 64, 64),
    ],
)
def test_grouped_gemm_in_every_configuration(groups, rows, n, k, transpose_b, skew):
    torch.manual_seed(groups)
    offsets = offsets_of(groups, rows, skew)
    a, b = normal(rows + 9, k), normal(groups, n, k)
    right = b if transpose_b else b.mT.contiguous()
    for config in [None, *configs(groups, n, k)]:
        out = untouched(rows + 9, n)
        grouped_gemm(a, right, offsets, out, transpose_b=transpose_b, config=config)
        assert_grouped(out, a, b, offsets)


def test_grouped_gemm_of_f16_and_views():
    offsets = offsets_of(6, 500, "skewed")
    a, b = normal(500, 201, dtype=torch.float16)[:, 1:], normal(6, 200, 90, dtype=torch.float16).mT
    out = untouched(500, 90, dtype=torch.float16)
    grouped_gemm(a, b, offsets, out)
    assert_grouped(out, a, b, offsets)
    grouped_gemm(a.T.contiguous().T, b, offsets, out)
    assert_grouped(out, a, b, offsets)


def test_other_rows_do_not_reach_a_group():
    offsets = offsets_of(4, 700, "even")
    a, b = normal(700, 256), normal(4, 192, 256)
    for group, part in enumerate(parts(offsets)):
        alone = torch.full_like(a, torch.nan)
        alone[part] = a[part]
        found = grouped_gemm(alone, b, offsets)[part]
        x, y = a[part].double(), b[group].double().T
        assert_within(found, x @ y, x.abs() @ y.abs(), 256)


def test_a_gate_a_bias_and_an_activation():
    offsets = offsets_of(8, 2000, "skewed")
    a, b, gate = normal(2000, 512), normal(8, 384, 512), normal(8, 384, 512)
    bias = normal(8, 384)
    out = untouched(2000, 384)
    grouped_gemm(a, b, offsets, out, gate=gate, bias=bias, activation="silu")
    for group, part in enumerate(parts(offsets)):
        x = a[part].double() @ b[group].double().T + bias[group].double()
        exact = torch.nn.functional.silu(x) * (a[part].double() @ gate[group].double().T)
        error = (out[part].double() - exact).norm()
        assert error <= 4e-3 * exact.norm()


def test_fp8_with_scales():
    offsets, fp8 = offsets_of(8, 2000, "skewed"), torch.float8_e4m3fn
    a, b = normal(2000, 512, dtype=fp8), normal(8, 384, 512, dtype=fp8)
    rows, cols = torch.rand(2000, device="cuda") + 0.5, torch.rand(8, 384, device="cuda") + 0.5
    out = untouched(2000, 384)
    try:
        grouped_gemm(a, b, offsets, out, row_scale=rows, column_scale=cols)
    except UnsupportedError:
        pytest.skip("the target does not multiply fp8")
    for group, part in enumerate(parts(offsets)):
        exact = a[part].double() @ b[group].double().T
        exact = exact * rows[part, None].double() * cols[group].double()
        assert (out[part].double() - exact).norm() <= 5e-3 * exact.norm()


def test_fp8_with_scales_of_blocks():
    offsets, fp8 = offsets_of(8, 2000, "skewed"), torch.float8_e4m3fn
    a, b = normal(2000, 512, dtype=fp8), normal(8, 384, 512, dtype=fp8)
    rows, cols = torch.rand(2000, 4, device="cuda") + 0.5, torch.rand(8, 3, 4, device="cuda") + 0.5
    out = untouched(2000, 384)
    try:
        grouped_gemm(a, b, offsets, out, row_blocks=rows, column_blocks=cols)
    except UnsupportedError:
        pytest.skip("the target does not multiply fp8")
    wide = a.double() * rows.double().repeat_interleave(128, 1)
    tall = b.double() * cols.double().repeat_interleave(128, 1).repeat_interleave(128, 2)
    for group, part in enumerate(parts(offsets)):
        exact = wide[part] @ tall[group].T
        assert (out[part].double() - exact).norm() <= 5e-3 * exact.norm()


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("groups", "k", "m", "n"),
    [
        (8, 4096, 1024, 768),
        (64, 16384, 256, 384),
        (5, 1111, 333, 218),
        (3, 7, 40, 24),
        (4, 500, 48, 48),
    ],
)
def test_grouped_gemm_k(groups, k, m, n, out_dtype, skew):
    torch.manual_seed(groups)
    offsets = offsets_of(groups, k, skew)
    a, b = normal(k + 9, m), normal(k + 9, n)
    a[k:], b[k:] = torch.nan, torch.inf  # what is in no group must not be read into the last
    limits = limits_of(a)
    for shape in (GemmShape(m, n, k), GemmShape(4096, 4096, k), GemmShape(40, 40, k)):
        out = untouched(groups, m, n, dtype=out_dtype)
        grouped_gemm_k(a.T, b, offsets, out, config=pick_k(shape, groups, limits))
        for group, part in enumerate(parts(offsets)):
            x, y = a[part].double().T, b[part].double()
            assert_within(out[group], x @ y, x.abs() @ y.abs(), x.shape[1])


def test_other_elements_do_not_reach_the_sum_of_a_group():
    offsets = offsets_of(4, 700, "skewed")
    a, b = normal(700, 192), normal(700, 256)
    for group, part in enumerate(parts(offsets)):
        lone_a, lone_b = torch.full_like(a, torch.nan), torch.full_like(b, torch.inf)
        lone_a[part], lone_b[part] = a[part], b[part]
        found = grouped_gemm_k(lone_a.T, lone_b, offsets)[group]
        x, y = a[part].double().T, b[part].double()
        assert_within(found, x @ y, x.abs() @ y.abs(), x.shape[1])


def test_repeated_calls_see_new_offsets_and_give_the_same_bits():
    a, b, x = normal(1000, 512), normal(16, 256, 512), normal(1000, 256)
    ways = [offsets_of(16, 1000, skew) for skew in SKEWS]
    first = [(grouped_gemm(a, b, o), grouped_gemm_k(x.T, a, o)) for o in ways]
    for _ in range(5):
        for offsets, (rows, depth) in zip(ways, first, strict=True):
            assert torch.equal(grouped_gemm(a, b, offsets), rows)
            assert torch.equal(grouped_gemm_k(x.T, a, offsets), depth)
    for offsets, (rows, _) in zip(ways, first, strict=True):
        assert_grouped(rows, a, b, offsets)


def test_a_call_in_a_graph_follows_the_offsets():
    a, b = normal(600, 256), normal(6, 128, 256)
    offsets, out = offsets_of(6, 600, "even"), untouched(600, 128)
    grouped_gemm(a, b, offsets, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grouped_gemm(a, b, offsets, out)
    for skew in SKEWS:
        offsets.copy_(offsets_of(6, 600, skew))
        out.fill_(torch.nan)
        graph.replay()
        assert_grouped(out, a, b, offsets)
