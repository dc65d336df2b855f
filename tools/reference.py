"""Writes the lists of functions in docs/kernels.md, docs/torch.md and docs/api.md: signatures and docstrings."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pykittens as pk
from pykittens.kernels.library import HostFunction, load_all

DOCS = Path(__file__).resolve().parent.parent / "docs"
# A list is between two comments; the first names it.
LIST = re.compile(r"(<!-- (\w+), written by tools/reference.py -->\n).*?(<!-- end of \2 -->)", re.S)
WIDTH = 76  # of a line of code on the site

# The names of the package that are no operations, by subject.
NAMES = {
    "Kernels": "kernel function KernelFunction autotune check require static KernelError",
    "Blocks and loops": "grid persistent resident overlap supergroup longest_first row_major column_major peers range",
    "Roles": "producer consumers storer warpgroups warps homes in_turn",
    "Shared memory": "shared pipeline semaphore st sv publish",
    "Functions of tiles and vectors": "online_softmax normalize gelu rotary rotate_half rotate_pairs uniform "
    "outer_add outer_sub outer_mul tril triu left_fill right_fill upper_fill lower_fill "
    "diagonal diagonal_matrix with_row with_column in_lane_order from_lane_order",
    "Complex tiles": "ComplexTile complex_mma_AB",
    "Values of a kernel": "Global TileRef SharedTile SharedRow SharedVector Semaphore RegTile RegVector Scalar",
    "Types and constants": "DType bf16 f16 f32 e4m3 e5m2 int8 uint8 int32 int64 bool_ "
    "Spread per_row per_column plain lane_order inf log2e",
    "Operations of one's own": "op Effects ScalarMeaning Mismatch inline_cuda",
}
# Of a class that the language makes, what users call and read. Users make objects of the other classes.
MEMBERS = {
    "KernelFunction": "debug profile source compile resources",
    "Global": "rows cols shape tiles at window",
    "SharedTile": "tiles row",
    "SharedRow": "",
    "SharedVector": "parts",
    "Semaphore": "arrive expect wait",
    "RegTile": "to",
    "RegVector": "to",
    "ComplexTile": "conj times_conj to loaded store",
    "Scalar": "to",
    "TileRef": "",
    "DType": "bytes compute epsilon least largest",
    "Spread": "",
    "KernelError": "",
    "in_turn": "",
}
CONSTANTS = {
    "Order": "orders of tasks for `pk.persistent`, one row or one column of tiles after the other.",
    "DType": "the dtypes, each a `pk.DType`.",
    "Spread": "the layouts of a vector, each a `pk.Spread`.",
    "float": "infinity, and the logarithm of e to base 2.",
}
# A signature shows these types and those of the package.
TYPES = {"Tensor", "int", "float", "bool", "str", "None", "Callable", "Iterable", "Literal"}


class _Text(str):
    """A part of a signature that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def markdown(doc: str, parameters: Collection[str] = ()) -> str:
    """A docstring as Markdown: an indented block is code, and so is the name of a parameter that it describes.

    The stars of products are no emphasis.
    """
    return "\n\n".join(_block(text, parameters) for text in doc.split("\n\n"))


def _block(text: str, parameters: Collection[str]) -> str:
    if text.lstrip().startswith(">>> "):
        return f"```pycon\n{textwrap.dedent(text)}\n```"
    if text.startswith("    "):
        return text

    def described(found: re.Match[str]) -> str:
        names = re.split(r"(,\s|\sand\s)", found[0])
        return "".join(
            f"`{n}`" if i % 2 == 0 and n in parameters else n for i, n in enumerate(names)
        )

    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        stars = parts[i].replace("*", r"\*")
        parts[i] = re.sub(r"\b\w+(?:(?:,\s|\sand\s)\w+)*(?=:\s)", described, stars)
    return "".join(parts)


def call(name: str, function: Any) -> str:
    """A function with its parameters, as in a call."""
    signature = _signature(function)
    parameters = [
        p.replace(annotation=_type(p.annotation), default=_default(p.default))
        for p in signature.parameters.values()
    ]
    result = _type(signature.return_annotation)
    text = f"{name}{signature.replace(parameters=parameters, return_annotation=result)}"
    if len(text) <= WIDTH:
        return text
    inside, end = re.findall(r"[\w.]+\((.*)(\)(?: -> .*)?)$", text)[0]
    lines = "".join(f"    {part},\n" for part in re.split(r", (?![^\[(]*[\])])", inside))
    return f"{name}(\n{lines}{end}"


def _signature(function: Any) -> inspect.Signature:
    """The signature of a function; keyword arguments that a TypedDict names are parameters of their own."""
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()]
    if parameters and (named := re.fullmatch(r"Unpack\[(\w+)\]", str(parameters[-1].annotation))):
        fields = inspect.unwrap(function).__globals__[named[1]].__annotations__
        parameters[-1:] = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_Text("..."),
                annotation=of.__forward_arg__,
            )
            for name, of in fields.items()
        ]
    return signature.replace(parameters=parameters)


def _type(annotation: Any) -> Any:
    """An annotation, if readers know its types and it says something."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    words = {*re.findall(r"\w+", re.sub(r"'[^']*'", "", text))}
    is_known = words <= TYPES | {*pk.__all__} and text != "None"
    return _Text(text) if is_known else inspect.Parameter.empty


def _default(value: Any) -> Any:
    """A default value; objects by their names in the package."""
    if hasattr(value, "__dataclass_fields__"):
        named = (f"pk.{n}" for n in pk.__all__ if value is getattr(pk, n))
        return _Text(next(named, f"{type(value).__name__}()"))
    return value


def section(title: str, name: str, thing: Any, source: str = "") -> Iterator[str]:
    """A function or class: where it comes from, how it is called, and its docstring."""
    yield title
    if source:
        yield f"`{source}`"
    members = MEMBERS.get(name.removeprefix("pk."))
    if members is None:
        yield f"```\n{call(name, thing)}\n```"
    yield markdown(inspect.getdoc(thing) or "", _signature(thing).parameters)
    if members:
        yield "\n".join(_member(thing, member) for member in members.split())


def _member(of: type, name: str) -> str:
    """A method or property as an item of a list."""
    found = inspect.getattr_static(of, name)
    words = re.sub(r"\(self(, )?", "(", call(name, found)) if inspect.isfunction(found) else name
    about = (inspect.getdoc(found) or "").partition("\n\n")[0].replace("\n", " ")
    return f"- `.{words}`: {markdown(about)}"


def host_functions() -> dict[str, HostFunction]:
    """The functions of the library by name; some, such as gradients, are no entries of its table."""
    load_all()
    modules = [m for name, m in sys.modules.items() if name.startswith("pykittens.kernels.")]
    found = (f for m in modules for f in vars(m).values())
    return {f.__name__: f for f in found if inspect.isfunction(f) and hasattr(f, "plan")}


def kernels() -> Iterator[str]:
    """The functions of the library."""
    for name, function in sorted(host_functions().items()):
        module, package = function.__module__, function.__module__.rpartition(".")[0]
        if getattr(sys.modules[package], name, None) is function:
            module = package
        yield from section(f"## {name}", name, function, f"from {module} import {name}")


def operators() -> Iterator[str]:
    """The operators of PyTorch."""
    module = importlib.import_module("pykittens.torch")
    for name in module.__all__:
        source = f"from {module.__name__} import {name}"
        yield from section(f"### {name}", name, getattr(module, name), source)


def names() -> Iterator[str]:
    """The names of the package that are no operations."""
    for subject, words in NAMES.items():
        yield f"## {subject}"
        constants: dict[str, list[str]] = {}
        for word in words.split():
            thing = getattr(pk, word)
            if callable(thing):
                yield from section(f"### pk.{word}", f"pk.{word}", thing)
            else:
                constants.setdefault(type(thing).__name__, []).append(f"`pk.{word}`")
        yield from (f"{', '.join(found)}: {CONSTANTS[kind]}" for kind, found in constants.items())


LISTS = {"kernels": kernels, "operators": operators, "names": names}


def written(document: str) -> str:
    """A page with its list."""

    def filled(found: re.Match[str]) -> str:
        return "\n\n".join([found[1], *LISTS[found[2]](), found[3]]).replace("\n\n\n", "\n\n")

    return LIST.sub(filled, document)


if __name__ == "__main__":
    has_torch = importlib.util.find_spec("torch") is not None
    for page in ("kernels.md", "api.md", *(["torch.md"] if has_torch else [])):
        file = DOCS / page
        file.write_text(written(file.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
