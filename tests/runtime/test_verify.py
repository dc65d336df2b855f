"""Arrays with the layout of others: shape, strides, dtype and alignment; and comparison with exact results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.runtime import verify
from pykittens.runtime.arrays import describe
from pykittens.runtime.verify import (
    alike,
    copy_like,
    deviation,
    nans,
    normal_like,
    poison_like,
    positive_like,
    sample,
    written_beside,
)

torch = pytest.importorskip("torch")


def arrays():
    wide = torch.arange(70 * 41, dtype=torch.float32).reshape(70, 41)
    narrow = wide.numpy().astype(ml_dtypes.bfloat16)
    return {
        "rows": wide,
        "transposed": wide.T,
        "shifted": wide[1:, 3:20],
        "repeated": wide[:, :5].expand(4, 70, 5),
        "bf16": wide.bfloat16()[:, 1:],
        "e4m3": wide.clamp(0, 100).to(torch.float8_e4m3fn),
        "one": torch.tensor(2.0),
        "empty": wide[:0],
        "parameter": torch.nn.Parameter(wide),
        "numpy": narrow,
        "numpy view": narrow[2:60, 3:],
        "numpy transposed": narrow.T,
        "numpy repeated": np.broadcast_to(narrow[0], (6, 41)),
    }


every = pytest.mark.parametrize("name", arrays())
MADE = (alike, poison_like, copy_like, normal_like, positive_like)


def made_by(make, x):
    made = make(x, 1) if make in (normal_like, positive_like) else make(x)
    return getattr(made, "array", made)


@every
@pytest.mark.parametrize("make", MADE, ids=lambda f: f.__name__)
def test_what_is_made_lies_as_the_other_does(make, name):
    other = arrays()[name]
    found, wanted = describe(made_by(make, other)), describe(other)
    assert (found.dtype, found.shape, found.strides) == (wanted.dtype, wanted.shape, wanted.strides)
    assert found.address % 16 == wanted.address % 16
    assert type(made_by(make, other)) in (np.ndarray, torch.Tensor)


@every
def test_a_copy_has_the_same_numbers_elsewhere(name):
    other = arrays()[name]
    copy = copy_like(other)
    assert describe(copy).address != describe(other).address or 0 in other.shape
    as_numpy = [
        np.asarray(x.detach().float() if hasattr(x, "detach") else x) for x in (copy, other)
    ]
    np.testing.assert_array_equal(*as_numpy)


def test_random_numbers_are_as_asked():
    for like in (torch.empty(300, 300).bfloat16().T, np.empty((300, 300), np.float32)):
        x = normal_like(like, 3, 0.25)
        x = x if isinstance(x, np.ndarray) else x.float().numpy()
        assert abs(x.std() - 0.25) < 0.01
        assert abs(x.mean()) < 0.01
    scale = positive_like(torch.empty(1000).to(torch.float8_e5m2), 0).double()
    assert 0.5 <= scale.min() < scale.max() <= 1.5


def test_fp8_is_random_too():
    x = normal_like(torch.empty(200, 200, dtype=torch.float8_e4m3fn), 0).double()
    assert abs(float(x.std()) - 1) < 0.02


def test_the_random_numbers_of_the_program_stay_what_they_are():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    normal_like(torch.empty(10, 10), 0)
    positive_like(torch.empty(10, 10), 0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", [n for n in arrays() if "repeated" not in n and n != "empty"])
def test_what_is_written_beside_an_array_shows(name):
    other = arrays()[name]
    made = poison_like(other)
    assert bool(nans(made.array).all())
    made.array[...] = 1.0
    assert not written_beside(made)
    found = describe(made.array)
    behind = (found.address - describe(made.memory).address) // found.itemsize
    behind += sum((n - 1) * s for n, s in zip(found.shape, found.strides, strict=True)) + 1
    made.memory[behind] = 0.0
    assert written_beside(made)


# -- comparison ------------------------------------------------------------------------------------


def test_every_strip_of_a_tile_is_sampled():
    for count in (1, 63, 64, 65, 1000, 16384, 2**20):
        rows = sample(count)
        assert rows == sorted(set(rows))
        assert {0, count - 1} <= set(rows)
        assert len(rows) < 530
        strip = max(64, -(-count // 512))
        assert {i // strip for i in rows} == set(range(-(-count // strip)))


def test_results_beyond_the_largest_number_are_all_the_same():
    exact = np.array([[1e5, -1e5, 3.0, 2.0]])
    found = np.array([[np.inf, -65504.0, 3.0, 2.0]], np.float16)
    assert deviation(found, exact, pk.f16, 0.0, None) is None
    found[0, 1] = 65504.0
    assert deviation(found, exact, pk.f16, 0.0, None) is not None


def test_nan_may_only_be_where_it_should():
    exact = np.array([[np.nan, 1.0, 2.0]])
    assert deviation(np.array([[np.nan, 1.0, 2.0]], np.float32), exact, pk.f32, 0.0, None) is None
    for found in ([[0.0, 1.0, 2.0]], [[np.nan, np.nan, 2.0]]):
        assert deviation(np.array(found, np.float32), exact, pk.f32, 1.0, None) is not None


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_arrays_of_any_size_are_compared_in_parts(kind, monkeypatch):
    exact = np.random.default_rng(0).standard_normal((10, 7)).astype(np.float32)
    exact[3, 3] = np.nan
    found = exact.copy()
    found[6, 2:5] += 0.5
    whole = deviation(kind(found), kind(exact), pk.f32, 1e-3, None)
    assert whole.startswith("3 of 70 compared elements are wrong; that at (6, 2) is ")
    monkeypatch.setattr(verify, "PART", 9)
    largest = []
    wide = verify.wide
    monkeypatch.setattr(verify, "wide", lambda x: (largest.append(len(x)), wide(x))[1])
    assert deviation(kind(found), kind(exact), pk.f32, 1e-3, None) == whole
    assert max(largest) == 9
    assert deviation(kind(found), kind(exact), pk.f32, 1.0, None) is None
    assert deviation(kind(found), kind(exact), pk.f32, 1e-3, None, allowed=3) is None


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_whole_numbers_are_compared_exactly(kind):
    exact = np.array([2**53, 2**53 + 2, -1], np.int64)
    found = exact + np.array([0, 1, 0])
    text = deviation(kind(found), kind(exact), pk.int64, 1.0, None)
    assert text == (
        "1 of 3 compared elements are wrong; that at (1,) is 9007199254740995 instead of 9007199254740994"
    )
    assert deviation(kind(exact), kind(exact), pk.int64, 0.0, None) is None
    truth = np.array([True, False])
    assert "1 of 2" in deviation(kind(truth), kind(~truth & truth), pk.bool_, 0.0, None)


def test_more_than_the_allowed_are_told():
    exact, found = np.zeros((10, 10)), np.zeros((10, 10), np.float32)
    found[0, :3] = 1.0
    assert deviation(found, exact, pk.f32, 0.0, None, allowed=3) is None
    assert "3 of 100" in deviation(found, exact, pk.f32, 0.0, None, allowed=2)
