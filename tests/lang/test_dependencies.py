"""A recording is used for as long as all that it has read from outside is the same, and no longer."""

import argparse
import collections
import enum
import functools
import gc
import importlib
import logging
import math
import os
import sys
import textwrap
from dataclasses import dataclass
from types import FunctionType, ModuleType, SimpleNamespace

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import LanguageError
from pykittens.lang.contents import exact


@pytest.fixture
def module(tmp_path, monkeypatch):
    """`module(text)` imports a module with this text; `module(text)` again edits it and imports it anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(text, name="of_a_user", reload=True):
        path = tmp_path / f"{name}.py"
        path.write_text("import pykittens as pk\n" + textwrap.dedent(text))
        importlib.invalidate_caches()
        if not reload:
            return sys.modules[name]
        found = sys.modules.get(name)
        return importlib.reload(found) if found else importlib.import_module(name)

    yield load
    for name in ("of_a_user", "other"):
        sys.modules.pop(name, None)


def value(kernel, **constants):
    """The number that a kernel writes everywhere."""
    out = np.full((2, 8), np.nan, np.float32)
    kernel(out, **constants)
    assert (out == out[0, 0]).all()
    return float(out[0, 0])


def recordings(kernel):
    """How many recordings a kernel keeps."""
    return sum(map(len, kernel._recorded.values()))


def writes(make):
    """A kernel that writes the number that `make` returns."""

    @pk.kernel(warps=1)
    def kernel(out):
        (row,) = pk.grid(out.rows)
        pk.store(out[row], pk.full(pk.f32, make(), 8))

    return kernel


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Sizes:
    rows: float
    inner: object = None


class Settings:
    factor = 10.0

    def __init__(self, rows):
        self.rows = rows

    def scaled(self):
        return self.rows * self.factor

    @property
    def doubled(self):
        return self.rows * 2


class Slotted:
    __slots__ = ("rows",)


SCALE = 1.0
COLOUR = Colour.RED
NUMPY = np.float32(1)
SIZES = Sizes(1.0)
SETTINGS = Settings(1.0)
SLOTTED = Slotted()
SLOTTED.rows = 1.0
PLACES = SimpleNamespace(inner=SimpleNamespace(rows=1.0))
OPTIONS = argparse.Namespace(rows=1.0)
LIST = [1.0, 2.0]
DICT = {"a": 1.0}
DTYPE = pk.f32


def of_options(options):
    return options.rows


def plain():
    return 1.0


def with_default(x=1.0):
    return x


def by_name(name, x):
    """Set a name of this module."""
    globals()[name] = x


HERE = sys.modules[__name__]
MODULE = ModuleType("of_a_test")
MODULE.SCALE, MODULE.__file__ = 1.0, __file__
MADE = ModuleType("made_by_a_test")
MADE.SCALE = 1.0
CHANGES = {
    "a number": (lambda: SCALE, lambda: by_name("SCALE", 2.0)),
    "the sign of zero": (
        lambda: 1.0 if math.copysign(1, SCALE - 1.0) > 0 else 2.0 if SCALE else 3.0,
        lambda: by_name("SCALE", -0.0),
    ),
    "its type": (
        lambda: 1.0 if isinstance(SCALE, float) else 2.0,
        lambda: by_name("SCALE", 1),
    ),
    "an enumerator": (lambda: float(COLOUR.value), lambda: by_name("COLOUR", Colour.BLUE)),
    "a NumPy scalar": (lambda: float(NUMPY), lambda: by_name("NUMPY", np.float32(2))),
    "a frozen dataclass": (lambda: SIZES.rows, lambda: by_name("SIZES", Sizes(2.0))),
    "an attribute": (lambda: SETTINGS.rows, lambda: setattr(SETTINGS, "rows", 2.0)),
    "an attribute of a method": (
        lambda: SETTINGS.scaled() / 10,
        lambda: setattr(SETTINGS, "rows", 2.0),
    ),
    "an attribute of a class": (
        lambda: SETTINGS.scaled() / 10,
        lambda: setattr(Settings, "factor", 20.0),
    ),
    "a method": (
        lambda: SETTINGS.scaled() / 10,
        lambda: setattr(Settings, "scaled", lambda self: 20.0),
    ),
    "a property": (lambda: SETTINGS.doubled / 2, lambda: setattr(SETTINGS, "rows", 2.0)),
    "an attribute that is looked up": (
        lambda: getattr(SETTINGS, "ro" + "ws"),
        lambda: setattr(SETTINGS, "rows", 2.0),
    ),
    "an attribute of an object of a library": (
        lambda: of_options(OPTIONS),
        lambda: setattr(OPTIONS, "rows", 2.0),
    ),
    "a slot": (lambda: SLOTTED.rows, lambda: setattr(SLOTTED, "rows", 2.0)),
    "an attribute of an attribute": (
        lambda: PLACES.inner.rows,
        lambda: setattr(PLACES.inner, "rows", 2.0),
    ),
    "a variable of a module": (lambda: HERE.SCALE, lambda: by_name("SCALE", 2.0)),
    "a variable of a module that is looked up": (
        lambda: getattr(MODULE, "SC" + "ALE"),
        lambda: setattr(MODULE, "SCALE", 2.0),
    ),
    "a variable of a module without a file": (
        lambda: MADE.SCALE,
        lambda: setattr(MADE, "SCALE", 2.0),
    ),
    "a function of a module": (lambda: HERE.plain(), lambda: by_name("plain", lambda: 2.0)),
    "an item of a list": (lambda: LIST[0], lambda: LIST.__setitem__(0, 2.0)),
    "a list": (lambda: sum(LIST) / 3, lambda: LIST.append(3.0)),
    "an item of a dict": (lambda: DICT["a"], lambda: DICT.update(a=2.0)),
    "a dict": (lambda: sum(DICT.values()), lambda: DICT.update(b=1.0)),
    "a helper": (lambda: plain(), lambda: by_name("plain", lambda: 2.0)),
    "the code of a helper": (
        lambda: plain(),
        lambda: setattr(plain, "__code__", (lambda: 2.0).__code__),
    ),
    "a default": (lambda: with_default(), lambda: setattr(with_default, "__defaults__", (2.0,))),
    "a bound method": (
        functools.partial(Settings.scaled, SETTINGS),
        lambda: setattr(SETTINGS, "rows", 20.0),
    ),
    "the shape of an array": (
        lambda: float(ARRAY.shape[0]),
        lambda: by_name("ARRAY", np.zeros(9)),
    ),
    "a dtype": (lambda: 1.0 if pk.f32 == DTYPE else 2.0, lambda: by_name("DTYPE", pk.bf16)),
    "a name that Python had": (lambda: float(abs(-1.0)), lambda: by_name("abs", lambda x: 2.0)),
}


@pytest.fixture
def restored():
    """What the changes change, put back."""
    known, code, defaults = dict(globals()), plain.__code__, with_default.__defaults__
    method = Settings.scaled
    yield
    globals().pop("abs", None)
    globals().update(known)
    plain.__code__, with_default.__defaults__ = code, defaults
    Settings.scaled, Settings.factor, SETTINGS.rows, SLOTTED.rows = method, 10.0, 1.0, 1.0
    PLACES.inner.rows, LIST[:], OPTIONS.rows = 1.0, [1.0, 2.0], 1.0
    MODULE.SCALE = MADE.SCALE = 1.0
    DICT.clear()
    DICT["a"] = 1.0


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what, restored):
    make, change = CHANGES[what]
    kernel = writes(make)
    before = value(kernel)
    assert value(kernel) == before
    assert recordings(kernel) == 1
    change()
    after = value(kernel)
    assert after == value(writes(make)) != before
    assert recordings(kernel) == 2


def shifted(x):
    return x + SCALE


@dataclass(frozen=True)
class Steps:
    then: object


@pk.kernel(warps=1)
def passed(out, *, steps):
    """out = what the function that was passed makes of 0."""
    (row,) = pk.grid(out.rows)
    then = steps.then if isinstance(steps, Steps) else steps
    pk.store(out[row], then(pk.zeros(pk.f32, 8)))


@pytest.mark.parametrize("steps", [shifted, Steps(shifted), pk.function(shifted)])
def test_a_function_that_is_passed_is_followed_also_inside_of_a_dataclass(steps, restored):
    assert value(passed, steps=steps) == 1
    by_name("SCALE", 5.0)
    assert value(passed, steps=steps) == 5


def test_a_changed_variable_of_the_enclosing_function_is_seen():
    step = 3.0
    kernel = writes(lambda: step)
    assert value(kernel) == 3
    step = 4.0
    assert value(kernel) == 4


def test_a_variable_that_is_set_back_finds_its_recording(restored):
    kernel = writes(lambda: SCALE)
    for x in (1.0, 2.0, 1.0, 2.0, 1.0):
        by_name("SCALE", float(str(x)))  # another object each time
        assert value(kernel) == x
    assert recordings(kernel) == 2


def test_names_that_are_not_read_do_not_matter(restored):
    kernel = writes(lambda: SIZES.rows)
    value(kernel)
    by_name("SCALE", 5.0)
    SETTINGS.rows = 7.0
    value(kernel)
    assert recordings(kernel) == 1


def test_a_helper_that_is_defined_anew_with_the_same_text_changes_nothing(restored):
    def define():
        def helper():
            return SCALE * 2

        return helper

    by_name("helper_of_a_test", define())
    kernel = writes(lambda: helper_of_a_test())  # noqa: F821
    value(kernel)
    by_name("helper_of_a_test", define())
    value(kernel)
    assert recordings(kernel) == 1
    by_name("SCALE", 3.0)
    assert value(kernel) == 6
    del globals()["helper_of_a_test"]


def test_a_module_that_is_reloaded_is_read_again(module):
    other = module("SCALE = 1.0\ndef get():\n    return SCALE\n", "other")
    kernel = writes(lambda: other.get())
    assert value(kernel) == 1
    module("SCALE = 22.0\ndef get():\n    return SCALE\n", "other")
    assert value(kernel) == 22
    module("\n\nSCALE = 1.0\ndef get():\n    return SCALE\n", "other")
    assert value(kernel) == 1
    assert recordings(kernel) == 2  # lines do not matter


TEXT = """
    @pk.kernel(warps=1)
    def written(out):
        (row,) = pk.grid(out.rows)
        pk.store(out[row], pk.full(pk.f32, {number}, 8))
"""


def test_a_file_that_is_edited_after_its_import_changes_nothing(module):
    loaded = module(TEXT.format(number=1.0))
    module(TEXT.format(number=222.0), reload=False)
    assert value(loaded.written) == 1
    assert value(module(TEXT.format(number=222.0)).written) == 222


def test_a_file_that_is_edited_during_its_import_is_refused(module):
    edit = "import pathlib; pathlib.Path(__file__).write_text('def other():\\n    pass\\n' * 9)\n"
    loaded = module("\n" + edit + textwrap.dedent(TEXT.format(number=1.0)))
    with pytest.raises(LanguageError, match="written: its source was edited after it was defined"):
        value(loaded.written)


def test_a_kernel_whose_code_is_replaced_is_refused():
    @pk.kernel(warps=1)
    def kernel(out):
        (row,) = pk.grid(out.rows)
        pk.store(out[row], pk.full(pk.f32, 1.0, 8))

    value(kernel)
    kernel.function.__code__ = factorial.__code__.replace(co_freevars=())
    with pytest.raises(LanguageError, match="its code was replaced after it was defined"):
        value(kernel)


@pk.kernel(warps=1)
def by_constant(out, *, c):
    """out = 1 if c is 0, 2 if it is -0, ..."""
    (row,) = pk.grid(out.rows)
    first = c[0] if isinstance(c, tuple) else c() if callable(c) else c
    kind = 10.0 if isinstance(first, float) else 20.0
    pk.store(out[row], pk.full(pk.f32, kind + math.copysign(1, first), 8))


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: lambda: x])
def test_constants_are_compared_bit_by_bit(wrap):
    for x, expected in ((0.0, 11), (-0.0, 9), (0, 21), (0.0, 11), (False, 21), (-0.0, 9)):
        assert value(by_constant, c=wrap(x)) == expected


def test_a_function_or_a_nan_that_is_made_for_each_call_is_recorded_once():
    kernel = pk.kernel(warps=1)(by_constant.function)
    for _ in range(5):
        value(kernel, c=lambda: 1.0)
    assert recordings(kernel) == 1
    for _ in range(5):
        value(kernel, c=float("nan"))
    assert recordings(kernel) == 2
    assert exact(float("nan")) == exact(math.nan) != exact(-math.nan)


ARRAY = np.arange(8.0)
QUEUE = collections.deque([1.0])


def test_an_array_is_refused_with_its_line_and_the_ways_out():
    with pytest.raises(LanguageError) as caught:
        value(writes(lambda: float(ARRAY[0])))
    assert "`ARRAY` is an array, which can change" in str(caught.value)
    assert "pass it as an argument, or its values as a tuple" in str(caught.value)
    assert "ARRAY[0]" in str(caught.value)


@pytest.mark.parametrize("make", [lambda: float(os.environ["ROWS"]), lambda: QUEUE[0]])
def test_a_container_that_is_no_list_dict_or_set_is_refused(make, monkeypatch):
    monkeypatch.setenv("ROWS", "1")
    with pytest.raises(LanguageError, match="is a (_Environ|deque), which can change"):
        value(writes(make))


def test_a_logger_is_taken_as_constant():
    log = logging.getLogger("of_a_test")

    def make():
        log.info("recording")
        return 1.0

    assert value(writes(make)) == 1


def test_what_refers_to_too_much_is_refused():
    many = SimpleNamespace(all=list(map(float, range(5000))))
    with pytest.raises(LanguageError, match="more than 1000 values"):
        value(writes(lambda: float(len(vars(many)))))


def test_a_function_that_no_name_leads_to_is_refused():
    def found_by_a_search():
        return 1.0

    class Finder:
        def __getitem__(self, name):
            return next(
                f for f in gc.get_objects() if type(f) is FunctionType and f.__name__ == name
            )

    find = Finder()
    with pytest.raises(LanguageError, match="the kernel calls found_by_a_search, but no name"):
        value(writes(lambda: find["found_by_a_search"]()))


def test_a_helper_may_call_itself():
    assert value(writes(lambda: float(factorial(4)))) == 24


@pk.function
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


class Owner:
    __hidden = 3.0

    @staticmethod
    def make():
        @pk.kernel(warps=1)
        def kernel(out):
            (row,) = pk.grid(out.rows)
            pk.store(out[row], pk.full(pk.f32, Owner.__hidden, 8))

        return kernel

    @pk.kernel(warps=1)
    def kernel(out):  # noqa: N805
        (row,) = pk.grid(out.rows)
        pk.store(out[row], pk.full(pk.f32, Owner.__hidden, 8))


def test_private_names_of_a_class_are_those_of_the_class():
    assert value(Owner.kernel) == 3
    assert value(Owner.make()) == 3


def test_a_profiler_goes_on_after_a_recording():
    found = []

    def note(frame, event, arg):
        found.append(event)

    sys.setprofile(note)
    try:
        value(writes(lambda: 1.0))
        assert sys.getprofile() is note
    finally:
        sys.setprofile(None)


def test_a_profiler_in_c_goes_on_after_a_recording():
    import cProfile

    with cProfile.Profile() as profile:
        value(writes(lambda: 1.0))
        factorial(3)
    profile.create_stats()
    assert any(name == "factorial" for *_, name in profile.stats)
