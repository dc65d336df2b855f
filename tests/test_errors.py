"""Error texts as users read them: golden texts, with outputs untouched."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
import types
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import pykittens as pk
from pykittens import errors
from pykittens.errors import ArgumentError, DeadlockError, KernelError, Loc, is_user_file
from pykittens.kernels.gemm import gemm
from tests.faults import arguments, by_hand, debug, language, memory, operations, running, views
from tests.running import UNWRITTEN

ROOT = Path(__file__).parent.parent
KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, KernelError)]


def faults():
    for module in (arguments, by_hand, debug, language, memory, operations, running, views):
        stem = module.__name__.rpartition(".")[2]
        for name, function in vars(module).items():
            if inspect.isfunction(function) and [*inspect.signature(function).parameters] == [
                "out"
            ]:
                yield pytest.param(f"{stem}/{name}", function, id=f"{stem}-{name}")


class Outputs:
    """Makes outputs full of poison and knows whether one was written."""

    def __init__(self):
        self.made = []

    def __call__(self, shape, dtype=np.float32):
        poison = UNWRITTEN if np.dtype(dtype) == np.int32 else np.nan
        self.made.append(np.full(shape, poison, dtype))
        return self.made[-1]

    @property
    def untouched(self):
        return all(
            (a == UNWRITTEN if a.dtype == np.int32 else np.isnan(a)).all() for a in self.made
        )


def normalised(text: str) -> str:
    """Without text that depends on the machine or on edits: folders, line numbers, addresses."""
    text = text.replace(f"{ROOT}/", "")
    text = re.sub(r"(tests/[\w/]+\.py):\d+", r"\1:LINE", text)
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", text) + "\n"


@pytest.mark.parametrize(("name", "fault"), [*faults()])
def test_a_fault_is_told_as_agreed_and_writes_nothing(name, fault, golden, monkeypatch):
    monkeypatch.chdir(ROOT)
    out = Outputs()
    with pytest.raises(pk.KernelError) as caught:
        fault(out)
    assert out.untouched
    golden(f"errors/{name}.txt", normalised(f"{type(caught.value).__name__}: {caught.value}"))


def test_no_golden_text_is_left_over():
    agreed = {f"{p.values[0]}.txt" for p in faults()}
    folder = ROOT / "tests" / "golden" / "errors"
    kept = {p.relative_to(folder).as_posix() for p in folder.glob("*/*.txt")}
    assert {p for p in kept if not p.startswith("matrix/")} == agreed


def test_views_that_interleave_without_touching_are_allowed():
    whole = np.full((4, 16), np.nan, np.float32)
    x, y = whole[:, :8], whole[:, 8:]
    x[...] = 3
    arguments.copy(x, y)
    assert (y[0] == 3).all()
    assert np.isnan(y[1:]).all()


def test_an_output_may_be_the_input_where_the_kernel_says_so():
    @pk.kernel(inplace=True)
    def double(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], cols=8) * 2.0)

    x = np.ones((1, 8), np.float32)
    double(x, x)
    assert (x == 2).all()
    whole = np.ones((2, 8), np.float32)
    with pytest.raises(pk.KernelError, match="the output `y` shares memory with `x`"):
        double(whole.reshape(-1)[4:12].reshape(1, 8), whole[:1])
    assert (whole == 1).all()


def test_an_input_of_stride_zero_is_allowed():
    row = np.arange(8, dtype=np.float32)
    y = np.full((4, 8), np.nan, np.float32)
    arguments.copy(np.broadcast_to(row, (4, 8)), y)
    assert np.array_equal(y[0], row)


def test_carets_stand_below_characters_not_bytes():
    def here():
        return "größer, weiß", Loc.here()

    _, loc = here()
    _, line, carets = loc.excerpt().splitlines()
    assert line.strip().startswith('return "größer, weiß", Loc.here()')
    assert line[carets.index("^") : carets.rindex("^") + 1] == "Loc.here()"


def test_the_package_is_not_the_user_s_but_its_kernels_are():
    package = Path(pk.__file__).parent
    assert not is_user_file(str(package / "ops" / "core.py"))
    assert is_user_file(str(package / "kernels" / "attention.py"))
    assert is_user_file(__file__)
    assert is_user_file("<ipython-input-1>")


class Products(Mapping):
    """Its `get` is a function of a module inside of Python."""

    def __getitem__(self, key):
        return pk.mma_AB(key, key, key)

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0


def test_lines_inside_of_python_are_not_reported():
    products = Products()

    @pk.kernel(warps=1)
    def kernel(out):
        (row,) = pk.grid(out.rows)
        pk.store(out[row], products.get(pk.zeros(pk.f32, 8)))

    with pytest.raises(pk.KernelError) as fault:
        kernel(np.zeros((2, 8), np.float32))
    assert [loc.function for loc in fault.value.loc.callers] == ["kernel"]


def test_a_wrong_call_of_a_kernel_of_the_library_is_told_at_the_line_of_the_call():
    wrong = np.zeros((2, 3), np.float16), np.zeros((2, 4), np.float16)
    with pytest.raises(ArgumentError) as fault:
        gemm(*wrong)
    assert "gemm(*wrong)" in str(fault.value)


def test_an_error_lists_operands_in_a_column():
    error = pk.KernelError("short", operands={"a": 1, "long": 2}, help="do otherwise")
    lines = str(error).splitlines()
    assert lines[:3] == ["short", "    a    : 1", "    long : 2"]
    assert lines[-1] == "help: do otherwise"


def refused_elsewhere():
    """A fault with operands that cannot be pickled, at a line of this file."""
    x = np.zeros((4, 8), np.float32)
    arguments.copy(x, (lambda: x)())


def test_an_error_of_another_process_has_the_same_text():
    with pytest.raises(pk.KernelError) as here:
        refused_elsewhere()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(refused_elsewhere).exception()
    assert type(there) is type(here.value)
    assert str(there) == str(here.value)
    assert "arguments.copy(x, (lambda: x)())" in str(there)
    assert "^^^^" in str(there)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_error_can_be_pickled(kind):
    error = kind("what", operands={"a": lambda: 0}, loc=Loc.here(), help="do otherwise")
    error.add_note("said besides")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.__notes__ == ["said besides"]
    assert pickle.loads(pickle.dumps(again)).loc == error.loc


def test_a_deadlock_keeps_who_waits_when_it_is_pickled():
    error = DeadlockError("no role can run")
    error.waits = (("producer", "a barrier", Loc.here()),)
    again = pickle.loads(pickle.dumps(error))
    assert again.waits == error.waits
    assert again.waits[0][2].excerpt() == error.waits[0][2].excerpt()


def _misused(x):
    arguments.copy(x)


def _rendered() -> list[str]:
    try:
        _misused(np.ones((4, 8), np.float32))
    except KernelError as error:
        error.add_note("a note")
        return error._render_traceback_()
    raise AssertionError("no error")


def test_in_a_notebook_an_error_is_its_text_and_the_lines_that_led_to_it():
    text, note, *called = _rendered()
    assert text.startswith("ArgumentError: copy: `y` is missing\n")
    assert "    arguments.copy(x)\n    ^^^^^^^^^^^^^^^^^" in text
    assert note == "a note"
    # The line of the error is not repeated, and no line of the package is shown.
    assert [line.splitlines()[1].strip() for line in called] == [
        "_misused(np.ones((4, 8), np.float32))"
    ]


def test_in_a_notebook_the_cause_of_an_error_is_shown_unless_its_text_is():
    for message, shown in (("wrong", ["caused by ValueError: deep"]), ("wrong: deep", [])):
        error = KernelError(message)
        error.__cause__ = ValueError("deep")
        assert error._render_traceback_()[1:] == shown


def test_a_line_of_a_notebook_is_shown_with_its_cell(monkeypatch):
    class Compiler:
        def format_code_name(self, name):
            return ("Cell", "In[3]") if name == "/tmp/ipykernel_1/2.py" else None

    class Shell:
        compile = Compiler()

    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=Shell))
    assert str(Loc("/tmp/ipykernel_1/2.py", 7, "f")) == "Cell In[3]:7"
    assert str(Loc("/tmp/other.py", 7, "f")) == "/tmp/other.py:7"
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert str(Loc("/tmp/ipykernel_1/2.py", 7, "f")) == "/tmp/ipykernel_1/2.py:7"
