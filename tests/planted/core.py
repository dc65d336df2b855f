"""A planted bug: a small kernel that does one thing wrong, and the same kernel repaired.

The checker must name the bug and its lines, and find no fault in the repaired kernel. A file has the bugs of one kind;
`every` finds all files of this folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykittens.emulate.finding import Kind, Level
from pykittens.runtime.kernel import KernelFunction
from tests.cases.core import Array, same, within

BROKEN: Mapping[str, Any] = {"broken": True}
REPAIRED: Mapping[str, Any] = {"broken": False}


@dataclass(frozen=True)
class Planted:
    """A kernel with one bug.

    kind: the kind that a report must have; also: other kinds for the same bug that a report may have. lines: texts in
    the source lines that one finding must name; each is in one line of the kernel. arguments: makes all arguments,
    with the outputs, from a seeded generator. expected: the outputs of the repaired kernel by the names of their
    parameters, from the arguments before the launch. bound: the largest absolute error of each element, from the exact
    output and the arguments before the launch; without it they are equal. repaired: the repaired kernel, None if there
    is none. repaired_arguments: its arguments if the arguments are the bug. constants and repaired_constants: the
    constants of both kernels.
    """

    name: str
    kind: Kind
    kernel: KernelFunction
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    expected: Callable[..., Mapping[str, Array]]
    lines: tuple[str, ...]
    repaired: KernelFunction | None
    constants: Mapping[str, Any]
    repaired_constants: Mapping[str, Any]
    level: Level = Level.ERROR
    also: tuple[Kind, ...] = ()
    bound: Callable[..., Array] | None = None
    repaired_arguments: Callable[[np.random.Generator], tuple[Any, ...]] | None = None

    def __str__(self) -> str:
        return self.name

    def run_repaired(self, seed: int = 0) -> None:
        """Run the repaired kernel; raise unless every output is as expected."""
        assert self.repaired is not None, f"{self.name} has no repaired kernel"
        given = (self.repaired_arguments or self.arguments)(np.random.default_rng(seed))
        before = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
        self.repaired(*given, **self.repaired_constants)
        found = dict(zip(self.repaired.parameters.positional, given, strict=True))
        for name, exact in self.expected(*before).items():
            wanted = np.asarray(exact)
            if self.bound is None:
                same(found[name], wanted.astype(found[name].dtype))
            else:
                within(found[name], wanted, self.bound(wanted, *before))


_PLANTED: dict[str, Planted] = {}


def planted(
    kind: Kind,
    *lines: str,
    arguments: Callable[[np.random.Generator], tuple[Any, ...]],
    expected: Callable[..., Mapping[str, Array]],
    constants: Mapping[str, Any] = BROKEN,
    repaired_constants: Mapping[str, Any] = REPAIRED,
    repaired: KernelFunction | None = None,
    has_repaired: bool = True,
    level: Level = Level.ERROR,
    also: tuple[Kind, ...] = (),
    bound: Callable[..., Array] | None = None,
    repaired_arguments: Callable[[np.random.Generator], tuple[Any, ...]] | None = None,
) -> Callable[[KernelFunction], KernelFunction]:
    """Register a kernel with a planted bug, which its keyword constant `broken` enables.

    `repaired` is the repaired kernel unless it is the same kernel with `broken=False`.
    """

    def add(kernel: KernelFunction) -> KernelFunction:
        name = kernel.function.__name__
        assert name not in _PLANTED, f"two planted kernels are called {name}"
        fixed = (repaired or kernel) if has_repaired else None
        _PLANTED[name] = Planted(
            name,
            kind,
            kernel,
            arguments,
            expected,
            lines,
            fixed,
            constants,
            repaired_constants,
            level,
            also,
            bound,
            repaired_arguments,
        )
        return kernel

    return add


def every() -> list[Planted]:
    """All planted bugs of this folder, by name."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "core") and not path.stem.startswith("test_"):
            importlib.import_module(f"{__package__}.{path.stem}")
    return [_PLANTED[name] for name in sorted(_PLANTED)]


# -- arguments of the kernels -----------------------------------------------------------------------------------------


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Integers from -4 to 4, so that every sum of the kernels is exact."""
    return rng.integers(-4, 5, shape).astype(dtype.numpy)


def signs(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Integers from -1 to 1, so that scores of 64 products are exact in bf16."""
    return rng.integers(-1, 2, shape).astype(dtype.numpy)


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An output before the launch: NaN, or -77 for integers."""
    return np.full(shape, np.nan if dtype.kind == "float" else -77, dtype.numpy)


def product(a: Array, b: Array) -> Array:
    """a @ b in float64."""
    result: Array = a.astype(np.float64) @ b.astype(np.float64)
    return result
