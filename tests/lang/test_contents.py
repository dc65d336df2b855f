"""Keys of constants: equal keys stand for the same constant, and `==` is not enough for that."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from pykittens.lang import contents
from pykittens.lang.contents import exact, kept
from pykittens.types.dtypes import bf16, f16


@dataclass(frozen=True)
class Scale:
    factor: Any
    shift: Any = 0


@dataclass
class Changing:
    factor: Any
    __hash__ = object.__hash__


def nan() -> float:
    return float("nan")


def test_constants_that_a_kernel_can_tell_apart_have_different_keys() -> None:
    numbers = (0, 0.0, -0.0, False, 1, 1.0, True, 0j, -0j, "1", None)
    numbers += (np.float32(0), np.float32(-0.0), np.float64(0), np.int32(0), nan())
    values = [*numbers, *((x,) for x in numbers), *(Scale(x) for x in numbers)]
    values += [((x,),) for x in numbers] + [frozenset((x,)) for x in numbers]
    values += [Scale(1, 2), (1, 2), (2, 1), (1, (2,)), (), bf16, f16, int, len]
    values += [slice(1), slice(1, 2), slice(1, 2, 3), slice(1.0), (None, 1, None)]
    for a, b in combinations(values, 2):
        assert exact(a) != exact(b), (a, b)


@pytest.mark.parametrize("make", [nan, lambda: 1.5, lambda: "text", lambda: np.float32(2)])
def test_equal_constants_have_one_key(make: Any) -> None:
    for wrapped in (lambda x: x, lambda x: (x, 1), Scale, lambda x: frozenset((x,)), slice):
        a, b = exact(wrapped(make())), exact(wrapped(make()))
        assert a == b
        assert hash(a) == hash(b)


def test_an_object_that_can_change_is_not_its_fields() -> None:
    a = Changing(1)
    key = exact(a)
    a.factor = 2
    assert exact(a) == key


def test_a_list_is_its_items_at_the_moment() -> None:
    for wrapped in (lambda x: x, lambda x: (x,), Scale):
        items = [1]
        value: Any = wrapped(items)
        before = kept(value)
        assert kept(wrapped([1])) == before
        items.append(2)
        assert kept(value) != before


def test_keys_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOST_KEPT", 3)
    for i in range(20):
        given = (i, "text")
        assert kept(given) == kept(given) == kept((i, "text"))
        assert len(contents._ids) <= 3
        assert len(contents._tokens) <= 3
