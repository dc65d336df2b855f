"""The five largest source files; exits 1 if one has more than 500 lines."""

import sys
from pathlib import Path

MOST = 500
FOLDERS = ("pykittens", "examples", "tests", "tools", "benchmarks")
ENDINGS = (".py", ".cuh", ".sh")


def sizes(root: Path) -> list[tuple[int, Path]]:
    """Lines and path of every source file, the largest first."""
    files = [p for f in FOLDERS for p in (root / f).rglob("*") if p.suffix in ENDINGS]
    counted = [(len(p.read_text(encoding="utf-8").splitlines()), p) for p in files]
    return sorted(counted, reverse=True)


def main() -> int:
    """Print the largest; 1 if one is too large."""
    root = Path(__file__).resolve().parent.parent
    found = sizes(root)
    for lines, path in found[:5]:
        print(f"{lines:5}  {path.relative_to(root)}")
    too_large = [(lines, path) for lines, path in found if lines > MOST]
    for lines, path in too_large:
        name = path.relative_to(root)
        print(f"{name} has {lines} lines; split it by family at {MOST}", file=sys.stderr)
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())
