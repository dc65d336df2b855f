"""Lines of code by folder, without blank lines, comments and docstrings: weight.py [COMMIT].

With a commit, the lines of the commit and of the working tree beside each other.
"""

import argparse
import functools
import io
import operator
import re
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

FOLDERS = ("pykittens", "examples", "tests", "tools", "benchmarks")
GOLDEN = "golden"  # texts that a program writes
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
STATEMENT_ENDS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
# A literal is matched so that a comment is not found inside it.
C_COMMENT = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)

Files = Mapping[str, str]  # the text of each file by its path


def python_lines(text: str) -> int:
    """Lines that hold code; a string that is a statement of its own is a docstring."""
    lines: set[int] = set()
    is_statement_start = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in NO_CODE:
            is_statement_start |= token.type in STATEMENT_ENDS
            continue
        if not (is_statement_start and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        is_statement_start = False
    return len(lines)


def c_lines(text: str) -> int:
    """Lines of C, C++ or CUDA that hold code."""
    bare = C_COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text)
    return sum(bool(line.strip()) for line in bare.splitlines())


def shell_lines(text: str) -> int:
    """Lines of a shell script that hold code."""
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines()
    )


COUNTERS: dict[str, Callable[[str], int]] = {
    ".py": python_lines,
    ".sh": shell_lines,
    **dict.fromkeys((".c", ".h", ".cu", ".cuh"), c_lines),
}


def is_source(path: PurePosixPath) -> bool:
    """Whether the lines of a file are counted."""
    return path.parts[0] in FOLDERS and path.suffix in COUNTERS and GOLDEN not in path.parts


def files_on_disk(root: Path) -> Files:
    """The source files below a folder."""
    paths = {p.relative_to(root).as_posix(): p for f in FOLDERS for p in (root / f).rglob("*")}
    found = {name: path for name, path in paths.items() if is_source(PurePosixPath(name))}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


def files_of(commit: str, root: Path) -> Files:
    """The source files of a commit of the repository at `root`."""
    command = ["git", "-C", str(root), "archive", "--format=tar", commit]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    files: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member) if is_source(PurePosixPath(member.name)) else None
            if content is not None:
                files[member.name] = content.read().decode("utf-8")
    return files


def folder_of(name: str) -> str:
    """The row of a file: a folder of the package, or a folder beside the package."""
    first, *between, _ = PurePosixPath(name).parts
    return f"{first}/{between[0]}" if first == "pykittens" and between else first


def weights(files: Files) -> Counter[str]:
    """Lines of code by folder."""
    counted: Counter[str] = Counter()
    for name, text in files.items():
        counted[folder_of(name)] += COUNTERS[PurePosixPath(name).suffix](text)
    return counted


def table(columns: Mapping[str, Counter[str]]) -> str:
    """A line a folder, the heaviest first, and the sums; with two columns, the change at the end of the line."""
    heaviest: Counter[str] = functools.reduce(operator.or_, columns.values())
    folders = [folder for folder, _ in heaviest.most_common()]
    groups = {folder: [folder] for folder in folders}
    groups["all of pykittens"] = [f for f in folders if f.startswith("pykittens")]
    groups["all"] = folders
    lines = [f"{'lines of code':20}" + "".join(f"{title[:9]:>10}" for title in columns)]
    for title, group in groups.items():
        sums = [sum(column[folder] for folder in group) for column in columns.values()]
        change = f"{sums[-1] - sums[0]:+,}" if sums[-1] != sums[0] else ""
        lines.append(f"{title:20}{''.join(f'{n:10,}' for n in sums)}{change:>9}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Print the lines of the working tree, after those of a commit if one is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="a commit to compare with")
    commit = parser.parse_args().commit
    root = Path(__file__).resolve().parent.parent
    columns = {commit: weights(files_of(commit, root))} if commit else {}
    print(table({**columns, "here": weights(files_on_disk(root))}))


if __name__ == "__main__":
    main()
