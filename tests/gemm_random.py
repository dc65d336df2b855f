"""Random matrix products, each from a number: drawn, run, and compared with their exact results.

The number modulo `forms` decides the program that is compiled, the number itself the sizes and values. With a limit on
the forms, thousands of products on a GPU need only some hundreds of compilations.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from pykittens.kernels.gemm.choose import candidates, shared_bytes
from pykittens.kernels.gemm.config import Config, GemmShape
from pykittens.kernels.limits import Limits, limits_of
from pykittens.types.dtypes import DTYPES
from tests.gemm_bounds import Known, expected
from tests.gemm_problems import Layout, Problem, results

WIDE = ("bf16", "f16", "f32")
SCALES = ("row_scale", "column_scale", "bias")
# Extents, of which one class is taken for each of m, n and k.
SMALL = (
    (1,),
    (2, 5, 7, 8, 15, 16),
    (17, 33, 63, 64, 65),
    (100, 127, 128, 129, 160),
    (200, 250, 256, 300),
)
LARGE = (*SMALL, (333, 500, 512, 777), (1000, 1024, 1500, 2000))


def drawn(number: int, forms: int = 0, large: bool = False, numpy: bool = True) -> Problem:
    """The problem of a number. forms: how many forms there are, each of one or two programs; 0 for any number."""
    form = random.Random(f"form {number % forms if forms else number}")
    p = product(form, random.Random(f"sizes {number}"), large, numpy, bool(forms))
    return replace(p, seed=number)


def product(
    form: random.Random, sizes: random.Random, large: bool, numpy: bool, few_programs: bool
) -> Problem:
    """A product of a form and of sizes.

    large: extents up to 2000. numpy: layouts that only NumPy has are drawn, too. few_programs: products of one form
    differ in what their program does not depend on.
    """
    p = _multiplied(form)
    p = _after(form, p)
    p = replace(p, layouts=_layouts(form, p, numpy))
    p = _cut(form, p)
    p = _sized(sizes, form, p, large, few_programs)
    schedule = sizes.choice((0, 1, sizes.randrange(2, 1000)))
    return replace(p, schedule=schedule, seed=sizes.randrange(2**31))


def _multiplied(r: random.Random) -> Problem:
    """The operands and the dtypes of a product."""
    narrow = r.choice(("bf16", "bf16", "f16"))
    dtypes = (narrow, narrow) if r.random() < 0.6 else (r.choice(FP8), r.choice(FP8))
    results_ = ("bf16", "f16", "f32", "e4m3", "e5m2")
    lead = r.choice(((),) * 4 + ((2,), (3,), (2, 2), (2, 1, 2)))
    leads = r.choice(((lead, lead), (lead, ()), ((), lead), (lead, (1,) * len(lead))))
    return Problem(
        *(64, 64, 64),
        leads=leads,
        dtypes=dtypes,
        out_dtype=r.choice((None, None, r.choice(results_))),
        out=r.random() < 0.5,
        transpose_b=r.random() < 0.6,
        accumulate="f16" if dtypes[0] == "f16" and r.random() < 0.2 else "f32",
    )


FP8 = ("e4m3", "e5m2")


def _after(r: random.Random, p: Problem) -> Problem:
    """The epilogue: none in a third of the problems, any set of operands in the others."""
    if r.random() < 0.33:
        return p
    often = r.choice((0.15, 0.4, 0.8))

    def wanted(names: tuple[str, ...]) -> list[str]:
        return [name for name in names if r.random() < often]

    vectors = wanted(SCALES)
    numbers = {"alpha": r.choice((0.5, 2.0, -1.25, 0.0))} if wanted(("alpha",)) else {}
    if p.out and wanted(("beta",)):
        numbers["beta"] = r.choice((1.0, -0.5))
    if r.random() < 0.2 and p.dtypes[0] in FP8:
        vectors += ["row_blocks", "column_blocks"]
    if r.random() < 0.25:
        vectors += ["gate", *(f"gate_{n}" for n in wanted(("bias", "column_scale")))]
        vectors += ["gate_blocks"] if "row_blocks" in vectors else []
        numbers |= {"gate_alpha": 0.75} if wanted(("gate_alpha",)) else {}
    vectors += wanted(("residual",))
    extras = {name: "f32" if "blocks" in name else r.choice(WIDE) for name in vectors}
    if "gate" in extras:
        extras["gate"] = p.dtypes[1]
    function = "shifted" if r.random() < 0.15 else ""
    if function:
        extras |= {name: r.choice(WIDE) for name in ("row", "column", "tile")}
    return replace(
        p,
        extras=extras,
        numbers=numbers,
        arrays=tuple(n for n in numbers if n != "beta" and r.random() < 0.3),
        wide=r.random() < 0.3,
        activation=r.choice(("", "relu", "gelu", "silu")),
        function=function,
        row_sums=r.random() < 0.15,
        column_sums=r.random() < 0.15,
    )


def _layouts(r: random.Random, p: Problem, numpy: bool) -> dict[str, Layout]:
    """The layouts of the arrays: contiguous in half of the problems."""
    if r.random() < 0.5:
        return {}
    names = ["a", "b", "out", *p.extras]
    return {
        name: Layout(
            columns=r.random() < 0.3,
            lines=r.choice(("tight", "padded", "padded", "odd")),
            step=2 if r.random() < 0.07 else 1,
            exchanged=r.random() < 0.2 and (name != "out" or len(p.lead) < 3),
            repeated=name != "out" and r.random() < 0.05,
            backwards=numpy and r.random() < 0.07,
        )
        for name in names
        if r.random() < 0.6
    }


def _cut(r: random.Random, p: Problem) -> Problem:
    """The configuration: gemm's choice in a quarter of the problems, else a candidate, perhaps changed."""
    multiprocessors = r.choice((0, 3, 5, 7))
    if r.random() < 0.25:
        return replace(p, multiprocessors=multiprocessors)
    whole = p.row_sums or p.column_sums or bool(p.function)
    shape = GemmShape(
        *(r.choice((1, 16, 33, 128, 250)), r.choice((64, 300)), r.choice((64, 500)), 1),
        bytes=DTYPES[p.dtypes[0]].bytes,
        out_bytes=DTYPES[p.result].bytes,
        gated="gate" in p.extras,
        blocks="row_blocks" in p.extras,
        may_swap=not whole,
    )
    limits = limits_of(np.zeros(1))
    # Those with vectors are for few rows, which may not be drawn; they are picked often enough.
    found = [c for c in candidates(shape, limits) if not c.vectors]
    config = _changed(r, r.choice(found), shape, limits)
    return replace(p, config=config, multiprocessors=multiprocessors)


def _changed(r: random.Random, config: Config, shape: GemmShape, limits: Limits) -> Config:
    """A configuration with fewer stages, turns, clusters, more output stages, copied operands or other loaders."""
    changes: list[dict[str, Any]] = [{"stages": r.randrange(2, config.stages + 1)}, {"band": 1}]
    if config.consumers == 2:
        changes.append({"turns": True})
    if config.splits == 1:
        changes += [{"cluster": 2, "cluster_axis": axis} for axis in (0, 1)]
    changes += [{"out_stages": 2}, {"copied": r.choice((("a",), ("b",), ("a", "b")))}]
    # A product of more columns needs more registers than 512 threads start with.
    most = (2, 8, 16) if config.consumers == 1 else (2, 8) if config.cols <= 192 else (2,)
    changes += [{"loaders": r.choice(most)}]
    for change in changes:
        if r.random() < 0.25:
            made = replace(config, **change)
            if _fits(made, shape, limits):
                config = made
    return config


def _fits(config: Config, shape: GemmShape, limits: Limits) -> bool:
    return shared_bytes(config, shape) <= limits.shared_bytes


def _sized(
    r: random.Random, form: random.Random, p: Problem, large: bool, few_forms: bool
) -> Problem:
    """Extents.

    few_forms: all are even or all are odd, so that arrays of one form are aligned alike; where gemm picks a
    configuration, which the extents decide, a form has four of them.
    """
    is_even = form.random() < 0.6
    if p.config is None and few_forms:
        r = random.Random(f"{form.random()} {r.randrange(4)}")
    classes = LARGE if large and not p.lead else SMALL
    m, n, k = (r.choice(r.choice(classes)) for _ in range(3))
    if r.random() < 0.04:
        m, n, k = (0 if i == (empty := r.randrange(3)) else x for i, x in enumerate((m, n, k)))
    if few_forms:
        m, n, k = (-(-x // 16) * 16 if is_even else x - (x % 2 == 0 and x > 0) for x in (m, n, k))
    return replace(p, m=m, n=n, k=k)


# -- running ---------------------------------------------------------------------------------------


def fault_of(problem: Problem, memory: Any = None) -> str:
    """The fault in the result of a problem, empty if there is none.

    memory: moves memory to a GPU and back, as a pair of functions; None to stay on the CPU.
    """
    stored = problem.stored()
    to, back = memory or (lambda x: x, lambda x, like: x)
    memories = {name: to(x.memory) for name, x in stored.items()}
    before = {name: back(x, stored[name].memory).copy() for name, x in memories.items()}
    arrays = {name: x.view(memories[name]) for name, x in stored.items()}
    exact = expected(problem, arrays, memory is not None)
    try:
        found = results(problem, arrays)
    except Exception as fault:  # reported by the caller
        return f"{type(fault).__name__}: {fault}"
    if len(found) != len(exact):
        return f"{len(found)} results instead of {len(exact)}"
    for word, x, known in zip(("result", "sums", "sums"), found, exact, strict=False):
        if fault := _differs(x, known):
            return f"{word}: {fault}"
    for name, x in stored.items():
        after = back(memories[name], x.memory)
        if not (x.outside(after) == x.outside(before[name])).all():
            return f"memory around `{name}` was written"
    return ""


def _differs(found: Any, known: Known) -> str:
    """The elements of a result whose error exceeds the bound; NaN does."""
    if tuple(found.shape) != tuple(known.value.shape):
        return f"the shape is {tuple(found.shape)} instead of {tuple(known.value.shape)}"
    wide = found.astype(np.float64) if isinstance(found, np.ndarray) else found.double()
    wrong = ~(abs(wide - known.value) <= known.error)
    if not wrong.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(np.asarray(wrong.tolist()))[0])
    return (
        f"{int(wrong.sum())} of {wrong.size if isinstance(wrong, np.ndarray) else wrong.numel()} elements are wrong; "
        f"at {index}: {float(wide[index])} instead of {float(known.value[index])}, bound {float(known.error[index])}"
    )
