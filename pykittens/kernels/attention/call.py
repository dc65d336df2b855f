"""Calls of attention: checks of the arguments, and what the kernels take."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.ir.numbers import number
from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.attention.config import AttentionConfig, AttentionForm
from pykittens.kernels.attention.packed import part_of
from pykittens.kernels.attention.visible import Interval, band
from pykittens.runtime.calls import element_name
from pykittens.runtime.fakes import known

LEAST, MOST = 2.0**-100, 2.0**100  # of factors of scores, so that products with them stay in f32
CAUSAL = (False, True, "top_left", "bottom_right")
SHAPES = {
    "q": "batch heads queries d",
    "k": "batch kv_heads keys d",
    "v": "batch kv_heads keys width",
    "out": "batch heads queries width",
    "lse": "batch heads queries",
    "sinks": "heads",
    "key_start": "batch queries",
    "key_stop": "batch queries",
    "query_start": "batch keys",
    "query_stop": "batch keys",
    "seed": "1",
}
BOUNDS = ("key_start", "key_stop")
NAMES = (
    *("lse", "key_start", "key_stop", "low", "high", "scale", "sinks", "gain", "dropout", "seed"),
    *("query_start", "query_stop", "section", "tickets", "flags"),
    *("splits", "arrivals", "partial", "partial_lse"),
)


class Call:
    """The arrays of a call of attention, checked, and the form of its kernels."""

    def __init__(self, function: str, given: dict[str, Any], tensors: tuple[Any, ...], **how: Any):
        if not isinstance(tensors, tuple | list) or any(x is None for x in tensors):
            wanted = "a tuple of arrays and numbers"
            raise ArgumentError(f"{function}: `tensors` must be {wanted}, not {tensors!r}")
        self.tensors = tuple(element_name("tensors", i) for i in range(len(tensors)))
        scale, dropout = number(how["scale"]), number(how["dropout"])
        elements = dict(zip(self.tensors, map(number, tensors), strict=True))
        self.arrays = Arrays(function, **given, **elements)
        check_shapes(self.arrays)
        check_numbers(self.arrays, scale, dropout)
        if scale is not None:
            self.add("scale", float(known(scale)))
        for name, x in bounds_of(self.arrays, how["causal"], how["window"]).items():
            self.add(name, x)
        if dropout is not None:
            self.add("dropout", float(known(dropout)))
            self.add("gain", 1 / (1 - known(dropout)))
        self.group = known(self.arrays.dims["heads"]) // known(self.arrays.dims["kv_heads"])
        self.score, self.gradient = how["score"], how.get("gradient")
        for name, of_scores in (("score", self.score), ("score_gradient", self.gradient)):
            if of_scores is not None and not callable(of_scores):
                raise self.arrays.fail(f"`{name}` must be a @pk.function, not {of_scores!r}")

    def add(self, name: str, x: Any) -> None:
        """Pass a number to the kernels."""
        self.arrays.number(name, x)

    @property
    def seen(self) -> Interval:
        """The keys that a query sees; bounds in tensors count as none."""
        return Interval(*(self.arrays.given.get(x) for x in ("low", "high")))

    def pack(self) -> None:
        """Let the heads of a group be queries of one head, if each has one query, whose number nothing needs.

        So they are as many as they like. Only the keys that the queries see are left.
        """
        arrays, dims = self.arrays, self.arrays.dims
        needs_position = self.score or any(x in arrays for x in ("sinks", "dropout", *BOUNDS))
        if self.group == 1 or dims["queries"] != 1 or needs_position:
            return
        low, high = (arrays.given.pop(x, None) for x in ("low", "high"))
        first = min(max(low or 0, 0), dims["keys"])
        dims["keys"] = max(dims["keys"] if high is None else min(high, dims["keys"]), first) - first
        for name in ("k", "v"):
            arrays.view(name, arrays.views[name][:, :, first : first + dims["keys"]])
        dims |= {"queries": self.group, "heads": dims["kv_heads"]}
        lead = dims["batch"], dims["heads"], self.group
        for name, width in (("q", dims["d"]), ("out", dims["width"])):
            arrays.reshape(name, (*lead, width))
        if "lse" in arrays.made:
            arrays.reshape("lse", lead)
        self.group = 1

    def packing(
        self, configs: tuple[AttentionConfig, ...]
    ) -> tuple[tuple[AttentionConfig, ...], int]:
        """The configurations, and the rows of a tile that each head of a group has; 0 if a tile has one head.

        Heads of a group share a tile if all of their queries fit and the function of scores permits it.
        """
        permits = self.score is None or getattr(self.score, "by_row", False)
        queries = known(self.arrays.dims["queries"])
        if self.group < 2 or not queries or not permits:
            return configs, 0
        parts = {c: part_of(c.rows, c.rows // c.consumers, self.group) for c in configs}
        config = min(configs, key=lambda c: (parts[c] < queries, c.rows))
        if parts[config] < queries:
            return configs, 0
        lead = self.arrays.dims["batch"], self.arrays.dims["kv_heads"]
        if "lse" in self.arrays.made:
            self.arrays.reshape("lse", (*lead, self.group * queries))
        return (config,), parts[config]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operands that follow the tensors of a kernel."""
        named = tuple(n for n in NAMES if n in self.arrays or n in self.arrays.made)
        return (*named, *self.tensors)

    def form(self, names: tuple[str, ...], packed: int = 0) -> AttentionForm:
        """The form of a kernel that takes operands of these names."""
        named = tuple(n for n in names if n not in self.tensors)
        return AttentionForm(named, self.group, self.score, self.gradient, packed)


def check_shapes(arrays: Arrays) -> str:
    """The dtype of q, k and v; raise unless the arrays that are given have shapes and dtypes that kernels take."""
    dims = arrays.shapes(**{name: SHAPES[name] for name in SHAPES if name not in ("out", "lse")})
    dtype = arrays.dtypes("q", "k", "v", "out", "gradient", among=NARROW)
    arrays.dtypes("sinks", among=("f32",))
    arrays.dtypes("key_start", "key_stop", "query_start", "query_stop", "seed", among=("int32",))
    for axis, name in (("d", "q and k"), ("width", "v")):
        n = dims[axis]
        if known(n) % 16 or not 16 <= known(n) <= 256:
            raise arrays.fail(
                f"{axis}, the last extent of {name}, must be a multiple of 16 from 16 to 256, not {n}",
                help="pad with columns of zeros, and pass the scale of the unpadded width",
            )
    heads, kv_heads = known(dims["heads"]), known(dims["kv_heads"])
    if kv_heads == 0 or heads % kv_heads:
        raise arrays.fail(
            f"the heads of q must be a multiple of those of k and v, not {heads} and {kv_heads}"
        )
    return dtype


def check_numbers(arrays: Arrays, scale: float | None, dropout: float | None) -> None:
    """Raise unless scale and dropout, if given, are numbers that kernels take."""
    if scale is not None and not (is_number(scale) and LEAST <= known(scale) <= MOST):
        raise arrays.fail(f"`scale` must be positive, from 2^-100 to 2^100, not {scale!r}")
    if dropout is None:
        return
    if not (is_number(dropout) and 0 <= known(dropout) < 1):
        raise arrays.fail(f"`dropout` must be from 0 to below 1, not {dropout!r}")
    if "seed" not in arrays:
        raise arrays.fail("`dropout` goes with `seed`, which is missing")


def is_number(x: Any) -> bool:
    """Whether this is a number, or a compiler's symbol of one, and no bool."""
    return isinstance(known(x), Real) and not isinstance(x, bool)


def bounds_of(arrays: Arrays, causal: Any, window: Any) -> dict[str, int]:
    """`low` and `high` of the keys that query i sees, from i + low to before i + high, where they are bounded."""
    if not any(causal is x or (isinstance(causal, str) and causal == x) for x in CAUSAL):
        raise arrays.fail(f"`causal` must be one of {CAUSAL}, not {causal!r}")
    left, right = (None, None) if window is None else _sides(arrays, window)
    if causal:
        right = 0 if right is None else min(right, 0)
    if any(x in arrays for x in BOUNDS):
        if left is not None or right is not None:
            raise arrays.fail("`causal` and `window` are part of `key_start` and `key_stop`")
        return {}
    queries, keys = known(arrays.dims["queries"]), known(arrays.dims["keys"])
    low, high = band(left, right, keys - queries if causal == "bottom_right" else 0)
    bounds = {"low": low, "high": high}
    return {n: max(-(2**30), min(x, 2**30)) for n, x in bounds.items() if x is not None}


def _sides(arrays: Arrays, window: Any) -> tuple[int | None, int | None]:
    is_pair = isinstance(window, tuple | list) and len(window) == 2
    if not is_pair or not all(x is None or isinstance(x, int | np.integer) for x in window):
        raise arrays.fail(
            f"`window` must be (left, right), each an int or None, not {window!r}",
            help="(1023, 0) is the query's own key and 1,023 before it",
        )
    return window[0], window[1]


@pk.kernel
def zeros(x):  # type: ignore[no-untyped-def]
    """x = 0, for a tensor of rank 1 or 4."""
    if len(x.shape) == 1:
        (i,) = pk.grid(pk.cdiv(x.shape[0], 64))
        pk.store(x[i], pk.zeros(x.dtype, 64))
    else:
        b, h, i = pk.grid(x.shape[0], x.shape[1], pk.cdiv(x.shape[2], 64))
        pk.store(x[b, h, i, 0], pk.zeros(x.dtype, 64, pk.static(x.shape[3])))


@pk.kernel
def see_nothing(O, *more):  # type: ignore[no-untyped-def]
    """What queries without a key have: 0, and a log-sum-exp of -inf, or their head's sink."""
    batch, heads, n, width = O.shape
    b, h, block = pk.grid(batch, heads, pk.cdiv(n, 64))
    pk.store(O[b, h, block, 0], pk.zeros(O.dtype, 64, pk.static(width)))
    if more:  # the log-sum-exp, and perhaps sinks
        of_e = pk.load(more[1][h]) if more[1:] else -pk.inf
        pk.store(more[0][b, h, block], pk.full(pk.f32, of_e, 64))
