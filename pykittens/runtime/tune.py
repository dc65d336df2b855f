"""Tuning: measures candidates of a kernel on the GPU and keeps the fastest one whose result is right.

Results are kept on disk (tuning_records), so each problem is measured (autotuner) once per kind of GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pykittens import settings
from pykittens.errors import ArgumentError, BackendError
from pykittens.runtime import driver, tuning_records
from pykittens.runtime.arrays import Device
from pykittens.runtime.autotuner import Autotuner
from pykittens.runtime.launch import current_stream
from pykittens.runtime.progress import Progress, Step, shown
from pykittens.runtime.timing import Timer

C = TypeVar("C")

one_at_a_time = threading.RLock()
_warned: set[str] = set()


def tune(
    name: str,
    key: Mapping[str, Any],
    candidates: Sequence[C],
    run: Callable[[C], object],
    check: Callable[[C], str | None],
    *,
    device: Device,
    kernels: Sequence[object],
    program: Mapping[str, Any] | None = None,
    compile: Callable[[C], object] | None = None,
    progress: Progress | None = None,
    flush: Callable[[], object] | None = None,
    restore: Callable[[], object] = lambda: None,
) -> C:
    """The fastest candidate whose check passes: remembered, or measured on the GPU in some seconds.

    name, key: the kernel and its problem; the choice may depend on nothing else. candidates: best guess first.
    run: launches a candidate once on the current stream. check: returns what is wrong with a candidate's result, or
    None. device: the device of the arguments; on the CPU nothing is measured and the first candidate is returned.
    kernels: the kernels that candidates launch; a result holds until their files, or files of the program that these
    import, change.
    program: what distinguishes programs of one name in the same files, as JSON has it. A candidate that computes
    something wrong in one problem is excluded from all problems of its program.
    compile: compiles a candidate without a launch; called from several threads. flush: empties the caches; None writes
    a buffer larger than the L2 cache. restore: undoes what launches wrote; called before each launch that is measured.
    A candidate that raises a KernelError is skipped. If all do, raises that of the first; if none remains, a
    KernelError with the fault of each.
    """
    if not candidates:
        raise ArgumentError(f"tuning {name}: there are no candidates")
    place = _place(name, key, candidates, device, kernels, program)
    if (known := _known(place, candidates)) is not None:
        return known
    with shown(progress) as show:
        if device == "cpu" or settings.debug():
            _tell_once(name, show, device == "cpu")
            return candidates[0]
        gpu, stream = driver.device(device[1]), current_stream(device[1])
        waits = partial(show, Step(name, "waiting", note="another process measures it"))
        with one_at_a_time, gpu.current(), tuning_records.alone(place, waits):
            # Another thread or process may have measured it in the meantime.
            if (known := _known(place, candidates)) is not None:
                return known
            if driver.stream_is_capturing(stream, device[1]):
                raise BackendError(
                    f"{name} would be tuned while a CUDA graph is captured",
                    help="call it once with these arguments before the capture, to warm up",
                )
            tuner = Autotuner(name, candidates, place, show)
            if compile is not None:
                tuner.compile(compile)
            with Timer(gpu, stream, flush, restore) as timer:
                return tuner.decide(run, check, timer)


def remembered(
    name: str,
    key: Mapping[str, Any],
    candidates: Sequence[C],
    device: Device,
    kernels: Sequence[object],
    program: Mapping[str, Any] | None = None,
) -> C | None:
    """The choice of an earlier `tune` of this problem on such a GPU with these versions, or None."""
    return _known(_place(name, key, candidates, device, kernels, program), candidates)


def _known(place: tuning_records.RecordFile | None, candidates: Sequence[C]) -> C | None:
    record = None if place is None else place.read()
    if place is None or record is None or place.wrong(record.best) is not None:
        return None
    return candidates[place.candidates.index(record.best)]


def _place(
    name: str,
    key: Mapping[str, Any],
    candidates: Sequence[C],
    device: Any,
    kernels: Sequence[object],
    program: Mapping[str, Any] | None,
) -> tuning_records.RecordFile | None:
    """The files of a problem; None if nothing is kept. Raises ArgumentError for what is no device."""
    match device:
        case "cpu":
            return None
        case ("cuda", int(ordinal)):
            if not candidates:
                return None
            return tuning_records.place(name, key, candidates, kernels, ordinal, program)
    raise ArgumentError(
        f'tuning {name}: `device` must be "cpu" or ("cuda", ordinal), not {device!r}',
        help='`device` is the device of the arguments: ("cuda", 0) is the first GPU',
    )


def _tell_once(name: str, show: Progress, on_the_cpu: bool) -> None:
    if name in _warned:
        return
    _warned.add(name)
    why = (
        "arguments on the CPU run in the emulator, which cannot be measured"
        if on_the_cpu
        else f"launches for debugging are not measured: {settings.DEBUG.variable} is set"
    )
    show(Step(name, "not measured", note=f"{why}; the first configuration is used"))
