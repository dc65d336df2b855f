"""A call of gemm: its checked arguments, its arrays as the kernel takes them, and its plan in a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import Arrays, spread_to
from pykittens.kernels.epilogue import Epilogue, check_activation
from pykittens.kernels.gemm.config import Config, GemmShape, work
from pykittens.kernels.gemm.operands import (
    BLOCKS,
    OPERANDS,
    check_dtypes,
    check_operands,
    is_transposed,
    lay_out,
    shape_of,
)
from pykittens.kernels.gemm.tiles import Form
from pykittens.kernels.gemm.vectors import gemm_vectors
from pykittens.kernels.lines import in_lines
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.dtypes import DType, f32

NUMBERS: dict[str, Any] = {
    name: operand.neutral for name, operand in OPERANDS.items() if operand.neutral is not None
} | {"operands": ()}
# Arrays that may have the axes of the batch, each with the number of its other axes.
BATCHED = dict.fromkeys(("a", "b", "gate", "out", "residual"), 2)
BATCHED |= dict.fromkeys(("row_scale", "column_scale", "gate_column_scale", "bias", "gate_bias"), 1)


@dataclass(frozen=True)
class GemmOptions:
    """The arguments of gemm that are neither arrays nor numbers for the kernel."""

    transpose_b: bool = True
    out_dtype: DType | None = None
    accumulate: DType = f32
    activation: str = ""
    row_sums: bool = False
    column_sums: bool = False
    epilogue: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.transpose_b, bool):
            kind = type(self.transpose_b).__name__
            raise ArgumentError(f"gemm: `transpose_b` must be True or False, not {kind}")
        if self.epilogue is not None and not callable(self.epilogue):
            kind = type(self.epilogue).__name__
            raise ArgumentError(f"gemm: `epilogue` must be a function, not {kind}")
        if not isinstance(self.accumulate, DType):
            raise ArgumentError(
                f"gemm: `accumulate` must be a dtype such as pk.f32, not {self.accumulate!r}"
            )
        check_activation("gemm", self.activation)

    @property
    def is_whole(self) -> bool:
        """Whether something depends on the rows and columns of the product: it is neither transposed nor folded."""
        return self.epilogue is not None or self.row_sums or self.column_sums


OPTIONS = tuple(option.name for option in fields(GemmOptions))


class GemmCall:
    """A call of gemm whose arguments fit, with its arrays as the kernel takes them.

    given: the arrays and numbers by name. m, n, k, lead: the extents of the product and of its batch in the kernel,
    which takes the rows of a batch with a single b as the rows of one product. result: the shape of the result. dtype:
    its dtype.
    """

    def __init__(
        self, kernel: KernelFunction, given: Mapping[str, Any], options: GemmOptions
    ) -> None:
        self.kernel, self.given, self.options = kernel, dict(given), options
        self.arrays = a = Arrays("gemm", **given)
        if options.epilogue is None and self.function_operands:
            raise a.fail(
                "`operands` without `epilogue` have no meaning",
                "they are passed to the function of `epilogue`, after x and at",
            )
        self._check_shapes()
        self.dtype = self._check_dtypes()
        self.lead: tuple[int, ...] = a.dims["lead"]
        self.result = (*self.lead, self.m, self.n)
        for name in self.sums:
            a.make(f"total_{name}", "*lead m" if name == "row_sums" else "*lead n", "f32")
        if not a.have_memory:
            return
        if self.lead and not (not options.is_whole and self._fold()):
            self._gather_leads()
        self._lay_out()

    @staticmethod
    def of(
        kernel: KernelFunction, a: Any, b: Any, out: Any, operands: Any = (), **words: Any
    ) -> GemmCall:
        """The call of gemm with these arguments; an ArgumentError for one that is neither an operand nor an option."""
        if not isinstance(operands, tuple | list):
            raise ArgumentError(
                f"gemm: `operands` must be a tuple, not {type(operands).__name__}",
                help="operands=(x,) passes x to the function of `epilogue`",
            )
        if any(x is None for x in operands):
            raise ArgumentError("gemm: `operands` are arrays and numbers, and one of them is None")
        given = {"a": a, "b": b, "out": out} | {n: words.pop(n) for n in OPERANDS if n in words}
        for i, x in enumerate(operands):
            is_number = isinstance(x, Real) and not isinstance(x, int | float)
            given[f"operand{i}"] = float(x) if is_number else x
        for name in words:
            if name not in OPTIONS:
                known = ", ".join(f"{n}=" for n in (*OPTIONS, "operands", "config", *OPERANDS))
                raise ArgumentError(
                    f"gemm: `{name}` is not one of its arguments",
                    help=f"it takes a, b, out, tune=, {known}",
                )
        return GemmCall(kernel, given, GemmOptions(**words))

    def on(self, options: GemmOptions | None = None, **given: Any) -> GemmCall:
        """The same call with other arrays, or other options."""
        return GemmCall(self.kernel, self.given | given, options or self.options)

    @property
    def function_operands(self) -> list[str]:
        """The names of the operands of the user's function."""
        return [name for name in self.arrays.given if name.startswith("operand")]

    @property
    def sums(self) -> list[str]:
        """The names of the sums that are asked for."""
        return [name for name in ("row_sums", "column_sums") if getattr(self.options, name)]

    # -- checks ------------------------------------------------------------------------------------

    def _check_shapes(self) -> None:
        a = self.arrays
        b = "*right n k" if self.options.transpose_b else "*right k n"
        a.shapes(a="*left m k", b=b)
        a.dims["lead"] = a.broadcast("left", "right")
        self.m, self.n, self.k = (a.dims[axis] for axis in "mnk")
        if "beta" in a.found:
            raise a.fail("`beta` must be a number, not an array")
        check_operands(a, {n: x.shape for n, x in OPERANDS.items()} | {"gate": b})

    def _check_dtypes(self) -> str:
        """The dtype of the result; raise if dtypes do not go together."""
        dtype, sums = self.arrays.found["a"].dtype, self.options.accumulate.name
        result = check_dtypes(self.arrays, "*lead m n", self.options.out_dtype)
        if sums != "f32" and (sums, dtype) != ("f16", "f16"):
            raise self.arrays.fail(f"{dtype} is summed in f32, f16 also in f16, not in {sums}")
        return result

    # -- batches -----------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """The number of products."""
        return math.prod(self.lead)

    def _fold(self) -> bool:
        """Make the rows of a batch the rows of one product; False if that needs a copy."""
        a = self.arrays
        columns = ("column_scale", "gate_column_scale", "bias", "gate_bias")
        wide = any(len(a.found[name].shape) > 1 for name in columns if name in a.found)
        if a.dims["right"] or "row_blocks" in a or wide:
            return False
        stacked = [name for name in ("a", "out", "residual") if name in a]
        if not all(_is_stack(a.found[name]) for name in stacked):
            return False
        self.m, self.lead = self.m * self.batch, ()
        shapes = {"a": (self.m, self.k), "row_scale": (self.m,)}
        for name in ("a", "out", "residual", "row_scale"):
            if name in a or name == "out":
                a.reshape(name, shapes.get(name, (self.m, self.n)))
        return True

    def _gather_leads(self) -> None:
        """Give all arrays of a batch its leading axes; more than two axes become one."""
        a, rank = self.arrays, len(self.lead)
        lead = self.lead if rank <= 2 else (self.batch,)  # the kernel counts two beside the tiles
        for name, x in a.found.items():
            inner = BATCHED.get(name, 0)
            if name in self.function_operands and x.shape[:rank] == self.lead:
                inner = len(x.shape) - rank
            elif len(x.shape) <= inner or not inner:
                continue
            extents = x.shape[len(x.shape) - inner :]
            a.view(name, spread_to(a.views[name], (*self.lead, *extents)))
            if lead != self.lead:
                a.reshape(name, (*lead, *extents))
        if lead != self.lead:
            a.reshape("out", (*lead, self.m, self.n))
            if "out" in a.copies:
                raise a.fail("`out` must have a batch of one or two axes, or lie in one piece")
        self.lead = lead

    # -- strides -----------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Make the last stride of every array 1: by exchanging axes if that does it, else by a copy."""
        a = self.arrays
        transposed = [n for n in "ab" if n not in a.copies and is_transposed(a.views[n])]
        self.a_is_transposed = "a" in transposed
        self.b_is_transposed = self.options.transpose_b != ("b" in transposed)
        for name in ("alpha", "gate_alpha", *self.function_operands):
            if name in a.found and not a.found[name].shape:
                a.reshape(name, (1,))
        lay_out(a, *transposed, *["gate"] * ("b" in transposed))

    # -- the plan ----------------------------------------------------------------------------------

    @property
    def shape(self) -> GemmShape:
        """The inputs to the choice of a configuration."""
        free = {"a", "b", "out", "gate", "alpha", "gate_alpha", *BLOCKS}
        return shape_of(
            *(self.arrays, self.m, self.n, self.k, self.batch),
            may_swap=not self.options.is_whole,
            a_by_columns=self.a_is_transposed,
            b_by_rows=self.b_is_transposed,
            operands=len(self.arrays.given.keys() - free),
            a_step=self.arrays.row_step("a"),
            b_step=min(self.arrays.row_step(n) for n in ("b", "gate") if n in self.arrays),
            out_step=self.arrays.row_step("out"),
            activation=bool(self.options.activation) or self.options.epilogue is not None,
        )

    def form(self, config: Config) -> Form:
        """The constants of the kernel in a configuration."""
        options, given = self.options, self.arrays.given
        names = [name for name in OPERANDS if name in given] + self.function_operands + self.sums
        names += ["partials", "flags"] if config.sums_in_memory else []
        epilogue = Epilogue(tuple(names), options.activation, options.epilogue)
        transposed = self.a_is_transposed, self.b_is_transposed
        if config.swap:
            transposed = not self.b_is_transposed, not self.a_is_transposed
        return Form(*transposed, options.accumulate, epilogue)

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the arrays that the call returns."""
        return ("out", *(f"total_{name}" for name in self.sums))

    def plan(self, config: Config) -> Plan:
        """The launches in a configuration."""
        form = self.form(config)
        matrices = ("b", "a", "out") if config.swap else ("a", "b", "out")
        constants = {"form": form, "config": replace(config, copied=())}
        copied = [*config.copied, *["gate"] * ("b" in config.copied and "gate" in self.arrays)]
        copies, steps = in_lines(self.arrays, copied)
        names = [
            f"{name}_lines" if f"{name}_lines" in copies else name
            for name in (*matrices, *form.epilogue.names)
        ]
        kernel = gemm_vectors if config.vectors else self.kernel
        steps.append(PlanStep(kernel, tuple(names), constants))
        sums = self._sums(config)
        for name in sums:
            total = f"total_{name}"
            self.arrays.reshape(total, (*self.lead, sums[name].shape[-1]))
            steps.append(PlanStep(add_up, (name, total)))
        return Plan(self.arrays, steps, self._split_scratch(config) | copies | sums, self.results)

    def _sums(self, config: Config) -> dict[str, Scratch]:
        """The partial sums of rows and columns that the kernel stores, by name."""
        rows, cols = -(-self.m // config.rows), -(-self.n // config.cols)
        if config.splits > 1:
            cols *= config.parts  # each part is finished separately
        shapes = {"row_sums": (cols, self.m), "column_sums": (rows * config.consumers, self.n)}
        return {name: Scratch((*self.lead, *shapes[name])) for name in self.sums}

    def _split_scratch(self, config: Config) -> dict[str, Scratch]:
        """The partial sums that the blocks of a split product exchange through memory, and the states of its tiles."""
        if not config.sums_in_memory:
            return {}
        shape = self.shape
        tiles = max(work(config, shape)[0], 1)
        height = tiles * config.splits * config.rows * (1 + shape.gated) * config.parts
        flags = tiles * config.consumers
        return {
            "partials": Scratch((height, config.out_cols)),
            "flags": Scratch((flags,), flags=True),
        }


def _is_stack(x: Any) -> bool:
    """Whether the matrices of a batch lie one after another, their rows equally far apart throughout."""
    outer = [(n, s) for n, s in zip(x.shape[:-1], x.strides[:-1], strict=True) if n != 1]
    return all(s == t * n for (_, s), (n, t) in zip(outer, outer[1:], strict=False)) and (
        x.strides[-1] == 1 or x.shape[-1] == 1
    )


@pk.kernel(warps=1)
def add_up(parts, out):  # type: ignore[no-untyped-def]
    """out[..., i] = sum over p of parts[..., p, i], one after another."""
    *lead, col = pk.grid(*parts.shape[:-2], pk.cdiv(parts.cols, 128))
    total = pk.zeros(pk.f32, 128)
    for p in pk.range(parts.rows):
        total = total + pk.load(parts[(*lead, p, col)], cols=128)
    pk.store(out[(*lead, col)], total)
