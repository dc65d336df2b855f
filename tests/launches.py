"""Launches of kernels that have no fault, at sizes the emulator runs in a moment; for tests/test_false_alarms.py.

Sizes are ragged, every block has several tasks, and more of them than its rings have stages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from examples.catalog import EXAMPLES, FOLDER, LADDER, Example, arrays
from pykittens.cli.arguments import load
from pykittens.emulate.finding import Finding, Level
from pykittens.kernels import gemm, grouped_gemm, grouped_gemm_k, rms_norm
from pykittens.kernels.attention import attention_blocks
from pykittens.kernels.attention.config import CONFIGS, AttentionConfig
from pykittens.kernels.epilogue import Epilogue
from pykittens.kernels.gemm.choose import ALONE
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.tiles import Form
from pykittens.kernels.library import Entry, load_all
from pykittens.runtime.arguments import Arguments
from pykittens.runtime.arguments import check as check_arguments
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.dtypes import DTYPES, DType, bf16, f16, f32, int32
from tests import kernels_by_hand, kernels_flight, kernels_in_order, kernels_pipeline
from tests.attention_operands import operands
from tests.gemm_problems import BLOCK_SCALES, Layout, Problem, arguments_of
from tests.kernels_cluster import cluster_matmul
from tests.kernels_matmul import VARIANTS, tiled_matmul
from tests.library import small_cases
from tests.templates import by_hand
from tests.templates import kernels as templates

Shape = tuple[int, ...]
# Blocks that share the tasks: fewer than the emulator's default, so that each has several.
BLOCKS = 2
# Smaller sizes for examples that take long at their own.
SHORTER = {
    "softmax": (20, 1000),
    "matmul_tile": (100, 200, 150),
    "matmul_pipeline": (100, 200, 330),
    "attention": (1, 2, 300, 32),
    "norm_rotary": (2, 100, 96),
    "prune": (70, 100),
}


@dataclass(frozen=True)
class Launch:
    """A call of a kernel: `make` makes its arguments, always the same."""

    name: str
    source: KernelFunction | Example
    make: Callable[[], tuple[Any, ...]]
    constants: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kernel(self) -> KernelFunction:
        """The kernel, of an example loaded when first asked for: its file may make operations."""
        if isinstance(self.source, Example):
            return _loaded(self.source.file, self.source.name)
        return self.source

    def arguments(self) -> Arguments:
        """The arguments, checked against the kernel's signature."""
        return check_arguments(self.kernel.parameters, self.make(), self.constants)

    def faults(self, found: list[Finding]) -> list[Finding]:
        """Findings that are more than notes."""
        return [f for f in found if f.level is not Level.NOTE]


@functools.cache
def launches(blocks: int = BLOCKS) -> dict[str, Launch]:
    """All of them by name, for this number of blocks that share the tasks."""
    made = (
        *library(blocks),
        *grouped(blocks),
        *examples(),
        *ladder(),
        *of_templates(blocks),
        *of_tests(blocks),
    )
    return {launch.name: launch for launch in made}


@functools.cache
def larger(blocks: int = BLOCKS) -> dict[str, Launch]:
    """More launches of the library, of more steps a task."""
    made = [
        *(product(name, blocks, 5, "-larger") for name in ("ABt", "sm_80", "sm_89")),
        *(product(name, blocks, 2) for name in PRODUCTS if name not in OFTEN),
        attend(CONFIGS[2], True, 2 * blocks, 500, 80, "-larger"),
        attend(CONFIGS[4], False, 3 * blocks, 250, 48, "-larger"),
    ]
    return {launch.name: launch for launch in made}


@functools.cache
def _loaded(file: str, name: str) -> KernelFunction:
    found: KernelFunction = getattr(load(FOLDER / file), name)
    return found


@functools.cache
def of_cases() -> dict[str, Launch]:
    """What every kernel of the library launches for its first small case."""
    made = {}
    for entry in load_all().values():
        given = entry.inputs(np.random.default_rng(0), **small_cases(entry)[0])
        for i, step in enumerate(entry.function.plan(**given).steps):
            make = functools.partial(_of_step, entry, given, i)
            name = f"case-{entry.name}-{step.kernel.__name__}"
            made[name] = Launch(name, step.kernel, make, dict(step.constants))
    return made


def _of_step(entry: Entry, given: dict[str, Any], i: int) -> tuple[Any, ...]:
    plan = entry.function.plan(**given)
    memory = plan.memory()
    for name in (*plan.scratch, *plan.arrays.made):
        if memory[name].dtype.kind != "i":
            memory[name][...] = np.nan
    for step in plan.steps[:i]:  # which leave what this one reads
        step.kernel(*(memory[name] for name in step.args), **step.constants)
    return tuple(memory[name] for name in plan.steps[i].args)


def normal(*shape: int, dtype: DType = bf16, seed: int = 0) -> Any:
    """Random normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype.numpy)


def nothing(*shape: int, dtype: DType = bf16) -> Any:
    """What an output holds before the launch."""
    return np.full(shape, np.nan, dtype.numpy)


def moved(*shapes: Shape, dtype: DType = bf16) -> Callable[[], tuple[Any, ...]]:
    """Random inputs, and an output of the last shape."""
    *inputs, output = shapes
    return lambda: (
        *(normal(*s, dtype=dtype, seed=i) for i, s in enumerate(inputs)),
        nothing(*output, dtype=dtype),
    )


# -- the library -------------------------------------------------------------------------------

SMALL = Config(64, 64, stages=2, consumers=1)
TWO = Config(128, 32, stages=2, out_cols=32)
FP8 = "e4m3", "e5m2"
EVERY = dict.fromkeys(("row_scale", "column_scale", "bias", "residual"), "bf16")

# Products in every partition of the library, with every kind of epilogue; the extents are those of `product`.
PRODUCTS = {
    name: Problem(0, 0, 0, config=config, **about)  # type: ignore[arg-type]
    for name, config, about in (
        ("ABt", Config(128, 256, stages=3, out_cols=256), {}),
        ("AB", Config(128, 256, stages=3, out_cols=128), {"transpose_b": False}),
        ("AtB", SMALL, {"transpose_b": False, "layouts": {"a": Layout(columns=True)}}),
        ("AtBt", SMALL, {"layouts": {"a": Layout(columns=True)}}),
        ("swap", Config(64, 16, stages=3, consumers=1, out_cols=16, swap=True), {"extras": EVERY}),
        ("turns", replace(TWO, turns=True), {"extras": EVERY, "activation": "gelu"}),
        ("two-outputs", Config(128, 48, stages=2, out_cols=16, out_stages=2), {}),
        ("cluster-rows", replace(TWO, cluster=2), {}),
        ("cluster-cols", replace(TWO, cluster=2, cluster_axis=1), {"transpose_b": False}),
        ("splits", replace(TWO, splits=3), {"activation": "silu"}),
        (
            "splits-swap",
            Config(64, 16, stages=2, consumers=1, out_cols=16, swap=True, splits=4),
            {},
        ),
        ("splits-turns", replace(TWO, splits=2, out_cols=16, turns=True), {}),
        ("gate", replace(TWO, out_cols=16), {"extras": EVERY | {"gate": "bf16"}}),
        ("blocks", replace(TWO, stages=3), {"dtypes": FP8, "extras": BLOCK_SCALES}),
        (
            "gated-blocks",
            SMALL,
            {
                "dtypes": FP8,
                "extras": BLOCK_SCALES | {"gate": "e5m2", "gate_blocks": "f32"},
                "activation": "silu",
            },
        ),
        ("sums", TWO, {"row_sums": True, "column_sums": True}),
        (
            "splits-beta",
            replace(SMALL, splits=2, out_cols=32),
            {"out": True, "numbers": {"beta": 0.5}},
        ),
        ("f16-sums", SMALL, {"dtypes": ("f16", "f16"), "accumulate": "f16", "out_dtype": "f32"}),
        ("sm_80", ALONE[0], {}),
        ("sm_89", ALONE[1], {}),
    )
}

# Those that are launched hundreds of times; the others are among the larger ones.
OFTEN = ("ABt", "AB", "swap", "turns", "cluster-rows", "splits", "gated-blocks", "sums")
OFTEN += ("sm_80", "sm_89")


def library(blocks: int, steps: int = 2) -> Iterator[Launch]:
    """Every configuration of every kernel of the library."""
    for name in OFTEN:
        yield product(name, blocks, steps)
    for config in CONFIGS:
        for causal in (False, True):
            length = steps * config.keys - 20
            heads = -(-blocks * (config.stages + 1) // -(-length // config.rows))
            yield attend(config, causal, heads, length)
    for rows, cols in ((9, 200), (3, 4200)):
        x, weight = (rows, cols), (cols,)
        yield Launch(
            f"rms_norm-{cols}",
            rms_norm.rms_norm_rows,
            lambda x=x, weight=weight: (*moved(x, weight, x, dtype=f32)(), 1e-6),
        )


def product(name: str, blocks: int, steps: int, ending: str = "") -> Launch:
    """A matrix product with more steps in all than a block has stages for, and with several tiles a block."""
    problem = PRODUCTS[name]
    c = problem.config
    assert c is not None
    own = DTYPES[problem.dtypes[0]].bytes
    m, n, k = c.rows * blocks - 28, c.cols * (c.stages + 1) - 9, c.depth // own * steps - 8
    if c.splits > 1:  # a block each
        m, n, k = c.rows * 2 - 28, c.cols * 2 - 9, c.depth // own * (c.stages + 1) * c.splits - 8
    m, n = (n, m) if c.swap else (m, n)
    problem = replace(problem, m=m, n=n, k=k)
    constants = arguments_of(problem.call(), c)[1]
    make = functools.partial(_of, problem)
    return Launch(f"gemm-{name}{ending}", gemm.gemm_tiles, make, constants)


def _of(problem: Problem) -> tuple[Any, ...]:
    """What the kernel of a product takes."""
    assert problem.config is not None
    return arguments_of(problem.call(), problem.config)[0]


def attend(
    config: AttentionConfig,
    causal: bool,
    heads: int,
    length: int,
    d: int = 32,
    ending: str = "",
) -> Launch:
    """Attention over a number of heads."""
    shape = (1, heads, length, d)
    name = (
        f"attention-{config.rows}x{config.keys}-{config.widest}-{config.stages}{'-causal' * causal}"
    )
    tensors, (more, form) = moved(*(shape,) * 4), operands(causal)
    constants = {"config": config, "form": form}
    return Launch(name + ending, attention_blocks, lambda: (*tensors(), *more), constants)


def grouped(blocks: int) -> Iterator[Launch]:
    """Grouped products: an empty group, ones that end inside a tile and at its end, and with a gate."""
    for config in (
        Config(128, 128, stages=3),
        Config(64, 64, stages=2, consumers=1, out_cols=32, band=2),
        Config(64, 64, depth=64, stages=3, consumers=1, out_cols=32, warpgroups=False),
    ):
        ends = [0, config.rows - 30, 2 * config.rows - 30, (2 + blocks) * config.rows - 7]
        rows, k, n = ends[-1], 2 * config.depth // 2 + 9, config.cols * 2 - 24
        size = f"{config.rows}x{config.cols}-{config.stages}"
        for way, names, transposed in (
            ("ABt", (), True),
            ("AB", ("bias",), False),
            ("gate", ("gate",), True),
        ):
            b = (4, n, k) if transposed else (4, k, n)
            operands = [b if name == "gate" else (4, n) for name in names]
            make = functools.partial(_grouped, ends, [(rows, k), b, (rows, n), *operands])
            form = Form(b_is_transposed=transposed, epilogue=Epilogue(names, "silu"))
            constants = {"form": form, "config": config}
            name = f"grouped_gemm-{size}-{way}"
            yield Launch(name, grouped_gemm.grouped_tiles, make, constants)
        make = functools.partial(_grouped, ends, [(rows, n), (rows, 40), (4, n, 40)])
        constants = {"form": Form(True, False), "config": config}
        yield Launch(f"grouped_gemm_k-{size}", grouped_gemm_k.grouped_k_tiles, make, constants)


def _grouped(ends: list[int], shapes: list[Shape]) -> tuple[Any, ...]:
    a, b, out, *operands = shapes
    others = (normal(*s, seed=i + 2) for i, s in enumerate(operands))
    offsets = np.array(ends, np.int32)
    return normal(*a), normal(*b, seed=1), nothing(*out), offsets, *others


# -- examples and templates --------------------------------------------------------------------


def examples() -> Iterator[Launch]:
    """What the files of examples/ run."""
    for example in EXAMPLES:
        sizes = SHORTER.get(example.name, example.small)
        make = functools.partial(_of_example, example, sizes)
        name = f"example-{example.title.replace(', ', '-').replace(' ', '-')}"
        yield Launch(name, example, make, example.constants)


def ladder() -> Iterator[Launch]:
    """The steps of examples/matmul_ladder/: small tiles, a large one a block, and several that blocks share out."""
    small, middle, shared_out = (60, 100, 150), (130, 140, 330), (130, 520, 150)
    for step, sizes in zip(LADDER, [small] * 2 + [middle] * 4 + [shared_out] * 2, strict=True):
        make = functools.partial(_of_example, step, sizes)
        yield Launch(step.title.replace(" ", "-"), step, make)


def _of_example(example: Example, sizes: Shape) -> tuple[Any, ...]:
    return tuple(arrays(example, sizes))


def of_templates(blocks: int) -> Iterator[Launch]:
    """The kernels on the template, and one of them by hand."""
    rows = 128 * blocks * 3 - 50

    def products() -> tuple[Any, ...]:
        outputs = nothing(rows, 192, dtype=f32), nothing(rows, 64, dtype=f32)
        return (normal(rows, 130), normal(130, 64, seed=1), *outputs)

    yield Launch("lcsf-products", templates.products, products)
    yield Launch("lcsf-rms_norm", templates.rms_norm, moved((rows, 100), (rows, 100)))
    yield Launch(
        "lcsf-straight",
        templates.straight,
        lambda: (normal(rows, 64), nothing(rows, 64, dtype=f32)),
    )
    yield Launch("rms_norm-by-hand", by_hand.rms_norm, moved((rows, 100), (rows, 100)))


# -- the kernels of the tests ------------------------------------------------------------------


def of_tests(blocks: int) -> Iterator[Launch]:
    """The kernels of tests/kernels_*.py."""
    yield Launch(
        "cluster",
        cluster_matmul,
        moved((500, 120), (256 * blocks + 8, 120), (500, 256 * blocks + 8)),
    )
    for way in kernels_flight.WAYS:
        yield Launch(f"flight-{way}", kernels_flight.carried_products, _carried, {"way": way})
    for name, tiles in VARIANTS.items():
        m, n = tiles.groups * tiles.rows * blocks - 28, tiles.cols * 2 - 8
        k = tiles.depth * max(2, tiles.stages // 2 + 1) - 8
        b = (n, k) if tiles.transposed else (k, n)
        make = moved((m, k), b, (m, n), dtype=f16 if tiles.half else bf16)
        yield Launch(f"tiles-{name}", tiled_matmul, make, {"tiles": tiles})
    yield from of_pipelines(blocks)
    yield from of_products_by_hand(blocks)
    yield from in_order(blocks)


def _carried() -> tuple[Any, ...]:
    return normal(190, 200), normal(190, 200, seed=1), nothing(190, 190, dtype=f32)


def of_pipelines(blocks: int) -> Iterator[Launch]:
    """Kernels that move tiles in every way a pipeline allows."""
    n = 64 * 4 * blocks - 14

    def batched() -> tuple[Any, ...]:
        x = np.arange(2 * blocks * 70 * 40, dtype=int32.numpy).reshape(2, 1, blocks, 70, 40)
        return x, np.zeros_like(x)

    pipelines = kernels_pipeline
    for kernel, make in (
        (pipelines.interleaved, moved((n, 60), (n, 60), (n, 60), dtype=f32)),
        (pipelines.by_parts, moved((n, 120), (n, 120))),
        (pipelines.two_fillers, moved((n, 64), (n, 128), dtype=f32)),
        (pipelines.mixed_fill, moved((n, 16), (n, 32))),
        (pipelines.taken_over, moved((120, 250), (120, 120))),
    ):
        yield Launch(f"pipeline-{kernel.parameters.name}", kernel, make)
    for name, order in pipelines.ORDERS.items():
        yield Launch(f"pipeline-batched-{name}", pipelines.batched, batched, {"order": order})


def of_products_by_hand(blocks: int) -> Iterator[Launch]:
    """The kernels of tests/kernels_by_hand.py: rings that wrap, of which not all stages are used alike."""
    kernels, f = kernels_by_hand, functools.partial(nothing, dtype=f32)

    def product(m: int, n: int, k: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (normal(m, k), normal(n, k, seed=1), f(m, n))

    for stages in (2, 3, 4):
        yield Launch(f"hand-ring-{stages}", kernels.ring, product(70, 40, 570), {"stages": stages})
    x = 64 * 7 - 14, 64
    yield Launch("hand-ring_to_ring", kernels.ring_to_ring, moved(x, x, dtype=f32))
    for kernel, make in (
        (kernels.ping_pong, product(128 * blocks + 70, 60, 100)),
        (kernels.stored_in_slices, product(64 * blocks + 6, 60, 130)),
        (kernels.depth_split_in_a_block, product(64 * blocks + 6, 60, 330)),
    ):
        yield Launch(f"hand-{kernel.parameters.name}", kernel, make)


def in_order(blocks: int) -> Iterator[Launch]:
    """The kernels of tests/kernels_in_order.py."""
    kernels, f = kernels_in_order, functools.partial(nothing, dtype=f32)

    def flags(count: int) -> Any:
        return np.zeros(count, np.int32)

    def split() -> tuple[Any, ...]:
        return normal(70, 400), normal(60, 400, seed=1), f(70, 60), flags(2)

    def neighbours() -> tuple[Any, ...]:
        return normal(300, 60, dtype=f32), f(300, 60), flags(5 + 2), 3

    def layers() -> tuple[Any, ...]:
        rows = 64 * 2 * blocks - 14
        weights = normal(64, 64, seed=1), normal(64, 64, seed=2)
        return (normal(rows, 64), *weights, nothing(rows, 64), f(rows, 64), flags(2 * blocks))

    def attention() -> tuple[Any, ...]:
        return normal(70, 64), normal(300, 64, seed=1), normal(300, 64, seed=2), f(70, 64)

    yield Launch("hand-split_depth", kernels.split_depth, split, {"parts": 2})
    yield Launch("hand-sums_with_neighbours", kernels.sums_with_neighbours, neighbours)
    yield Launch("hand-two_layers", kernels.two_layers, layers)
    yield Launch("hand-scores_ahead", kernels.scores_ahead, attention)
    yield Launch(
        "hand-one_query", kernels.one_query, moved((64,), (37, 64), (37, 64), (64,), dtype=f32)
    )
