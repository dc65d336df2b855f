"""Lay out the pages of the documentation as they lie in the repository; `make docs` calls it before MkDocs.

Links between pages, to examples and to results stay what they are. A link to a folder leads to a list of its files.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
FOLDERS = ("docs", "examples", "benchmarks/results")
SHOWN = (".md", ".py", ".json", ".svg", ".png", ".ipynb")


def main() -> None:
    """Write build/pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    files = [*ROOT.glob("*.md"), ROOT / "LICENSE"]
    files += [f for folder in FOLDERS for f in (ROOT / folder).rglob("*") if f.suffix in SHOWN]
    for file in files:
        to = PAGES / file.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_bytes()
        if file.suffix == ".md":
            text = text.replace(b"(../benchmarks/results)", b"(../benchmarks/results/index.md)")
        to.write_bytes(text)
    results = sorted((PAGES / "benchmarks" / "results").glob("*"))
    lines = "\n".join(f"- [{f.name}]({f.name})" for f in results)
    (PAGES / "benchmarks/results/index.md").write_text(f"# Results\n\n{lines}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
