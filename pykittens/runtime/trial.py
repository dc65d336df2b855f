"""A call that is tuned: its candidates are launched on copies of what they write, and their results are compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import nan
from typing import Any

from pykittens.errors import KernelError
from pykittens.ir.nodes import Kernel, calls, tensors, written
from pykittens.ir.op import Mismatch
from pykittens.ir.structure import inputs_of
from pykittens.runtime.arguments import Arguments
from pykittens.runtime.arrays import describe
from pykittens.runtime.candidates import Candidate
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.launch import Launch, current_stream
from pykittens.runtime.verify import copy_like, deviation, wide
from pykittens.types.dtypes import DTYPES


class Trial:
    """The launches of candidates for one call on a GPU. The caller's tensors are read and not written.

    reference: what the call writes, from its arguments. errors: those of candidates that cannot be launched.
    """

    def __init__(
        self,
        kernel: KernelFunction,
        arguments: Arguments,
        candidates: Sequence[Candidate],
        reference: Callable[[Arguments], Any] | None,
        tolerance: float | None,
    ) -> None:
        assert not isinstance(arguments.device, str)
        self.kernel, self.arguments, self.candidates = kernel, arguments, candidates
        self.reference = reference
        self.tolerance = usual_tolerance(arguments) if tolerance is None else tolerance
        self.ordinal = arguments.device[1]
        self.errors: dict[Candidate, KernelError] = {}
        self._recorded: dict[Candidate, Kernel] = {}
        self._launches: dict[Candidate, Launch] = {}

    # -- what tune() asks for ------------------------------------------------------------------

    def compile(self, candidate: Candidate, arch: str) -> None:
        """Record and compile a candidate. All candidates are recorded before the first is launched."""
        with self._noted(candidate):
            recording = self.kernel.recording(candidate.applied(self.arguments))
            self._recorded[candidate] = recording.kernel
            recording.compile(arch)

    def run(self, candidate: Candidate) -> None:
        """Launch a candidate on copies that all candidates share."""
        with self._noted(candidate):
            if candidate not in self._launches:
                made = self.kernel.launch_of(candidate.applied(self._work))
                self._launches[candidate] = made
            self._launches[candidate].launch(self._values(self._work))

    def restore(self) -> None:
        """Give the shared copies the contents of the originals: flags are 0 again, and sums start anew."""
        for name in self.outputs:
            original: Any = self.arguments.tensors[name].owner
            copy: Any = self._work.tensors[name].owner
            copy.copy_(original.detach())

    def fault(self, candidate: Candidate) -> str | None:
        """What is wrong with the results of a candidate, or None."""
        first = None if self.reference else self._first
        if candidate == first:
            return None
        results = self._results(candidate)
        for name, exact in self._expected.items():
            wrong = self._difference(name, results[name], exact)
            if wrong is not None:
                whose = "" if first is None else f", by {first!r}"
                return f"`{name}`: {wrong}{whose}"
        return None

    # -- copies --------------------------------------------------------------------------------

    @cached_property
    def outputs(self) -> list[str]:
        """The tensors that a candidate writes, in the order of the signature."""
        names = {name for kernel in self._recorded.values() for name in written(kernel)}
        return [name for name in self.arguments.order if name in names]

    @cached_property
    def _work(self) -> Arguments:
        return self._copied(undefined=False)

    def _copied(self, undefined: bool) -> Arguments:
        """The arguments with copies of what is written; `undefined`: with poison where the contents do not matter."""
        read = {
            _place(self.arguments, name)
            for kernel in self._recorded.values()
            for call in calls(kernel.body)
            for name in tensors(call, inputs_of(call))
        }
        copies: dict[Hashable, Any] = {}
        for name in self.outputs:
            place = _place(self.arguments, name)
            if place not in copies:  # a kernel in place has two arguments there
                copies[place] = copy_like(self.arguments.tensors[name].owner)
                if undefined and place not in read:
                    _poison(copies[place])
        leaves = {name: array.owner for name, array in self.arguments.tensors.items()}
        leaves |= {n: copies.get(_place(self.arguments, n), x) for n, x in leaves.items()}
        leaves |= self.arguments.scalars
        return self.arguments.holding([leaves[name] for name in self.arguments.order])

    def _values(self, arguments: Arguments) -> tuple[Any, ...]:
        return (*arguments.values, current_stream(self.ordinal))

    # -- results -------------------------------------------------------------------------------

    def _results(self, candidate: Candidate) -> dict[str, Any]:
        own = self._copied(undefined=True)
        self._launches[candidate].launch(self._values(own))
        return {name: own.tensors[name].owner for name in self.outputs}

    @property
    def _first(self) -> Candidate:
        """The candidate with which others are compared: the first that can be launched."""
        return next(c for c in self.candidates if c in self._launches)

    @cached_property
    def _expected(self) -> dict[str, Any]:
        """The expected values of the tensors that are compared."""
        if self.reference is None:
            return self._results(self._first)
        given = self.reference(self._copied(undefined=True))
        values = given if isinstance(given, tuple) else (given,)
        if len(values) != len(self.outputs):
            raise Mismatch(
                f"`reference` returns {len(values)} arrays, and the kernel writes {len(self.outputs)}: "
                f"{', '.join(self.outputs)}",
                help="it returns one array for each tensor that is written, in the order of the signature, or None for "
                "one that is not compared",
            )
        expected = zip(self.outputs, values, strict=True)
        return {name: exact for name, exact in expected if exact is not None}

    def _difference(self, name: str, found: Any, exact: Any) -> str | None:
        """The elements of a result that differ from the expected values by more than the tolerance, or None."""
        torch, array = sys.modules["torch"], describe(exact)
        if array is None or array.shape != tuple(found.shape):
            what = type(exact).__name__ if array is None else f"an array of shape {array.shape}"
            raise Mismatch(
                f"`reference` returns {what} for `{name}`, which has shape {tuple(found.shape)}"
            )
        dtype = DTYPES[self.arguments.tensors[name].dtype]
        if dtype.is_float:
            wanted = torch.as_tensor(wide(exact))
            return deviation(found, wanted.to(wide(found)), dtype, self.tolerance, None)
        count = int((found != torch.as_tensor(exact).to(found)).sum())
        return f"{count} of {found.numel()} elements are wrong" if count else None

    @contextmanager
    def _noted(self, candidate: Candidate) -> Iterator[None]:
        try:
            yield
        except KernelError as error:
            self.errors[candidate] = error
            raise


def usual_tolerance(arguments: Arguments) -> float:
    """The error of a result, relative to the root mean square of all, that is explained by another order of sums.

    Kernels round within them to dtypes of their arguments.
    """
    dtypes = [DTYPES[a.dtype] for a in arguments.tensors.values()]
    return max(1e-3, *(2 * d.epsilon for d in dtypes if d.is_float and d.bits > 8), 0.0)


def _place(arguments: Arguments, name: str) -> Hashable:
    array = arguments.tensors[name]
    return array.address, array.dtype, array.shape, array.strides


def _poison(array: Any) -> None:
    """Give each element another value than it has."""
    array.copy_(array.new_full((), nan) if array.is_floating_point() else ~array)
