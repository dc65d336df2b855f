"""The arrays of a call of the library: described once, checked with the same sentences, laid out for kernels.

NumPy arrays and PyTorch tensors are handled alike, by the methods that both have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.kernels.workspace import LINE
from pykittens.ops.arguments import either
from pykittens.runtime.arguments import overlap, reachable
from pykittens.runtime.arrays import Array, describe
from pykittens.runtime.fakes import described, is_equal, is_fake
from pykittens.types.dtypes import DTYPES, DType

NARROW, FP8 = ("bf16", "f16"), ("e4m3", "e5m2")
FLOATS = (*NARROW, "f32")
RESULTS = (*FLOATS, *FP8)


@dataclass(frozen=True)
class Made:
    """An array that a call makes and returns: its shape, its dtype, and the shape in which kernels take it."""

    shape: tuple[int, ...]
    dtype: str
    seen: tuple[int, ...]


class Arrays:
    """The arrays and numbers of a call by name; those that are None are absent.

    given: as the caller passed them. found: the description of each array. views: the arrays as kernels take them, in
    the caller's memory, and the numbers. copies: arrays whose layout no kernel takes, each with the shape in which it
    is copied before a launch; copied back if a kernel writes it. made: arrays that the call makes. aliases: other names
    of contiguous arrays, with the shapes in which kernels take them by these. dims: extents by the names of their axes.
    have_memory: false if compilers call with tensors without memory to learn shapes; such a call is checked, makes its
    result, and launches nothing.
    """

    def __init__(self, function: str, **given: Any) -> None:
        self.function = function
        self.given = {name: x for name, x in given.items() if x is not None}
        self.views = dict(self.given)
        self.copies: dict[str, tuple[int, ...]] = {}
        self.made: dict[str, Made] = {}
        self.aliases: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.dims: dict[str, Any] = {}
        self.found: dict[str, Array] = {}
        self.have_memory = True
        for name, x in self.given.items():
            if isinstance(x, int | float):
                continue
            if is_fake(x):
                self.found[name], self.have_memory = described(x), False
                continue
            found = describe(x)
            if found is None:
                raise self.fail(f"`{name}` must be an array, not {type(x).__name__}")
            self.found[name] = found
        # Kernels check the devices of arrays that have memory.
        if not self.have_memory and len({x.device for x in self.found.values()}) > 1:
            raise self.fail("all arrays must be on one device")

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def present(self, *names: str) -> list[str | None]:
        """These names, with None in place of those of arrays that are absent."""
        return [name if name in self else None for name in names]

    def fail(self, message: str, help: str | None = None) -> ArgumentError:
        """The error for arguments that do not fit."""
        return ArgumentError(f"{self.function}: {message}", operands=dict(self.found), help=help)

    @property
    def like(self) -> Any:
        """An array on the device of the call."""
        return self.given[next(iter(self.found))]

    # -- checks ------------------------------------------------------------------------------------

    def shapes(self, **specs: str) -> dict[str, Any]:
        """The extents by the names of their axes; an ArgumentError unless each array that is given has its shape.

        A shape is the names of its axes, as in weight="c" and x="r c". "*b" stands for any number of leading axes,
        "k/128" for a rounded-up quotient, "" for no axes, and "|" separates shapes of which one must fit. A name
        has the same extent in all arrays.
        """
        for name, spec in specs.items():
            if name in self.given and name not in self.found:
                raise self.fail(f"`{name}` must be an array, not a number")
            if name in self.found:
                self._check_shape(name, [shape.split() for shape in spec.split("|")])
        return self.dims

    def _check_shape(self, name: str, shapes: list[list[str]]) -> None:
        found = self.found[name].shape
        for axes in shapes:
            known = self._matched(axes, found)
            if known is not None:
                self.dims |= known
                return
        ranks = [f"{len(s) - 1} or more" if _is_open(s) else str(len(s)) for s in shapes]
        if len(shapes) == 1 and all(self._extent(axis) is None for axis in shapes[0]):
            raise self.fail(f"`{name}` must have rank {ranks[0]}, not {len(found)}")
        wanted = " or ".join(dict.fromkeys(map(self._shown, shapes)))
        raise self.fail(f"`{name}` must have the shape {wanted}, not {found}")

    def _matched(self, axes: list[str], shape: tuple[int, ...]) -> dict[str, Any] | None:
        """The extents that a shape gives the names of its axes; None if it does not fit."""
        known: dict[str, Any] = {}
        if _is_open(axes):
            count = len(shape) - len(axes) + 1
            if count < 0:
                return None
            known[axes[0]], axes, shape = tuple(shape[:count]), axes[1:], shape[count:]
        if len(axes) != len(shape):
            return None
        known.update(zip(axes, shape, strict=True))
        fits = all(_agree(self._extent(axis), n) for axis, n in known.items())
        named = {axis.lstrip("*"): n for axis, n in known.items()}
        return {axis: n for axis, n in named.items() if axis.isidentifier()} if fits else None

    def _extent(self, axis: str) -> Any:
        """The extent of an axis, or None if it is not known."""
        name, _, divisor = axis.lstrip("*").partition("/")
        if name.isdecimal():
            return int(name)
        extent = self.dims.get(name)
        return -(-extent // int(divisor)) if divisor and extent is not None else extent

    def _extents(self, axes: list[str]) -> Iterator[Any]:
        """The extents of a shape, or the name of an axis whose extent is not known."""
        for axis in axes:
            extent = self._extent(axis)
            if isinstance(extent, tuple):
                yield from extent
            else:
                yield ("..." if axis.startswith("*") else axis) if extent is None else extent

    def _shown(self, axes: list[str]) -> str:
        extents = [f"{n}" for n in self._extents(axes)]
        return f"({', '.join(extents)}{',' * (len(extents) == 1)})"

    def positive(self, *axes: str) -> None:
        """Raise an ArgumentError if one of these axes has no elements."""
        for axis in axes:
            if is_equal(self.dims[axis], 0):
                raise self.fail(f"{axis} must be at least 1, not 0")

    def needs(self, name: str, *others: str) -> None:
        """Raise if an array or a number is given without the others that it needs."""
        for other in others:
            if name in self and other not in self:
                raise self.fail(f"`{name}` goes with `{other}`, which is missing")

    def broadcast(self, *names: str) -> tuple[int, ...]:
        """The leading axes of these names, broadcast together."""
        shapes = [self.dims[name] for name in names]
        found: list[Any] = []
        for extents in zip_longest(*map(reversed, shapes), fillvalue=1):
            wide = [n for n in extents if n != 1]
            if any(n != wide[0] for n in wide):
                shown = " and ".join(self._shown([f"*{name}"]) for name in names)
                raise self.fail(f"the batches {shown} do not fit each other")
            found.append(wide[0] if wide else 1)
        return tuple(reversed(found))

    def dtypes(self, *names: str, among: Sequence[str], same: bool = True) -> str:
        """The dtype of the first; an ArgumentError unless those given are among these, and all the same if `same`."""
        given = [name for name in names if name in self.found]
        for name in given:
            dtype, first = self.found[name].dtype, self.found[given[0]].dtype
            if dtype not in among:
                raise self.fail(f"`{name}` must be {either(among)}, not {dtype}")
            if same and dtype != first:
                raise self.fail(
                    f"`{name}` must have the dtype of `{given[0]}`, {first}, not {dtype}"
                )
        return self.found[given[0]].dtype if given else ""

    def result(
        self, spec: str, own: str, asked: DType | None = None, among: Sequence[str] = RESULTS
    ) -> str:
        """The dtype of the result: that of `out`, else `asked`, else `own`.

        `out` must have this shape and writable memory; if it is absent, it is made.
        """
        if not isinstance(asked, DType | None):
            raise self.fail(f"`out_dtype` must be a dtype such as pk.f32, not {asked!r}")
        dtype = own if asked is None else asked.name
        self.shapes(out=spec)
        if "out" in self.found:
            if asked is not None and dtype != self.found["out"].dtype:
                raise self.fail(f"`out` is {self.found['out'].dtype}, and `out_dtype` says {dtype}")
            dtype = self.found["out"].dtype
            if self.have_memory:
                self._check_memory()
        if dtype not in among:
            raise self.fail(f"the result can be {either(among)}, not {dtype}")
        if "out" not in self.found:
            self.make("out", spec, dtype)
        return dtype

    def make(self, name: str, spec: str, dtype: str) -> None:
        """Add an array that the call makes; its extents must be known."""
        shape = tuple(self._extents(spec.split()))
        self.made[name] = Made(shape, dtype, shape)

    def optional(self, name: str, spec: str, dtype: str, is_asked: Any) -> tuple[str, ...]:
        """Add an array that the call makes if it is asked for; its name if it is."""
        if not is_asked:
            return ()
        self.make(name, spec, dtype)
        return (name,)

    def gradients(self, *names: str) -> tuple[str, ...]:
        """Add the gradients of those of these arrays that are given, of their shapes and dtypes; the names of those."""
        found = {gradient_of(name): self.found[name] for name in names if name in self}
        self.made |= {name: Made(x.shape, x.dtype, x.shape) for name, x in found.items()}
        return tuple(found)

    def reachable(self, name: str) -> bool:
        """Whether the copy engine can address an array as kernels take it; a copy is contiguous."""
        if name in self.made:
            made = self.made[name]
            return _is_aligned(made.seen, DTYPES[made.dtype].bytes)
        if name in self.copies:
            return _is_aligned(self.copies[name], self.found[name].itemsize)
        found = describe(self.views[name])
        return found is not None and reachable(found)

    def row_step(self, name: str) -> int:
        """Bytes of which the places of an array's rows in memory are multiples: 16 to 128, or up to 8 if unaligned."""
        most = LINE if self.reachable(name) else 8
        if name in self.made:
            made = self.made[name]
            return math.gcd(most, made.seen[-1] * DTYPES[made.dtype].bytes)
        size = self.found[name].itemsize
        if name in self.copies:
            return math.gcd(most, self.copies[name][-1] * size)
        x = describe(self.views[name])
        assert x is not None
        outer = zip(x.shape[:-1], x.strides[:-1], strict=True)
        step = math.gcd(most, *(stride * size for extent, stride in outer if extent > 1))
        return step if most == LINE else math.gcd(step, x.address)

    def _check_memory(self) -> None:
        out = self.found["out"]
        if not out.writable:
            raise self.fail("`out` is written and is read-only")
        for name, x in self.found.items():
            if name != "out" and overlap(out, x):
                raise self.fail(f"`out` shares memory with `{name}`", "pass a copy of one of them")

    # -- layout ------------------------------------------------------------------------------------

    def number(self, name: str, number: Any) -> None:
        """Let kernels take a number by this name."""
        self.given[name] = self.views[name] = number

    def view(self, name: str, view: Any) -> None:
        """Let kernels take this view of an array."""
        self.views[name] = view

    def alias(self, name: str, of: str, shape: tuple[int, ...]) -> None:
        """Let kernels take an array that is made, or scratch memory, in this shape by another name."""
        self.aliases[name] = of, shape

    def reshape(self, name: str, shape: tuple[int, ...]) -> None:
        """Let kernels take an array in another shape; it is copied unless a view has that shape."""
        if name in self.made:
            self.made[name] = replace(self.made[name], seen=shape)
            return
        x = self.views[name]
        if name in self.copies or (view := reshaped(x, shape)) is None:
            self.copies[name] = shape
        else:
            self.views[name] = view

    def lines(self, *names: str) -> None:
        """Let kernels take these arrays with a last stride of 1; an array with another is copied."""
        for name in names:
            if name in self.found and name not in self.copies and not has_lines(self.views[name]):
                self.copies[name] = tuple(self.views[name].shape)


def gradient_of(name: str) -> str:
    """The name of the gradient of an array: dq, ddt, d_weight."""
    return f"d{name}" if len(name) <= 2 else f"d_{name}"


def _is_aligned(shape: tuple[int, ...], itemsize: int) -> bool:
    return 0 not in shape and (len(shape) < 2 or shape[-1] * itemsize % 16 == 0)


def _agree(known: Any, found: Any) -> bool:
    """Whether an extent, or a tuple of extents, is not known or equal to another."""
    if isinstance(known, tuple):
        return len(known) == len(found) and all(map(is_equal, known, found))
    return known is None or is_equal(known, found)


def _is_open(axes: list[str]) -> bool:
    return bool(axes) and axes[0].startswith("*")


def has_lines(x: Any) -> bool:
    """Whether the last stride of an array is 1 and no other stride is negative, as kernels take it."""
    found = describe(x)
    assert found is not None
    if not found.shape:
        return True
    *outer, last = zip(found.shape, found.strides, strict=True)
    return (last[0] <= 1 or last[1] == 1) and all(s >= 0 for n, s in outer if n > 1)


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """A view of an array in another shape; None if that needs a copy."""
    if isinstance(x, np.ndarray):
        view = x.reshape(shape)
        return view if not x.size or np.may_share_memory(view, x) else None
    try:
        return x.view(shape)
    except RuntimeError:
        return None


def contiguous(array: Any) -> Any:
    """The array, copied unless it is contiguous."""
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()


def spread_to(array: Any, shape: tuple[int, ...]) -> Any:
    """A view of this shape in which axes of extent 1 repeat."""
    if tuple(array.shape) == shape:
        return array
    return np.broadcast_to(array, shape) if isinstance(array, np.ndarray) else array.expand(shape)
