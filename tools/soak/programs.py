"""Random programs: each is right by its own reference, and a GPU gives what the emulator gives.

Without a GPU each program is also compiled for Hopper: every legal kernel compiles.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import check
from tests import lanes, loop_programs, pipeline_programs, tile_programs
from tests.cases.core import unwritten
from tests.loop_programs import Loop, loaded, outputs, with_emulator, with_python, with_text
from tests.pipeline_parts import Program
from tests.pipeline_reference import exact
from tests.pipeline_source import kernel_of, source
from tests.tolerance import assert_within
from tools.soak.part import Part

Array = np.ndarray[Any, Any]
WRONG = "wrong"
# A product that feeds a sum may be fused on a GPU, so floats differ by roundings.
FUSED = 1e-4


def run_on(on_gpu: bool, kernel: Any, values: list[Any], outputs: list[Array]) -> list[Array]:
    """What a kernel writes to the outputs on a GPU; without one, nothing: it is compiled."""
    if not on_gpu:
        if nvrtc.available() is None:
            kernel.compile(*values, arch="sm_90a")
        return []
    import torch

    from tests.gpu.test_cases import on_gpu as moved
    from tests.gpu.test_cases import on_host

    tensors = [moved(v) if isinstance(v, np.ndarray) else v for v in values]
    kernel(*tensors)
    torch.cuda.synchronize()
    places = [next(i for i, v in enumerate(values) if v is out) for out in outputs]
    return [on_host(tensors[i], out) for i, out in zip(places, outputs, strict=True)]


def _beyond(found: Array, value: Array, error: Array, where: str) -> str:
    """Where a result is outside its bound."""
    try:
        assert_within(found, value, error)
    except AssertionError as fault:
        return f"{WRONG} {where}: {fault}"
    return ""


def tile_fault(program: tile_programs.Program, on_gpu: bool) -> str:
    """The fault of a program on tiles."""
    inputs, kernel = program.inputs(0), program.kernel()
    out = unwritten(inputs[0].shape, program.dtype)
    found = run_on(on_gpu, kernel, [*inputs, out], [out])
    kernel(*inputs, out)
    known = program.exact(*inputs)
    fault = _beyond(out, known.value, known.error, "in the emulator")
    for x in found:
        fault = fault or _beyond(x, known.value, known.error, "on the GPU")
    return fault


def pipeline_fault(program: Program, on_gpu: bool) -> str:
    """The fault of a pipeline program; the emulator runs it under two schedules."""
    kernel, given = kernel_of(program), pipeline_programs.arguments(program)
    known = exact(program, given)
    found = run_on(on_gpu, kernel, list(given.values()), [given["out"]])
    results = []
    for schedule in (0, 1):
        again = pipeline_programs.arguments(program)
        kernel.emulate(check(kernel.parameters, tuple(again.values()), {}), seed=schedule)
        results.append(again["out"])
        if fault := _beyond(again["out"], known.value, known.error, f"by schedule {schedule}"):
            return fault
    if not np.array_equal(*(x.view(np.uint8) for x in results)):
        return f"{WRONG}: schedule 1 gives other bits than schedule 0"
    for x in found:
        if fault := _beyond(x, known.value, known.error, "on the GPU"):
            return fault
        # Each may be off by its bound, so they by twice that of one another.
        if fault := _beyond(x, results[0].astype(np.float64), 2 * known.error, "beside it"):
            return fault
    return ""


def loop_fault(loop: Loop, on_gpu: bool) -> str:
    """The fault of a program of loops; the emulator, and its text on the CPU, give what Python gives in every bit."""
    with tempfile.TemporaryDirectory() as folder:
        kernel, arrays = pk.kernel(loaded(loop.source, Path(folder))), outputs()
        found = run_on(on_gpu, kernel, [*arrays, loop.n, loop.m, loop.u], list(arrays))
        expected = with_python(loop)
        here = {"in the emulator": with_emulator(loop, Path(folder))}
        if not on_gpu and lanes.COMPILER is not None:
            (here["as emitted text"],) = with_text([loop], Path(folder))
    for where, results in here.items():
        for x, y in zip(results, expected, strict=True):
            if not np.array_equal(x, y, equal_nan=True):
                return f"{WRONG} {where}: {x} instead of {y}"
    for x, y, near in zip(found, expected, (0.0, FUSED), strict=bool(found)):
        if not np.allclose(x, y, rtol=near, atol=near, equal_nan=True):
            return f"{WRONG} on the GPU: {x} instead of {y}"
    return ""


DTYPES = "from pykittens.types.dtypes import *\n"
TILES = Part(
    lambda seed, on_gpu: tile_programs.programs(),
    tile_fault,
    DTYPES + "from tests.tile_programs import Program",
    each=50,
    emulated=1000,
    on_gpu=10_000,
)
LOOPS = Part(
    lambda seed, on_gpu: loop_programs.programs(),
    loop_fault,
    "from tests.loop_programs import Loop",
    each=50,
    emulated=1000,
    on_gpu=8_000,
    source=lambda loop: loop.source,
)
PIPELINES = Part(
    lambda seed, on_gpu: pipeline_programs.programs(),
    pipeline_fault,
    DTYPES + "from tests.pipeline_parts import *",
    each=25,
    emulated=500,
    on_gpu=2_000,
    source=source,
)
