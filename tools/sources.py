"""Writes the CUDA text of every example of the tree this is run in: sources.py FOLDER."""

import sys
from pathlib import Path

from pykittens.cli.examples import EXAMPLES, arrays, load

ARCH = "sm_90a"


def main() -> None:
    """One file an example."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        kernel = load(Path("examples"), example).kernel
        text = kernel.source(*arrays(example, example.small), arch=ARCH, **example.constants)
        # Line directives and comments may name the tree.
        text = text.replace(str(Path.cwd()), ".")
        stem = example.title.replace(", ", "-")
        (folder / f"{stem}.cu").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
