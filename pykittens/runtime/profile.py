"""Launches with clock reads: the memory that the groups of a kernel write their reads to, and the timings in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_uint64
from typing import TYPE_CHECKING, Any

import numpy as np

from pykittens.analysis.timeline.clocks import HEAD, Names, profile_of
from pykittens.analysis.timeline.profile import Profile
from pykittens.errors import ArgumentError, BackendError
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Kernel, Tasks
from pykittens.ir.numbers import is_int, number
from pykittens.runtime import driver
from pykittens.runtime.arguments import Arguments, check, check_requirements, known_values
from pykittens.runtime.launch import Launch, Loaded, check_not_captured, current_stream, grid_size

if TYPE_CHECKING:
    from pykittens.runtime.kernel import KernelFunction

CLOCK_READS = 4096  # that a group records by default
_MOST_READS = 1 << 18  # places of records are numbers of 32 bits
MOST_BLOCKS = 256  # that record their reads


def profiled(
    kernel: KernelFunction,
    args: tuple[Any, ...],
    constants: Mapping[str, Any],
    clock_reads: int,
    names: Names | None = None,
) -> Profile:
    """The timings of one launch of a kernel; names: the instructions of a program."""
    most = number(clock_reads)
    if not is_int(most) or not 2 <= most <= _MOST_READS:
        wanted = f"an int from 2 to {_MOST_READS:,}"
        raise ArgumentError(f"`clock_reads` must be {wanted}, not {clock_reads!r}")
    arguments = check(kernel.parameters, args, constants)
    name = kernel.parameters.name
    if isinstance(arguments.device, str):
        raise ArgumentError(
            f"{name}: a profile times a run on a GPU, and the arrays are on the CPU",
            help="pass tensors of a GPU; `pykittens check FILE -o timeline.svg` shows the order of events and the "
            "least cycles of the work, without a GPU",
        )
    if (missing := driver.available()) is not None:
        raise BackendError(f"{name} cannot run on the GPU: {missing}")
    ordinal = arguments.device[1]
    recording = kernel.recording(arguments := kernel._settled(arguments, constants))
    known = known_values(recording.kernel, arguments)
    check_requirements(recording.kernel, arguments, known)
    with driver.device(ordinal).current():
        loaded = recording.load(ordinal, current_stream(ordinal), debug=False, clocks=True)
        assert loaded.source.reads is not None, "the program reads no clocks"
        blocks = _blocks(loaded, known)
        shape = min(blocks, MOST_BLOCKS), len(loaded.source.groups), HEAD + most
        words = _records(loaded, arguments, known, shape)
    title = name if shape[0] == blocks else f"{name}, the first {shape[0]} of {blocks:,} blocks"
    return profile_of(title, driver.device(ordinal).name, loaded.source, words, names)


def _blocks(loaded: Loaded, known: Mapping[Any, Any]) -> int:
    """The blocks of a launch, at least one."""
    kernel: Kernel = loaded.kernel
    dims = [host_value(d, known) for d in kernel.launch.dims] if kernel.launch else []
    most = kernel.launch.most if isinstance(kernel.launch, Tasks) else None
    if blocks := grid_size(loaded, dims, host_value(most, known)):
        return blocks
    raise ArgumentError(f"{kernel.name}: the launch has no blocks, so there is nothing to time")


class _ClockedLaunch(Launch):
    """A launch of a program with clock reads; address: that of the records, whose shape is blocks, groups and words."""

    def __init__(
        self,
        loaded: Loaded,
        arguments: Arguments,
        known: Mapping[Any, Any],
        address: int,
        shape: tuple[int, int, int],
    ) -> None:
        self.further = address, shape[2] - HEAD, shape[0]
        super().__init__(loaded, arguments, known)


def _records(
    loaded: Loaded, arguments: Arguments, known: Mapping[Any, Any], shape: tuple[int, int, int]
) -> np.ndarray[Any, Any]:
    """Launch, wait for the end, and return the records: uint64 of this shape."""
    ordinal = loaded.function.device.ordinal
    stream, name = current_stream(ordinal), loaded.kernel.name
    help = "profile the kernel outside of the capture"
    check_not_captured(loaded, stream, "a launch with clock reads", help)
    words = np.zeros(shape, np.uint64)
    with _memory(words.nbytes, stream) as address:
        launch = _ClockedLaunch(loaded, arguments, known, address, shape)
        launch.launch((*arguments.values, stream))
        if (fault := driver.wait_for_stream(ordinal, stream)) is not None:
            raise BackendError(f"{name}: the GPU stopped: {fault}", loc=loaded.kernel.loc)
        code = driver.library().cuMemcpyDtoH_v2(words.ctypes.data, address, words.nbytes)
        driver.check(code, "reading the records of a profile")
    arguments.mark_written(launch.outputs)
    return words


@contextmanager
def _memory(size: int, stream: int) -> Iterator[int]:
    """The address of so many bytes of the current GPU, all 0."""
    cuda, address = driver.library(), c_uint64()
    code = cuda.cuMemAlloc_v2(byref(address), size)
    if code == driver.OUT_OF_MEMORY:
        raise BackendError(
            f"the GPU lacks {size:,} bytes of free memory for the records of a profile",
            help="pass a smaller `clock_reads`, or free memory",
        )
    driver.check(code, f"allocating {size:,} bytes for the records of a profile")
    try:
        code = cuda.cuMemsetD32Async(address, 0, size // 4, stream)
        driver.check(code, "clearing the records of a profile")
        yield address.value
    finally:
        cuda.cuMemFree_v2(address)
