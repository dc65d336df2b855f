"""Draw the pictures of docs/layouts.md; `make pictures` calls it."""

from __future__ import annotations

from pathlib import Path

from pykittens.pictures.picture import picture
from pykittens.types.text import parse

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

# The file, the type it shows and the warps of its group.
PICTURES = {
    "register_tile.svg": ("rt<bf16, 64x64>", 4),
    "register_tile_wide.svg": ("rt<f32, 128x256>", 4),
    "vector_per_row.svg": ("rv<f32, 64, per row>", 4),
    "vector_per_column.svg": ("rv<f32, 64, per column>", 4),
    "vector_plain.svg": ("rv<bf16, 2000, plain>", 4),
    "shared_128.svg": ("st<bf16, 64x64>", 4),
    "shared_64.svg": ("st<bf16, 64x32>", 4),
    "shared_32.svg": ("st<bf16, 64x80>", 4),
}


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (text, warps) in PICTURES.items():
        (FOLDER / name).write_text(picture(parse(text), warps), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
