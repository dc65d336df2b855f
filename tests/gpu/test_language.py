"""Run-time loops, branches and carried names on a GPU give what the emulator gives."""

import pytest

import pykittens as pk
from tests.lang import test_tickets as tickets
from tests.lang.test_sharing import limited, total

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pk.kernel
def collatz(start, steps):
    """The number of Collatz steps from `start` to 1, in every element."""
    row, col = pk.grid(1, 1)
    n, count = start, 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count = count + 1
    pk.store(steps[row, col], pk.zeros(pk.int32, 64, 16) + count)


@pk.kernel
def fibonacci(x, y, turns):
    """Two tiles that take each other's place, carried in a list."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pair = [pk.load(x[row, col], rows=64, cols=64), pk.load(x[row, col], rows=64, cols=64)]
    for _ in pk.range(turns):
        pair[0], pair[1] = pair[1], pair[0] + pair[1]
    pk.store(y[row, col], pair[0])


@pk.kernel
def swap(a, b, turns):
    """Names exchanged by a loop."""
    row, col = pk.grid(1, 1)
    x, y = pk.zeros(pk.f32, 64, 64) + 1.0, pk.zeros(pk.f32, 64, 64) + 2.0
    for _ in pk.range(turns, 0, -1):
        x, y = y, x
    pk.store(a[row, col], x)
    pk.store(b[row, col], y)


@pk.kernel
def staircase(x, y):
    """Nested loops with bounds that depend on the block, floor division and remainders of negatives."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    for i in pk.range(row - 2, row + 2):
        for j in pk.range(col, -3, -2):
            t = t + ((i * 5 - 7) // 3 + j % 4).to(pk.f32)
    if row > 0 and not (col == 1 or row > 2):
        t = t * 2.0
    elif row == 0:
        t = t - 1.0
    pk.store(y[row, col], t)


@pk.kernel
def choices(x, y):
    """Row statistics, comparisons and choices on a tile."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    high, total = pk.row_max(t), pk.row_sum(t)
    pk.store(y[row, col], pk.where(t > high / 2.0, t - total, pk.maximum(t, -0.5) / high))


@pk.kernel(warps=1)
def copy_any(x, y):
    """Copies a row of any dtype."""
    (row,) = pk.grid(x.rows)
    pk.store(y[row], pk.load(x[row], cols=pk.static(x.cols)))


def both(kernel, inputs, outputs, *scalars):
    """Run on the GPU and in the emulator; the outputs are the same."""
    here = [t.clone() for t in (*inputs, *outputs)]
    there = [t.cuda() for t in (*inputs, *outputs)]
    kernel(*here, *scalars)
    kernel(*there, *scalars)
    for a, b in zip(here, there, strict=True):
        assert not (a.is_floating_point() and a.isnan().any())
        torch.testing.assert_close(a, b.cpu(), rtol=1e-5, atol=1e-5)


def test_a_while_with_branches():
    for start in (1, 6, 27):
        steps = torch.full((64, 16), -1, dtype=torch.int32, device="cuda")
        collatz(start, steps)
        assert (steps == {1: 0, 6: 8, 27: 111}[start]).all()


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_carried_lists_and_swapped_names(turns):
    x = torch.ones(100, 70)
    both(fibonacci, [x], [torch.full_like(x, torch.nan)], turns)
    both(swap, [], [torch.full((64, 64), torch.nan) for _ in range(2)], turns)


def test_nested_loops_and_elif():
    x = torch.randn(300, 200)
    both(staircase, [x], [torch.full_like(x, torch.nan)])


def test_comparisons_and_choices():
    x = torch.rand(130, 140) + 0.1
    both(choices, [x], [torch.full_like(x, torch.nan)])


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.bool]
)
def test_every_dtype_is_copied(dtype):
    for width in (1, 2, 7, 64, 1000):
        x = torch.randint(-2, 3, (5, width)).to(dtype)
        both(copy_any, [x], [torch.zeros_like(x)])


def test_a_tensor_of_rank_1_is_one_row():
    @pk.kernel(warps=1)
    def doubled(x, y):
        pk.grid(1)
        t = pk.load(x, cols=pk.static(x.cols))
        pk.store(y, t + t)

    x = torch.randn(1000)
    both(doubled, [x], [torch.full_like(x, torch.nan)])


def test_a_scalar_kernel_argument_of_each_kind():
    @pk.kernel
    def kinds(y, number, factor, flag):
        row, col = pk.grid(1, 1)
        t = pk.zeros(pk.f32, 64, 16) + number.to(pk.f32) * factor
        if flag:
            t = t + 1.0
        pk.store(y[row, col], t)

    for flag in (False, True):
        both(kinds, [], [torch.full((64, 16), torch.nan)], 3, 0.5, flag)


@pytest.mark.parametrize("tiles", [1, 7, 5000])
def test_blocks_that_share_tasks_leave_partial_sums(tiles):
    x = torch.randint(-4, 5, (64 * tiles, 100), device="cuda").float()
    parts, counter = torch.zeros(5000, device="cuda"), torch.zeros(1, dtype=torch.int32).cuda()
    for _ in range(3):
        y = torch.full((1,), torch.nan, device="cuda")
        total(x, parts, y, counter)
        assert y.item() == x.sum().item()
    assert int(parts.count_nonzero()) <= 2 * tiles


def test_a_limit_of_blocks_is_computed_for_each_launch():
    for rows, n, expected in ((1280, 50, 10), (1280, 3, 3), (64, 9, 1), (12800, 7, 7)):
        blocks = torch.zeros(64, dtype=torch.int32, device="cuda")
        limited(torch.zeros((rows, 256), device="cuda"), blocks, n)
        assert blocks.tolist() == [expected] * expected + [0] * (64 - expected)
    with pytest.raises(pk.KernelError, match="must be at least 1"):
        limited(torch.zeros((64, 64), device="cuda"), blocks, 0)


@pytest.mark.parametrize("kernel", [tickets.rows, tickets.alone], ids=["roles", "alone"])
def test_tasks_by_tickets_are_taken_once_and_leave_the_counter_at_0(kernel):
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    for m in (100, 1000, 50000, 300000):
        x = torch.randn(m, 128, device="cuda")
        for _ in range(20):
            y, owner = torch.zeros_like(x), torch.full((-(-m // 128),), -1, device="cuda").int()
            kernel(x, y, owner, counter)
            assert torch.equal(y, 2 * x)
            assert counter.item() == 0
            assert owner.min() >= 0
    assert owner.max() > 100  # all multiprocessors have some
