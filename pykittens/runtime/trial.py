"""A call that is tuned: its candidates are launched on copies of what they write, and their results are compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from math import nan
from typing import Any, cast

import numpy as np

from pykittens.errors import KernelError
from pykittens.ir.nodes import Kernel, calls, tensors, written
from pykittens.ir.op import Mismatch
from pykittens.ir.structure import inputs_of
from pykittens.runtime import driver
from pykittens.runtime.arguments import Arguments
from pykittens.runtime.candidates import Candidate
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.launch import Launch, current_stream
from pykittens.runtime.verify import copy_like, deviation, wide
from pykittens.types.dtypes import DTYPES


class Trial:
    """The launches of candidates for one call on a GPU. The caller's tensors are read and not written.

    reference: what the call writes, from its arguments. All launches write to the same copies.
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
        self._recorded: dict[Candidate, Kernel] = {}
        self._launches: dict[Candidate, Launch] = {}

    # -- what tune() asks for ------------------------------------------------------------------

    def compile(self, candidate: Candidate) -> None:
        """Record and compile a candidate. All candidates are recorded before the first is launched."""
        recording = self.kernel.recording(candidate.applied(self.arguments))
        self._recorded[candidate] = recording.kernel
        recording.compile(driver.device(self.ordinal).arch)

    def run(self, candidate: Candidate) -> None:
        """Launch a candidate on the copies."""
        if candidate not in self._launches:
            made = self.kernel.launch_of(candidate.applied(self._work))
            self._launches[candidate] = made
        self._launches[candidate].launch(self._values)

    def restore(self, undefined: bool = False) -> None:
        """Give the copies the contents of the originals: flags are 0 again, and sums start anew.

        `undefined`: copies that no candidate reads have other contents instead.
        """
        for place, (original, copy) in self._copies.items():
            copy.copy_(original.detach())
            if undefined and place not in self._read:
                _poison(copy)

    def fault(self, candidate: Candidate) -> str | None:
        """What is wrong with the results of a candidate, or None."""
        whose = "`reference`" if self.reference else repr(self._first)
        if not self.reference and candidate is self._first:
            return None
        expected = self._expected  # made in the same copies as the results
        results = self._results(candidate)
        for name, exact in expected.items():
            dtype = DTYPES[self.arguments.tensors[name].dtype]
            wrong = deviation(results[name], exact, dtype, self.tolerance, None)
            if wrong is not None:
                return f"`{name}` is not that of {whose}: {wrong}"
        return None

    # -- copies --------------------------------------------------------------------------------

    @cached_property
    def outputs(self) -> list[str]:
        """The tensors that a candidate writes, in the order of the signature."""
        names = {name for kernel in self._recorded.values() for name in written(kernel)}
        return [name for name in self.arguments.order if name in names]

    @cached_property
    def _read(self) -> set[Hashable]:
        """The places of tensors that a candidate reads."""
        return {
            self._place(name)
            for kernel in self._recorded.values()
            for call in calls(kernel.body)
            for name in tensors(call, inputs_of(call))
        }

    @cached_property
    def _copies(self) -> dict[Hashable, tuple[Any, Any]]:
        """What is written, and its copy; a kernel in place has two arguments at one place."""
        originals = {self._place(n): self.arguments.tensors[n].owner for n in self.outputs}
        return {place: (x, copy_like(x)) for place, x in originals.items()}

    @cached_property
    def _work(self) -> Arguments:
        """The arguments with the copies in place of what is written."""
        given, copies = self.arguments, self._copies
        leaves: dict[str, Any] = dict(given.scalars)
        for name, array in given.tensors.items():
            _, leaves[name] = copies.get(self._place(name), (None, array.owner))
        return given.holding([leaves[name] for name in given.order])

    @cached_property
    def _values(self) -> tuple[Any, ...]:
        return (*self._work.values, current_stream(self.ordinal))

    def _place(self, name: str) -> Hashable:
        array = self.arguments.tensors[name]
        return array.address, array.dtype, array.shape, array.strides

    # -- results -------------------------------------------------------------------------------

    def _results(self, candidate: Candidate) -> dict[str, Any]:
        """What a launch of a candidate leaves in the copies."""
        self.restore(undefined=True)
        self.run(candidate)
        return {name: self._work.tensors[name].owner for name in self.outputs}

    @property
    def _first(self) -> Candidate:
        """The candidate with which others are compared: the first that can be launched."""
        return next(c for c in self.candidates if c in self._launches)

    @cached_property
    def _expected(self) -> dict[str, Any]:
        """The expected values of the tensors that are compared."""
        if self.reference is None:
            return {name: x.clone() for name, x in self._results(self._first).items()}
        self.restore(undefined=True)
        torch = sys.modules["torch"]
        try:
            with torch.no_grad(), torch.autocast("cuda", enabled=False):
                given = self.reference(self._work)
        except KernelError as error:  # not a fault of the candidate
            raise Mismatch(f"`reference` fails: {error.message}", help=error.help) from error
        values = given if isinstance(given, tuple | list) else (given,)
        if len(values) != len(self.outputs) or all(x is None for x in values):
            what = "nothing to compare" if values == (None,) else f"{len(values)} arrays"
            raise Mismatch(
                f"`reference` returns {what}, and the kernel writes {len(self.outputs)}: "
                f"{', '.join(self.outputs)}",
                help="it returns one array for each tensor that is written, in the order of the signature, or None for "
                "one that is not compared",
            )
        expected = zip(self.outputs, values, strict=True)
        return {name: self._like(name, x) for name, x in expected if x is not None}

    def _like(self, name: str, exact: Any) -> Any:
        """A copy of an expected output on the GPU; of the dtype of the output if that is no float."""
        torch, found = sys.modules["torch"], self._work.tensors[name]
        if not isinstance(exact, np.ndarray | torch.Tensor) or tuple(exact.shape) != found.shape:
            shape = getattr(exact, "shape", None)
            what = type(exact).__name__ if shape is None else f"an array of shape {tuple(shape)}"
            raise Mismatch(
                f"`reference` returns {what} for `{name}`, which has shape {found.shape}"
            )
        is_float, owner = DTYPES[found.dtype].is_float, cast(Any, found.owner)
        if isinstance(exact, np.ndarray):
            exact = torch.as_tensor(wide(exact) if is_float else exact)
        place = owner.new_empty(0, dtype=exact.dtype) if is_float else owner
        return exact.detach().to(place, copy=True)


def usual_tolerance(arguments: Arguments) -> float:
    """The error of a result, relative to the root mean square of all, that is explained by another order of sums.

    Kernels round within them to dtypes of their arguments.
    """
    dtypes = [DTYPES[a.dtype] for a in arguments.tensors.values()]
    return max(1e-3, *(2 * d.epsilon for d in dtypes if d.is_float and d.bits > 8), 0.0)


def _poison(array: Any) -> None:
    """Give each element another value than it has."""
    array.copy_(array.new_full((), nan) if array.is_floating_point() else ~array)
