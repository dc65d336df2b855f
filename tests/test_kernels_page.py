"""The page of the library lists its functions as they are, and its examples run."""

import re
from pathlib import Path

from tools.kernels_page import DOCUMENT, written

PAGE = Path(DOCUMENT).read_text(encoding="utf-8")


def test_the_page_lists_every_function_of_the_library() -> None:
    assert written(PAGE) == PAGE, "`make inventory` writes the list anew"


def test_the_examples_of_the_page_run() -> None:
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(compile(example, str(DOCUMENT), "exec"), names)
    assert names["report"]
