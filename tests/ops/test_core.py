"""Properties of every operation."""

from __future__ import annotations

import inspect
import pydoc

import pytest

from pykittens.errors import KernelError
from pykittens.ops import core
from pykittens.ops.core import OPS


@pytest.mark.parametrize("name", OPS)
def test_an_operation_has_a_type_rule_a_meaning_and_a_docstring(name):
    op = OPS[name]
    assert op.type_rule is not None or op.family is not None
    assert op.meaning is not None or op.family is not None
    assert op.__doc__
    assert op.__doc__.rstrip().endswith(".")


def test_an_operation_is_shown_as_it_is_called():
    assert repr(OPS["row_sum"]) == "<operation row_sum(tile)>"
    help = pydoc.plain(pydoc.render_doc(OPS["store"]))
    assert "store = <operation store(dst, value, *, op=None, transposed=False)>\n" in help
    assert OPS["store"].__doc__.splitlines()[0] in help


@pytest.mark.parametrize("name", OPS)
def test_the_effects_of_an_operation_name_its_operands(name):
    op = OPS[name]
    named = (op.effects.reads, op.effects.writes, op.effects.waits, op.effects.signals)
    single = {op.effects.accumulates, op.effects.managed}
    operands = {name for names in named for name in names} | single - {None}
    assert operands <= set(inspect.signature(op.function).parameters)


@pytest.mark.parametrize("name", OPS)
def test_an_operation_that_waits_says_what_is_missing(name):
    assert bool(OPS[name].effects.waits) == (OPS[name].missing is not None)


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.scalar is not None])
def test_a_meaning_on_one_element_has_a_place_for_each_operand(name):
    op = OPS[name]
    operands = (
        len(inspect.signature(op.scalar.numpy).parameters)
        if not hasattr(op.scalar.numpy, "nin")
        else op.scalar.numpy.nin
    )
    assert all(f"{{{i}}}" in op.scalar.c for i in range(operands))
    assert f"{{{operands}}}" not in op.scalar.c


def twice(module, file):
    """A function `twice` of a module in a file."""
    names = {"__name__": module}
    exec(compile("def twice(x): pass", file, "exec"), names)
    return names["twice"]


def test_a_file_run_again_makes_its_operations_anew_and_another_may_not(monkeypatch):
    monkeypatch.setitem(OPS, "twice", None)  # so that it is gone afterwards
    core.op()(twice("mine", "mine.py"))
    for module, file in (("mine", "copy.py"), ("again", "copy.py")):
        assert core.op()(twice(module, file)) is OPS["twice"]
    with pytest.raises(KernelError):
        core.op()(twice("other", "other.py"))
