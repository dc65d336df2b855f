"""What `pykittens doctor` looks at where kernels run: the driver, every GPU, PyTorch."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

from pykittens import settings
from pykittens.cli import trial
from pykittens.cli.findings import Finding, Findings, Mark
from pykittens.errors import KernelError
from pykittens.runtime import driver, nvrtc
from pykittens.targets.architectures import TARGETS, target_for

# Of a Linux whose kernel has NVIDIA's driver.
_DEVICE_FILE = Path("/dev/nvidiactl")


def gpu() -> Findings:
    """The driver and every GPU it sees."""
    yield from (found := list(_driver()))
    if found[-1].mark is not Mark.OK:
        return
    count = driver.device_count()
    if count == 0:
        yield Finding("GPU", Mark.OPTIONAL, "none: kernels run in the emulator")
    for ordinal in range(count):
        yield _device(ordinal)


def _driver() -> Findings:
    try:
        version = driver.version()
    except KernelError as error:
        if "NO_DEVICE" in error.message:
            yield Finding("CUDA driver", Mark.OPTIONAL, "it sees no GPU")
        elif "not found" in error.message and not _DEVICE_FILE.exists():
            yield Finding("CUDA driver", Mark.OPTIONAL, "none: kernels run in the emulator")
        else:
            help = "install or update NVIDIA's driver; in a container, let it see the host's"
            yield Finding("CUDA driver", Mark.WRONG, error.message, help)
        return
    text = f"for CUDA {version[0]}.{version[1]} and older"
    with contextlib.suppress(KernelError):  # a missing compiler is told by another check
        if (needed := nvrtc.version()[0]) > version[0]:
            yield Finding(
                "CUDA driver",
                Mark.WRONG,
                f"{text}; it does not load what NVRTC {needed} compiles",
                f"update the driver to one for CUDA {needed}",
            )
            return
    yield Finding("CUDA driver", Mark.OK, text)


def _device(ordinal: int) -> Finding:
    device = driver.device(ordinal)
    memory = driver.memory_bytes(ordinal) / 2**30
    text = f"{device.name}, {device.arch}, {memory:.0f} GiB"
    try:
        target = target_for(device.arch, settings.target())
    except KernelError as error:
        return Finding(f"GPU {ordinal}", Mark.OPTIONAL, f"{text}: {error.message}")
    # One made for this card shares the lowerings of the target it comes from.
    served = next(n for n, t in TARGETS.items() if t.lowerings is target.lowerings)
    return Finding(f"GPU {ordinal}", Mark.OK, f"{text}, served by the target {served}")


def torch() -> Findings:
    """PyTorch, which holds the arrays on a GPU."""
    with_gpu = driver.available() is None
    try:
        module: Any = importlib.import_module("torch")
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        yield Finding(
            "PyTorch",
            Mark.OPTIONAL if absent else Mark.WRONG,
            "not installed; on a GPU its tensors are the arguments" if absent else str(error),
            "pip install torch" if with_gpu else "",
        )
        return
    version = str(module.__version__)
    if module.cuda.is_available():
        yield Finding("PyTorch", Mark.OK, f"{version} with CUDA {module.version.cuda}")
    elif with_gpu:
        yield Finding(
            "PyTorch",
            Mark.WRONG,
            f"{version} cannot use the GPU",
            "pip install --force-reinstall torch, from an index with CUDA: https://pytorch.org",
        )
    else:
        yield Finding("PyTorch", Mark.OK, f"{version}, on the CPU")


def launch() -> Findings:
    """A kernel run on the first GPU, where there is one and PyTorch to hold the arrays."""
    module: Any = sys.modules.get("torch")
    if driver.available() or nvrtc.available() or module is None or not module.cuda.is_available():
        return
    x, y = trial.arrays()
    try:
        on_gpu = [module.from_numpy(array).cuda() for array in (x, y)]
        trial.centred(*on_gpu)
        y = on_gpu[1].cpu().numpy()
    except KernelError as error:
        yield Finding("launch", Mark.WRONG, error.message, error.help or "")
        return
    if trial.is_right(x, y):
        yield Finding("launch", Mark.OK, "a kernel ran right on GPU 0")
    else:
        yield Finding("launch", Mark.WRONG, "a kernel ran on GPU 0, and its result is wrong")
