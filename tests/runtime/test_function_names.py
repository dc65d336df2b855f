"""Functions of one name are told apart by their code."""

from __future__ import annotations

import pykittens as pk
from pykittens.runtime.function_names import function_name


def test_functions_of_one_name_are_told_apart_by_their_code():
    def scaled(factor):
        def then(x, at):
            return x * factor

        return pk.function(then)

    def shifted(number):
        def then(x, at):
            return x + number

        then.__qualname__ = scaled(1.0).__qualname__
        return pk.function(then)

    names = [function_name(f) for f in (scaled(2.0), scaled(2.0), scaled(3.0), shifted(2.0))]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert function_name(None) == ""


def test_functions_that_call_another_function_or_number_by_name_are_told_apart():
    def calling(text):
        names = {}
        exec(f"{text}\ndef then(x, at): return outer(x) * factor", names)
        names["then"].__module__ = "program"
        return names["then"]

    one = calling("def outer(x): return x + 1\nfactor = 2.0")
    same = calling("def outer(x): return x + 1\nfactor = 2.0")
    other = calling("def outer(x): return x + 2\nfactor = 2.0")
    third = calling("def outer(x): return x + 1\nfactor = 3.0")
    names = [function_name(f) for f in (one, same, other, third)]
    assert names[0] == names[1]
    assert len(set(names)) == 3
