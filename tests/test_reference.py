"""The pages list the functions of the package as they are, their examples run, and the site has every page."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import RegTile
from pykittens.ir.op import Op
from tools.reference import DOCS, NAMES, call, host_functions, markdown, written

ROOT = DOCS.parent
TORCH = (
    "attention based_attention causal_conv gated_delta_rule gated_linear_attention gated_mlp grouped_mm"
    " hedgehog_attention linear linear_attention long_conv mamba2 matmul op scaled_dot_product_attention scaled_mm"
).split()


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def headings(page: str) -> list[str]:
    return re.findall(r"^##+ (\S+)$", text_of(page), re.MULTILINE)


def passed(name: str, thing: Any, **names: Any) -> bool:
    """Whether a docstring has examples, and all of them print what they show."""
    known = {"np": np, "pk": pk, name: thing, **names}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", known, name, None, 0)
    return bool(test.examples) and doctest.DocTestRunner(verbose=False).run(test).failed == 0


@pytest.mark.parametrize("page", ["kernels.md", "api.md"])
def test_a_page_lists_its_functions_as_they_are(page: str) -> None:
    assert written(text_of(page)) == text_of(page), "`make inventory` writes the list anew"


def test_the_page_of_operators_lists_them_as_they_are() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert written(text_of("torch.md")) == text_of("torch.md"), "`make inventory`"


def test_every_public_name_has_its_place_on_a_page() -> None:
    operations = {n for n in pk.__all__ if isinstance(getattr(pk, n), Op)}
    assert sorted(pk.__all__) == sorted(
        operations.union(*(words.split() for words in NAMES.values()))
    )
    on_page = re.findall(r"`pk\.(\w+)[`(]|^### pk\.(\w+)$", text_of("api.md"), re.MULTILINE)
    assert {*pk.__all__} - operations <= {word for found in on_page for word in found}
    described = re.findall(r"^\*\*`pk\.(\w+)\(", text_of("ops.md"), re.MULTILINE)
    assert operations <= {*described}
    assert {*host_functions()} <= {*headings("kernels.md")}


def test_every_operator_of_pytorch_has_its_place_on_the_page() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import pykittens.torch

    assert {*pykittens.torch.__all__} == {*TORCH} <= {*headings("torch.md")}


@pytest.mark.parametrize("name", host_functions())
def test_the_example_of_a_function_of_the_library_runs(name: str) -> None:
    assert passed(name, host_functions()[name])


@pytest.mark.parametrize("name", TORCH)
def test_the_example_of_an_operator_runs(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import pykittens.torch

    assert passed(name, getattr(pykittens.torch, name), torch=torch)


@pytest.mark.parametrize("name", ["kernel", "function", "check"])
def test_the_example_of_a_function_of_the_package_runs(name: str) -> None:
    assert passed(name, getattr(pk, name))


def test_the_examples_of_the_page_of_kernels_run() -> None:
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", text_of("kernels.md"), re.S):
        exec(compile(example, "docs/kernels.md", "exec"), names)
    assert names["report"]


def test_a_docstring_becomes_markdown() -> None:
    doc = "a * b, as `x * y`.\n\n    y = x * x\n\n    >>> square(2)\n    4\n\nThe end."
    assert markdown(doc) == (
        "a \\* b, as `x * y`.\n\n    y = x * x\n\n```pycon\n>>> square(2)\n4\n```\n\nThe end."
    )


def test_the_parameters_that_a_description_names_are_code() -> None:
    doc = "a, b: (m, k). offsets: int32; see also: nothing. a * b, or a and b: sums."
    assert markdown(doc, {"a", "b", "offsets"}) == (
        "`a`, `b`: (m, k). `offsets`: int32; see also: nothing. a \\* b, or `a` and `b`: sums."
    )


def test_the_signature_of_gemm_has_its_further_arguments() -> None:
    lines = call("gemm", host_functions()["gemm"]).splitlines()
    assert "    **further," not in lines
    assert {"    bias=...,", "    activation: str = ...,"} <= {*lines}


def test_a_signature_shows_the_types_that_readers_know_and_how_arguments_are_passed() -> None:
    def scaled(x: RegTile, y: Path, /, *rest: Any, factor: float | None = None,
               order: Any = pk.row_major, kinds: Any = ("float", "int"), name: str = "a name") -> int:  # fmt: skip
        """A function of many arguments, of which Path is no type of a kernel."""

    assert call("scaled", scaled).splitlines() == [
        "scaled(",
        "    x: RegTile,",
        "    y,",
        "    /,",
        "    *rest,",
        "    factor: float | None = None,",
        "    order=pk.row_major,",
        "    kinds=('float', 'int'),",
        "    name: str = 'a name',",
        ") -> int",
    ]
    assert call("st", pk.st) == "st(dtype: DType, rows: int, cols: int)"
    assert call("overlap", pk.overlap) == "overlap(*, ready=())"


def test_the_site_has_every_page() -> None:
    listed = set(re.findall(r"\S+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    pages = {p.relative_to(ROOT).as_posix() for p in [*DOCS.glob("*.md"), *ROOT.glob("*.md")]}
    assert pages <= listed
    assert {p for p in listed if not (ROOT / p).exists()} == set()
