"""What the benchmarks write: the machine and the versions, rows of figures, tables, files and pictures."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from protocol import Figure, driver_version

import pykittens as pk

Row = dict[str, Any]
RESULTS = Path(__file__).resolve().parent / "results"
SCALES = {"TFLOP/s": 1e-9, "GB/s": 1e-6}  # from FLOP or bytes per ms


def parser(description: str | None, rounds: int | None = 5) -> argparse.ArgumentParser:
    """A command line with the options that every benchmark has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--out", type=Path, default=RESULTS)
    made.add_argument("--label", default="", help="added to the names of the files")
    return made


def about() -> dict[str, Any]:
    """The card, the driver, the date and the versions."""
    return {
        "card": torch.cuda.get_device_properties(0).name,
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "pykittens": pk.__version__,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def heading(about: Mapping[str, Any]) -> str:
    """The machine and the versions on one line."""
    return ", ".join(f"{name} {value}" for name, value in about.items())


def row(
    kernel: str,
    shape: str,
    protocol: str,
    ours: Figure,
    library: Figure,
    work: float,
    error: float,
    unit: str = "TFLOP/s",
) -> Row:
    """A row of a table; `work` is FLOP or bytes per launch."""
    return {
        "kernel": kernel,
        "shape": shape,
        "protocol": protocol,
        "ours": work / ours.median * SCALES[unit],
        "library": work / library.median * SCALES[unit],
        "against": library.name,
        "unit": unit,
        "ratio": library.median / ours.median,
        "error": error,
        "rounds": {f.name: f.rounds for f in (ours, library)},
    }


def markdown(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(map(str, cells))} |" for cells in rows]
    return "\n".join(lines)


def table(rows: Iterable[Row], shape: str = "Shape") -> str:
    """The rows as Markdown."""
    return markdown(
        ("Kernel", shape, "Protocol", "pykittens", "Library", "Ratio", "Relative error"),
        (
            (
                *(r["kernel"], r["shape"], r["protocol"], f"{r['ours']:,.1f} {r['unit']}"),
                *(f"{r['against']} {r['library']:,.1f}", f"{r['ratio']:.3f}", f"{r['error']:.1e}"),
            )
            for r in rows
        ),
    )


def save(results: Mapping[str, Any], folder: Path, name: str, text: str = "") -> Path:
    """Write the figures as JSON and the text as Markdown; returns the path of the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    card = results["about"]["card"].replace(" ", "-").lower()
    path = folder / f"{card}-{results['about']['date'].replace(' ', '-to-')}-{name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if text:
        path.with_suffix(".md").write_text(text, encoding="utf-8")
    return path


def draw(plot: Callable[[Path], Path] | None, path: Path, command: str) -> None:
    """Draw the figures of a file, or say how to draw them later."""
    if plot is None:
        print(f"no picture, as matplotlib is not installed; later: {command} {path}")
    else:
        print(plot(path))
