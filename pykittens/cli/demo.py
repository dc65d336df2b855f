"""`pykittens demo`: checks examples in the emulator, compiles them for Hopper, and runs them if there is one."""

from __future__ import annotations

import argparse
import functools
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from pykittens.cli import arguments, screen
from pykittens.cli.compile import TAKEN, taken
from pykittens.runtime import driver, nvrtc
from pykittens.runtime.launch import current_stream
from pykittens.runtime.timing import Timer

ARCH = "sm_90a"
# The kernels of the demo, with sizes that fill a GPU.
LARGE = {
    "softmax": (16384, 2048),
    "matmul": (8192, 8192, 8192),
    "attention": (16, 16, 1536, 128),
}
WARM_UP, LAUNCHES = 5, 20

Array = np.ndarray[Any, Any]


class Subject:
    """An example: its entry in the catalog, its kernel, and small arrays of the CPU."""

    def __init__(self, catalog: Any, entry: Any) -> None:
        loaded = catalog.load(entry)
        self.entry, self.kernel, self._reference = entry, loaded.kernel, loaded.reference
        self.arrays: list[Array] = catalog.arrays(entry, entry.small)
        self.error: Callable[[Array, Array], float] = catalog.error

    def launch(self, arrays: Sequence[Any]) -> None:
        """Run the kernel on arrays of the CPU or of a GPU."""
        self.kernel(*arrays, **self.entry.constants)

    def error_of(self, output: Array) -> float:
        """The error of the output for the small arrays, against the float64 reference."""
        return self.error(output, self._reference(*self.arrays[:-1], **self.entry.constants))


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="run matmul, softmax and attention, check them, compile them for Hopper"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the demo; the exit code is 1 if a result is wrong."""
    console = screen.console()
    folder = examples()
    if folder is None:
        console.print(
            "The demo runs the kernels of the folder `examples`, which a wheel lacks: run it in a clone."
        )
        return 0
    catalog = arguments.load(folder / "catalog.py")
    subjects = [Subject(catalog, entry) for entry in catalog.EXAMPLES if entry.name in LARGE]
    right = emulate(console, subjects)
    compile_all(console, subjects)
    right = on_gpu(console, subjects) and right
    console.print("All results are right." if right else "[bold red]Some results are wrong.[/]")
    return 0 if right else 1


def examples() -> Path | None:
    """The examples of the source tree; None if the package was installed without it."""
    beside = Path(__file__).resolve().parents[2] / "examples"
    folders = (beside, Path.cwd() / "examples")
    return next((f for f in folders if (f / "01_copy.py").is_file()), None)


def emulate(console: Console, subjects: Sequence[Subject]) -> bool:
    """Run each kernel on small arrays in the emulator; returns whether all results are right."""
    title = "In the emulator, bf16, against the float64 reference"
    table = screen.table(title, "kernel", "shape", "error", "bound", "time", "")
    all_right = True
    for subject in subjects:
        entry = subject.entry
        start = time.perf_counter()
        subject.launch(subject.arrays)
        seconds = time.perf_counter() - start
        error = subject.error_of(subject.arrays[-1])
        right = error <= entry.bound  # false for NaN
        all_right &= right
        checked = f"{error:.1e}", f"{entry.bound:.1e}", f"{seconds:.2f} s", _verdict(right)
        table.add_row(entry.title, _sizes(entry.small), *checked)
    console.print(table)
    return all_right


def compile_all(console: Console, subjects: Sequence[Subject]) -> None:
    """Compile each kernel for Hopper and print its resources; this needs no GPU."""
    if (missing := nvrtc.available()) is not None:
        console.print(f"Not compiled: {missing}.")
        return
    table = screen.table(f"Compiled for {ARCH}", "kernel", *TAKEN)
    for subject in subjects:
        constants = subject.entry.constants
        resources = subject.kernel.resources(*subject.arrays, arch=ARCH, **constants)
        table.add_row(subject.entry.title, *taken(resources))
    console.print(table)


def on_gpu(console: Console, subjects: Sequence[Subject]) -> bool:
    """Compare each kernel with the vendor's library on the first GPU, if it is a Hopper; whether all are right."""
    if (reason := _no_gpu()) is not None:
        console.print(f"Not run on a GPU: {reason}.")
        return True
    torch: Any = importlib.import_module("torch")
    title = f"On {driver.device(0).name}, isolated launches, medians of interleaved launches"
    columns = ("kernel", "shape", "error", "bound", "rate", "vendor's library", "ratio", "")
    table = screen.table(title, *columns)
    all_right = True
    torch.manual_seed(0)
    for subject in subjects:
        entry, sizes = subject.entry, LARGE[subject.entry.name]
        small = [torch.from_numpy(a.astype(np.float32)).cuda().bfloat16() for a in subject.arrays]
        subject.launch(small)
        error = subject.error_of(_to_numpy(small[-1]))
        large = [torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in entry.shapes(*sizes)]
        vendor, work, unit = _beside(torch, entry, sizes, large[:-1])
        subject.launch(large)
        beside = subject.error(_to_numpy(large[-1]), _to_numpy(vendor()).astype(np.float64))
        # Both results are rounded, so twice the error is allowed.
        right = error <= entry.bound and beside <= 2 * entry.bound
        all_right &= right
        ours, theirs = _medians(torch, functools.partial(subject.launch, large), vendor)
        rates = (f"{work / seconds / 1e12:.3g} {unit}" for seconds in (ours, theirs))
        checked = f"{error:.1e}", f"{entry.bound:.1e}"
        ratio = f"{theirs / ours:.2f}"
        table.add_row(entry.title, _sizes(sizes), *checked, *rates, ratio, _verdict(right))
    console.print(table)
    return all_right


def _no_gpu() -> str | None:
    """Why the demo cannot run on a GPU here; None if it can."""
    missing = driver.available() or nvrtc.available()
    if missing is not None:
        return missing
    device = driver.device(0)
    if device.arch != ARCH:
        return f"{device.name} is {device.arch}, the examples are written for {ARCH}"
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return "PyTorch, which holds the arrays, is not installed"
    return None if torch.cuda.is_available() else "this build of PyTorch has no CUDA"


def _to_numpy(tensor: Any) -> Array:
    array: Array = tensor.float().cpu().numpy()
    return array


def _beside(
    torch: Any, entry: Any, sizes: tuple[int, ...], inputs: Sequence[Any]
) -> tuple[Callable[[], Any], float, str]:
    """The same computation in cuBLAS, cuDNN or, for softmax, PyTorch; its operations or bytes; the unit of the rate."""
    match entry.name:
        case "matmul":
            m, n, k = sizes
            return lambda: inputs[0] @ inputs[1].T, 2.0 * m * n * k, "TFLOP/s"
        case "attention":
            b, h, n, d = sizes
            causal: bool = entry.constants["causal"]
            attention = importlib.import_module("torch.nn.attention")
            sdpa = torch.nn.functional.scaled_dot_product_attention

            def cudnn() -> Any:
                with attention.sdpa_kernel(attention.SDPBackend.CUDNN_ATTENTION):
                    return sdpa(*inputs, is_causal=causal)

            return cudnn, 4.0 * b * h * n * n * d * (0.5 if causal else 1), "TFLOP/s"
        case _:
            m, n = sizes
            return lambda: torch.softmax(inputs[0], dim=-1), 4.0 * m * n, "TB/s"


def _medians(torch: Any, *launches: Callable[[], object]) -> list[float]:
    """Median seconds of a launch of each, interleaved, with the L2 cache flushed before each launch."""
    gpu = driver.device(0)
    # Large, so that the GPU is busy until the next launch is queued: cuDNN takes long on the host.
    flush = torch.empty(8 * gpu.l2_bytes, dtype=torch.uint8, device="cuda")
    with gpu.current(), Timer(gpu, current_stream(0), flush.zero_) as timer:
        rounds = [[timer.times(f, 1)[0] for f in launches] for _ in range(WARM_UP + LAUNCHES)]
    return [statistics.median(times) / 1e3 for times in zip(*rounds[WARM_UP:], strict=True)]


def _sizes(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def _verdict(right: bool) -> str:
    return "[green]right[/]" if right else "[bold red]wrong[/]"
