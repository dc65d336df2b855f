"""`@pk.kernel`: a function that is recorded, then run where its arguments live."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, overload

from pykittens import settings
from pykittens.emulate import machine
from pykittens.errors import ArgumentError, BackendError
from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Kernel
from pykittens.ir.passes import lower
from pykittens.ir.verify import verify
from pykittens.lang.control import rewrite
from pykittens.lang.grid import CLUSTERS
from pykittens.lang.outside import Outside, functions_among
from pykittens.lang.trace import Options, trace
from pykittens.runtime import driver
from pykittens.runtime.arguments import (
    Arguments,
    Parameters,
    check,
    check_requirements,
    known_values,
    scalars,
)
from pykittens.runtime.bound import BoundLaunch
from pykittens.runtime.compiled import Compiled, Resources, compile_kernel
from pykittens.runtime.launch import Loaded, Plan, current_stream, make_plan
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

# Plans of one kernel; a program that meets more shapes than this starts anew.
MAX_PLANS = 4096
DEFAULT_ARCH = "sm_90a"


class KernelFunction:
    """A kernel. Calling it runs it: NumPy arrays and CPU tensors in the emulator, CUDA tensors on their GPU.

    It returns when the launch is queued on PyTorch's current stream of that GPU, or when the emulator is done.
    """

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function, self.options = function, options
        self.parameters = Parameters.of(function)
        self._recorded: dict[Any, list[Kernel]] = {}
        self._compiled: dict[tuple[Kernel, str, str, bool], Compiled] = {}
        self._loaded: dict[tuple[Kernel, int, str, bool], Loaded] = {}
        self._plans: dict[Any, Plan] = {}
        self._outsides: dict[tuple[Any, ...], Outside] = {}
        functools.update_wrapper(self, function)

    @functools.cached_property
    def _rewritten(self) -> Callable[..., Any]:
        return rewrite(self.function)

    def __call__(self, *args: Any, **constants: Any) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and len(args) >= len(self.parameters.positional):
            key, values, ordinal = _key(torch.Tensor, args)
            if ordinal >= 0:
                outside = self._outside(constants)
                if not outside.is_empty:
                    key += outside.values()
                if constants:
                    key.append(tuple(constants.items()))
                plan = self._plans.get(tuple(key))
                if plan is not None and plan.by_value:
                    plan = self._plans.get((*key, *_scalars(values, args)))
                if plan is not None and (values == plan.last or not plan.overlaps(values)):
                    plan.launch(values, torch._C._cuda_getCurrentRawStream(ordinal))
                    return
                self._launch(args, constants, key)
                return
        arguments = check(self.parameters, args, constants)
        if arguments.device == "cpu":
            self.emulate(arguments)
        else:
            self._launch(args, constants, None)

    # -- recording and compiling ---------------------------------------------------------------

    def _outside(self, constants: Mapping[str, Any]) -> Outside:
        """What the kernel, and the functions that it is passed as constants, read from outside."""
        passed = tuple(functions_among(constants.values())) if constants else ()
        found = self._outsides.get(passed)
        if found is None:
            found = self._outsides[passed] = Outside(self.function, *passed)
        return found

    def record(self, arguments: Arguments) -> Kernel:
        """The lowered kernel for these arguments, recorded once for each specialisation."""
        types = arguments.types
        key = (
            tuple(getattr(t, "type", None) or t.dtype for t in types.values()),  # type: ignore[union-attr]
            *((name, type(value), value) for name, value in arguments.constants.items()),
            *self._outside(arguments.constants).values(),
        )
        variants = self._recorded.setdefault(key, [])
        for kernel in variants:
            known = known_values(kernel, arguments)
            if all(host_value(value, known) == constant for value, constant in kernel.statics):
                return kernel
        kernel = trace(self._rewritten, types, arguments.constants, self.options)
        verify(kernel)
        variants.append(lower(kernel))
        return kernel

    def compile(
        self, *args: Any, arch: str = DEFAULT_ARCH, out: str | Path | None = None, **constants: Any
    ) -> Compiled:
        """Compile for an architecture, with no GPU: `args` are arrays of the dtypes and static extents meant.

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
        """The program for arguments like these: its text, and what a launch of it needs."""
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
        """Run in the emulator; `seed` picks the schedule, the setting PYKITTENS_SEED where None."""
        kernel = self.record(arguments)
        check_requirements(kernel, arguments, known_values(kernel, arguments))
        tensors = {n: a.numpy() for n, a in arguments.tensors.items()}
        machine.run(kernel, tensors, scalars(arguments), settings.seed() if seed is None else seed)

    def debug(self, *args: Any, **constants: Any) -> None:
        """Run like a call; on a GPU waits, accesses and assertions are checked, and it returns when the kernel ended.

        A DeadlockError, AccessError or AssertError tells what goes wrong; after it the process cannot use the GPU.
        """
        arguments = check(self.parameters, args, constants)
        if arguments.device == "cpu":
            self.emulate(arguments)
        else:
            self._launch(args, constants, None, debug=True)

    def bind(self, *args: Any, **constants: Any) -> BoundLaunch:
        """A launch for arguments like these on their GPU, to be made again with other memory of the same form."""
        arguments = check(self.parameters, args, constants)
        if arguments.device == "cpu":
            raise ArgumentError(
                f"{self.parameters.name}: launches are bound to a GPU, and these arrays are on the CPU",
                help="a call runs it in the emulator",
            )
        return BoundLaunch(arguments, self._plan, self._outside(constants))

    def _launch(
        self,
        args: tuple[Any, ...],
        constants: dict[str, Any],
        key: list[Any] | None,
        debug: bool = False,
    ) -> None:
        """Check everything, make the plan, keep it under `key`, launch."""
        arguments = check(self.parameters, args, constants)
        plan = self._plan(arguments, debug)
        values = arguments.values
        if key is not None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[tuple(key)] = plan
            if plan.by_value:
                self._plans[(*key, *_scalars(values, args))] = plan
        plan.launch(values, current_stream(plan.loaded.function.device.ordinal))

    def _plan(self, arguments: Arguments, debug: bool = False) -> Plan:
        """Check what the kernel asks of arguments on a GPU, compile it, and make the plan."""
        assert not isinstance(arguments.device, str)
        ordinal = arguments.device[1]
        if (missing := driver.available()) is not None:
            raise BackendError(f"{self.parameters.name} cannot run on the GPU: {missing}")
        kernel = self.record(arguments)
        known = known_values(kernel, arguments)
        check_requirements(kernel, arguments, known)
        with driver.device(ordinal).current():  # a thread that works out gradients has none
            loaded = self._load(kernel, ordinal, current_stream(ordinal), debug or settings.debug())
            return make_plan(loaded, arguments, known)

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


def _key(tensor: type, args: tuple[Any, ...]) -> tuple[list[Any], list[Any], int]:
    """What a plan depends on, the addresses and scalars, and the GPU; -1 where the fast way is not for these."""
    key: list[Any] = []
    values: list[Any] = []
    ordinal = -1
    for arg in args:
        if isinstance(arg, tensor):
            device = arg.get_device()  # type: ignore[attr-defined]
            if device < 0 or (device != ordinal and ordinal >= 0):
                return key, values, -1
            ordinal = device
            address = arg.data_ptr()  # type: ignore[attr-defined]
            key += (arg.dtype, arg.shape, arg.stride(), device, address & 15)  # type: ignore[attr-defined]
            values.append(address)
        elif type(arg) in (int, float, bool):
            key.append(type(arg))
            values.append(arg)
        else:
            return key, values, -1
    return key, values, ordinal


def _scalars(values: list[Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    return ("scalars", *(v for v, a in zip(values, args, strict=True) if v is a))


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
    """Make a function a kernel.

    warps: warps of the one group of a kernel without roles. cluster: blocks that share multicast copies.
    inplace: an output may be the same tensor as an input.
    """
    if not isinstance(warps, int) or not 1 <= warps <= 32:
        raise ArgumentError(f"kernel: `warps` must be 1 to 32, not {warps}")
    if cluster not in CLUSTERS:
        raise ArgumentError(f"kernel: `cluster` must be 1, 2, 4 or 8, not {cluster}")
    options = Options(warps, cluster, inplace)
    if function is None:
        return lambda f: KernelFunction(f, options)
    return KernelFunction(function, options)
