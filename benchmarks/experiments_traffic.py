"""Bytes that launches read from and write to the memory of a GPU: counted by ncu, or simulated without a GPU."""

from __future__ import annotations

import csv
import glob
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.analysis.traffic.cache import traffic
from pykittens.runtime.arguments import check
from pykittens.types.devices import DEVICES, H200, DeviceSpec

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
# Where the toolkit installs ncu, if it is not on the PATH.
LOCATIONS = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
SECONDS = 180.0


@dataclass(frozen=True)
class Bytes:
    """The bytes that a launch reads from memory and writes to it, and the source of the numbers."""

    read: float
    written: float
    source: str


def counted(command: Sequence[str], kernel: str, names: Sequence[str]) -> dict[str, Bytes] | str:
    """The bytes of each launch of a kernel by a command, named in order; or the reason why they are unknown."""
    ncu = shutil.which("ncu") or next(
        (p for where in LOCATIONS for p in sorted(glob.glob(where))), ""
    )
    if not ncu:
        return "there is no ncu"
    asked = [ncu, "--clock-control", "none", "--metrics", f"{READ},{WRITTEN}", "--csv"]
    asked += ["--print-units", "base", "--kernel-name", f"regex:{kernel}", *command]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"ncu fails: {fault}"
    values = parsed(done.stdout)
    if any(len(values[name]) != len(names) for name in (READ, WRITTEN)):
        return f"ncu counts nothing: {_complaint(done.stdout + done.stderr)}"
    pairs = zip(names, values[READ], values[WRITTEN], strict=True)
    return {name: Bytes(read, written, "counted by ncu") for name, read, written in pairs}


def parsed(text: str) -> dict[str, list[float]]:
    """The values of both metrics per launch, from the output of ncu."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    values: dict[str, list[float]] = {READ: [], WRITTEN: []}
    for row in csv.DictReader(lines):
        name, value = row.get("Metric Name"), row.get("Metric Value")
        if name in values and value and row.get("Metric Unit") == "byte":
            values[name].append(float(value.replace(",", "")))
    return values


def _complaint(text: str) -> str:
    """The line with ncu's error."""
    lines = [line for line in text.splitlines() if "ERR" in line or "rror" in line]
    return (lines or text.splitlines() or ["no output"])[0].strip()


def device_of(card: str) -> DeviceSpec:
    """The device with a card's name; an H200 if there is none."""
    return next((d for d in DEVICES.values() if d.name.split()[0] in card.split()), H200)


def simulated(kernel: Any, size: int, card: str, **constants: Any) -> Bytes:
    """The simulated bytes of a product of size x size, with one block per multiprocessor."""
    device = device_of(card)
    small = np.zeros((256, 256), ml_dtypes.bfloat16)
    arguments = check(kernel.parameters, (small, small.copy(), small.copy()), constants)
    recorded = kernel.record(arguments)
    found = traffic(recorded, dict.fromkeys(arguments.tensors, (size, size)), {}, device)
    return Bytes(found.total.hbm_read, found.total.hbm_written, f"simulated for {device}")
