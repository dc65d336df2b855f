"""Kernels launched from a C program, which is checked by plain loops: no Python and no CUDA toolkit takes part.

The program is built here with gcc, or taken as built elsewhere: PYKITTENS_AOT_PROGRAM names it, or it is
build/aot/program. `python tests/gpu/test_aot.py DIR` builds it in a folder, with no GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.cli.arguments import load
from pykittens.kernels.rms_norm import rms_norm_rows
from tests.kernels_cluster import cluster_matmul

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent.parent
BUILT = ROOT / "build" / "aot" / "program"
SOURCE = Path(__file__).with_name("aot_program.c")


@pk.kernel
def scaled(x, y, factor, times, negated):
    """y = x * factor**times, with the other sign if `negated`."""
    pk.require(times >= 0, "times must not be negative")
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    for _ in pk.range(times):
        t = t * factor
    if negated:
        t = -t
    pk.store(y[row, col], t)


def build(folder: Path) -> Path:
    """The program, built with the kernels it launches."""
    examples = ROOT / "examples"
    half, single = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros((64, 64), np.float32)
    rows = np.zeros((4, 2048), ml_dtypes.bfloat16)
    made = [
        load(examples / "02_add.py").add.compile(single, single, single, out=folder),
        load(examples / "06_matmul.py").matmul.compile(half, half, half, out=folder),
        cluster_matmul.compile(half, half, half, out=folder),
        scaled.compile(single, single, 1.0, 1, False, out=folder),
        rms_norm_rows.compile(rows, rows[0], rows, 1e-6, out=folder),
    ]
    sources = [folder / f"{compiled.source.name}.c" for compiled in made]
    program = folder / "program"
    flags = ["-std=gnu11", "-O2", "-Wall", "-I", folder, "-o", program]
    libraries = ["-ldl", "-lm", "-lpthread"]
    subprocess.run(["gcc", *flags, SOURCE, *sources, *libraries], check=True)
    return program


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("PYKITTENS_AOT_PROGRAM")
    if named is not None:
        return Path(named)
    if shutil.which("gcc") is not None:
        return build(tmp_path_factory.mktemp("aot"))
    if BUILT.exists():
        return BUILT
    pytest.skip(f"there is no gcc here, and no {BUILT} that was built elsewhere")


def test_a_c_program_launches_kernels_that_compute_what_its_loops_do(program: Path) -> None:
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines) == 14
    assert [line for line in lines if not line.endswith(": right")] == []


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    print(build(where))
