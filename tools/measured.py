"""Draw the ratios of README.md from the committed results; `make pictures` calls it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from pykittens.pictures.svg import HUES, INK, MARGIN, RULE, Drawing

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "pictures" / "measured.svg"
RESULTS = ROOT / "benchmarks" / "results"
# Runs of the same kernels; a bar is the geometric mean of their ratios.
RUNS = ("nvidia-h200-2026-11-21-burst-a", "nvidia-h200-2026-11-21-burst-b")
ATTENTION = {
    "attention": ("nvidia-h200-2026-11-24-attention-forward", "forward"),
    "its gradients, any order": (
        "nvidia-h200-2026-11-24-attention-backward",
        "backward, free order",
    ),
}
LENGTHS = ("16, 16, 768", "16, 16, 1536", "16, 16, 3072", "16, 16, 6144", "4, 16, 12288")
PRODUCTS = "nvidia-h200-2026-11-29-gemm-burst-fifth"

LABEL, UNIT, HEIGHT, GAP = 290, 190, 22, 8  # pixels; UNIT: those of a ratio of 1


def main() -> None:
    """Write the picture."""
    FILE.write_text(picture(), encoding="utf-8", newline="\n")


def picture() -> str:
    """The picture as a file."""
    about = rows_of(RUNS[0])[1]
    drawing = Drawing(
        "Speed in units of the vendor's library",
        f"{about['card']}, bf16, random normal data, bursts; right of the line pykittens is faster",
    )
    bars = measured()
    left, top = MARGIN + LABEL, drawing.top - 10
    bottom = top + len(bars) * (HEIGHT + GAP)
    for tick in range(3):
        x = left + tick * UNIT
        drawing.line(x, top - 6, x, bottom, INK if tick == 1 else RULE)
        drawing.text(x, bottom + 16, f"{tick}.0", "axis")
    for number, (label, against, ratio) in enumerate(bars):
        y = top + number * (HEIGHT + GAP)
        drawing.text(left - 10, y + 15, label, "side")
        width = round(ratio * UNIT)
        drawing.rect(left, y, width, HEIGHT, HUES[4])
        drawing.text(left + width + 8, y + 15, f"{ratio:.2f} of {against}", "note")
    drawing.line(left + UNIT, top - 6, left + UNIT, bottom, INK)
    return drawing.svg()


def rows_of(name: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows of a file of results, and the machine."""
    data = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return data["rows"], data["about"]


def measured() -> list[tuple[str, str, float]]:
    """What each bar shows: the kernel and its shape, the library, the ratio of its time to ours."""
    bars = []
    for name, shape in (("softmax bf16", "(16384, 2048)"), ("rms_norm bf16", "(16384, 2048)")):
        bars.append(_mean(RUNS, name, shape, name.removesuffix(" bf16")))
    products = [r for r in rows_of(PRODUCTS)[0] if "ratio" in r and r["against"] == "cuBLAS"]
    bars.append(
        (
            f"matrix products, {len(products)} shapes",
            "cuBLAS",
            geometric_mean(r["ratio"] for r in products),
        )
    )
    for label, (run, kernel) in ATTENTION.items():
        for d in (64, 128):
            for causal in ("", " causal"):
                shapes = [f"{length}, {d}{causal}" for length in LENGTHS]
                rows = [
                    r
                    for r in rows_of(run)[0]
                    if (r["kernel"], r["shape"] in shapes) == (kernel, True)
                ]
                assert len(rows) == len(shapes), f"{run} has a row for each of {shapes}"
                ratio = geometric_mean(r["ratio"] for r in rows)
                bars.append((f"{label}, d = {d}{causal}", rows[0]["against"], ratio))
    return bars


def _mean(runs: tuple[str, ...], kernel: str, shape: str, label: str) -> tuple[str, str, float]:
    found = [r for n in runs for r in rows_of(n)[0] if (r["kernel"], r["shape"]) == (kernel, shape)]
    assert len(found) == len(runs), f"each run has a row {kernel} {shape}"
    return f"{label} {shape}", found[0]["against"], geometric_mean(r["ratio"] for r in found)


if __name__ == "__main__":
    main()
