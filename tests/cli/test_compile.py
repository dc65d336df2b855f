"""`pykittens compile` writes what it says, and says what is wrong with its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pykittens.cli import main
from pykittens.cli.arguments import file_and_kernel
from pykittens.errors import ArgumentError
from tests.conftest import EXAMPLES

MATMUL = str(EXAMPLES / "06_matmul.py")
ATTENTION = str(EXAMPLES / "07_attention.py")

TWO = '''
import pykittens as pk


@pk.kernel
def half(x, y, factor):
    """y = x * factor / 2."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * factor * 0.5)


@pk.kernel
def twice(x, y, *, by: int = 2):
    """y = x * by."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) * float(by))
'''


@pytest.fixture
def two(tmp_path: Path) -> str:
    file = tmp_path / "two.py"
    file.write_text(TWO)
    return str(file)


def matrices(*names: str, shape: str = "256,256", dtype: str = "bf16") -> list[str]:
    return [part for name in names for part in ("--arg", f"{name}={dtype}[{shape}]")]


def test_a_kernel_is_written_with_its_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "build" / "matmul"
    code = main(["compile", MATMUL, *matrices("A", "B", "C"), "--out", str(out)])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    names = sorted(p.name for p in out.iterdir())
    assert names == ["matmul.c", "matmul.h"] + [
        f"matmul.sm_90a.{ending}" for ending in ("cu", "cubin", "ptx")
    ]
    assert (out / "matmul.sm_90a.cubin").read_bytes()[:4] == b"\x7fELF"
    assert "matmul for sm_90a" in printed.out
    for name in names:
        size = f"{(out / name).stat().st_size:,}"
        assert re.search(rf"{re.escape(size)} ", printed.out), f"{name} has {size} bytes"
    assert "213,056 B" in printed.out
    assert "384" in printed.out


def test_constants_and_static_extents_are_in_the_header(tmp_path: Path) -> None:
    shape = "1,1,128,64"
    args = [*matrices("Q", "K", "V", "O", shape=shape), "--constant", "causal=true"]
    assert main(["compile", ATTENTION, *args, "--out", str(tmp_path)]) == 0
    header = (tmp_path / "attention.h").read_text()
    assert "// Q.shape[3]: 64\n" in header
    assert "// causal: True, a constant of the kernel\n" in header


def test_a_kernel_of_several_is_named_behind_the_file_or_apart(two: str, tmp_path: Path) -> None:
    arrays = matrices("x", "y", dtype="f32")
    scalar = ["--arg", "factor=1e-6"]
    assert main(["compile", f"{two}:half", *arrays, *scalar, "--out", str(tmp_path)]) == 0
    assert "const pk_tensor *y, float factor)" in (tmp_path / "half.h").read_text().replace(
        "\n" + " " * 16, " "
    )
    assert main(["compile", two, "--kernel", "twice", *arrays, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "twice.c").exists()


def test_a_colon_in_a_path_names_no_kernel() -> None:
    assert file_and_kernel("a.py", None) == ("a.py", None)
    assert file_and_kernel("a.py", "k") == ("a.py", "k")
    assert file_and_kernel("a.py:k", None) == ("a.py", "k")
    assert file_and_kernel("a.py:k", "k") == ("a.py", "k")
    assert file_and_kernel("a:b/c.py", None) == ("a:b/c.py", None)
    with pytest.raises(ArgumentError, match="names the kernel `k`, and --kernel names `other`"):
        file_and_kernel("a.py:k", "other")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["missing.py"], "there is no file missing.py"),
        (["TWO"], "has several kernels: half, twice"),
        (["TWO:third"], "has no kernel `third`"),
        (["TWO:half", "--arg", "x=f32[64,64]"], "`y` is missing"),
        (["TWO:twice", *matrices("x", "y", "z")], "--arg z: twice takes no such arg"),
        (["TWO:twice", *matrices("x", "y", dtype="f64")], "there is no dtype `f64`"),
        (["TWO:twice", *matrices("x", "y"), "--arch", "sm_20"], "sm_20"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_is_told(
    options: list[str], said: str, two: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [o.replace("TWO", two) for o in options]
    assert main(["compile", *options, "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_of_the_folder_is_told(
    two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", f"{two}:twice", *matrices("x", "y"), "--out", two]) == 1
    assert "`out` must be a folder" in capsys.readouterr().err
