"""A kernel of the user is tuned on a GPU: the fastest right candidate is found, and the arguments are unharmed."""

import warnings

import pytest

import pykittens as pk
from pykittens.runtime import tuning_records

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


@pk.kernel
def doubled(x, y, *, parts, factor):
    """y = x * factor, some tiles of a row of tiles a block."""
    pk.require(y.cols % parts == 0, "the parts must divide the columns")
    row, part = pk.grid(pk.cdiv(y.rows, 64), parts)
    steps = pk.cdiv(pk.cdiv(y.cols, 64), parts)
    for i in pk.range(steps):
        t = pk.load(x[row, part * steps + i], rows=64, cols=64)
        pk.store(y[row, part * steps + i], t * factor)


@pk.kernel
def shared_out(x, y, counter, *, cols):
    """y += x; blocks take their tiles from a counter, which the caller sets to 0."""
    pk.grid(132)
    tiles = pk.cdiv(y.cols, cols)
    tile = pk.atomic_add(counter[0], 1)
    while tile < tiles * pk.cdiv(y.rows, 64):
        row, col = tile // tiles, tile % tiles
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=cols), op="add")
        tile = pk.atomic_add(counter[0], 1)


@pytest.fixture(autouse=True)
def memory(tmp_path, monkeypatch):
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    monkeypatch.setattr(tuning_records, "_found", {})


ONE_BLOCK, MANY = {"parts": 1, "factor": 2.0}, {"parts": 256, "factor": 2.0}
WRONG, REFUSED = {"parts": 512, "factor": 3.0}, {"parts": 7, "factor": 2.0}


def test_the_fastest_right_candidate_is_found_and_remembered():
    x, y = torch.randn(256, 65536, device="cuda"), torch.zeros(256, 65536, device="cuda")
    before = x.clone()
    tune = pk.autotune([ONE_BLOCK, REFUSED, WRONG, MANY], reference=lambda x, y: 2 * x)
    tuned = tune(doubled)
    with pytest.warns(RuntimeWarning, match="parts=512"):
        tuned(x, y)
    assert torch.equal(y, 2 * x)
    assert torch.equal(x, before)
    assert tuned.best(x, y) == MANY
    tuning_records._found.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tune(doubled).best(x, y) == MANY
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    tuned(x, y)
    with torch.cuda.graph(graph):
        tuned(x, y)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, 2 * x)


def test_a_counter_is_0_before_each_launch():
    x, y = torch.randn(2048, 4096, device="cuda"), torch.ones(2048, 4096, device="cuda")
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    tuned = pk.autotune(
        [{"cols": 32}, {"cols": 64}, {"cols": 128}],
        reference=lambda x, y, counter: (x + y, None),
    )(shared_out)
    tuned(x, y, counter)
    assert torch.allclose(y, x + 1)
    (record,) = tuning_records.records()
    assert min(o.milliseconds for o in record.outcomes) > 5e-3, (
        "a launch that does nothing is faster"
    )
