"""A kernel and its arguments are read from the command line, or refused in sentences."""

from __future__ import annotations

import argparse
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest

from pykittens.cli import arguments, main
from pykittens.errors import ArgumentError
from pykittens.types.dtypes import DTYPES, bf16

ONE = '''"""A file with one kernel."""
from dataclasses import dataclass

import pykittens as pk
import beside


@dataclass
class Sizes:
    rows: int = 64


@pk.kernel
def scaled(x, y, factor, *, dtype=pk.f32, causal: bool = False, word="a"):
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor)
'''

FURTHER = '''"""A file with a kernel that takes any number of tensors."""
import pykittens as pk


@pk.kernel
def summed(y, *terms):
    total = pk.zeros(pk.f32, 64, 64)
    for term in terms:
        total = total + pk.load(term[0, 0], rows=64, cols=64)
    pk.store(y[0, 0], total)
'''

BIASED = '''"""A file with a kernel that takes an optional tensor."""
import pykittens as pk


@pk.kernel
def biased(y, bias):
    pk.grid(1)
    t = pk.zeros(pk.f32, 64, 64)
    if bias is not None:
        t = t + pk.load(bias, rows=64, cols=64)
    pk.store(y[0, 0], t)
'''

TWO = '''"""A file with two kernels, and a third from elsewhere."""
import pykittens as pk
from one import scaled


@pk.kernel
def first(x):
    pk.store(x[0, 0], pk.zeros(pk.f32, 64, 64))


@pk.kernel
def second(x):
    pk.store(x[0, 0], pk.zeros(pk.f32, 64, 64))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(ONE)
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "two.py").write_text(TWO)
    (tmp_path / "further.py").write_text(FURTHER)
    return tmp_path


def request(*words: str) -> arguments.Request:
    parser = argparse.ArgumentParser()
    arguments.add(parser)
    return arguments.request(parser.parse_args(words))


def refused(*words: str) -> str:
    with pytest.raises(ArgumentError) as caught:
        request(*words)
    return str(caught.value)


X, Y = ("--arg", "x=f32[100,130]"), ("--arg", "y=f32[100, 130]")


def test_arrays_and_numbers_come_in_the_order_of_the_signature(folder: Path) -> None:
    found = request(f"{folder / 'one.py'}", "--arg", "factor=1e-6", *Y, *X)
    x, y, factor = found.args
    assert found.kernel.parameters.name == "scaled"
    assert (x.dtype, x.shape, y.shape, factor) == (np.float32, (100, 130), (100, 130), 1e-6)
    assert found.constants == {}
    assert "void" in found.kernel.source(*found.args, **found.constants)


def test_an_argument_may_be_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "biased.py").write_text(BIASED)
    words = [str(folder / "biased.py"), "--arg", "bias=None", "--arg", "y=f32[64,64]"]
    found = request(*words)
    assert found.args[1] is None
    assert "float* bias" not in found.kernel.source(*found.args)
    assert main(["check", *words, "--no-costs"]) == 0
    assert "bias : None" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_an_array_is_of_the_dtype_that_is_named(dtype) -> None:
    array = arguments.argument("a", f"{dtype}[3, 5]")
    assert (array.dtype, array.shape) == (dtype.numpy, (3, 5))
    assert array.ctypes.data % 16 == 0, "the copy engine shall reach it"


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-2", -2), ("1e-6", 1e-6), ("True", True), ("false", False), ("None", None)],
)
def test_a_number_or_none_is_read_as_python_reads_it(text: str, value: object) -> None:
    found = arguments.argument("n", text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("true", True),
        ("None", None),
        ("'row'", "row"),
        ("(1, 2)", (1, 2)),
        ("bf16", bf16),
        ("[1]", [1]),
    ],
)
def test_a_constant_is_a_literal_or_a_dtype(text: str, value: object) -> None:
    found = arguments.constant("c", text)
    assert found == value
    assert type(found) is type(value)


def test_further_arguments_are_named_with_their_numbers(folder: Path) -> None:
    file = str(folder / "further.py")
    asked = request(file, *Y, "--arg", "terms1=f32[3, 4]", "--arg", "terms0=f32[5, 6]")
    assert [a.shape for a in asked.args] == [(100, 130), (5, 6), (3, 4)]
    assert len(request(file, *Y).args) == 1
    assert "it takes y, terms0" in refused(file, *Y, "--arg", "terms1=f32[3, 4]")


def test_constants_reach_the_kernel(folder: Path) -> None:
    found = request(
        str(folder / "one.py"), *X, *Y, "--arg", "factor=2.0",
        "--constant", "dtype=bf16", "--constant", "causal=true",
    )  # fmt: skip
    assert found.constants == {"dtype": bf16, "causal": True}


def test_a_kernel_is_chosen_by_name_among_several(folder: Path) -> None:
    two = str(folder / "two.py")
    assert request(two, "--kernel", "second", *X).kernel.parameters.name == "second"
    assert request(f"{two}:first", *X).kernel.parameters.name == "first"
    assert arguments.find_kernel(arguments.load(two), "scaled").parameters.name == "scaled"
    assert "several kernels: first, second\n" in refused(two, *X)
    assert "has no kernel `third`" in refused(two, "--kernel", "third", *X)
    assert "it has first, second" in refused(two, "--kernel", "third", *X)
    assert "names the kernel `first`, and --kernel" in refused(f"{two}:first", "--kernel", "second")


def test_loading_a_file_leaves_nothing_on_the_path(folder: Path) -> None:
    import sys

    path = list(sys.path)
    arguments.load(str(folder / "one.py"))
    assert sys.path == path


def test_a_file_that_cannot_be_loaded_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import numpy\nvalue = 1 / 0\n")
    assert "broken.py cannot be loaded: ZeroDivisionError" in refused(str(file))
    assert "broken.py:2" in refused(str(file))
    assert "value = 1 / 0" in refused(str(file))
    file.write_text("\n\ndef f(:\n")
    assert "broken.py:3" in refused(str(file))
    assert "there is no file" in refused(str(tmp_path / "absent.py"))
    assert "is a folder" in refused(str(tmp_path))
    assert "is not a Python file" in refused(str(Path(__file__).parents[2] / "README.md"))
    file.write_text("a = 1\n")
    assert "has no kernel" in refused(str(file))


def test_a_missing_argument_is_told_with_what_to_write(folder: Path) -> None:
    text = refused(str(folder / "one.py"), *X)
    assert "scaled: `y` is missing" in text
    assert "--arg y=DTYPE[SHAPE] --arg factor=DTYPE[SHAPE]" in text


def test_a_name_the_kernel_does_not_take_is_refused(folder: Path) -> None:
    one = str(folder / "one.py")
    assert "it takes x, y, factor" in refused(one, *X, *Y, "--arg", "z=1")
    assert "it is given with --constant" in refused(one, *X, *Y, "--arg", "causal=True")
    assert "it is given with --arg" in refused(one, *Y, "--constant", "x=1")
    assert "--arg x is given twice" in refused(one, *X, *X)
    assert "a name, `=` and a value are expected" in refused(one, "--arg", "f32[3]")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f64[3]", "there is no dtype `f64`"),
        ("abc", "neither an array nor a number"),
        ("'abc'", "neither an array nor a number"),
        ("f32[3", "neither an array nor a number"),
        ("f32[-3]", "neither an array nor a number"),
        ("f32[99999999999,99999999999]", "--arg n="),
    ],
)
def test_a_value_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        arguments.argument("n", text)
    assert message in str(caught.value)


def test_a_text_constant_without_quotes_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        arguments.constant("order", "row")
    assert "--constant \"order='row'\"" in str(caught.value)


def test_an_array_takes_little_more_memory_than_its_elements() -> None:
    tracemalloc.start()
    made = arguments.random_numbers("x", (4096, 4096), DTYPES["e4m3"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < made.nbytes + 16 * 2**20
    assert np.isfinite(made[:8].astype(np.float32)).all()
    again = arguments.random_numbers("x", (4096, 4096), DTYPES["f32"])
    expected = np.random.default_rng(zlib.crc32(b"x")).standard_normal((4096, 4096))
    assert (again == expected.astype(np.float32)).all()
