"""The code of docs/mega.md runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "mega.md"


def test_the_code_of_the_page_runs(tmp_path):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S))
    file = tmp_path / "page.py"
    file.write_text(code, "utf-8")
    found = runpy.run_path(str(file))
    assert found["report"].ok
