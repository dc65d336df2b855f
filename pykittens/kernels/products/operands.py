"""The arrays of a product as its kernel takes them: which lie transposed, what is a batch, what is copied.

NumPy arrays and PyTorch tensors are handled alike, by the methods that both have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.kernels.core import contiguous, spread_to
from pykittens.kernels.products.config import SCALED
from pykittens.runtime.arguments import overlap
from pykittens.runtime.arrays import Array, describe

NARROW, FP8 = ("bf16", "f16"), ("e4m3", "e5m2")

# The operands of the epilogue in the order in which the kernel takes them, and what each has as many numbers as:
# the product, its rows, its columns, one, or blocks of 128 along k and, where it scales b, along n.
OPERANDS = {
    "gate": "b",
    "alpha": "one",
    "gate_alpha": "one",
    "row_scale": "rows",
    "column_scale": "columns",
    "gate_column_scale": "columns",
    "row_blocks": "row blocks",
    "column_blocks": "column blocks",
    "gate_blocks": "column blocks",
    "bias": "columns",
    "gate_bias": "columns",
    "beta": "one",
    "residual": "product",
}


@dataclass(kw_only=True)
class Lined:
    """Arrays on the way to their kernel. copies: what was copied for it, each with its copy."""

    copies: list[tuple[Any, Any]] = field(default_factory=list)

    @property
    def copied(self) -> bool:
        """Whether an address that the kernel takes is not the caller's."""
        return bool(self.copies)

    def lined(self, x: Any) -> Any:
        """The array, copied unless its last stride is 1."""
        if has_lines(x):
            return x
        self.copies.append((x, contiguous(x)))
        return self.copies[-1][1]

    def shaped(self, x: Any, shape: tuple[int, ...]) -> Any:
        """The array in another shape, copied where it does not lie so."""
        made = x.reshape(shape)
        before, after = describe(x), describe(made)
        assert before is not None
        assert after is not None
        if before.address != after.address:
            self.copies.append((x, made))
        return made


@dataclass
class Product(Lined):
    """A product as its kernel takes it: every array has a last stride of 1.

    extras: the operands of the epilogue by name. shape: of the result. out: None where it is still to be made.
    """

    m: int
    n: int
    k: int
    lead: tuple[int, ...]
    a: Any
    b: Any
    out: Any
    extras: dict[str, Any]
    shape: tuple[int, ...]
    a_is_transposed: bool = False
    b_is_transposed: bool = False

    @property
    def batch(self) -> int:
        """How many products there are."""
        return math.prod(self.lead)


def product(
    a: Any, b: Any, out: Any, extras: dict[str, Any], transpose_b: bool, fold: bool = True
) -> Product:
    """What a call asks for, or an ArgumentError that says what does not fit.

    fold: a batch that one b serves becomes rows of one product, where nothing has to be copied for that.
    """
    arrays = {"a": a, "b": b} | ({} if out is None else {"out": out})
    found = {name: _matrix(name, x, arrays) for name, x in arrays.items()}
    _check_dtypes(found["a"], found["b"], arrays)
    (m, k), sides = found["a"].shape[-2:], found["b"].shape[-2:]
    n, inner = sides if transpose_b else sides[::-1]
    if inner != k:
        other = "b.T" if transpose_b else "b"
        raise _fail(f"`a` has {k} columns and `{other}` {inner} rows", arrays)
    try:
        lead = tuple(np.broadcast_shapes(found["a"].shape[:-2], found["b"].shape[:-2]))
    except ValueError:
        raise _fail("the batches of `a` and `b` do not fit each other", arrays) from None
    shape = (*lead, m, n)
    if out is not None and found["out"].shape != shape:
        raise _fail(f"`out` must have the shape {shape}", arrays)
    if out is not None and not found["out"].writable:
        raise _fail("`out` is written and is read-only", arrays)
    made = Product(m, n, k, lead, a, b, out, {}, shape)
    made.extras = {name: _operand(name, x, made, arrays) for name, x in extras.items()}
    _check_memory(arrays | made.extras)
    if lead and not (fold and _fold(made, found)):
        _gather_leads(made)
    _lay_out(made, transpose_b)
    return made


def _fail(message: str, arrays: dict[str, Any], help: str | None = None) -> ArgumentError:
    shown = {n: d for n, x in arrays.items() if (d := describe(x)) is not None}
    return ArgumentError(f"gemm: {message}", operands=shown, help=help)


def _check_memory(arrays: dict[str, Any]) -> None:
    """Raise where an element of `out` is one of another array, too."""
    found = {name: d for name, x in arrays.items() if (d := describe(x)) is not None}
    for name, x in found.items():
        if name != "out" and "out" in found and overlap(found["out"], x):
            raise _fail(f"`out` shares memory with `{name}`", arrays, "pass a copy of one of them")


def _matrix(name: str, value: Any, arrays: dict[str, Any]) -> Array:
    found = describe(value)
    if found is None:
        raise ArgumentError(f"gemm: `{name}` must be an array, not {type(value).__name__}")
    if len(found.shape) < 2:
        raise _fail(f"`{name}` must have rank 2 or more, not {len(found.shape)}", arrays)
    return found


def _check_dtypes(a: Array, b: Array, arrays: dict[str, Any]) -> None:
    for name, x in (("a", a), ("b", b)):
        if x.dtype not in (*NARROW, *FP8):
            raise _fail(f"`{name}` must be bf16, f16, e4m3 or e5m2, not {x.dtype}", arrays)
    if a.dtype != b.dtype and not {a.dtype, b.dtype} <= set(FP8):
        raise _fail("`b` must have the dtype of `a`", arrays)


def _operand(name: str, value: Any, of: Product, arrays: dict[str, Any]) -> Any:
    """An operand of the epilogue, or an error unless its shape is what its name says."""
    kind = OPERANDS.get(name)
    is_number = isinstance(value, int | float)
    if is_number and kind in (None, "one"):
        return value
    found = None if is_number else describe(value)
    if found is None:
        what = "a number" if is_number else type(value).__name__
        or_number = " or a number" if kind in (None, "one") else ""
        raise ArgumentError(f"gemm: `{name}` must be an array{or_number}, not {what}")
    if kind is None:
        return value if found.shape else value.reshape(1)
    blocks_n, blocks_k = -(-of.n // SCALED), -(-of.k // SCALED)
    legal: dict[str, list[tuple[int, ...]]] = {
        "b": [tuple(arrays["b"].shape)],
        "one": [(), (1,)],
        "rows": [(*of.lead, of.m)],
        "columns": [(of.n,), (*of.lead, of.n)],
        "product": [of.shape],
        "row blocks": [(of.m, blocks_k)],
        "column blocks": [(blocks_n, blocks_k)],
    }
    if found.shape not in legal[kind]:
        wanted = " or ".join(map(str, dict.fromkeys(legal[kind])))
        raise _fail(f"`{name}` must have the shape {wanted}", arrays | {name: value})
    if kind == "b" and found.dtype != describe(arrays["b"]).dtype:  # type: ignore[union-attr]
        raise _fail(f"`{name}` must have the dtype of `b`", arrays | {name: value})
    if kind in ("row blocks", "column blocks") and found.dtype != "f32":
        raise _fail(f"`{name}` must be f32, not {found.dtype}", arrays | {name: value})
    return value.reshape(1) if kind == "one" else value


# -- batches ---------------------------------------------------------------------------------------


def _fold(p: Product, found: dict[str, Array]) -> bool:
    """Make the rows of a batch the rows of one product; False where that cannot be done without a copy."""
    wide = [n for n, x in p.extras.items() if OPERANDS.get(n) == "columns" and len(x.shape) > 1]
    if len(found["b"].shape) > 2 or wide or "row_blocks" in p.extras:
        return False
    stacked = {"a": p.a, "out": p.out, "residual": p.extras.get("residual")}
    given = {name: x for name, x in stacked.items() if x is not None}
    if not all(_is_stack(describe(x)) for x in given.values()):
        return False
    p.m, p.lead = p.m * p.batch, ()
    p.a = p.a.reshape(p.m, p.k)
    p.out = p.out.reshape(p.m, p.n) if p.out is not None else None
    for name, shape in (("residual", (p.m, p.n)), ("row_scale", (p.m,))):
        if name in p.extras:
            p.extras[name] = p.shaped(p.extras[name], shape)
    return True


def _is_stack(x: Array | None) -> bool:
    """Whether the matrices of a batch lie one behind the other, rows of one distance throughout."""
    assert x is not None
    outer = list(zip(x.shape[:-1], x.strides[:-1], strict=True))
    outer = [(n, s) for n, s in outer if n != 1]
    return all(s == t * n for (_, s), (n, t) in zip(outer, outer[1:], strict=False)) and (
        x.strides[-1] == 1 or x.shape[-1] == 1
    )


def _gather_leads(p: Product) -> None:
    """Give all arrays of a batch its leading axes; more than two of them become one."""
    most = 2  # the kernel counts them beside the rows and columns of tiles
    lead = p.lead if len(p.lead) <= most else (p.batch,)
    names = [name for name, kind in OPERANDS.items() if kind in ("b", "rows", "columns", "product")]
    matrices = {"a": p.a, "b": p.b, **{n: p.extras[n] for n in names if n in p.extras}}
    for name, x in matrices.items():
        inner = 1 if OPERANDS.get(name) in ("rows", "columns") else 2
        if len(x.shape) == inner:
            continue
        whole = spread_to(x, (*p.lead, *x.shape[-inner:]))
        if lead != p.lead:
            whole = p.shaped(whole, (*lead, *x.shape[-inner:]))
        if name in ("a", "b"):
            setattr(p, name, whole)
        else:
            p.extras[name] = whole
    if lead != p.lead:
        for name, x in p.extras.items():  # of a function of the user's
            if name not in OPERANDS and tuple(getattr(x, "shape", ()))[: len(p.lead)] == p.lead:
                p.extras[name] = p.shaped(x, (*lead, *x.shape[len(p.lead) :]))
    if p.out is not None and lead != p.lead:
        flat = p.out.reshape((*lead, p.m, p.n))
        if describe(flat).address != describe(p.out).address:  # type: ignore[union-attr]
            raise _fail(
                "`out` must have a batch of one or two axes, or lie in one piece", {"out": p.out}
            )
        p.out = flat
    p.lead = lead


# -- strides ---------------------------------------------------------------------------------------


def _lay_out(p: Product, transpose_b: bool) -> None:
    """See to it that the last stride of every array is 1: axes exchanged if that does it, else copied."""
    p.a, p.a_is_transposed = _with_lines(p, p.a)
    p.b, turned = _with_lines(p, p.b)
    p.b_is_transposed = transpose_b != turned
    for name, x in p.extras.items():
        if OPERANDS.get(name) == "b":
            p.extras[name] = p.lined(x.swapaxes(-1, -2) if turned else x)
        elif name == "row_blocks":  # the kernel takes those of a step, of all rows, as a row
            p.extras[name] = p.lined(x.T)
        elif describe(x) is not None:
            p.extras[name] = p.lined(x)


def _with_lines(p: Product, x: Any) -> tuple[Any, bool]:
    """A matrix whose last stride is 1, and whether its axes were exchanged for that."""
    if has_lines(x):
        return x, False
    turned = x.swapaxes(-1, -2)
    if has_lines(turned):
        return turned, True
    return p.lined(x), False


def has_lines(x: Any) -> bool:
    """Whether the last stride of an array is 1 and the others are those of an array that a kernel takes."""
    found = describe(x)
    assert found is not None
    *outer, last = zip(found.shape, found.strides, strict=True)
    return (last[0] <= 1 or last[1] == 1) and all(s >= 0 for n, s in outer if n > 1)
