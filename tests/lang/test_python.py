"""Kernels written with what newer releases of Python have, and what these releases changed."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from pykittens.lang import bytecode, python_errors

ROOT = Path(__file__).resolve().parents[2]
START = "import pykittens as pk\nfrom typing import TYPE_CHECKING\n"
LOADED = "    pk.grid(1)\n    t = pk.load(x, rows=64, cols=64)\n"
STORED = "    pk.store(y, t + 1.0)\n"

PROGRAMS = {
    "annotations": (
        (3, 11),
        '@pk.kernel\ndef k(x: "Absent", y: int) -> None:\n'
        + LOADED
        + "    t: float = t\n"
        + STORED,
    ),
    "annotations that nobody evaluates": (
        (3, 14),
        "if TYPE_CHECKING:\n    from typing import Any as Absent\n\n\n"
        "@pk.kernel\ndef k(x: Absent, y: Absent) -> Absent:\n" + LOADED + STORED,
    ),
    "an annotated helper": (
        (3, 14),
        "@pk.function\ndef same(t: Absent) -> Absent:\n    return t\n\n\n"
        "@pk.kernel\ndef k(x, y):\n" + LOADED + "    t = same(t)\n" + STORED,
    ),
    "comprehensions": (
        (3, 11),
        "@pk.kernel\ndef k(x, y):\n"
        + LOADED
        + "    ts = [t * i for i in range(3)]\n"
        + "    t = sum([u for u in ts[1:]], ts[0]) - {n: u for n, u in zip('ab', ts)}['b'] * 2.0\n"
        + STORED,
    ),
    "a slice that is a constant": (
        (3, 11),
        "@pk.kernel\ndef k(x, y):\n" + LOADED + "    t = t[:, 0:64]\n" + STORED,
    ),
    "type parameters": (
        (3, 12),
        "@pk.function\ndef same[T](t: T) -> T:\n    return t\n\n\n"
        "class Holder[U]:\n    @staticmethod\n    @pk.kernel\n    def k[T](x: T, y: U):\n"
        + re.sub(
            "^", "    ", LOADED + "    t = same(t)\n    assert T is not None\n" + STORED, flags=re.M
        )
        + "\n\nk = Holder.k\n",
    ),
    "quotes inside an f-string": (
        (3, 12),
        "@pk.kernel\ndef k(x, y):\n" + LOADED + '    name = f"{f"{len("ab")}"}"\n' + STORED,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_runs(name: str, tmp_path: Path) -> None:
    release, text = PROGRAMS[name]
    if sys.version_info < release:
        pytest.skip(f"needs Python {release[0]}.{release[1]}")
    file = tmp_path / "program.py"
    file.write_text(START + text)
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    module.k(x, y)
    assert (y == 1).all()


def test_no_signature_evaluates_annotations() -> None:
    """`inspect.signature` does from Python 3.14 on."""
    users = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "pykittens").rglob("*.py")
        if "inspect.signature" in file.read_text(encoding="utf-8")
    ]
    assert users == ["pykittens/ir/signature.py"]


@pytest.mark.parametrize(
    "message",
    [
        "'Global' object does not support the context manager protocol",
        "'pykittens.ir.values.Global' object does not support the context manager protocol",
    ],
)
def test_the_class_of_a_value_is_given_in_words(message: str) -> None:
    assert python_errors._plain(message) == "a tensor does not support the context manager protocol"


NUMBERS = (1.0, 2.0, 3.0)


def test_a_slice_of_a_constant_is_not_followed() -> None:
    """It is a new object each time, and from Python 3.14 on its bounds are one constant."""
    found = bytecode.reads((lambda: (NUMBERS[0:2], NUMBERS[1])).__code__)
    assert [read.steps for read in found] == [(), (("item", 1),)]
