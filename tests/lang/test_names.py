"""Names that a body binds, and names that it reads first."""

from __future__ import annotations

import ast

import pytest

from pykittens.lang.names import bound_names, captured_names, read_first


def body(source):
    return ast.parse(source).body


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("a = b = 1; c += 1; (d := 2)", ["a", "b", "c", "d"]),
        ("x, (y, *z) = f(); xs[0] = 1; o.p = 2", ["x", "y", "z", "xs"]),
        ("for i in r:\n    a = i", ["a"]),
        ("with f() as t:\n    a = t", ["a"]),
        ("def f():\n    a = 1\ng = lambda: (b := 1)", ["g"]),
        ("if c:\n    a = 1\nelse:\n    b = 1", ["a", "b"]),
    ],
)
def test_assignments_bind_and_targets_of_loops_and_stages_do_not(source, names):
    assert bound_names(body(source)) == names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("a = b; b = a", {"b"}),
        ("a += 1", {"a"}),
        ("xs[i] = 1", {"xs", "i"}),
        ("if c:\n    a = 1\nb = a", {"c", "a"}),
        ("if c:\n    a = 1\nelse:\n    a = 2\nb = a", {"c"}),
        ("for i in r:\n    a = i", {"r", "a"}),
        ("with f() as t:\n    a = t\nb = a", {"f"}),
        ("def f(x):\n    y = x + z\n    return y", {"z"}),
        ("a = 1\nwhile a < n:\n    a = a + 1", {"n"}),
    ],
)
def test_a_name_that_a_pass_may_not_bind_is_read_first(source, names):
    assert read_first(body(source), set()) == names


def test_inner_functions_read_and_rebind_the_names_of_the_outer_one():
    (outer,) = body("""
def outer(n):
    a, b, c = 0, 0, 0
    def inner(k):
        nonlocal a
        own = b
        a = a + k + own
    return lambda c: c
""")
    read, rebound = captured_names(outer)
    assert {"a", "b"} <= read
    assert not {"k", "own", "c"} & read
    assert rebound == ["a"]
