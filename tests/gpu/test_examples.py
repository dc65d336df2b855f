"""The example kernels on a GPU, on random data against float64, at sizes that fit no tile."""

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

SIZES = (1, 15, 17, 63, 65, 127, 129, 256, 1000)
EPS = 2.0**-8  # one rounding to bf16


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def poisoned(*shape, dtype=torch.bfloat16):
    return torch.full(shape, torch.nan, device="cuda", dtype=dtype)


def assert_close(out, expected, bound):
    """Elementwise, relative to the element and the root mean square of its row; NaN never passes."""
    expected = expected.double()
    scale = expected.abs() + expected.square().mean(-1, keepdim=True).sqrt() + 1e-30
    error = ((out.double() - expected).abs() / scale).max().item() if out.numel() else 0.0
    assert error <= bound, error


def assert_product(c, a, b):
    """c is a @ b.T: one rounding to bf16 of a sum in f32, whose terms' sizes bound its own error."""
    a, b = a.double(), b.double()
    expected = a @ b.T
    bound = EPS * expected.abs() + 2.0**-20 * (a.abs() @ b.abs().T)
    excess = ((c.double() - expected).abs() - bound).max().item() if c.numel() else 0.0
    assert excess <= 0.0, excess


def attention_reference(q, k, v, causal):
    s = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    if causal:
        s = s.masked_fill(
            ~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(), -torch.inf
        )
    return torch.softmax(s, -1) @ v.double()


@pytest.mark.parametrize("rows", SIZES)
def test_add_is_exact_at_every_size(example, rows):
    for cols in SIZES:
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
            a, b = (torch.randint(-99, 99, (rows, cols), device="cuda").to(dtype) for _ in range(2))
            out = torch.full((rows, cols), -1, device="cuda").to(dtype)
            example("02_add").add(a, b, out)
            assert torch.equal(out, a + b), (rows, cols, dtype)


@pytest.mark.parametrize("rows", SIZES)
def test_copy_and_prune_are_exact_at_every_size(example, rows):
    prune = example("10_own_operation")
    for cols in SIZES:
        x = torch.randint(-9, 10, (rows, cols), device="cuda").bfloat16()  # with equal neighbours
        y, pruned = poisoned(rows, cols), poisoned(rows, cols)
        example("01_copy").copy(x, y)
        assert torch.equal(x, y), (rows, cols)
        prune.prune(x, pruned)
        expected = torch.from_numpy(prune.reference(x.cpu().float().numpy()))
        assert torch.equal(pruned.cpu().double(), expected), (rows, cols)


@pytest.mark.parametrize("d", [32, 64, 96, 128])
@pytest.mark.parametrize("tokens", [1, 65, 1000])
def test_heads_are_normalised_and_rotated(example, tokens, d):
    module = example("09_own_kernel")
    x, weight = normal(tokens, 3, d).transpose(0, 1), normal(d)
    cos, sin = (torch.from_numpy(t).cuda() for t in module.tables(5000, d))
    positions = torch.randint(5000, (tokens,), device="cuda", dtype=torch.int32)
    y = poisoned(3, tokens, d)
    module.norm_rotary(x, weight, cos, sin, positions, y)
    arrays = [a.cpu().float().numpy() for a in (x, weight, cos, sin)]
    expected = torch.from_numpy(module.reference(*arrays, positions.cpu().numpy()))
    assert_close(y.cpu(), expected, 2 * EPS)


@pytest.mark.parametrize("cols", [*SIZES, 2048, 4096, 6000])
def test_softmax_at_every_width(example, cols):
    for rows in (1, 7, 8, 1000):
        for dtype, bound in ((torch.bfloat16, EPS), (torch.float32, 1e-5)):
            x, y = normal(rows, cols, dtype=dtype) * 4, poisoned(rows, cols, dtype=dtype)
            example("03_softmax").softmax(x, y)
            assert_close(y, torch.softmax(x.double(), -1), bound)


@pytest.mark.parametrize("m", SIZES)
def test_matmul_at_every_size(example, m):
    for n in (1, 17, 129, 256, 1000):
        for k in SIZES:
            a, b, c = normal(m, k), normal(n, k), poisoned(m, n)
            example("06_matmul").matmul(a, b, c)
            assert_product(c, a, b)


@pytest.mark.parametrize("stem", ["04_matmul_tile", "05_matmul_pipeline"])
@pytest.mark.parametrize(
    "size", [(1, 1, 1), (63, 129, 65), (64, 128, 192), (1000, 3000, 0), (777, 999, 2000)]
)
def test_a_simpler_matmul_at_every_size(example, stem, size):
    m, n, k = size
    a, b, c = normal(m, k), normal(n, k), poisoned(m, n)
    getattr(example(stem), stem[3:])(a, b, c)
    assert_product(c, a, b)


@pytest.mark.parametrize(
    "shape", [(2048, 2048, 2048), (4096, 1024, 512), (1111, 2222, 3333), (8, 16384, 64)]
)
def test_matmul_at_large_sizes(example, shape):
    m, n, k = shape
    a, b, c = normal(m, k), normal(n, k), poisoned(m, n)
    example("06_matmul").matmul(a, b, c)
    assert_product(c, a, b)


def test_matmul_of_nothing_stores_zeros(example):
    c = poisoned(130, 70)
    example("06_matmul").matmul(normal(130, 0), normal(70, 0), c)
    assert torch.equal(c, torch.zeros_like(c))
    example("06_matmul").matmul(normal(0, 64), normal(70, 64), poisoned(0, 70))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_attention_at_every_length(example, d, causal):
    for n in (*SIZES, 384, 1024):
        q, k, v = (normal(2, 3, n, d) for _ in range(3))
        o = poisoned(2, 3, n, d)
        example("07_attention").attention(q, k, v, o, causal=causal)
        assert_close(o, attention_reference(q, k, v, causal), 4 * EPS)


@pytest.mark.parametrize("d", [16, 32, 48, 96])
def test_attention_at_other_widths(example, d):
    q, k, v = (normal(1, 2, 300, d) for _ in range(3))
    o = poisoned(1, 2, 300, d)
    example("07_attention").attention(q, k, v, o, causal=True)
    assert_close(o, attention_reference(q, k, v, True), 4 * EPS)


@pytest.mark.parametrize(
    "left", [0, 8, 3]
)  # an offset of 3 elements is out of the copy engine's reach
@pytest.mark.parametrize("width", [512, 200])
def test_views_of_larger_tensors(example, left, width):
    whole = normal(500, 700)
    a, b = whole[10:300, left : left + width], whole[100:461, left : left + width]
    target = poisoned(400, 600)
    c = target[5:295, left : left + 361]
    example("06_matmul").matmul(a, b, c)
    untouched = torch.ones_like(target, dtype=torch.bool)
    untouched[5:295, left : left + 361] = False
    assert target[untouched].isnan().all()
    assert_product(c, a, b)


def test_strides_out_of_the_copy_engines_reach(example):
    for k in (65, 127, 200):
        a, b = normal(150, k + 1)[:, :k], normal(150, k + 1)[:, 1:]
        c = poisoned(150, 151)[:, :150]
        example("06_matmul").matmul(a, b, c)
        assert_product(c, a, b)


def test_rows_that_end_inside_16_bytes(example):
    """The copy engine reads them; what lies behind their end must not take part."""
    for k in (1, 65, 361):
        a, b = normal(150, 704)[:, :k], normal(190, 704)[:, :k]
        c = poisoned(150, 190)
        example("06_matmul").matmul(a, b, c)
        assert_product(c, a, b)


def test_heads_packed_in_one_tensor(example):
    packed = normal(2, 300, 3, 4, 64)  # batch, length, qkv, heads, width
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    o = poisoned(2, 300, 4, 64).transpose(1, 2)
    example("07_attention").attention(q, k, v, o, causal=True)
    assert_close(o, attention_reference(q, k, v, True), 4 * EPS)


def test_a_broadcast_input(example):
    a, out = (
        normal(1, 200, dtype=torch.float32).expand(150, 200),
        poisoned(150, 200, dtype=torch.float32),
    )
    b = normal(150, 200, dtype=torch.float32)
    example("02_add").add(a, b, out)
    assert torch.equal(out, a + b)


def test_the_gpu_gives_what_the_emulator_gives(example):
    torch.manual_seed(1)
    q, k, v = (normal(1, 2, 200, 64) for _ in range(3))
    o, host = poisoned(1, 2, 200, 64), poisoned(1, 2, 200, 64).cpu()
    example("07_attention").attention(q, k, v, o, causal=True)
    example("07_attention").attention(q.cpu(), k.cpu(), v.cpu(), host, causal=True)
    assert_close(o.cpu(), host, 2 * EPS)


def test_repeated_launches_give_the_same_bits(example):
    q, k, v = (normal(4, 8, 1000, 128) for _ in range(3))
    results = []
    for _ in range(20):
        o = poisoned(4, 8, 1000, 128)
        example("07_attention").attention(q, k, v, o, causal=True)
        results.append(o)
    assert all(torch.equal(results[0], r) for r in results[1:])
