"""A file imports from the folders above it, never from those below."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pykittens"

# The order of the house. `pykittens` is the package itself, the language as a kernel imports it.
ORDER = (
    ["errors", "settings", "logger", "display", "types", "ir", "ops", "lang", "emulate", "targets", "analysis"]
    + ["aot", "runtime", "pykittens", "templates", "kernels", "mega", "models", "torch", "pictures", "checker", "cli"]
)  # fmt: skip
FILES = sorted(PACKAGE.rglob("*.py"))


def layer(parts: tuple[str, ...]) -> str:
    """The layer of a module of the package, by the parts of its name after `pykittens`."""
    return parts[0] if parts and parts[0] != "__init__" else "pykittens"


def module(path: Path) -> tuple[str, ...]:
    return path.relative_to(PACKAGE).with_suffix("").parts


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement that runs, and whether it is inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            if is_type_checking(child):
                continue
            yield child, inside
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from statements(child, inside or function)


def imported(path: Path, node: ast.stmt) -> list[tuple[str, ...]]:
    """The modules of the package that a statement imports, as parts after `pykittens`."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return []
    return [tuple(n.split(".")[1:]) for n in names if n.split(".")[0] == "pykittens"]


def target_layer(parts: tuple[str, ...]) -> str:
    """`from pykittens import bf16` imports the package itself, `from pykittens import settings` a part."""
    return parts[0] if parts and parts[0] in ORDER else "pykittens"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_from_the_folders_above_it_only(path: Path) -> None:
    own = layer(module(path))
    assert own in ORDER, f"{path} is in no layer of the house; give it a place in ORDER"
    for node, inside in statements(ast.parse(path.read_text(encoding="utf-8"))):
        for parts in imported(path, node):
            where = f"{path.relative_to(ROOT)}:{node.lineno} imports pykittens.{'.'.join(parts)}"
            assert not inside, (
                f"{where} inside a function; a cycle means a thing is in the wrong folder"
            )
            theirs = target_layer(parts)
            assert ORDER.index(theirs) <= ORDER.index(own), f"{where}, which stands below {own}"


def test_every_folder_has_its_place_in_the_order() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.rglob("*.py"))}
    assert folders <= set(ORDER)


def test_imports_by_name_are_known() -> None:
    """Few programs need the checker, pictures or the weights of models; the library loads its files."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), ast.unparse(node.args[0]))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
        and ast.unparse(node.args[0]).strip("'")
        not in ("nvidia", "tokenizers", "torch", "torch.nn.attention")
    }
    known = {
        ("__init__.py", "'pykittens.checker.check'"),
        ("__init__.py", "'pykittens.pictures.notebook'"),
        ("cli/generate.py", "'pykittens.models.checkpoint'"),
        ("cli/generate.py", "'pykittens.models.config'"),
        ("cli/generate.py", "'pykittens.models.llama'"),
        ("models/__init__.py", "'pykittens.models.loading'"),
        ("kernels/library.py", "f'{kernels.__name__}.{module.name}'"),
    }
    assert found == known, "a layer is named in one place only"
