"""`pykittens demo`: the examples checked in the emulator, compiled for Hopper and, where there is one, run there."""

from __future__ import annotations

import argparse
import functools
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from pykittens.cli import examples, screen
from pykittens.cli.examples import EXAMPLES, Example, Loaded
from pykittens.runtime import driver, nvrtc

ARCH = "sm_90a"
SHOWN = [e for e in EXAMPLES if e.name in ("softmax", "matmul", "attention")]
WARM_UP, LAUNCHES = 5, 20


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo", help="run matmul, softmax and attention, check them, compile them for Hopper"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 if a result is wrong."""
    console = screen.console()
    folder = examples.folder()
    if folder is None:
        console.print(
            "The demo runs the kernels of the folder `examples`, which only the source tree has."
        )
        return 0
    loaded = [(e, examples.load(folder, e)) for e in SHOWN]
    right = emulate(console, loaded)
    compile_all(console, loaded)
    right = on_gpu(console, loaded) and right
    console.print("All results are right." if right else "[bold red]Some results are wrong.[/]")
    return 0 if right else 1


def emulate(console: Console, loaded: list[tuple[Example, Loaded]]) -> bool:
    """Run each kernel on small arrays in the emulator; whether all are right."""
    table = screen.table("In the emulator, bf16, against the float64 reference")
    for column in ("kernel", "shape", "error", "bound", "time", ""):
        table.add_column(column)
    all_right = True
    for example, module in loaded:
        arrays = examples.arrays(example, example.small)
        start = time.perf_counter()
        module.kernel(*arrays, **example.constants)
        seconds = time.perf_counter() - start
        found = examples.error(arrays[-1], _reference(example, module, arrays))
        right = found <= example.bound  # false for NaN
        all_right &= right
        table.add_row(
            example.title,
            _sizes(example.small),
            f"{found:.1e}",
            f"{example.bound:.1e}",
            f"{seconds:.2f} s",
            _verdict(right),
        )
    console.print(table)
    return all_right


def compile_all(console: Console, loaded: list[tuple[Example, Loaded]]) -> None:
    """Compile each kernel for Hopper and print what it takes; no GPU is needed."""
    missing = nvrtc.available()
    if missing is not None or not hasattr(loaded[0][1].kernel, "resources"):
        console.print(f"Not compiled: {missing or 'this version has no code generator'}.")
        return
    table = screen.table(f"Compiled for {ARCH}")
    for column in (
        "kernel",
        "registers",
        "spills",
        "shared memory",
        "registers a role, used of its budget",
    ):
        table.add_column(column)
    for example, module in loaded:
        arrays = examples.arrays(example, example.small)
        takes = module.kernel.resources(*arrays, arch=ARCH, **example.constants)
        roles = (
            f"{r.role} {r.used}" + (f" of {r.budget}" if r.budget else "") for r in takes.roles
        )
        table.add_row(
            example.title,
            str(takes.registers),
            "\n".join(takes.spills) or f"{takes.frame} B",
            f"{takes.shared_bytes:,} B",
            ", ".join(roles) or "no disassembler here",
        )
    console.print(table)


def on_gpu(console: Console, loaded: list[tuple[Example, Loaded]]) -> bool:
    """Run each kernel on the first GPU, if it is a Hopper, beside the vendor's library; whether all are right."""
    reason = _no_gpu()
    if reason is not None:
        console.print(f"Not run on a GPU: {reason}.")
        return True
    torch: Any = importlib.import_module("torch")
    device = driver.device(0)
    table = screen.table(f"On {device.name}, isolated launches, medians taken in turn")
    for column in ("kernel", "shape", "error", "bound", "rate", "vendor's library", "ratio", ""):
        table.add_column(column)
    all_right = True
    for example, module in loaded:
        right, found = _check_on_gpu(torch, example, module)
        tensors = _random_tensors(torch, example)
        *inputs, output = tensors
        vendor = _vendor(torch, example, inputs)
        module.kernel(*tensors, **example.constants)
        beside = examples.error(_to_numpy(output), _to_numpy(vendor()).astype(np.float64))
        # The vendor's result is rounded as ours is.
        right = right and beside <= 2 * example.bound
        all_right &= right
        ours, theirs = _medians(
            torch, functools.partial(module.kernel, *tensors, **example.constants), vendor
        )
        work = example.work(*example.large) / 1e12
        table.add_row(
            example.title,
            _sizes(example.large),
            f"{found:.1e}",
            f"{example.bound:.1e}",
            f"{work / ours:.3g} {example.unit}",
            f"{work / theirs:.3g} {example.unit}",
            f"{theirs / ours:.2f}",
            _verdict(right),
        )
    console.print(table)
    return all_right


def _no_gpu() -> str | None:
    """Why nothing can run on a GPU here, None if it can."""
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


def _check_on_gpu(torch: Any, example: Example, module: Loaded) -> tuple[bool, float]:
    """Whether the kernel is right on the emulator's arrays, and its error."""
    arrays = examples.arrays(example, example.small)
    tensors = [torch.from_numpy(a.astype(np.float32)).cuda().bfloat16() for a in arrays]
    module.kernel(*tensors, **example.constants)
    found = examples.error(_to_numpy(tensors[-1]), _reference(example, module, arrays))
    return found <= example.bound, found


def _reference(example: Example, module: Loaded, arrays: list[examples.Array]) -> examples.Array:
    return module.reference(*arrays[:-1], **example.constants)


def _random_tensors(torch: Any, example: Example) -> list[Any]:
    torch.manual_seed(0)
    shapes = example.shapes(*example.large)
    return [torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shapes]


def _to_numpy(tensor: Any) -> examples.Array:
    array: examples.Array = tensor.float().cpu().numpy()
    return array


def _vendor(torch: Any, example: Example, inputs: list[Any]) -> Callable[[], Any]:
    """The same computation in cuBLAS, cuDNN or, for softmax, PyTorch."""
    match example.name:
        case "matmul":
            return lambda: inputs[0] @ inputs[1].T
        case "attention":
            attention = importlib.import_module("torch.nn.attention")
            sdpa = torch.nn.functional.scaled_dot_product_attention

            def cudnn() -> Any:
                with attention.sdpa_kernel(attention.SDPBackend.CUDNN_ATTENTION):
                    return sdpa(*inputs, is_causal=example.constants["causal"])

            return cudnn
        case _:
            return lambda: torch.softmax(inputs[0], dim=-1)


def _medians(torch: Any, *calls: Callable[[], Any]) -> list[float]:
    """Seconds of one launch of each, taken in turn, with the L2 cache emptied before each."""
    flush = torch.empty(8 * driver.device(0).l2_bytes, dtype=torch.uint8, device="cuda")
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(WARM_UP + LAUNCHES):
        for call, kept in zip(calls, times, strict=True):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            start.record()
            call()
            stop.record()
            torch.cuda.synchronize()
            if turn >= WARM_UP:
                kept.append(start.elapsed_time(stop) / 1e3)
    return [statistics.median(t) for t in times]


def _sizes(sizes: examples.Shape) -> str:
    return " x ".join(map(str, sizes))


def _verdict(right: bool) -> str:
    return "[green]right[/]" if right else "[bold red]wrong[/]"
