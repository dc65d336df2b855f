"""What a call of gemm says besides its arrays and numbers, and whether that goes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.kernels.epilogue import check_activation
from pykittens.kernels.products.operands import NARROW, OPERANDS, Product
from pykittens.runtime.arrays import Array, describe
from pykittens.types.dtypes import DTYPES, DType, f32

# Operands of an epilogue, each with the one that it goes with.
BESIDE = [
    ("row_blocks", "column_blocks"),
    ("column_blocks", "row_blocks"),
    ("gate_blocks", "row_blocks"),
]
BESIDE += [(f"gate_{name}", "gate") for name in ("alpha", "bias", "column_scale", "blocks")]
RESULTS = ("bf16", "f16", "f32", "e4m3", "e5m2")


# What a call passes, in this order and before operands of the user's own.
GIVEN = ("a", "b", "out", *OPERANDS)
NOTHING = {"alpha": 1.0, "gate_alpha": 1.0, "beta": 0.0}  # numbers that change nothing
OTHERWISE = {
    **dict.fromkeys(("out_dtype", "epilogue", "config")),
    **dict.fromkeys(("row_sums", "column_sums"), False),
    "accumulate": f32,
    "activation": "",
    "operands": (),
}


@dataclass(frozen=True)
class Asked:
    """What a call of gemm passed by keyword, sorted.

    tensors, numbers: what the kernel takes besides a, b and out, whose names are in `names`. key: all that the launch
    depends on but these. words: what is neither.
    """

    names: tuple[str, ...]
    tensors: tuple[Any, ...]
    numbers: tuple[float | int | bool, ...]
    key: tuple[Any, ...]
    words: dict[str, Any]

    @staticmethod
    def of(further: Mapping[str, Any]) -> Asked:
        """What these keywords and their values ask for."""
        arrays: dict[str, Any] = {}
        numbers: dict[str, Any] = {}
        words: dict[str, Any] = {}
        operands = further.get("operands", ())
        if not isinstance(operands, tuple | list):
            raise ArgumentError(
                f"gemm: `operands` must be a tuple, not {type(operands).__name__}",
                help="operands=(x,) passes x to the function of `epilogue`",
            )
        if any(x is None for x in operands):
            raise ArgumentError("gemm: `operands` are arrays and numbers, and one of them is None")
        own = {f"operand{i}": x for i, x in enumerate(operands)}
        for name, x in (*further.items(), *own.items()):
            if name in OTHERWISE:
                words[name] = x
            elif name not in OPERANDS and name not in own:
                raise ArgumentError(f"gemm: `{name}` is not one of its arguments", help=_words())
            elif not isinstance(x, Real):
                if x is not None:
                    arrays[name] = x
            elif name in own:
                numbers[name] = x if isinstance(x, int | float) else float(x)
            elif x != NOTHING.get(name):
                numbers[name] = _number_of(name, x)
        names = (*arrays, *numbers)
        kinds = tuple(map(type, numbers.values()))
        said = tuple((name, x) for name, x in words.items() if name != "operands")
        tensors = tuple(arrays.values())
        return Asked(names, tensors, tuple(numbers.values()), (names, kinds, said), words)

    @property
    def given(self) -> tuple[Any, ...]:
        """The operands in the order of OPERANDS, and those of the user's own."""
        values = dict(zip(self.names, (*self.tensors, *self.numbers), strict=True))
        own = [name for name in values if name not in OPERANDS]
        return (
            *(values.get(n, NOTHING.get(n)) for n in OPERANDS),
            *(values[n] for n in sorted(own, key=_number)),
        )

    @property
    def config(self) -> Any:
        """The configuration that was passed, or None."""
        return self.words.get("config")

    def options(self, transpose_b: bool) -> Options:
        """The rest, checked."""
        words: dict[str, Any] = OTHERWISE | self.words
        return Options(transpose_b, *(words[f.name] for f in fields(Options)[1:]))


def parted(
    tensors: tuple[Any, ...], transpose_b: bool, further: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """All tensors of a call, and the rest of it, by both of which the same call is found again."""
    more: list[Any] = []
    said: list[Any] = [transpose_b]
    for name, x in further.items():
        for value in x if name == "operands" and isinstance(x, tuple | list) else (x,):
            if hasattr(value, "data_ptr"):
                more.append(value)
                said.append(name)
            else:
                said.append((name, type(value), value))
    return (*tensors, *more), tuple(said)


def _number(name: str) -> int:
    return int(name.removeprefix("operand"))


def _number_of(name: str, value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"gemm: `{name}` is more than an f32 holds") from None


def _words() -> str:
    return "it takes a, b, out, transpose_b=, tune=, " + ", ".join(
        f"{n}=" for n in (*OTHERWISE, *OPERANDS)
    )


@dataclass(frozen=True)
class Options:
    """What a call of gemm says besides its arrays and numbers."""

    transpose_b: bool
    out_dtype: DType | None
    accumulate: DType
    activation: str
    row_sums: bool
    column_sums: bool
    epilogue: Callable[..., Any] | None

    @property
    def is_whole(self) -> bool:
        """Whether the product is looked at as it is: not transposed, and not as the rows of a larger one."""
        return self.epilogue is not None or self.row_sums or self.column_sums

    def check(self, extras: dict[str, Any], out: Any) -> None:
        """Raise unless what is asked for makes sense, whatever the arrays are."""
        if not isinstance(self.transpose_b, bool):
            kind = type(self.transpose_b).__name__
            raise ArgumentError(f"gemm: `transpose_b` must be True or False, not {kind}")
        if self.epilogue is None and any(name not in OPERANDS for name in extras):
            raise ArgumentError(
                "gemm: `operands` without `epilogue` have no meaning",
                help="they are passed to the function of `epilogue`, behind x and the place",
            )
        if self.epilogue is not None and not callable(self.epilogue):
            kind = type(self.epilogue).__name__
            raise ArgumentError(f"gemm: `epilogue` must be a function, not {kind}")
        check_activation("gemm", self.activation)
        for name, other in BESIDE:
            if name in extras and other not in extras:
                raise ArgumentError(f"gemm: `{name}` without `{other}` has no meaning")
        if "gate" in extras and "row_blocks" in extras and "gate_blocks" not in extras:
            raise ArgumentError("gemm: with `gate` and `row_blocks` there must be `gate_blocks`")
        if "beta" in extras and not isinstance(extras["beta"], int | float):
            kind = type(extras["beta"]).__name__
            raise ArgumentError(f"gemm: `beta` must be a number, not {kind}")
        if "beta" in extras and out is None:
            raise ArgumentError("gemm: `beta` scales what `out` holds, and there is no `out`")
        for name, dtype in (("accumulate", self.accumulate), ("out_dtype", self.out_dtype)):
            if not isinstance(dtype, DType) and (dtype is not None or name == "accumulate"):
                raise ArgumentError(f"gemm: `{name}` must be a dtype such as pk.f32, not {dtype!r}")

    def check_dtypes(self, p: Product) -> None:
        """Raise where sums or scales of blocks do not go with the dtypes of the operands."""
        dtype, sums = dtype_of(p.a).name, self.accumulate.name
        if sums != "f32" and (sums != "f16" or dtype != "f16"):
            raise ArgumentError(f"gemm: {dtype} is summed in f32, f16 also in f16, not in {sums}")
        if "row_blocks" in p.extras and dtype in NARROW:
            raise ArgumentError(f"gemm: `row_blocks` scale blocks of fp8, and `a` is {dtype}")

    def result_dtype(self, p: Product) -> str:
        """The dtype of the result: that of `out`, what was asked for, or that of the operands, bf16 for fp8."""
        asked = self.out_dtype.name if self.out_dtype is not None else None
        if p.out is not None:
            found = described(p.out).dtype
            if asked not in (None, found):
                raise ArgumentError(f"gemm: `out` is {found}, and `out_dtype` says {asked}")
            asked = found
        own = dtype_of(p.a).name
        asked = asked or (own if own in NARROW else "bf16")
        if asked not in RESULTS:
            known = f"{', '.join(RESULTS[:-1])} or {RESULTS[-1]}"
            raise ArgumentError(f"gemm: the result can be {known}, not {asked}")
        return asked


def dtype_of(array: Any) -> DType:
    """The dtype of an array that is known to have one of the language's."""
    return DTYPES[described(array).dtype]


def described(array: Any) -> Array:
    """What is known of a value that is an array."""
    found = describe(array)
    assert found is not None
    return found


PLAIN = Asked.of({})
