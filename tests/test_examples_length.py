"""The examples stay as short as they were promised: lines of the kernel, without comments and blank lines."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# From the decorator to the last line of the function.
MOST = {
    "01_copy.py": 6,
    "02_add.py": 8,
    "03_softmax.py": 10,
    "04_matmul_tile.py": 16,
    "05_matmul_pipeline.py": 18,
    "06_matmul.py": 26,
    "07_attention.py": 37,
    "08_lcsf.py": 24,
    "09_own_kernel.py": 19,
    "10_own_operation.py": 7,
    "matmul_ladder/01_warp.py": 16,
    "matmul_ladder/02_tile.py": 16,
    "matmul_ladder/03_warpgroup.py": 16,
    "matmul_ladder/04_copies.py": 16,
    "matmul_ladder/05_pipeline.py": 18,
    "matmul_ladder/06_consumers.py": 18,
    "matmul_ladder/07_persistent.py": 26,
    "matmul_ladder/08_neighbours.py": 26,
}
LONGEST_FILE = 120


def lines_of_code(source: str) -> int:
    """Lines of the one kernel in a file that hold more than a comment."""
    (kernel,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any("kernel" in ast.unparse(d) for d in node.decorator_list)
    )
    first, last = kernel.decorator_list[0].lineno, kernel.end_lineno
    assert last is not None
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in empty:
            held.update(range(token.start[0], token.end[0] + 1))
    return len([n for n in held if first <= n <= last])


def test_every_example_has_a_promise() -> None:
    assert {p.relative_to(EXAMPLES).as_posix() for p in EXAMPLES.rglob("[0-9]*.py")} == MOST.keys()


@pytest.mark.parametrize("name", MOST)
def test_an_example_is_no_longer_than_a_page_or_two(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("name", MOST)
def test_a_kernel_is_no_longer_than_promised(name: str) -> None:
    assert lines_of_code((EXAMPLES / name).read_text(encoding="utf-8")) <= MOST[name]
