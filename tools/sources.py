"""Writes the CUDA text of every example and every kernel of the library to a folder: sources.py FOLDER."""

import re
import sys
from pathlib import Path

from pykittens.errors import KernelError
from tests.targets.compiling import CASES, Case


def source(case: Case, arch: str) -> str:
    """The text for one architecture without comments, which quote lines of the kernel, and line numbers."""
    try:
        text = case.kernel.source(*case.args, arch=arch, **case.constants)
    except KernelError as error:
        return f"{type(error).__name__}: {error.message}\n"
    return re.sub(r"^(#line|\s*//).*\n", "", text, flags=re.MULTILINE)


def main() -> None:
    """One file per case and architecture."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES.values():
        for arch in case.targets:
            path = folder / f"{case.name}.{arch}.cu"
            path.write_text(source(case, arch), encoding="utf-8")


if __name__ == "__main__":
    main()
