"""`@pk.kernel`: records a function and runs it on the device of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from pykittens import settings
from pykittens.emulate import machine
from pykittens.errors import ArgumentError, BackendError
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Kernel
from pykittens.ir.passes.lower import lower
from pykittens.ir.verify import verify
from pykittens.lang.closures import Outside, functions_among
from pykittens.lang.control import rewrite
from pykittens.lang.grid import CLUSTERS
from pykittens.lang.trace import TraceOptions, trace
from pykittens.logger import log
from pykittens.runtime import driver
from pykittens.runtime.arguments import (
    Arguments,
    Parameters,
    check,
    check_requirements,
    known_values,
    scalars,
)
from pykittens.runtime.calls import Calls
from pykittens.runtime.compiled import Compiled, Resources, compile_kernel
from pykittens.runtime.launch import Launch, Loaded, current_stream, launch_of
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

DEFAULT_ARCH = "sm_90a"


class KernelFunction:
    """A kernel. A call runs it: on NumPy arrays and CPU tensors in the emulator, on CUDA tensors on their GPU.

    The call returns when the launch is queued on PyTorch's current stream of that GPU, or when the emulator is done.
    """

    def __init__(self, function: Callable[..., Any], options: TraceOptions) -> None:
        self.function, self.options = function, options
        self.parameters = Parameters.of(function)
        self._recorded: dict[Any, list[Kernel]] = {}
        self._compiled: dict[tuple[Kernel, str, str, bool], Compiled] = {}
        self._loaded: dict[tuple[Kernel, int, str, bool], Loaded] = {}
        self._calls: Calls[Launch] = Calls()
        self._outsides: dict[tuple[Any, ...], Outside] = {}
        functools.update_wrapper(self, function)

    @functools.cached_property
    def _rewritten(self) -> Callable[..., Any]:
        return rewrite(self.function)

    def __call__(self, *args: Any, **constants: Any) -> None:
        read: Sequence[Any] = self.outside(constants).values()
        find, form, is_whole = self._calls.find, None, len(args) >= len(self.parameters.positional)
        if is_whole:
            launch, form, values, stream = find(args, constants, read)
            if launch is not None and launch.by_value:
                launch = find(args, constants, [*read, *_numbers(args)])[0]
            if launch is not None:
                launch.launch((*values, stream))
                return
        arguments = check(self.parameters, args, constants)
        if arguments.device == "cpu":
            self.emulate(arguments)
            return
        launch = self.launch_of(arguments)
        self._calls.keep(form, launch)
        if launch.by_value and form is not None:
            self._calls.keep(find(args, constants, [*read, *_numbers(args)])[1], launch)
        launch.launch((*arguments.values, current_stream(arguments.device[1])))

    # -- recording and compiling ---------------------------------------------------------------

    def outside(self, constants: Mapping[str, Any]) -> Outside:
        """The names that the kernel, and the functions among its constants, read from enclosing scopes and globals."""
        passed = tuple(functions_among(constants.values())) if constants else ()
        found = self._outsides.get(passed)
        if found is None:
            found = self._outsides[passed] = Outside(self.function, *passed)
        return found

    def record(self, arguments: Arguments) -> Kernel:
        """The lowered kernel for these arguments, recorded once per specialisation."""
        types = arguments.types
        key = (
            tuple(getattr(t, "type", None) or t.dtype for t in types.values()),  # type: ignore[union-attr]
            *((name, type(value), value) for name, value in arguments.constants.items()),
            *self.outside(arguments.constants).values(),
        )
        variants = self._recorded.setdefault(key, [])
        for kernel in variants:
            known = known_values(kernel, arguments)
            if all(host_value(value, known) == constant for value, constant in kernel.statics):
                return kernel
        kernel = trace(self._rewritten, types, arguments.constants, self.options)
        verify(kernel)
        variants.append(lower(kernel))
        log.info("%s: recorded", kernel.name)
        return kernel

    def compile(
        self, *args: Any, arch: str = DEFAULT_ARCH, out: str | Path | None = None, **constants: Any
    ) -> Compiled:
        """Compile for an architecture; no GPU is needed. `args` are arrays that give the dtypes and static extents.

        With `out`, the cubin, the PTX, the CUDA C++ and a launcher in C with its header are written to that folder.
        """
        compiled = self._compile(self.record(check(self.parameters, args, constants)), arch)
        if out is not None:
            compiled.write(out)
        return compiled

    def source(self, *args: Any, arch: str = DEFAULT_ARCH, **constants: Any) -> str:
        """The CUDA C++ for arguments like these."""
        return self.emitted(*args, arch=arch, **constants).text

    def emitted(self, *args: Any, arch: str = DEFAULT_ARCH, **constants: Any) -> Source:
        """The program for arguments like these: its text and the layout of its parameters."""
        return emit(self.record(check(self.parameters, args, constants)), arch)

    def resources(self, *args: Any, arch: str = DEFAULT_ARCH, **constants: Any) -> Resources:
        """Registers, shared memory and spills of the compiled kernel, and the registers of each role."""
        return self.compile(*args, arch=arch, **constants).resources

    def _compile(self, kernel: Kernel, arch: str, debug: bool = False) -> Compiled:
        key = (kernel, arch, settings.target(), debug)
        if key not in self._compiled:
            self._compiled[key] = compile_kernel(kernel, arch, debug)
        return self._compiled[key]

    # -- running -------------------------------------------------------------------------------

    def emulate(self, arguments: Arguments, seed: int | None = None) -> None:
        """Run in the emulator. `seed` selects the schedule; None stands for the setting PYKITTENS_SEED."""
        kernel = self.record(arguments)
        check_requirements(kernel, arguments, known_values(kernel, arguments))
        tensors = {n: a.numpy() for n, a in arguments.tensors.items()}
        machine.run(kernel, tensors, scalars(arguments), settings.seed() if seed is None else seed)

    def debug(self, *args: Any, **constants: Any) -> None:
        """Run like a call. On a GPU, check waits, accesses and assertions, and return when the kernel has ended.

        Raises DeadlockError, AccessError or AssertError; after that the process cannot use the GPU.
        """
        arguments = check(self.parameters, args, constants)
        if arguments.device == "cpu":
            self.emulate(arguments)
        else:
            launch = self.launch_of(arguments, debug=True)
            launch.launch((*arguments.values, current_stream(arguments.device[1])))

    def launch_of(self, arguments: Arguments, debug: bool = False) -> Launch:
        """The Launch for checked arguments of this form on a GPU; compiles the kernel if necessary."""
        assert not isinstance(arguments.device, str)
        ordinal = arguments.device[1]
        if (missing := driver.available()) is not None:
            raise BackendError(f"{self.parameters.name} cannot run on the GPU: {missing}")
        kernel = self.record(arguments)
        known = known_values(kernel, arguments)
        check_requirements(kernel, arguments, known)
        with driver.device(ordinal).current():  # a thread that computes gradients has no context
            loaded = self._load(kernel, ordinal, current_stream(ordinal), debug or settings.debug())
            return launch_of(loaded, arguments, known)

    def _load(self, kernel: Kernel, ordinal: int, stream: int, debug: bool) -> Loaded:
        key = (kernel, ordinal, settings.target(), debug)
        if key not in self._loaded:
            if driver.stream_is_capturing(stream, ordinal):
                raise BackendError(
                    f"{self.parameters.name} would be compiled while a CUDA graph is captured",
                    help="call it once with these arguments before the capture, to warm up",
                )
            compiled = self._compile(kernel, driver.device(ordinal).arch, debug)
            self._loaded[key] = Loaded(kernel, compiled, ordinal)
        return self._loaded[key]


def _numbers(args: tuple[Any, ...]) -> list[int | float]:
    return [x for x in args if isinstance(x, int | float)]


@overload
def kernel(function: Callable[..., Any]) -> KernelFunction: ...
@overload
def kernel(
    *, warps: int = 4, cluster: int = 1, inplace: bool = False
) -> Callable[[Callable[..., Any]], KernelFunction]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    warps: int = 4,
    cluster: int = 1,
    inplace: bool = False,
) -> Any:
    """Turn a function into a kernel.

    warps: warps per block of a kernel without roles. cluster: blocks that share multicast copies.
    inplace: an output may be the same tensor as an input.
    """
    if not isinstance(warps, int) or not 1 <= warps <= 32:
        raise ArgumentError(f"kernel: `warps` must be 1 to 32, not {warps}")
    if cluster not in CLUSTERS:
        raise ArgumentError(f"kernel: `cluster` must be 1, 2, 4 or 8, not {cluster}")
    options = TraceOptions(warps, cluster, inplace)
    if function is None:
        return lambda f: KernelFunction(f, options)
    return KernelFunction(function, options)
