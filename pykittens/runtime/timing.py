"""Measures launches on a GPU with two events each, on a cold L2 cache."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_uint64, c_void_p

from pykittens.errors import BackendError
from pykittens.runtime import driver
from pykittens.runtime.driver import Device, check

# A flush writes this multiple of the L2 cache. One would empty it; four (about 65 µs on an H200) also keep the GPU busy
# until the next launch is queued. Otherwise the events would include host time.
FLUSH_CACHES = 4
# A launch that takes longer counts as one that never ends.
LONGEST_SECONDS = 30.0
_POLL_SECONDS = 1e-4


class LaunchFault(BackendError):
    """A launch stopped the GPU or does not end; the process cannot use the GPU after it."""


class Timer:
    """Measures the GPU time of single launches on a stream; a context manager that makes the GPU's context current.

    `flush` empties the caches before each launch; None writes a buffer larger than the L2 cache. `restore` is called
    before that.
    """

    def __init__(
        self,
        gpu: Device,
        stream: int,
        flush: Callable[[], object] | None = None,
        restore: Callable[[], object] = lambda: None,
    ) -> None:
        self.gpu, self.stream, self._restore = gpu, stream, restore
        self._cuda = driver.library()
        self._flush = flush or self._write_buffer
        self._buffer, self._bytes = 0, 0
        self._own_flush = flush is None
        self._events: list[int] = []
        self._limit = LONGEST_SECONDS

    def __enter__(self) -> Timer:
        if self._own_flush:
            self._take_buffer()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._buffer:
            # After Ctrl-C, say: freeing memory waits for all launches, in a call that nothing interrupts.
            with contextlib.suppress(LaunchFault):
                self.settle()
        for event in self._events:
            self._cuda.cuEventDestroy_v2(event)
        if self._buffer:
            self._cuda.cuMemFree_v2(self._buffer)
        self._events, self._buffer = [], 0

    def times(self, launch: Callable[[], object], count: int) -> list[float]:
        """The milliseconds of `count` launches, each after a flush. Raises LaunchFault if one fails."""
        self._create_events(2 * count)
        for i in range(count):
            self._restore()
            self._flush()
            self._record(2 * i)
            launch()
            self._record(2 * i + 1)
        self._wait(2 * count - 1)
        return [self._elapsed(2 * i, 2 * i + 1) for i in range(count)]

    def settle(self, patient: bool = False) -> None:
        """Wait for all launches. Raises LaunchFault if the GPU stopped or, unless `patient`, if they take too long."""
        self._create_events(1)
        self._record(0)
        self._wait(0, patient)

    # -- the driver ----------------------------------------------------------------------------

    def _take_buffer(self) -> None:
        size, address = FLUSH_CACHES * self.gpu.l2_bytes, c_uint64()
        while (code := self._cuda.cuMemAlloc_v2(byref(address), size)) == driver.OUT_OF_MEMORY:
            if size <= self.gpu.l2_bytes:
                raise BackendError(
                    f"{self.gpu.name} lacks {size} bytes of free memory to empty its L2 cache between launches",
                    help="free memory before tuning",
                )
            size //= 2
        check(code, f"allocating {size} bytes to empty the L2 cache")
        self._buffer, self._bytes = address.value, size

    def _write_buffer(self) -> None:
        code = self._cuda.cuMemsetD32Async(self._buffer, 0, self._bytes // 4, self.stream)
        self._sound(code)

    def _create_events(self, count: int) -> None:
        while len(self._events) < count:
            event = c_void_p()
            self._sound(self._cuda.cuEventCreate(byref(event), 0))
            self._events.append(event.value or 0)

    def _record(self, i: int) -> None:
        self._sound(self._cuda.cuEventRecord(self._events[i], self.stream))

    def _elapsed(self, start: int, end: int) -> float:
        milliseconds = c_float()
        events = self._events[start], self._events[end]
        self._sound(self._cuda.cuEventElapsedTime(byref(milliseconds), *events))
        return milliseconds.value

    def _wait(self, i: int, patient: bool = False) -> None:
        # Polled rather than waited for: a launch that never ends must not block the process.
        begin = time.monotonic()
        while (code := self._cuda.cuEventQuery(self._events[i])) == driver.NOT_READY:
            if not patient and time.monotonic() - begin > self._limit:
                self._buffer = 0  # freeing it would wait, too
                raise LaunchFault(f"it does not end within {self._limit:g} seconds")
            time.sleep(_POLL_SECONDS)
        self._sound(code)

    def _sound(self, code: int) -> None:
        if code != 0:
            raise LaunchFault(f"the GPU stopped: {driver.error_text(code)}")
