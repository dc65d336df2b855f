"""A parsed type prints as the text from which it was parsed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykittens.errors import ArgumentError
from pykittens.types.dtypes import DTYPES, bf16, f32
from pykittens.types.text import parse
from pykittens.types.tiles import GL, RT, RV, SCALAR, ST, Spread, shared_tile

DTYPE = st.sampled_from(list(DTYPES.values()))
SIDE = st.integers(1, 64).map(lambda n: 16 * n)
TYPES = st.one_of(
    st.builds(GL, DTYPE, st.integers(1, 5)),
    st.builds(shared_tile, DTYPE, SIDE, SIDE),
    st.builds(RT, DTYPE, SIDE, SIDE),
    st.builds(RV, DTYPE, st.integers(1, 5000), st.sampled_from(list(Spread))),
    st.builds(SCALAR, DTYPE),
)


@given(TYPES)
def test_a_type_is_read_from_what_it_prints(type: GL | ST | RT | RV | SCALAR) -> None:
    assert parse(str(type)) == type


def test_spaces_do_not_matter() -> None:
    assert parse("  rt <bf16,64 x 128> ") == RT(bf16, 64, 128)
    assert parse("rv<f32,64,per  row>") == RV(f32, 64, Spread.PER_ROW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a type"),
        ("rt<bf16, 64>", "rt<dtype, ROWSxCOLS>"),
        ("rt<bf16, 64x>", "rt<dtype, ROWSxCOLS>"),
        ("rt<bf16, 0x16>", "rt<dtype, ROWSxCOLS>"),
        ("rt<bf16, 64x64x64>", "rt<dtype, ROWSxCOLS>"),
        ("st<bf16>", "st<dtype, ROWSxCOLS>"),
        ("rv<f32, 64>", "spreads are per row, per column, plain"),
        ("rv<f32, 64, per lane>", "spreads are per row, per column, plain"),
        ("gl<bf16, x>", "gl<dtype, rank>"),
        ("xy<bf16, 64x64>", "rt<dtype, ROWSxCOLS>"),
        ("rt<double, 64x64>", "there is no dtype `double`"),
    ],
)
def test_what_is_no_type_is_refused_with_how_it_is_written(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(text)
    assert message in str(caught.value)
