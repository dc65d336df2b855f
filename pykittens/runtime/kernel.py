"""`@pk.kernel`: records a function and runs it on the device of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, overload

from pykittens import settings
from pykittens.analysis.timeline.profile import Profile
from pykittens.display import Shown
from pykittens.emulate import machine
from pykittens.errors import ArgumentError, BackendError
from pykittens.ir.nodes import Kernel, written
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch, called
from pykittens.ir.passes.lower import lower
from pykittens.ir.verify import verify
from pykittens.lang.contents import exact
from pykittens.lang.control import rewrite
from pykittens.lang.dependencies import Dependencies, code_that_runs
from pykittens.lang.grid import CLUSTERS
from pykittens.lang.source import Definition
from pykittens.lang.structures import classes
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
from pykittens.runtime.compiled import Compiled, Resources
from pykittens.runtime.dynamo import leave_out
from pykittens.runtime.fakes import check_fakes, has_fakes
from pykittens.runtime.launch import Launch, current_stream, launch_of
from pykittens.runtime.profile import CLOCK_READS, profiled
from pykittens.runtime.recording import MOST_LAUNCHES, Recording
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

DEFAULT_ARCH = "sm_90a"

# The most recordings of a kernel that are kept; when there are more, all are dropped.
MOST_RECORDINGS = 256


class KernelFunction(Shown):
    """A kernel. A call runs it: on NumPy arrays and CPU tensors in the emulator, on CUDA tensors on their GPU.

    The call returns when the launch is queued on PyTorch's current stream of that GPU, or when the emulator is done. A
    call with tensors that have no memory is checked and runs nothing.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], options: TraceOptions) -> None:
        self.function, self.options = function, options
        self.parameters = Parameters.of(function)
        self._source = Definition(function)
        self._recorded: dict[Any, list[Recording]] = {}
        self._count = 0
        self._calls: Calls[Launch] = Calls()
        functools.update_wrapper(self, function)

    @functools.cached_property
    def _rewritten(self) -> Callable[..., Any]:
        return rewrite(self._source)

    def __call__(self, *args: Any, **constants: Any) -> None:
        find, form = self._calls.find, None
        if len(args) >= len(self.parameters.positional):
            launch, form, values, stream = find(args, constants)
            if launch is not None and launch.by_value:
                launch = find(args, constants, launch.numbers(values))[0]
            if launch is not None and launch.call(args, values, stream):
                return
        if has_fakes(args, constants):
            check_fakes(self.parameters, args, constants)
            return
        arguments = check(self.parameters, args, constants)
        if arguments.device == "cpu":
            self.emulate(arguments)
            return
        ordinal = arguments.device[1]
        arguments = self._settled(arguments, constants)
        recording = self.recording(arguments)
        launches = recording.launches
        if (launch := launches.get(form)) is None:
            launch = self.launch_of(arguments, recording)
            if form is not None and len(launches) < MOST_LAUNCHES:
                launches[form] = launch
        elif launch.guard is not recording.guard:
            launch.follow(recording)
        if launch.by_value and form is not None:
            self._calls.keep(find(args, constants, launch.numbers(values))[1], launch)
        self._calls.keep(form, launch)
        launch.launch((*arguments.values, current_stream(ordinal)))
        arguments.mark_written(launch.outputs)

    def _settled(self, arguments: Arguments, given: Mapping[str, Any]) -> Arguments:
        """The arguments of a launch on a GPU: a kernel that is tuned chooses the constants that are not given."""
        return arguments

    def __getitem__(self, grid: Any) -> NoReturn:
        raise ArgumentError(
            f"{self.parameters.name}: a call takes no grid",
            help=f"pk.grid makes it inside of the kernel; call {self.parameters.name}({self.parameters.shown})",
        )

    def __reduce__(self) -> str:
        """Pickled by name, as functions are; a copy is the kernel itself."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        place = Path(str(self.parameters.loc)).name
        return f"<kernel {self.parameters.name}({self.parameters.shown}) at {place}>"

    # -- recording and compiling ---------------------------------------------------------------

    def record(self, arguments: Arguments) -> Kernel:
        """The lowered kernel for these arguments."""
        return self.recording(arguments).kernel

    def recording(self, arguments: Arguments) -> Recording:
        """The recording for these arguments, made once for all arguments and values from outside that it serves."""
        types, constants = arguments.types, arguments.constants
        key = (
            tuple(getattr(t, "type", None) or t.dtype for t in types.values()),  # type: ignore[union-attr]
            tuple(arguments.forms.values()),
            *((name, exact(value)) for name, value in constants.items()),
        )
        known = [r for r in self._recorded.get(key, ()) if r.serves(arguments)]
        given = (*constants.values(), *classes(arguments.forms.values()))
        roots: Any = self.function, self._rewritten, given
        for recording in known:
            if recording.holds():
                return recording
        for recording in known:
            if recording.renewed(roots):
                return recording
        self._source.check_code()
        with code_that_runs(roots) as ran:
            kernel = trace(self._rewritten, types, constants, self.options, arguments.forms)
        verify(kernel)
        recording = Recording(lower(kernel), Dependencies(roots, ran))
        if self._count == MOST_RECORDINGS:
            self._recorded.clear()
            self._count = 0
        self._recorded.setdefault(key, []).append(recording)
        self._count += 1
        log.info("%s: recorded", kernel.name)
        return recording

    def compile(
        self, *args: Any, arch: str = DEFAULT_ARCH, out: str | Path | None = None, **constants: Any
    ) -> Compiled:
        """Compile for an architecture; no GPU is needed. `args` are arrays that give the dtypes and static extents.

        With `out`, the cubin, the PTX, the CUDA C++ and a launcher in C with its header are written to that folder.
        """
        recording = self.recording(check(self.parameters, args, constants))
        compiled = recording.compile(arch)
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

    # -- running -------------------------------------------------------------------------------

    def emulate(self, arguments: Arguments, seed: int | None = None) -> None:
        """Run in the emulator. `seed` selects the schedule; None stands for the setting PYKITTENS_SEED."""
        kernel = self.record(arguments)
        check_requirements(kernel, arguments, known_values(kernel, arguments))
        tensors = {n: a.numpy() for n, a in arguments.tensors.items()}
        machine.run(kernel, tensors, scalars(arguments), settings.seed() if seed is None else seed)
        arguments.mark_written([arguments.order.index(name) for name in written(kernel)])

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
            arguments.mark_written(launch.outputs)

    def profile(self, *args: Any, clock_reads: int = CLOCK_READS, **constants: Any) -> Profile:
        """Run like a call on a GPU, with clock reads in the roles; returns the timings of the launch.

        A group records its first `clock_reads` reads, in the first 256 blocks. An ArgumentError for arrays on the CPU.
        """
        return profiled(self, args, constants, clock_reads)

    def launch_of(
        self, arguments: Arguments, recording: Recording | None = None, debug: bool = False
    ) -> Launch:
        """The Launch for checked arguments of this form on a GPU; compiles the kernel if necessary.

        recording: that for these arguments, if the caller has it.
        """
        assert not isinstance(arguments.device, str)
        ordinal = arguments.device[1]
        if (missing := driver.available()) is not None:
            raise BackendError(f"{self.parameters.name} cannot run on the GPU: {missing}")
        recording = recording or self.recording(arguments)
        known = known_values(recording.kernel, arguments)
        check_requirements(recording.kernel, arguments, known)
        with driver.device(ordinal).current():  # a thread that computes gradients has no context
            loaded = recording.load(ordinal, current_stream(ordinal), debug or settings.debug())
            launch = launch_of(loaded, arguments, known)
        launch.follow(recording)
        return launch


leave_out(
    KernelFunction.__call__,
    "a kernel of pykittens is no operator of PyTorch, so torch.compile leaves it out of its graph; "
    "with fullgraph=True, make an operator of a function that calls it, with pykittens.torch.op",
)


@overload
def kernel(function: Callable[..., None]) -> KernelFunction: ...
@overload
def kernel(
    *, warps: int = 4, cluster: int = 1, inplace: bool = False
) -> Callable[[Callable[..., None]], KernelFunction]: ...
@called("kernel", ArgumentError)
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    warps: int = 4,
    cluster: int = 1,
    inplace: bool = False,
) -> Any:
    """Turn a function into a kernel.

    warps: warps per block of a kernel without roles, 1 to 32. cluster: blocks that share multicast copies, 1, 2, 4 or
    8. inplace: an output may be the same tensor as an input. An ArgumentError for other numbers.

        >>> @pk.kernel
        ... def doubled(x, y):
        ...     row, col = pk.grid(*x.tiles(64, 64))
        ...     pk.store(y[row, col], 2 * pk.load(x[row, col], rows=64, cols=64))
        >>> x = np.ones((100, 70), np.float32)
        >>> y = np.empty_like(x)
        >>> doubled(x, y)
        >>> y.sum()
        np.float32(14000.0)
    """
    if not is_int(warps) or not 1 <= warps <= 32:
        raise Mismatch(f"`warps` must be 1 to 32, not {warps}")
    if not is_int(cluster) or cluster not in CLUSTERS:
        raise Mismatch(f"`cluster` must be 1, 2, 4 or 8, not {cluster}")
    options = TraceOptions(warps, cluster, inplace)
    if function is None:
        return lambda f: KernelFunction(f, options)
    return KernelFunction(function, options)
