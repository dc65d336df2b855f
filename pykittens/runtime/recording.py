"""A recorded kernel with all that follows from it: what it depends on, its programs and their launches."""

from __future__ import annotations

from collections.abc import Hashable

from pykittens import settings
from pykittens.errors import BackendError
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Kernel
from pykittens.lang.dependencies import Dependencies
from pykittens.lang.survey import Roots
from pykittens.runtime import driver
from pykittens.runtime.arguments import Arguments, known_values
from pykittens.runtime.compiled import Compiled, compile_kernel
from pykittens.runtime.launch import Launch, Loaded

# The most launches of a recording that are kept when other values from outside make way for it.
MOST_LAUNCHES = 64


class Recording:
    """A recorded and lowered kernel, what it depends on, and its programs.

    changes: whether it can become invalid. guard: compares what was read from outside. holds: whether it is the same.
    """

    def __init__(self, kernel: Kernel, read: Dependencies) -> None:
        self.kernel, self._read = kernel, read
        self.changes = not read.is_empty
        self._follow()
        self._compiled: dict[tuple[str, str, bool, bool], Compiled] = {}
        self._loaded: dict[tuple[int, str, bool, bool], Loaded] = {}
        self.launches: dict[Hashable, Launch] = {}  # by the form of a call

    def renewed(self, roots: Roots) -> bool:
        """Whether the contents of all that was read are the same; if so, the guard compares with the new objects."""
        if not self._read.renewed(roots):
            return False
        self._follow()
        return True

    def _follow(self) -> None:
        self.guard = self._read.guard
        self.holds = self.guard.before(["return True"])

    def serves(self, arguments: Arguments) -> bool:
        """Whether it was recorded with the values that these arguments give to `pk.static`."""
        known = known_values(self.kernel, arguments)
        return all(host_value(value, known) == constant for value, constant in self.kernel.statics)

    def compile(self, arch: str, debug: bool = False, clocks: bool = False) -> Compiled:
        """The program for an architecture."""
        key = arch, settings.target(), debug, clocks
        if key not in self._compiled:
            self._compiled[key] = compile_kernel(self.kernel, arch, debug, clocks)
        return self._compiled[key]

    def load(self, ordinal: int, stream: int, debug: bool, clocks: bool = False) -> Loaded:
        """The program on a GPU; `stream` is the one on which it is about to be launched."""
        key = ordinal, settings.target(), debug, clocks
        if key not in self._loaded:
            if driver.stream_is_capturing(stream, ordinal):
                raise BackendError(
                    f"{self.kernel.name} would be compiled while a CUDA graph is captured",
                    help="call it once with these arguments before the capture, to warm up",
                )
            compiled = self.compile(driver.device(ordinal).arch, debug, clocks)
            self._loaded[key] = Loaded(self.kernel, compiled, ordinal)
        return self._loaded[key]
