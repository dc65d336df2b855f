"""A call of gemm: what may be passed, how its arrays lie for the kernel, and the plan in a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import FP8, NARROW, Arrays, has_lines, spread_to
from pykittens.kernels.epilogue import Epilogue, check_activation
from pykittens.kernels.gemm.config import Config, Shape, work
from pykittens.kernels.gemm.tiles import Form
from pykittens.kernels.plan import Plan, Step
from pykittens.kernels.workspace import Scratch
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.dtypes import DTYPES, DType, f32


@dataclass(frozen=True)
class Operand:
    """An operand of the epilogue: its shapes, the operands that it goes with, and the number that is the same as None.

    Axes are those of C = A @ B, (*lead, m, n); "b" is the shape of b. Only an operand with `neutral` may be a number.
    """

    shape: str
    needs: tuple[str, ...] = ()
    neutral: float | None = None


# In the order in which the kernel takes them.
OPERANDS = {
    "gate": Operand("b"),
    "alpha": Operand("| 1", neutral=1.0),
    "gate_alpha": Operand("| 1", ("gate",), neutral=1.0),
    "row_scale": Operand("*lead m"),
    "column_scale": Operand("n | *lead n"),
    "gate_column_scale": Operand("n | *lead n", ("gate",)),
    "row_blocks": Operand("m k/128", ("column_blocks",)),
    "column_blocks": Operand("n/128 k/128", ("row_blocks",)),
    "gate_blocks": Operand("n/128 k/128", ("gate", "row_blocks")),
    "bias": Operand("n | *lead n"),
    "gate_bias": Operand("n | *lead n", ("gate",)),
    "beta": Operand("", ("out",), neutral=0.0),
    "residual": Operand("*lead m n"),
}
NUMBERS: dict[str, Any] = {
    name: operand.neutral for name, operand in OPERANDS.items() if operand.neutral is not None
} | {"operands": ()}
# Arrays that may have the axes of the batch, with how many others they have.
BATCHED = dict.fromkeys(("a", "b", "gate", "out", "residual"), 2)
BATCHED |= dict.fromkeys(("row_scale", "column_scale", "gate_column_scale", "bias", "gate_bias"), 1)
BLOCKS = ("row_blocks", "column_blocks", "gate_blocks")


@dataclass(frozen=True)
class Options:
    """What a call of gemm says besides its arrays and numbers."""

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
        """Whether the product is looked at as it is: not transposed, and not as the rows of a larger one."""
        return self.epilogue is not None or self.row_sums or self.column_sums


OPTIONS = tuple(option.name for option in fields(Options))


class Call:
    """A call of gemm whose arguments fit, with its arrays as the kernel takes them.

    given: the arrays and numbers by name. m, n, k, lead: the extents of the product and of its batch, as the kernel
    counts them: rows of a batch that one b serves are rows of one product. result: the shape of the result. dtype: its
    dtype.
    """

    def __init__(self, kernel: KernelFunction, given: Mapping[str, Any], options: Options) -> None:
        self.kernel, self.given, self.options = kernel, dict(given), options
        self.arrays = a = Arrays("gemm", **given)
        if options.epilogue is None and self.own:
            raise a.fail(
                "`operands` without `epilogue` have no meaning",
                "they are passed to the function of `epilogue`, after x and the place",
            )
        self._check_shapes()
        self.dtype = self._check_dtypes()
        self.lead: tuple[int, ...] = a.dims["lead"]
        self.result = (*self.lead, self.m, self.n)
        if self.lead and not (not options.is_whole and self._fold()):
            self._gather_leads()
        self._lay_out()

    @staticmethod
    def of(
        kernel: KernelFunction, a: Any, b: Any, out: Any, operands: Any = (), **words: Any
    ) -> Call:
        """The call with these arguments of gemm; those that are neither operands nor options are refused."""
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
        return Call(kernel, given, Options(**words))

    def on(self, options: Options | None = None, **given: Any) -> Call:
        """The same call with other arrays, or other options."""
        return Call(self.kernel, self.given | given, options or self.options)

    @property
    def own(self) -> list[str]:
        """The operands of the user's function, by name."""
        return [name for name in self.given if name.startswith("operand")]

    @property
    def sums(self) -> list[str]:
        """The sums that are asked for."""
        return [name for name in ("row_sums", "column_sums") if getattr(self.options, name)]

    # -- checks ------------------------------------------------------------------------------------

    def _check_shapes(self) -> None:
        a = self.arrays
        b = "*right n k" if self.options.transpose_b else "*right k n"
        a.shapes(a="*left m k", b=b)
        a.dims["lead"] = a.broadcast("left", "right")
        self.m, self.n, self.k = (a.dims[axis] for axis in "mnk")
        for name, operand in OPERANDS.items():
            a.needs(name, *operand.needs)
            if name == "beta" and name in a.found:
                raise a.fail("`beta` must be a number, not an array")
            if operand.neutral is None or name in a.found:
                a.shapes(**{name: b if operand.shape == "b" else operand.shape})
        if "row_blocks" in a:
            a.needs("gate", "gate_blocks")

    def _check_dtypes(self) -> str:
        """The dtype of the result; raise if dtypes do not go together."""
        a, sums = self.arrays, self.options.accumulate.name
        mixed = {a.found["a"].dtype, a.found["b"].dtype} <= set(FP8)
        own = a.dtypes("a", "b", among=(*NARROW, *FP8), same=not mixed)
        a.dtypes("b", "gate", among=(*NARROW, *FP8))
        a.dtypes(*BLOCKS, among=("f32",))
        if sums != "f32" and (sums, own) != ("f16", "f16"):
            raise a.fail(f"{own} is summed in f32, f16 also in f16, not in {sums}")
        if "row_blocks" in a and own in NARROW:
            raise a.fail(f"`row_blocks` scale blocks of fp8, and `a` is {own}")
        return a.result("*lead m n", own if own in NARROW else "bf16", self.options.out_dtype)

    # -- batches -----------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """The number of products."""
        return math.prod(self.lead)

    def _fold(self) -> bool:
        """Make the rows of a batch the rows of one product; False if that cannot be done without a copy."""
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
        """Give all arrays of a batch its leading axes; more than two of them become one."""
        a, rank = self.arrays, len(self.lead)
        lead = self.lead if rank <= 2 else (self.batch,)  # the kernel counts two beside the tiles
        for name, x in a.found.items():
            inner = BATCHED.get(name, 0)
            if name in self.own and x.shape[:rank] == self.lead:
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
        self.a_is_transposed = self._turned("a")
        turned = self._turned("b")
        self.b_is_transposed = self.options.transpose_b != turned
        if turned and "gate" in a:
            a.view("gate", a.views["gate"].swapaxes(-1, -2))
        if "row_blocks" in a:  # the kernel takes those of a step, of all rows, as a row
            a.view("row_blocks", a.views["row_blocks"].T)
        for name in ("alpha", "gate_alpha", *self.own):
            if name in a.found and not a.found[name].shape:
                a.reshape(name, (1,))
        a.lines(*a.found)

    def _turned(self, name: str) -> bool:
        """Whether the axes of a matrix are exchanged so that its last stride is 1."""
        view = self.arrays.views[name]
        if name in self.arrays.copies or has_lines(view):
            return False
        turned = view.swapaxes(-1, -2)
        if has_lines(turned):
            self.arrays.view(name, turned)
        return has_lines(turned)

    # -- the plan ----------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """What the choice of a configuration depends on."""
        given = self.arrays.given
        free = {"a", "b", "out", "gate", "alpha", "gate_alpha", *BLOCKS}
        return Shape(
            *(self.m, self.n, self.k, self.batch),
            bytes=DTYPES[self.arrays.found["a"].dtype].bytes,
            out_bytes=DTYPES[self.dtype].bytes,
            gated="gate" in given,
            blocks="row_blocks" in given,
            may_swap=not self.options.is_whole,
            a_by_columns=self.a_is_transposed,
            b_by_rows=self.b_is_transposed,
            operands=len(given.keys() - free),
            activation=bool(self.options.activation) or self.options.epilogue is not None,
        )

    def form(self, config: Config) -> Form:
        """The constants of the kernel in a configuration."""
        options, given = self.options, self.arrays.given
        names = [name for name in OPERANDS if name in given] + self.own
        names += self.sums
        names += ["partials", "flags"] if config.splits > 1 else []
        epilogue = Epilogue(tuple(names), options.activation, options.epilogue)
        turned = self.a_is_transposed, self.b_is_transposed
        if config.swap:
            turned = not self.b_is_transposed, not self.a_is_transposed
        return Form(*turned, options.accumulate, epilogue)

    def plan(self, config: Config) -> Plan:
        """The launches in a configuration."""
        form = self.form(config)
        matrices = ("b", "a", "out") if config.swap else ("a", "b", "out")
        constants = {"form": form, "config": config}
        steps = [Step(self.kernel, (*matrices, *form.epilogue.names), constants)]
        sums = self._sums(config)
        for name in sums:
            axis = "m" if name == "row_sums" else "n"
            total = f"total_{name}"
            self.arrays.make(total, f"*lead {axis}", "f32")
            self.arrays.reshape(total, (*self.lead, sums[name].shape[-1]))
            steps.append(Step(add_up, (name, total)))
        results = ("out", *(f"total_{name}" for name in sums))
        return Plan(self.arrays, steps, self._passing(config) | sums, results)

    def _sums(self, config: Config) -> dict[str, Scratch]:
        """The parts of the sums of rows and columns that are asked for."""
        rows, cols = -(-self.m // config.rows), -(-self.n // config.cols)
        if config.splits > 1:
            cols *= config.parts  # parts are finished by themselves
        shapes = {"row_sums": (cols, self.m), "column_sums": (rows * config.consumers, self.n)}
        return {name: Scratch((*self.lead, *shapes[name])) for name in self.sums}

    def _passing(self, config: Config) -> dict[str, Scratch]:
        """What the blocks of a split product leave for one another."""
        if config.splits == 1:
            return {}
        shape = self.shape
        tiles = max(work(config, shape)[0], 1)
        height = tiles * config.splits * config.rows * (1 + shape.gated) * config.parts
        flags = tiles * config.consumers * 2
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
