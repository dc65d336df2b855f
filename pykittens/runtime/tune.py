"""Tuning: candidates of a kernel measured on the GPU, the fastest right one kept for the next time.

What was found is kept on disk (`tuned`), so that each problem is measured once for a kind of GPU (`contest`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pykittens import settings
from pykittens.errors import ArgumentError, BackendError
from pykittens.runtime import driver, tuning_records
from pykittens.runtime.arrays import Device
from pykittens.runtime.autotuner import Contest
from pykittens.runtime.launch import current_stream
from pykittens.runtime.progress import Progress, Step, shown
from pykittens.runtime.timing import Timer

C = TypeVar("C")

_one_at_a_time = threading.RLock()
_told: set[str] = set()


def tune(
    name: str,
    key: Mapping[str, Any],
    candidates: Sequence[C],
    run: Callable[[C], object],
    check: Callable[[C], str | None],
    *,
    device: Device,
    compile: Callable[[C], object] | None = None,
    progress: Progress | None = None,
    flush: Callable[[], object] | None = None,
) -> C:
    """The fastest candidate whose check passes: remembered, or measured on the GPU in some seconds.

    name, key: the kernel and its problem, all that the choice may depend on. candidates: best guess first.
    run: launches a candidate once on the current stream. check: None, or what is wrong with a candidate's result.
    device: where the arguments are; on the CPU nothing is measured and the first is returned. compile: compiles one
    without a launch; called from several threads. flush: empties the caches in place of a buffer of the tuner's.
    A candidate that raises a KernelError is left out. KernelError where none is left.
    """
    if not candidates:
        raise ArgumentError(f"tuning {name}: there are no candidates")
    known = remembered(name, key, candidates, device)
    if known is not None:
        return known
    with shown(progress) as show:
        if device == "cpu" or settings.debug():
            _tell_once(name, show, device == "cpu")
            return candidates[0]
        gpu, stream = driver.device(device[1]), current_stream(device[1])
        with _one_at_a_time, gpu.current():
            # Another thread may have measured it meanwhile.
            known = remembered(name, key, candidates, device)
            if known is not None:
                return known
            if driver.stream_is_capturing(stream, device[1]):
                raise BackendError(
                    f"{name} would be tuned while a CUDA graph is captured",
                    help="tune it with these shapes before the capture",
                )
            contest = Contest(name, key, candidates, device[1], show)
            if compile is not None:
                contest.compile(compile)
            with Timer(gpu, stream, flush) as timer:
                return contest.decide(run, check, timer)


def remembered(
    name: str, key: Mapping[str, Any], candidates: Sequence[C], device: Device
) -> C | None:
    """What an earlier `tune` of this problem chose on such a GPU with these versions; None where there was none."""
    _check_device(name, device)
    if device == "cpu" or not candidates:
        return None
    place = tuning_records.place(name, key, candidates, device[1])
    record = None if place is None else place.read()
    if place is None or record is None or place.wrong(record.best) is not None:
        return None
    return candidates[place.candidates.index(record.best)]


def _check_device(name: str, device: Any) -> None:
    match device:
        case "cpu" | ("cuda", int()):
            return
    raise ArgumentError(
        f'tuning {name}: `device` must be "cpu" or ("cuda", ordinal), not {device!r}',
        help='say where the arguments are: ("cuda", 0) is the first GPU',
    )


def _tell_once(name: str, show: Progress, on_the_cpu: bool) -> None:
    if name in _told:
        return
    _told.add(name)
    why = (
        "arguments of the CPU run in the emulator, where there is nothing to measure"
        if on_the_cpu
        else f"launches for debugging are not measured: {settings.DEBUG.variable} is set"
    )
    show(Step(name, "not measured", note=f"{why}; the first configuration is taken"))
